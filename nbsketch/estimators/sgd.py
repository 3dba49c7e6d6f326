"""Regression by stochastic gradients on a sketched subspace, and on streams."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight

from nbsketch._blas import one_thread
from nbsketch._validation import check_choice, check_real, keeping_fitted
from nbsketch.estimators._base import KernelExpansion, SketchedData, check_weights
from nbsketch.features import SketchMap, model_dtype
from nbsketch.fitting.descent import Descent, Iterate, Sample, count_held_out
from nbsketch.fitting.inputs import Inputs, TuningTarget
from nbsketch.losses import Loss, SquareLoss, as_loss
from nbsketch.solvers._stochastic.rows import squared_norms
from nbsketch.solvers.streams import StreamState

# Rows of a sketch of which nothing is said.
_SIZE = 300


def _streams(model: SketchedSGDRegressor) -> bool:
    if model.method == "projected":
        return True
    raise AttributeError(f"partial_fit needs method='projected', got {model.method!r}")


class SketchedSGDRegressor(MultiOutputMixin, RegressorMixin, KernelExpansion):
    r"""Sketched kernel regression by stochastic gradients, for large data and streams.

    .. math:: w_{t+1} = w_t + \eta \Bigl( \frac1b \sum_{i \in B_t}
              \psi'(y_i - z(x_i)^T w_t)\, z(x_i) - \alpha w_t \Bigr), \qquad w_1 = 0,

    where z(x) are the features of the sketch (see `SketchedFeatures`), :math:`\psi'` is
    the derivative of the loss, for the square loss the residual itself, and each batch
    B_t is b rows drawn with replacement. Without a penalty, the number of steps is what
    regularizes.

    Parameters
    ----------
    kernel : str, Kernel or callable
        "auto" (Matern 3/2 where length-scales are learned, else Gaussian), "gaussian",
        "laplacian", "matern", "polynomial", "linear", "sobolev", "tanimoto",
        "gaussian-tanimoto", "precomputed", a kernel object or a function k(X, Y).
    bandwidth : float, sequence of floats, "median" or "auto", optional
        Bandwidth of a kernel that is given by name. "auto" learns a length-scale for
        each feature of dense X, for the kernels "auto", "gaussian" and "matern" and
        from 30 rows on; with fewer it is "median". "median" by default.
    preprocessing : {"auto", "standard", "rank", "both"} or None
        What the kernel sees: standardized features, scores of their ranks, or both.
        "auto" is "both" where length-scales are learned, and X itself elsewhere. None
        is X itself.
    loss : str or Loss
        "square", "huber", "epsilon-insensitive", "squared-epsilon-insensitive",
        "pinball" (one target only), or a loss object with its parameters. With several
        targets it is one of the Euclidean norm of the residual.
    sketch : str or SketchRecipe
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "accumulation", "countsketch", "sparse-jl", "srht", "identity", or a recipe.
    size : int, optional
        Number of rows s of a sketch that is given by name; 300 by default, or the
        number of rows of X if that is smaller.
    method : {"projected", "adam"}
        The steps above, or those of Adam on batches without replacement.
    step : float, optional
        For "projected", :math:`\eta` times :math:`\kappa^2`, the largest squared norm
        of the features of a row (twice that with an intercept): 1 by default. Batches
        of one row are stable below 2, larger ones allow more. For "adam", its learning
        rate: 0.1 by default.
    batch_size : int, optional
        Rows per step, b: 1 for "projected" and 16 for "adam" by default.
    n_epochs : int, optional
        Passes over the data in `fit`: 20 by default.
    regime : {"I", "II", "III", "IV"}, optional
        Set `step`, `batch_size` and the number of steps as the theory does: see
        `nbsketch.solvers.regimes.sgm_regime`.
    source, capacity : float
        Exponents zeta > 0 and gamma in [0, 1] of the theory, for a regime.
    alpha : float
        Penalty ``(alpha / 2) ||f||^2``.
    average : bool
        Whether the model is the average of the later iterates (of the last half to
        three quarters of the steps) and not the last one.
    early_stopping : bool
        Whether `fit` keeps the iterate of least loss on rows held out. For
        "projected" it also stops, when it has taken twice as many steps as that
        iterate, and a pass over the data more.
    validation_fraction : float
        Share of the rows that early stopping holds out at random.
    fit_intercept : bool
        Whether the constant b is free. It starts at the mean of the targets (for the
        square loss) or their median, and moves by half of `step` times the mean slope
        of a batch.
    random_state : None, int or Generator
        The same number gives the same model.

    Attributes
    ----------
    coef_ : ndarray of shape (s,) or (s, d)
        Coefficients of the sketched kernel functions: f(x) = coef_^T S k_x + b.
    intercept_ : float or ndarray of shape (d,)
        The constant b.
    landmarks_ : ndarray or csr_array of shape (s', p)
        The training rows that prediction needs, as the kernel sees them; no others are
        kept.
    kernel_, sketch_ : Kernel, Sketch
        The kernel with its bandwidth set, and the drawn sketch.
    scaler_ : InputScaler or None
        What has transformed the rows, if anything.
    length_scales_ : ndarray of shape (q,) or None
        Learned length-scales, in standard deviations of the features: the longer, the
        less a feature matters. Infinite for constants.
    bandwidth_ : float, sequence of floats or None
        Bandwidth of `kernel_`: a number, or one for each column that it sees.
    size_ : int
        Number of rows s of the sketch.
    rank_ : int
        Rank r of S K S^T, the number of features.
    n_steps_ : int
        Steps that led to the model.
    n_iter_ : int
        Passes over the data that these are, rounded; in a stream, 1.
    path_ : dict or None
        With early stopping: arrays "n_steps" and "error", the mean loss on the rows
        held out.
    n_features_in_ : int
        Number of features q.

    Notes
    -----
    "projected" is the method of Lin and Cevher, "Convergences of Regularized Algorithms
    and Stochastic Gradient Methods with Random Projections", JMLR 2020, for the square
    loss; "adam", on any loss, that of El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023.
    In `fit`, rows are drawn in proportion to their weights.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedSGDRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = SketchedSGDRegressor(bandwidth=1.0, size=20, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.99)
    True
    """

    # Long length-scales, good for a penalty, leave few directions to gradient steps.
    _learns_unasked = False

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        bandwidth: Any = None,
        preprocessing: str | None = "auto",
        loss: Any = "square",
        sketch: Any = "p-sparsified",
        size: Any = None,
        method: str = "projected",
        step: float | None = None,
        batch_size: int | None = None,
        n_epochs: int | None = None,
        regime: str | None = None,
        source: float = 0.5,
        capacity: float = 1.0,
        alpha: float = 0.0,
        average: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.preprocessing = preprocessing
        self.loss = loss
        self.sketch = sketch
        self.size = size
        self.method = method
        self.step = step
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.regime = regime
        self.source = source
        self.capacity = capacity
        self.alpha = alpha
        self.average = average
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> SketchedSGDRegressor:
        """Fit the model, from nothing.

        Parameters
        ----------
        X : array of shape (n, q)
            Training rows, dense or sparse; float32 stays float32.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,), optional
            Non-negative weights.
        X_val, y_val : arrays, optional
            Rows for early stopping, which then holds out none of X.
        """
        with keeping_fitted(self):
            X, Y = self._rows(X, y)
            weights = check_weights(sample_weight, X)
            others = self._validation(X, Y, X_val, y_val)
            held_out = 0
            if self.early_stopping and others is None:
                held_out = count_held_out(self.validation_fraction, weights, len(Y))
            descent = Descent.of(self, self._loss(Y), len(Y) - held_out)
            drawn = self._drawn(X, Y, weights)
            with one_thread():
                projection, design = drawn.design(keep=True)
                ((_, _, Z),) = design.blocks()  # features that are kept are one block
                sample = Sample(Z, Y, weights)
                sample, judge = self._judged(
                    sample, others, held_out, projection, drawn
                )
                best, self.path_ = descent.search(sample, judge, drawn.rng)
            self._start_stream(best, sample, projection, drawn)
            self.n_steps_ = best.n_steps
            passes = best.n_steps * descent.batch_size / len(sample.Y)
            self.n_iter_ = max(1, round(passes))
        return self

    @available_if(_streams)
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> SketchedSGDRegressor:
        """Pass once over rows of a stream, in their order, and forget them.

        The first call draws the sketch from its rows, of which there should be some
        thousands; so does `fit`, after which the stream goes on from its model. All
        other calls only take steps: memory does not grow with the stream.

        Parameters
        ----------
        X : array of shape (m, q)
            Rows; a batch is a run of them, the last one may be shorter.
        y : array of shape (m,) or (m, d)
            Targets.
        sample_weight : array of shape (m,), optional
            A row of weight s is visited s times; the fraction of a weight is the
            probability of one visit more.
        """
        with keeping_fitted(self):
            self._check_stream()
            first = not hasattr(self, "coef_")
            X, Y = self._rows(X, y) if first else self._next_rows(X, y)
            descent = Descent.of(self, self._loss(Y), len(Y))
            visits = None
            if sample_weight is not None:
                visits = _check_sample_weight(
                    sample_weight, X, dtype=np.float64, ensure_non_negative=True
                )
            drawn = self._open_stream(X, Y, visits) if first else self._fixed()
            Z = drawn.sketch_map.times(drawn.others(X, "X"), self._projection)
            self._go_on(descent, Sample(Z, Y, visits), drawn)
        return self

    def _rows(self, X: Any, y: Any) -> tuple[Any, NDArray]:
        """Check the rows of a new model; return them and targets (n, d)."""
        X, y = self._check_X_y(X, y, multi_output=True, y_numeric=True)
        self._one_target = y.ndim == 1
        return X, y.reshape(len(y), -1).astype(float)

    def _next_rows(self, X: Any, y: Any) -> tuple[Any, NDArray]:
        """Check rows that come after others."""
        dtype = model_dtype(self.landmarks_)
        options = {"multi_output": True, "y_numeric": True, "reset": False}
        X, y = self._check_X_y(X, y, dtype=dtype, **options)
        expected = () if self._one_target else self.coef_.shape[1:]
        if y.shape[1:] != expected:
            raise ValueError(
                f"`y` must have shape {(len(y), *expected)} as in earlier calls, got "
                f"{y.shape}"
            )
        return X, y.reshape(len(y), -1).astype(float)

    def _validation(
        self, X: Any, Y: NDArray, X_val: Any, y_val: Any
    ) -> tuple[Any, NDArray] | None:
        """Check what early stopping looks at; return the rows that were given."""
        check_choice("early_stopping", self.early_stopping, [False, True])
        check_real(
            "validation_fraction", self.validation_fraction,
            low=0, high=1, low_open=True, high_open=True,
        )  # fmt: skip
        others = self._check_validation(X, Y, X_val, y_val)
        if others is not None and not self.early_stopping:
            raise ValueError("`early_stopping` must be True with `X_val`, got False")
        return others

    def _loss(self, Y: NDArray) -> Loss:
        loss = as_loss(self.loss)
        if loss.is_classification:
            raise ValueError(f"`loss` must be a loss of residuals, got {loss!r}")
        if not loss.is_radial and Y.shape[1] > 1:
            raise ValueError(
                f"`y` must have one column for {loss!r}, got {Y.shape[1]}: "
                "it is not a loss of the norm of a residual"
            )
        return loss

    def _check_stream(self) -> None:
        if self.regime is not None or self.early_stopping:
            raise ValueError(
                "`regime` must be None and `early_stopping` False in partial_fit, got "
                f"{self.regime!r} and {self.early_stopping!r}: a stream has no end"
            )

    def _drawn(self, X: Any, Y: NDArray, weights: NDArray | None) -> SketchedData:
        """Learn the length-scales, if they are to be, and draw the sketch."""
        self._check_size_is_given()
        tuning_target = TuningTarget(
            Y, weights, robust=not isinstance(self._loss(Y), SquareLoss)
        )
        return self._learned(X, tuning_target, self._first_size(min(_SIZE, len(Y))))

    def _judged(
        self,
        sample: Sample,
        others: tuple[Any, NDArray] | None,
        held_out: int,
        projection: NDArray,
        drawn: SketchedData,
    ) -> tuple[Sample, Sample | None]:
        """Return what is learned from, and what chooses among iterates."""
        if others is not None:
            rows, targets = others
            Z = drawn.sketch_map.times(drawn.others(rows, "X_val"), projection)
            return sample, Sample(Z, targets, None)
        return sample.split(held_out, drawn.rng) if held_out else (sample, None)

    def _start_stream(
        self, best: Iterate, sample: Sample, projection: NDArray, drawn: SketchedData
    ) -> None:
        """Keep what a stream that goes on from a fit needs."""
        self._seed = int(drawn.rng.integers(2**62))
        self._projection = projection
        point = np.column_stack([best.coef.T, best.intercept])
        totals = np.zeros((2, *point.shape) if self.average else (2, 0, 0))
        largest = float(squared_norms(sample.Z).max(initial=0.0))
        self._keep(
            best.coef, best.intercept, drawn, StreamState(point, totals, 0, largest)
        )

    def _open_stream(self, X: Any, Y: NDArray, visits: NDArray | None) -> SketchedData:
        """Learn and draw from the first rows of a stream what stays fixed in it."""
        drawn = self._drawn(X, Y, visits)
        self._seed = int(drawn.rng.integers(2**62))
        self._projection, _ = drawn.design(keep=False)
        self._stream: tuple | None = None
        self.path_, self.n_iter_, self.n_steps_ = None, 1, 0
        return drawn

    def _fixed(self) -> SketchedData:
        """Return the sketch that the model has; random numbers differ in each call."""
        sketch_map = SketchMap(self.kernel_, self.landmarks_, self.sketch_.weights)
        rng = np.random.default_rng([self._seed, self.n_steps_])
        inputs = Inputs(None, None, None, self.scaler_, self.length_scales_)
        return SketchedData(inputs, self.sketch_, sketch_map, rng)

    def _go_on(self, descent: Descent, sample: Sample, drawn: SketchedData) -> None:
        """Take the steps of one call."""
        before = StreamState(*self._stream) if self._stream else None
        coef, intercept, state = descent.stream(sample, before, drawn.rng)
        self.n_steps_ += state.n_steps - (before.n_steps if before else 0)
        self._keep(coef, intercept, drawn, state)

    def _keep(
        self, coef: NDArray, intercept: NDArray, drawn: SketchedData, state: StreamState
    ) -> None:
        self._stream = tuple(state)
        self._expand(coef, intercept, self._projection, drawn)
        if self._one_target:
            self._flatten()

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the predictions of the rows of X, of shape (n,) or (n, d)."""
        return self._decision(X)
