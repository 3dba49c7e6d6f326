"""Regression by stochastic gradients on a sketched subspace, and on streams."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin
from sklearn.utils.metaestimators import available_if

from nbsketch._rows import model_dtype
from nbsketch.distributed.collections import is_dask
from nbsketch.distributed.lazy import row_by_row
from nbsketch.estimators._base import as_columns
from nbsketch.estimators._descent import DescentModel, streams
from nbsketch.estimators._scores import RegressorScore
from nbsketch.fitting.regression import regression_objective
from nbsketch.fitting.weights import TrainingRows


class SketchedSGDRegressor(MultiOutputMixin, RegressorScore, DescentModel):
    r"""Sketched kernel regression by stochastic gradients, for large data and streams.

    .. math:: w_{t+1} = w_t + \eta \Bigl( \frac1b \sum_{i \in B_t}
              \psi'(y_i - z(x_i)^T w_t)\, z(x_i) - \alpha w_t \Bigr), \qquad w_1 = 0,

    where z(x) are the features of the sketch (see `SketchedFeatures`), :math:`\psi'` is
    the derivative of the loss, for the square loss the residual itself, and each batch
    B_t is b rows drawn with replacement. Without a penalty, the number of steps is what
    regularizes. With one, and the default step, the steps are taken in preconditioned
    features, in which all directions converge at one rate:

    .. math:: \tilde z = (\Lambda + \alpha)^{-1/2} V^T (z - \mu), \qquad
              C = V \Lambda V^T

    with the mean :math:`\mu` and covariance C of z over some rows.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="auto"
        "auto" (Matern 3/2 if length scales are learned, else Gaussian), "gaussian",
        "laplacian", "matern", "polynomial", "linear", "sobolev", "tanimoto",
        "gaussian-tanimoto", "precomputed", a kernel object or a function k(X, Y).
    bandwidth : float, sequence of floats, "median", "auto" or None, default=None
        Bandwidth of a kernel given by name. "auto" learns one length scale per feature,
        for dense X and the kernels "auto", "gaussian", "laplacian" and "matern"; with
        fewer than 30 rows it is "median". None: "auto" where that is possible, else
        "median".
    preprocessing : {"auto", "standard", "rank", "both"} or None, default="auto"
        Preprocessing applied before the kernel: "standard" (zero mean, unit variance),
        "rank" (standardized ranks of the values) or "both" side by side. "auto": "both"
        if length scales are learned, else none. None: no preprocessing.
    loss : str or Loss, default="square"
        "square", "huber", "epsilon-insensitive", "squared-epsilon-insensitive",
        "pinball" (one target only), or a loss object with its parameters. With several
        targets it is a loss of the Euclidean norm of the residual.
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "accumulation", "countsketch", "sparse-jl", "srht", "identity", or a recipe.
        None: all rows, without a sketch, if `size` is None and the default size is n,
        else "subsampling": a prediction then costs `size` kernel values.
    size : int or None, default=None
        Number of rows s of a sketch given by name. None: min(n, 1000), reduced above
        50,000 rows so that n s^2 is constant (never below 300); min(m, 500) for a
        stream that starts with m rows. A sketch given by name has n / 2 rows where this
        is n.
    method : {"projected", "adam"}, default="projected"
        "projected": the steps above. "adam": Adam on batches without replacement.
    step : float or None, default=None
        For "projected", :math:`\eta` times :math:`\kappa^2`, the largest squared norm
        of the features of a row (twice that with an intercept); batches of one row are
        stable below 2, larger ones allow more. For "adam", its learning rate. None: 1
        for "projected" (in units of the mean absolute deviation of the targets for
        losses without curvature and with a penalty), and preconditioned features with a
        penalty, for which :math:`\kappa^2` is the 99.9 % quantile of the squared norms;
        0.1 times that deviation for "adam".
    batch_size : int or None, default=None
        Rows per step, b. None: 1 for "projected", 16 for "adam".
    n_epochs : int or None, default=None
        Passes over the data in `fit`. None: 20 for "projected", 30 for "adam".
    regime : {"I", "II", "III", "IV"} or None, default=None
        Set `step`, `batch_size` and the number of steps as in theory: see
        `nbsketch.solvers.regimes.sgm_regime`. None: as given.
    source, capacity : float, default=0.5 and 1.0
        Exponents zeta > 0 and gamma in [0, 1] of the theory, for a regime.
    alpha : float or None, default=None
        Penalty (>= 0): ``(alpha / 2) ||f||^2``. None: the one learned with the length
        scales; 0 if they are not learned, for a regime, and for the rows of a stream
        after its first call.
    average : bool, default=True
        Whether to return the average of the later iterates (the last half to three
        quarters of the steps) instead of the last one.
    early_stopping : bool, default=False
        Whether `fit` keeps the iterate of least loss on held-out rows. "projected"
        stops at twice the steps of that iterate plus one pass over the data.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping holds out at random. Not used with `cv`.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Rows that are left out together. Early stopping holds out those of the last
        fold; with ``bandwidth="auto"`` all folds choose the length scales. None: random
        rows, and single rows. An integer: that many contiguous blocks of rows, or of
        whole groups, for rows that depend on their neighbors. Splitters of scikit-learn
        and index arrays are used unchanged.
    fit_intercept : bool, default=True
        Whether to fit the constant b. It starts at the mean (square loss) or median of
        the targets, and moves by half of `step` times the mean slope of a batch.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results.
    verbose : int, default=0
        If positive, display the progress: one line on a terminal or in a notebook, a
        line every ten seconds in a log file.
    callback : callable or None, default=None
        Called as ``callback(state)`` with a `FitState` as the fit goes on. If it
        returns true, the fit stops early and keeps the model so far. It is not saved
        with the model. None: no calls.

    Attributes
    ----------
    coef_ : ndarray of shape (s,) or (s, d)
        Coefficients of the sketched kernel functions: f(x) = coef_^T S k_x + b.
    intercept_ : float or ndarray of shape (d,)
        The constant b.
    landmarks_ : ndarray or csr_array of shape (s', p)
        The training rows that prediction needs, after preprocessing; no others are
        kept.
    kernel_, sketch_ : Kernel, Sketch
        The kernel with its bandwidth set, and the drawn sketch.
    scaler_ : InputScaler or None
        The preprocessing. None: none, or absorbed by the length scales.
    length_scales_ : ndarray of shape (q,) or None
        Learned length scales in standard deviations of the features: the longer, the
        less a feature matters; infinite for constants. None: not learned.
    bandwidth_ : float, sequence of floats or None
        Bandwidth of `kernel_`: a number, or one for each column after preprocessing.
    size_ : int
        Number of rows s of the sketch.
    rank_ : int
        Rank r of S K S^T, the number of features.
    alpha_ : float
        Penalty of `fit`, or of the first rows of a stream.
    n_steps_ : int
        Number of steps taken.
    n_iter_ : int
        Number of passes over the data, rounded; 1 in a stream.
    path_ : dict or None
        With early stopping: arrays "n_steps" and "error", the mean held-out loss.
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

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        bandwidth: Any = None,
        preprocessing: str | None = "auto",
        loss: Any = "square",
        sketch: Any = None,
        size: Any = None,
        method: str = "projected",
        step: float | None = None,
        batch_size: int | None = None,
        n_epochs: int | None = None,
        regime: str | None = None,
        source: float = 0.5,
        capacity: float = 1.0,
        alpha: float | None = None,
        average: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        cv: Any = None,
        fit_intercept: bool = True,
        random_state: Any = None,
        verbose: int = 0,
        callback: Any = None,
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
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    @available_if(streams)
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> SketchedSGDRegressor:
        """Pass once over rows of a stream, in their order; they are not kept.

        The first call draws the sketch from its rows: pass a few thousand. If it learns
        length scales from them (`bandwidth`), it fits them as `fit` does, in several
        passes. After `fit`, training continues from the fitted model, which counts as
        one pass in the average. Later calls only take steps, so memory does not grow
        with the stream.

        Parameters
        ----------
        X : array of shape (m, q)
            Rows; batches are consecutive, the last one may be shorter. Chunks of a Dask
            array or data frame are read one by one, as in one call for each.
        y : array of shape (m,) or (m, d)
            Targets.
        sample_weight : array of shape (m,) or None, default=None
            Numbers of visits of the rows; a fractional part is the probability of one
            more visit. None: one visit each.
        """
        return self._pass_over(X, y, sample_weight)

    def _new_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        rows = self._check_training(
            X, y, sample_weight, multi_output=True, y_numeric=True
        )
        self._one_target = rows.y.ndim == 1
        return rows._replace(y=as_columns(rows.y))

    def _next_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        dtype = model_dtype(self.landmarks_)
        options = {"multi_output": True, "y_numeric": True, "reset": False}
        rows = self._check_training(X, y, sample_weight, dtype=dtype, **options)
        y = rows.y
        expected = () if self._one_target else self.coef_.shape[1:]
        if y.shape[1:] != expected:
            raise ValueError(
                f"`y` must have shape {(len(y), *expected)} as in earlier calls, got "
                f"{y.shape}"
            )
        return rows._replace(y=as_columns(y))

    def _objective(self, Y: NDArray, weights: NDArray | None) -> Any:
        return regression_objective(Y, weights, self.fit_intercept, self.loss)

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the predictions of the rows of X, of shape (n,) or (n, d)."""
        if is_dask(X):
            return row_by_row(self.predict, X)
        return self._decision(X)
