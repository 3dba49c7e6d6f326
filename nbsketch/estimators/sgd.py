"""Estimators by stochastic gradient descent on a sketched subspace; streams."""

import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import column_or_1d

from nbsketch._report import validation
from nbsketch._report.progress import report
from nbsketch._sketch_map import SketchMap
from nbsketch.estimators import _base
from nbsketch.estimators.classifier import OneVsRest
from nbsketch.fitting.callbacks import watched_fit
from nbsketch.fitting.descent import Descended, DescentSettings, FeatureSample, descend
from nbsketch.fitting.lost_columns import warn_of_lost_squares
from nbsketch.fitting.objective import Problem
from nbsketch.fitting.objectives import loss_at, regression_objective
from nbsketch.fitting.plan import Plan, stochastic_size
from nbsketch.fitting.sketched import Inputs, SketchedData, sketch_rows
from nbsketch.losses import fitted_loss
from nbsketch.rows.inputs import (
    TrainingRows,
    in_blocks,
    is_pairwise,
    labels_of,
    model_dtype,
)
from nbsketch.solvers.sgm import StreamState, squared_norms

# Default sketch size for streams, whose length is unknown.
_STREAM_SIZE = 500
# Below this number of samples, a stream redraws its sketch and relearns length scales
# as more samples arrive.
_FEWEST_ROWS = 30
# Parameters that the first samples of a stream fix.
_FIXED = (
    "kernel",
    "bandwidth",
    "preprocessing",
    "sketch",
    "size",
    "loss",
    "fit_intercept",
)


def _comparable(value: Any) -> Any:
    """Return a parameter as numbers, names or None, which are equal in a copy.

    Other objects are texts without their address.
    """
    plain = np.asarray(value).tolist()
    if isinstance(plain, str | int | float | list | None):
        return plain
    return re.sub(r" at 0x\w+", "", str(getattr(value, "__qualname__", value)))


@validation.declares_parameters
class DescentModel(_base.KernelExpansion):
    """Base of the estimators by stochastic gradients.

    A subclass checks the data and defines the objective.
    """

    # Mean loss above which a stream has diverged, given the samples so far.
    _limit = 0.0

    loss: Any = "square"
    step: float | None = None
    batch_size: int | None = None
    n_epochs: int | None = None
    regime: str | None = None
    source: float = 0.5
    capacity: float = 1.0
    average: bool = True
    early_stopping: bool = False
    validation_fraction: float = 0.1

    @abstractmethod
    def _rows(self, X: Any, y: Any, sample_weight: Any, **options: Any) -> TrainingRows:
        """Check samples for a new model or a stream; return them with y (n, d)."""

    @abstractmethod
    def _objective(self, Y: NDArray, weights: NDArray | None) -> Any:
        """Return the objective for targets (n, d)."""

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit a new model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, q)
            Training samples; float32 is kept. Memory-mapped arrays, Dask arrays and
            Dask data frames are not copied; their features are stored in memory, or in
            a scratch file above the memory limit.
        y : array of shape (n,) or (n, d)
            Targets; labels of shape (n,) for a classifier.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        groups : array of shape (n,) or None, default=None
            Group label of each sample, for `cv`.
        X_val, y_val : arrays or None, default=None
            Validation samples for early stopping. None: a random part of X is held out.
        """
        with watched_fit(self):
            for name in ("classes_", "_held"):
                self.__dict__.pop(name, None)  # from an earlier fit
            rows = self._rows(X, y, sample_weight)
            objective = replace(
                self._objective(rows.y, rows.relative_weights),
                folds=self._folds(rows, groups),
            )
            validation = self._validation(rows.X, rows.y, X_val, y_val)
            held_out = self._n_held_out(objective, validation)
            descent = self._descent(len(rows.y) - held_out)
            data = self._sketch(rows, objective, stochastic_size(len(rows.y)))
            self._publish(data, descend(descent, objective, data, held_out, validation))
            warn_of_lost_squares(self, data.rows, objective)
            return self

    def partial_fit_chunks(self, chunks: Iterable[tuple]) -> Self:
        """Pass once over the chunks of an iterator: `partial_fit` of each, in order.

        If a chunk raises an error, the model is restored to its state before the call.
        If `callback` returns true, no more chunks are read.

        Parameters
        ----------
        chunks : iterable of tuples
            (X, y) or (X, y, sample_weight) as in `partial_fit`: arrays, data frames or
            Arrow record batches. One chunk is in memory at a time.
        """
        with watched_fit(self):
            for chunk in chunks:
                if not isinstance(chunk, tuple) or len(chunk) not in (2, 3):
                    raise TypeError(
                        "`chunks` must yield tuples (X, y) or (X, y, sample_weight), "
                        f"got {type(chunk).__name__}"
                    )
                self._follow(*chunk)
                if report("steps", iteration=self.n_steps_):
                    break
        return self

    def _follow(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Pass once over samples; the first ones initialize the model."""
        self._check_stream()
        first = not hasattr(self, "coef_")
        options = {"is_stream": True}
        if not first:  # they must match the first samples
            self._check_fixed()
            options |= {"dtype": model_dtype(self.landmarks_), "reset": False}
        rows = self._rows(X, y, sample_weight, **options)
        held = self.__dict__.pop("_held", None)
        if first:
            return self._begin(rows)
        if held is not None:
            before = len(held.y)
            held = held.joined(rows)
            count = len(held.y)
            # The sketch is redrawn whenever the count passes a power of two.
            doubles = count.bit_length() > before.bit_length()
            if doubles or count >= self._fewest_rows():
                return self._begin(held)
            self._held = held
        objective = self._objective(rows.y, rows.weights)
        return self._pass(self._descent(len(rows.y)), rows, objective, self._fixed())

    def _check_fixed(self) -> None:
        """Raise an error if a parameter has changed that the first samples fix."""
        settings = {name: _comparable(getattr(self, name)) for name in _FIXED}
        before = self.__dict__.setdefault("_first_settings", settings)
        for name, value in settings.items():
            if value != before.get(name):
                raise ValueError(
                    f"`{name}` must be {before.get(name)} as in the first call of this "
                    f"stream, got {value}: call `fit`, or clone the model, to change it"
                )

    def _fewest_rows(self) -> int:
        """Return the number of samples after which the sketch is final."""
        if is_pairwise(self.kernel):
            return 0  # the columns are fixed by the first call
        size = getattr(self.sketch, "size", self.size)
        return max(_FEWEST_ROWS, size or _STREAM_SIZE)

    def _begin(self, rows: TrainingRows) -> Self:
        """Initialize the model from the first samples; keep them if there are few."""
        is_short = len(rows.y) < self._fewest_rows()
        if is_short:
            self._held = rows
        objective = self._objective(rows.y, rows.weights)
        descent = self._descent(len(rows.y))
        size = min(_STREAM_SIZE, len(rows.y))
        data = self._sketch(rows, objective, size, is_stream=True)
        if not is_short and not data.sketch_map.is_columns:
            self._warn_of_constants(rows)
        if descent.is_preconditioned(data):
            return self._publish(data, descend(descent, objective, data, 0, None))
        self._open_stream(descent, objective, data)
        return self._pass(descent, rows, objective, data)

    def _warn_of_constants(self, rows: TrainingRows) -> None:
        """Warn if y or a column is constant in the first samples of a stream."""
        if sp.issparse(rows.X) or is_pairwise(self.kernel):
            return
        names = getattr(self, "feature_names_in_", None)
        index = np.flatnonzero(~validation.varying_features(rows.X))
        constants = [validation.listed("column", index, names)] * bool(len(index))
        constants += ["`y`"] * bool(np.ptp(rows.y, axis=0).max() == 0)
        if constants:
            validation.warn(
                f"{' and '.join(constants)} had only one value in the first "
                f"{len(rows.y)} samples of the stream, from which the model takes its "
                "landmarks and length scales, so it learns little from later changes: "
                "pass shuffled or more samples to the first call"
            )

    def _validation(
        self, X: Any, Y: NDArray, X_val: Any, y_val: Any
    ) -> tuple[Any, NDArray] | None:
        """Check the early stopping parameters; return the given validation samples."""
        validation.check_choice("early_stopping", self.early_stopping, [False, True])
        validation.check_level("validation_fraction", self.validation_fraction)
        others = self._check_validation(X, Y, X_val, y_val)
        if others is not None and not self.early_stopping:
            raise ValueError("`early_stopping` must be True with `X_val`, got False")
        return others

    def _n_held_out(self, objective: Any, validation: Any) -> int:
        """Return the number of samples that early stopping holds out."""
        if not self.early_stopping or validation is not None:
            return 0
        n = len(objective.targets)
        if objective.folds is not None:
            return len(objective.folds[-1].removed)
        if n < 2:
            raise ValueError(
                "`early_stopping` needs at least two samples of positive weight, got "
                f"{n}: pass more samples or early_stopping=False"
            )
        return min(max(round(self.validation_fraction * n), 1), n - 1)

    def _descent(self, n: int) -> DescentSettings:
        given = {f.name for f in fields(DescentSettings)} & self.get_params().keys()
        return DescentSettings(**{name: getattr(self, name) for name in given}).resolve(
            n
        )

    def _sketch(
        self,
        rows: TrainingRows,
        objective: Any,
        default_size: int,
        *,
        is_stream: bool = False,
    ) -> SketchedData:
        """Prepare the samples, learn length scales if requested, and draw the sketch.

        The sketch of a stream has at most as many rows as samples have arrived.
        """
        plan = Plan.of(self, alpha=self.alpha or None)
        plan.check_size_is_fixed()
        self.__dict__.pop("_first_settings", None)
        self._check_fixed()
        plan = plan.within(len(rows.y)) if is_stream else plan
        problem = Problem(rows.X, objective, plan, self._one_target, kept=rows.kept)
        return sketch_rows(problem, default_size, is_stream=is_stream)

    def _check_stream(self) -> None:
        if self.regime is not None or self.early_stopping:
            raise ValueError(
                "`regime` must be None and `early_stopping` False in partial_fit, got "
                f"{self.regime!r} and {self.early_stopping!r}: a stream has no end"
            )

    def _publish(self, data: SketchedData, result: Descended) -> Self:
        """Set the fitted attributes, and the state that a stream continues from."""
        Z = result.sample.Z
        best = result.iterate
        fitted = result.descent
        self._seed = int(data.rng.integers(2**62))
        self._projection = result.projection
        self.path_ = result.path
        self._preconditioning = fitted.preconditioning
        self.alpha_ = fitted.alpha
        self._limit = result.sample.limit()
        largest = fitted.square_norm or float(squared_norms(Z).max())
        point = np.column_stack([best.coef.T, best.intercept])
        count = len(Z) if self.average else 0
        state = StreamState.after(point, count, largest)
        self._set_stream(best.coef, best.intercept, data, state)
        self.n_steps_ = best.n_steps
        passes = best.n_steps * fitted.batch_size / len(Z)
        self.n_iter_ = max(1, round(passes))
        return self

    def _open_stream(
        self, descent: DescentSettings, objective: Any, data: SketchedData
    ) -> None:
        """Set what is fixed in a stream, before its first step."""
        self._seed = int(data.rng.integers(2**62))
        if data.sketch_map.is_columns:  # including columns that are zero so far
            projection = np.eye(data.sketch.shape[0])
        else:
            projection, _ = data.design(keep=False)
        X = data.rows
        subset = X[np.arange(0, X.shape[0], 1 + X.shape[0] // _STREAM_SIZE)]
        Z = data.sketch_map.times(subset, projection)
        self._projection, descent = descent.standardized(projection, Z, data, objective)
        self._stream: StreamState | None = None
        self._preconditioning = descent.preconditioning
        self.alpha_ = self.alpha or 0.0
        self._limit = 0.0
        self.path_ = None
        self.n_iter_ = 1
        self.n_steps_ = 0

    def _fixed(self) -> SketchedData:
        """Return the sketch of the model; each call has new random numbers."""
        sketch_map = SketchMap(self.kernel_, self.landmarks_, self.sketch_.weights)
        rng = np.random.default_rng([self._seed, self.n_steps_])
        inputs = Inputs(None, self.kernel_, self.scaler_, self.length_scales_)
        return SketchedData(inputs, self.sketch_, sketch_map, rng)

    def _pass(
        self,
        descent: DescentSettings,
        rows: TrainingRows,
        objective: Any,
        data: SketchedData,
    ) -> Self:
        """Pass once over the samples."""
        Z = data.sketch_map.times(data.transform(rows.X, "X"), self._projection)
        before = self._stream
        if self._preconditioning is not None:
            square = None if before is None else before.square_norm
            descent = descent.continued(self._preconditioning, square)
        sample = FeatureSample(descent.centered(Z), objective)
        limit = max(self._limit, sample.limit(is_stream=True))
        coef, intercept, state = descent.stream(sample, before, data.rng, limit)
        self._limit = limit
        self.n_steps_ += state.n_steps - (before.n_steps if before else 0)
        self._set_stream(coef, intercept, data, state)
        return self

    def _set_stream(
        self, coef: NDArray, intercept: NDArray, data: SketchedData, state: StreamState
    ) -> None:
        self._stream = state
        self.rank_ = len(coef)
        if self._preconditioning is not None:
            intercept = self._preconditioning.intercept(coef, intercept)
        coef = self._projection @ coef
        self._set_expansion(coef, intercept, data, self._one_target)


@validation.declares_parameters
class SketchedSGDRegressor(_base.ResidualLoss, _base.RegressorScore, DescentModel):
    r"""Sketched kernel regression by stochastic gradients, for large data and streams.

    .. math:: w_{t+1} = w_t + \eta \Bigl( \frac1b \sum_{i \in B_t}
              \psi'(y_i - z(x_i)^T w_t)\, z(x_i) - \alpha w_t \Bigr), \qquad w_1 = 0,

    where z(x) are the features of the sketch (see `SketchedFeatures`), :math:`\psi'` is
    the derivative of the loss (the residual for the square loss) and each batch B_t has
    b samples drawn with replacement. Without a penalty, the number of steps regularizes
    the solution. With a penalty and the default step, the steps use preconditioned
    features, so that all directions converge at the same rate:

    .. math:: \tilde z = (\Lambda + \alpha)^{-1/2} V^T (z - \mu), \qquad
              C = V \Lambda V^T

    with the mean :math:`\mu` and covariance C of z on a subset of the samples.

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
    loss : str or Loss, default="square"
        "square", "huber", "epsilon-insensitive", "squared-epsilon-insensitive",
        "pinball" (one target only), or a loss object with its parameters. With several
        targets it is a loss of the Euclidean norm of the residual.
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "rpcholesky", "accumulation", "countsketch", "sparse-jl", "srht", "identity", or
        a recipe. None: no sketch (all samples) if `size` is None and the default size
        is n, else "subsampling": a prediction then costs `size` kernel values.
    size : int or None, default=None
        Number of rows s of a sketch given by name. None: min(n, 1000), reduced above
        50,000 samples so that n s^2 is constant (never below 300); for a stream that
        starts with m samples min(m, 500), and 500 once 500 samples have arrived. If
        this gives n, a sketch given by name has n / 2 rows.
    step : float or None, default=None
        :math:`\eta` times :math:`\kappa^2`, the largest squared norm of the features of
        a sample (doubled with an intercept). Batches of one sample are stable below 2;
        larger batches allow larger steps. None: 1 (in units of the mean absolute
        deviation of the targets for losses without curvature and with a penalty). With
        a penalty, None also preconditions the features; :math:`\kappa^2` is then the
        99.9 % quantile of the squared norms.
    batch_size : int or None, default=None
        Samples per step, b. None: 1.
    n_epochs : int or None, default=None
        Passes over the data in `fit`. None: 20.
    regime : {"I", "II", "III", "IV"} or None, default=None
        Set `step`, `batch_size` and the number of steps as in the theory: see
        `nbsketch.solvers.sgm.sgm_regime`. None: use the values passed.
    source, capacity : float, default=0.5 and 1.0
        Exponents zeta > 0 and gamma in [0, 1] of the theory, used by `regime`.
    alpha : float or None, default=None
        Penalty (>= 0): ``(alpha / 2) ||f||^2``. None: the penalty learned with the
        length scales; 0 if they are not learned, with `regime`, and for samples of a
        stream after its first call.
    average : bool, default=True
        Whether to return the average of the later iterates (the last half to three
        quarters of the steps) instead of the last iterate.
    early_stopping : bool, default=False
        Whether `fit` keeps the iterate with the lowest loss on held-out samples. It
        stops after twice the steps of that iterate plus one pass over the data.
    validation_fraction : float, default=0.1
        Share of the samples that early stopping holds out at random. Ignored with `cv`.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Samples left out together. Early stopping holds out the last fold; with
        ``bandwidth="auto"`` all folds are used to choose the length scales. None: a
        random part for early stopping, leave-one-out for length scales. An integer:
        that many contiguous blocks of samples (or of whole groups), for samples that
        depend on their neighbors. Scikit-learn splitters and (train, test) indices are
        used unchanged.
    fit_intercept : bool, default=True
        Whether to fit the intercept b. It starts at the mean (square loss) or median of
        the targets and is updated by half of `step` times the mean slope of a batch.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results.
    verbose : int, default=0
        If positive, display progress: one line in a terminal or notebook, one line
        every ten seconds in a log file.
    callback : callable or None, default=None
        Called as ``callback(state)`` with a `FitState` during the fit. If it returns
        true, the fit stops early and keeps the current model. Not saved with the model.
        None: no callback.

    Attributes
    ----------
    coef_ : ndarray of shape (s,) or (s, d)
        Coefficients of the sketched kernel functions: f(x) = coef_^T S k_x + b.
    intercept_ : float or ndarray of shape (d,)
        Intercept b.
    landmarks_ : ndarray or csr_array of shape (s', p)
        Preprocessed training samples needed for prediction; no others are kept.
    loss_ : Loss
        Loss, with its thresholds: of a stream in units of the first samples.
    kernel_, sketch_ : Kernel, Sketch
        Kernel with its bandwidth set, and the drawn sketch.
    scaler_ : InputScaler or None
        Fitted preprocessing. None: no preprocessing, or absorbed by the length scales.
    length_scales_ : ndarray of shape (q,) or None
        Learned length scales in standard deviations of the features. Features with
        longer length scales matter less; infinite for constant features. None: not
        learned.
    bandwidth_ : float, sequence of floats or None
        Bandwidth of `kernel_`: a number, or one per preprocessed column.
    size_ : int
        Number of rows s of the sketch.
    rank_ : int
        Rank r of S K S^T, equal to the number of features.
    alpha_ : float
        Penalty of `fit`, or of the first samples of a stream.
    n_steps_ : int
        Number of steps taken.
    n_iter_ : int
        Number of passes over the data, rounded; 1 in a stream.
    path_ : dict or None
        With early stopping: arrays "n_steps" and "error" (mean held-out loss). None: no
        early stopping.
    n_copies_ : int
        Number of training samples merged into an identical one (:ref:`copies`).
    n_features_in_ : int
        Number of features q.

    Notes
    -----
    The steps follow Lin and Cevher, "Convergences of Regularized Algorithms and
    Stochastic Gradient Methods with Random Projections", JMLR 2020, for the square
    loss. In `fit`, samples are drawn in proportion to their weights.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedSGDRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = SketchedSGDRegressor(bandwidth=1.0, size=20, random_state=0)
    >>> print(f"{model.fit(X, y).score(X, y):.2f}")
    1.00
    """

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Pass once over samples of a stream, in order; they are not stored.

        The first call draws the sketch from its samples: pass a few thousand. If length
        scales are learned (`bandwidth`), this call learns them as `fit` does, in
        several passes. If it has fewer samples than `size` (500 by default, at least
        30), they are stored and the model is refitted whenever their number doubles,
        until there are enough. After `fit`, training continues from the fitted model,
        which counts as one pass in the average. Later calls only take steps, so memory
        does not grow with the stream. Parameters of the kernel, the sketch, the loss
        and the intercept cannot change between calls.

        Parameters
        ----------
        X : array of shape (m, q)
            Samples. Batches are consecutive; the last one may be shorter. The chunks of
            a Dask array or data frame are processed one by one, like separate calls.
        y : array of shape (m,) or (m, d)
            Targets.
        sample_weight : array of shape (m,) or None, default=None
            Number of visits of each sample; a fractional part is the probability of one
            more visit. None: one visit each.
        """
        return self.partial_fit_chunks(in_blocks(X, y, sample_weight))

    def _rows(self, X: Any, y: Any, sample_weight: Any, **options: Any) -> TrainingRows:
        options |= _base.NUMBERS
        rows = self._check_training(X, y, sample_weight, **options)
        Y = self._terms(rows)[0]
        if "reset" not in options:
            self._one_target = rows.y.ndim == 1
            self.loss_ = loss_at(self.loss, Y, rows.weights)
            return rows._replace(y=Y)
        expected = () if self._one_target else self.coef_.shape[1:]
        if rows.y.shape[1:] != expected:
            raise ValueError(
                f"`y` must have shape {(len(rows.y), *expected)} as in earlier calls, "
                f"got {rows.y.shape}"
            )
        return rows._replace(y=Y)

    def _objective(self, Y: NDArray, weights: NDArray | None) -> Any:
        return regression_objective(Y, weights, self.fit_intercept, fitted_loss(self))


@validation.declares_parameters
class SketchedSGDClassifier(OneVsRest, DescentModel):
    r"""Sketched kernel classification by stochastic gradients; large data and streams.

    .. math:: w_{t+1} = w_t + \eta \Bigl( \frac1b \sum_{i \in B_t}
              -\ell'(y_i f_t(x_i))\, y_i\, z(x_i) - \alpha w_t \Bigr), \qquad w_1 = 0,

    with labels y in {-1, +1}, a loss :math:`\ell` of the margin and :math:`f_t(x) =
    z(x)^T w_t + b_t`. More than two classes are solved one-vs-rest; the problems share
    features, batches and steps.

    Parameters
    ----------
    kernel, bandwidth, preprocessing, sketch, size
        As in `SketchedSGDRegressor`; length scales are learned by default.
    loss : {"hinge", "squared-hinge", "logistic"} or Loss, default="hinge"
        Loss of the margin. Only the logistic loss provides probabilities.
    step, batch_size, n_epochs, regime, source, capacity
        As in `SketchedSGDRegressor`. `step` is :math:`\eta \kappa^2` times the largest
        curvature of the loss (1/4 for the logistic loss; taken as 1 for the hinge loss,
        which has none).
    alpha, average, early_stopping, validation_fraction, cv, fit_intercept
        As in `SketchedSGDRegressor`.
    class_weight : None, "balanced" or dict, default=None
        Class weights, multiplied with the sample weights. "balanced": n divided by the
        number of classes and by the number of samples in the class; not for streams,
        whose class counts are unknown. A dict maps labels to weights; missing labels
        have weight 1. None: equal weights.
    random_state, verbose, callback
        As in `SketchedSGDRegressor`.

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
    landmarks_, kernel_, sketch_, scaler_, length_scales_, bandwidth_, size_, rank_
        As in `SketchedSGDRegressor`.
    alpha_, n_steps_, n_iter_, path_, n_copies_, n_features_in_
        As in `SketchedSGDRegressor`; losses are summed over the classes.

    Notes
    -----
    The steps follow Lin and Cevher, JMLR 2020, with margin losses instead of the square
    loss.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedSGDClassifier
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> inside = np.linalg.norm(X, axis=1) < 1
    >>> model = SketchedSGDClassifier(size=50, random_state=0)
    >>> for chunk in np.split(np.arange(2000), 4):
    ...     model = model.partial_fit(X[chunk], inside[chunk])
    >>> model.predict([[0.0, 0.0], [2.0, 2.0]]).tolist()
    [True, False]
    """

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Pass once over samples of a stream, in order; they are not stored.

        See `SketchedSGDRegressor.partial_fit`.

        Parameters
        ----------
        X : array of shape (m, q)
            Samples. Batches are consecutive; the last one may be shorter. The chunks of
            a Dask array or data frame are processed one by one, like separate calls.
        y : array of shape (m,)
            Labels.
        classes : array of shape (c,) or None, default=None
            All labels of the stream, needed in the first call. None: the labels in `y`.
            Other labels in later calls raise a ValueError.
        sample_weight : array of shape (m,) or None, default=None
            Number of visits of each sample; a fractional part is the probability of one
            more visit. None: one visit each.
        """
        with validation.keeping_fitted(self):
            if classes is None and not hasattr(self, "coef_"):
                classes = labels_of(y)
            self._announce(classes)
            return super().partial_fit_chunks(in_blocks(X, y, sample_weight))

    def partial_fit_chunks(
        self, chunks: Iterable[tuple], classes: ArrayLike | None = None
    ) -> Self:
        """Pass once over the chunks of an iterator: `partial_fit` of each, in order.

        See `SketchedSGDRegressor.partial_fit_chunks`; `classes` as in `partial_fit`.
        """
        with validation.keeping_fitted(self):
            self._announce(classes)
            return super().partial_fit_chunks(chunks)

    def _announce(self, classes: Any) -> None:
        """Set the labels of a new stream; check those of a running stream."""
        if not hasattr(self, "coef_"):
            self.__dict__.pop("classes_", None)
            if classes is not None:
                self._set_classes(np.asarray(classes))
        elif classes is not None and set(classes) != set(self.classes_):
            raise ValueError(
                f"`classes` must be {self.classes_.tolist()} as in earlier calls, got "
                f"{list(classes)}"
            )

    def _check_stream(self) -> None:
        super()._check_stream()
        if isinstance(self.class_weight, str):
            raise ValueError(
                "`class_weight` must be None or a dict in partial_fit, got "
                f"{self.class_weight!r}: the class counts of a stream are unknown"
            )

    def _rows(self, X: Any, y: Any, sample_weight: Any, **options: Any) -> TrainingRows:
        rows = self._check_training(X, y, sample_weight, **options)
        if not hasattr(self, "classes_"):
            self._set_classes(rows.y)
        self._one_target = len(self.classes_) == 2
        return rows._replace(y=self._signs(rows.y))

    def _validation(
        self, X: Any, Y: NDArray, X_val: Any, y_val: Any
    ) -> tuple[Any, NDArray] | None:
        signs = None if y_val is None else self._signs(column_or_1d(y_val), "y_val")
        return super()._validation(X, Y, X_val, signs)
