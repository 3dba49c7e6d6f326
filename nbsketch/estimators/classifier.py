"""Sketched kernel classification, binary and one-vs-rest."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.utils.multiclass import check_classification_targets

from nbsketch._report.validation import declares_parameters, explaining, warn
from nbsketch.estimators._base import ClassifierScore, IterativeModel
from nbsketch.fitting.objective import Problem
from nbsketch.fitting.objectives import ScalarObjective
from nbsketch.fitting.plan import Plan
from nbsketch.fitting.sketched import SketchedData
from nbsketch.losses import LogisticLoss, Loss, as_loss, fitted_loss
from nbsketch.rows.class_weights import columns_of_classes, weights_of_classes
from nbsketch.rows.inputs import TrainingRows, available_where, row_by_row, rowwise
from nbsketch.solvers.left_out import Folds


def _has_probabilities(model: Any) -> bool:
    if isinstance(fitted_loss(model), LogisticLoss):
        return True
    raise AttributeError(
        f"`loss` must be 'logistic' for probabilities, got {model.loss!r}"
    )


@declares_parameters
class OneVsRest(ClassifierScore):
    """Mixin of kernel classifiers: one one-vs-rest column per class.

    Two classes use a single column, positive for the second class.
    """

    loss: Any = "hinge"
    class_weight: Any = None
    fit_intercept: bool = True

    def _weigh(self, y: NDArray, weights: NDArray | None) -> NDArray | None:
        """Return sample weights times class weights."""
        with explaining({"y": y}, labels=True):
            check_classification_targets(y)
        classes = getattr(self, "classes_", None)
        return weights_of_classes(self.class_weight, y, weights, classes)

    def _set_classes(self, y: NDArray) -> None:
        """Set `classes_` to the sorted distinct labels."""
        self.classes_ = np.unique(y)
        self.loss_ = self._margin_loss()
        columns_of_classes(self.classes_)

    def _signs(self, y: NDArray, name: str = "y") -> NDArray:
        """Return -1 or 1 for each sample and class (one column for two classes).

        Error messages call the labels `name`.
        """
        classes = self.classes_
        if not np.isin(y, classes).all():
            others = np.setdiff1d(y, classes)[:5].tolist()
            hint = ": pass all classes of a stream to its first call"
            raise ValueError(
                f"`{name}` must hold the classes {classes.tolist()}, got {others}"
                + hint * (name == "y")
            )
        index = np.searchsorted(classes, y)
        return np.where(index[:, None] == columns_of_classes(classes), 1.0, -1.0)

    def _folds(self, rows: TrainingRows, groups: Any) -> Folds | None:
        """Return the validation folds of `cv`; each class keeps training samples."""
        labels = rows.y
        if labels.ndim == 2:  # one-vs-rest signs of a stochastic fit
            signs = labels if labels.shape[1] > 1 else np.hstack([-labels, labels])
            labels = self.classes_[signs.argmax(axis=1)]
        return super()._folds(rows._replace(y=labels), groups)

    def _margin_loss(self) -> Loss:
        """Return the loss after checking that it is a margin loss."""
        loss = as_loss(self.loss)
        if not loss.is_classification:
            raise ValueError(
                "`loss` must be a margin loss, such as 'hinge', 'squared-hinge' and "
                f"'logistic', got {loss!r}"
            )
        return loss

    def _objective(self, Y: NDArray, weights: NDArray | None) -> ScalarObjective:
        return ScalarObjective(Y, weights, self.fit_intercept, self._margin_loss())

    @rowwise(row_by_row)
    def decision_function(self, X: ArrayLike) -> NDArray:
        """Return f(X) + b: (n,) for two classes, positive for the second, or (n, c)."""
        return self._decision(X)

    @rowwise(row_by_row)
    def predict(self, X: ArrayLike) -> NDArray:
        """Return the predicted labels for X, of shape (n,)."""
        scores = self._decision(X)
        index = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index.astype(np.intp)]

    @available_where(_has_probabilities)
    @rowwise(row_by_row)
    def predict_proba(self, X: ArrayLike) -> NDArray:
        """Return the class probabilities, of shape (n, c).

        For more than two classes, one-vs-rest probabilities normalized to sum to one.
        """
        return np.exp(self.predict_log_proba(X))

    @available_where(_has_probabilities)
    @rowwise(row_by_row)
    def predict_log_proba(self, X: ArrayLike) -> NDArray:
        """Return the logarithm of the class probabilities, of shape (n, c).

        The values are finite even where `predict_proba` rounds to 0.
        """
        scores = self._decision(X)
        if scores.ndim == 1:
            return log_expit(np.column_stack([-scores, scores]))
        return log_softmax(log_expit(scores), axis=1)


@declares_parameters
class SketchedKernelClassifier(OneVsRest, IterativeModel):
    r"""Sketched kernel classifier with the hinge, squared hinge or logistic loss.

    .. math:: \min_{f, b} \frac{1}{n} \sum_i w_i\, \ell(y_i (f(x_i) + b))
              + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j (S^T g)_j\, k(\cdot, x_j)

    over the s rows of a random sketch S, with labels y in {-1, +1}. More than two
    classes are solved one-vs-rest, on the same features.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="auto"
        "auto" (Matern 3/2 if length scales are learned, else Gaussian), "gaussian",
        "laplacian", "matern", "polynomial", "linear", "sobolev", "tanimoto",
        "gaussian-tanimoto", "precomputed", a kernel object or a function k(X, Y).
    bandwidth : float, sequence of floats, "median", "auto" or None, default=None
        Bandwidth of a kernel given by name. "auto" learns one length scale per feature,
        for dense X and the kernels "auto", "gaussian", "laplacian" and "matern"; with
        fewer than 30 samples it falls back to "median". None: "auto" if possible, else
        "median".
    preprocessing : {"auto", "standard", "rank", "both"} or None, default="auto"
        Preprocessing applied before the kernel: "standard" (zero mean, unit variance),
        "rank" (standardized ranks of the values) or "both" side by side. "auto": "both"
        if length scales are learned, else no preprocessing. None: no preprocessing.
    loss : {"hinge", "squared-hinge", "logistic"} or Loss, default="hinge"
        Loss of the margin. Only the logistic loss provides probabilities.
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "rpcholesky", "accumulation", "countsketch", "sparse-jl", "srht", "identity", or
        a recipe. None: no sketch (all samples) if `size` is None and the default size
        is n, else "subsampling": a prediction then costs `size` kernel values.
    size : int, AutoSize, "auto" or None, default=None
        Number of rows s of a sketch given by name; "auto" doubles it until the held-out
        loss stops improving. Default for stationary kernels of dense samples with
        ``sketch=None``, ``cv=None`` and at most four classes: n up to 5100 samples with
        the hinge loss and 8100 with the others (fewer for three and four classes).
        Otherwise min(n, 500), reduced above n k = 200,000 (k > 2 classes) or n =
        200,000 (two classes) so that n k s^2 is constant (never below 100); `fit` warns
        if it is below the number of classes. If this gives n, a sketch given by name
        has n / 2 rows.
    alpha : float or None, default=None
        Penalty (> 0), the same for all classes. None: the penalty with the lowest loss
        on a random fifth of the samples (five random folds for at most 500 samples),
        along a path of penalties. Without a sketch and with more than 500 samples,
        models of at most 1600 samples are scored on a third of the samples, at most
        1600. For more than two classes with r classes > 1000, where r is the number of
        features, the path uses a third of the features (at most 200) and at most 8000
        samples; the penalty is then corrected by the ratio of the best ridge penalties
        of both problems.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Samples left out together when length scales, `size` or `alpha` are chosen.
        None: leave-one-out for length scales, a random fifth of the samples otherwise.
        An integer: that many contiguous blocks of samples (or of whole groups), for
        samples that depend on their neighbors. Scikit-learn splitters and (train, test)
        indices are used unchanged.
    class_weight : None, "balanced" or dict, default=None
        Class weights, multiplied with the sample weights. "balanced": n divided by the
        number of classes and by the number of samples in the class, counted by sample
        weights. A dict maps labels to weights; missing labels have weight 1. None:
        equal weights.
    fit_intercept : bool, default=True
        Whether to fit the intercept b, which is not penalized.
    solver : {"auto", "adam", "sgd"} or StochasticSolver, default="auto"
        "auto" is a certified Newton method. "adam" and "sgd" are stochastic solvers for
        repeating experiments of the papers.
    tol : float, default=1e-6
        Relative tolerance: stop when the objective is certified to be within this share
        of the minimum. 1e-4 is enough for prediction. The tolerance is raised to at
        least 1e-4 (hinge loss: 1e-2) if all of more than 2000 samples are used, and to
        at least 1e-3 for large sketches with a given `alpha` and a smooth loss;
        `summary` then reports it.
    max_iter : int, default=1000
        Maximum number of iterations of the solver. A penalty that a fit to more than
        2000 samples chooses has at most 200 passes (60 steps on all samples).
    max_seconds : float or None, default=None
        Time limit of a fit. With more than 1500 samples and neither `sketch` nor
        `size`, the largest sketch that fits the time is used; the search for length
        scales and the solver respect the limit. The model then depends on the speed of
        the computer. None: no limit.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results: the sketch is identical for any number of
        threads, predictions agree up to rounding.
    verbose : int, default=0
        If positive, display progress: one line in a terminal or notebook, one line
        every ten seconds in a log file.
    callback : callable or None, default=None
        Called as ``callback(state)`` with a `FitState` during the fit. If it returns
        true, the fit stops early and keeps the current model. Not saved with the model.
        None: no callback.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Sorted class labels.
    coef_ : ndarray of shape (s,) or (s, c)
        Coefficients of the sketched kernel functions; (s, c) for c > 2 classes.
    intercept_ : float or ndarray of shape (c,)
        Intercept b.
    loss_ : Loss
        Loss of the last fit.
    landmarks_ : ndarray or csr_array of shape (s', p)
        Preprocessed training samples needed for prediction; no others are kept.
    kernel_, sketch_ : Kernel, Sketch
        Kernel with its bandwidth set, and the drawn sketch.
    scaler_, length_scales_, bandwidth_, size_, size_path_, alpha_, rank_, objective_,
    dual_gap_, n_iter_, n_copies_, n_features_in_
        As in `SketchedKernelRegressor`; the objective is summed over the classes.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelClassifier
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> inside = np.linalg.norm(X, axis=1) < 1
    >>> model = SketchedKernelClassifier(size=50, random_state=0).fit(X, inside)
    >>> model.predict([[0.0, 0.0], [2.0, 2.0]]).tolist()
    [True, False]
    """

    def prepare(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Problem:
        """Check parameters and data; return the problem to solve."""
        plan = Plan.of(self)
        self._margin_loss()
        self.__dict__.pop("classes_", None)
        rows = self._check_training(X, y, sample_weight)
        self._set_classes(rows.y)
        objective = replace(
            self._objective(self._signs(rows.y), rows.relative_weights),
            folds=self._folds(rows, groups),
        )
        single = len(self.classes_) == 2
        return Problem(rows.X, objective, plan, single, kept=rows.kept)

    def _complete(self, problem: Problem, data: SketchedData) -> None:
        count = len(self.classes_)
        is_small = self.size_ < count and not data.sketch_map.is_columns
        if self.size is None and self.sketch is None and is_small:
            warn(
                f"the default sketch has {self.size_} landmarks for {count} classes, "
                "so some classes have none and may never be predicted: pass size="
                f"{min(count, len(problem.objective.targets))} or more, for a slower "
                "fit"
            )
