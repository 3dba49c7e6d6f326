"""Sketched kernel classification, binary and one against the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from nbsketch.estimators._base import SketchedModel, check_weights
from nbsketch.fitting.objectives import Objective, ScalarObjective
from nbsketch.losses import LogisticLoss, as_loss


def _has_probabilities(model: SketchedKernelClassifier) -> bool:
    if isinstance(as_loss(model.loss), LogisticLoss):
        return True
    raise AttributeError("predict_proba needs loss='logistic'")


class SketchedKernelClassifier(ClassifierMixin, SketchedModel):
    r"""Sketched kernel machine for classes: hinge, squared hinge or logistic loss.

    .. math:: \min_{f, b} \frac{1}{n} \sum_i w_i\, \ell(y_i (f(x_i) + b))
              + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j (S^T g)_j\, k(\cdot, x_j)

    over the s rows of a random sketch S, with labels y in {-1, +1}; with more than two
    classes, one such problem for each class against the rest, on the same features.

    Parameters
    ----------
    kernel : str, Kernel or callable
        "auto" (Matern 3/2 where length-scales are learned, else Gaussian), "gaussian",
        "laplacian", "matern", "polynomial", "linear", "sobolev", "tanimoto",
        "gaussian-tanimoto", "precomputed", a kernel object or a function k(X, Y).
    bandwidth : float, sequence of floats, "median" or "auto", optional
        Bandwidth of a kernel that is given by name. "auto" learns a length-scale for
        each feature of dense X, for the kernels "auto", "gaussian" and "matern" and
        from 30 rows on; with fewer it is "median". The default is "auto" for these
        kernels and dense X, "median" elsewhere.
    preprocessing : {"auto", "standard", "rank", "both"} or None
        What the kernel sees: standardized features, scores of their ranks, or both.
        "auto" is "both" where length-scales are learned, and X itself elsewhere. None
        is X itself.
    loss : {"hinge", "squared-hinge", "logistic"} or Loss
        Loss of the margin. The logistic loss gives probabilities.
    sketch : str or SketchRecipe
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "accumulation", "countsketch", "sparse-jl", "srht", "identity", or a recipe.
    size : int, AutoSize or "auto", optional
        Number of rows s of a sketch that is given by name, or how it is to be chosen.
        By default 500 or n if that is smaller, and for k classes and n k > 24 000 so
        many (at least 100) that n k s^2 stays the same; k counts as one for two.
    alpha : float, optional
        Positive penalty, the same for all classes. By default the one of least loss on
        a fifth of the rows, held out at random, along a path of penalties.
    fit_intercept : bool
        Whether the constant b is free; it is not penalized.
    solver : {"auto", "adam", "sgd"} or StochasticSolver
        "auto" is a certified Newton method; the stochastic methods are the papers' own.
    tol : float
        Stop when the objective is certified to be within this share of the minimum.
        1e-4 is enough for prediction.
    max_iter : int
        Largest number of iterations.
    random_state : None, int or Generator
        The same number gives the same model: the same sketch at any number of threads,
        and predictions that agree to rounding.
    verbose : int
        Whether to show how the solver gets on.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels.
    coef_ : ndarray of shape (s,) or (s, c)
        Coefficients of the sketched kernel functions; (s, c) for c > 2 classes.
    intercept_ : float or ndarray of shape (c,)
        The constant b.
    landmarks_ : ndarray or csr_array of shape (s', p)
        The training rows that prediction needs, as the kernel sees them; no others are
        kept.
    kernel_, sketch_ : Kernel, Sketch
        The kernel with its bandwidth set, and the drawn sketch.
    scaler_, length_scales_, bandwidth_, size_, size_path_, alpha_, rank_, objective_,
    dual_gap_, n_iter_, n_features_in_
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

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        bandwidth: Any = None,
        preprocessing: str | None = "auto",
        loss: Any = "hinge",
        sketch: Any = "p-sparsified",
        size: Any = None,
        alpha: float | None = None,
        fit_intercept: bool = True,
        solver: Any = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.preprocessing = preprocessing
        self.loss = loss
        self.sketch = sketch
        self.size = size
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> SketchedKernelClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, q)
            Training rows, dense or sparse; float32 stays float32.
        y : array of shape (n,)
            Labels, numbers or strings, of at least two classes.
        sample_weight : array of shape (n,), optional
            Non-negative weights.
        """
        return self._fit(X, y, sample_weight)

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[NDArray, Objective]:
        loss = as_loss(self.loss)
        if not loss.is_classification:
            raise ValueError(f"`loss` must be a loss of margins, got {loss!r}")
        X, y = self._check_X_y(X, y)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"`y` must hold at least two classes, got {count} class")
        columns = np.array([1]) if count == 2 else np.arange(count)
        signs = np.where(index[:, None] == columns, 1.0, -1.0)
        weights = check_weights(sample_weight, X)
        return X, ScalarObjective(signs, weights, self.fit_intercept, loss)

    def _finish(self, objective: Objective) -> None:
        if len(self.classes_) == 2:
            self._flatten()

    def decision_function(self, X: ArrayLike) -> NDArray:
        """Return f(X) + b: (n,) for two classes, positive for the second, or (n, c)."""
        return self._decision(X)

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the label of each row of X, of shape (n,)."""
        scores = self._decision(X)
        index = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index.astype(np.intp)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: ArrayLike) -> NDArray:
        """Return the probability of each class, of shape (n, c).

        With more than two classes: those against the rest, scaled to sum to one.
        """
        chances = expit(self._decision(X))
        if chances.ndim == 1:
            return np.column_stack([1 - chances, chances])
        # A row that no class wants goes to all of them alike.
        chances = np.maximum(chances, np.finfo(chances.dtype).tiny)
        return chances / chances.sum(axis=1, keepdims=True)
