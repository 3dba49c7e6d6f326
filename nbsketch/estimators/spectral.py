"""Regression by a spectral filter of the sketched covariance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin

from nbsketch._blas import threads_for
from nbsketch._validation import check_choice, check_integer, keeping_fitted
from nbsketch.estimators._base import SketchedData, SketchedModel, check_weights
from nbsketch.features import StreamedDesign
from nbsketch.fitting.objectives import FeatureSolution, Objective, SolveOptions
from nbsketch.fitting.spectral import CRITERIA, SpectralObjective
from nbsketch.losses import SquareLoss
from nbsketch.outputs import IdentityOutput
from nbsketch.solvers.filters import LandweberFilter, as_filter


class SpectralFilterRegressor(MultiOutputMixin, RegressorMixin, SketchedModel):
    r"""Least squares on a sketched subspace, regularized by a spectral filter.

    .. math:: f(x) = b + \hat w^T z(x), \qquad
              \hat w = V\, G_\alpha(u)\, V^T Z^T y / n, \qquad
              Z^T Z / n = V \operatorname{diag}(u)\, V^T,

    where z(x) are the features of the sketch (see `SketchedFeatures`), centerd with y
    if the constant b is free. One eigendecomposition serves every parameter of every
    filter.

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
    filter : str or Filter
        "ridge", "iterated-ridge", "cutoff" (principal components), "landweber"
        (gradient descent), or a filter object.
    order : int, optional
        Number of rounds of "iterated-ridge"; 2 by default.
    step : float, optional
        Step size of "landweber", at most 1 over the largest eigenvalue of the
        covariance of the features; that by default.
    n_steps : int, optional
        Number of steps T of gradient descent, in place of alpha = 1 / (step T).
    sketch : str or SketchRecipe
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "accumulation", "countsketch", "sparse-jl", "srht", "identity", or a recipe.
    size : int, AutoSize or "auto", optional
        Number of rows s of a sketch that is given by name, or how it is to be chosen.
        By default all n up to 1500, else 1000, and for n > 50 000 so many (at least
        100) that n s^2 stays the same.
    alpha : float, optional
        Positive parameter of the filter: a penalty, a threshold, or the inverse of
        step times number of steps. By default it is chosen on a path of 53 values
        from 10 to 1e-12 times the largest eigenvalue (gradient descent: from one step
        to 1e12).
    criterion : {"gcv", "leave-one-out"}
        What the choice of alpha makes small: the generalized cross-validation error,
        which costs nothing, or the leave-one-out error, which takes one more pass over
        the features.
    fit_intercept : bool
        Whether the constant b is free.
    random_state : None, int or Generator
        The same number gives the same model: the same sketch at any number of threads,
        and predictions that agree to rounding.

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
    size_path_ : dict or None
        Where the sketch has grown: arrays "size", "loss" and "seconds".
    alpha_ : float
        The parameter used.
    path_ : dict or None
        Where alpha was chosen: arrays "alpha" (the strongest first), "n_iter" and
        "error".
    rank_ : int
        Rank r of S K S^T, the number of features.
    objective_ : float
        Half the mean squared residual of the training rows.
    dual_gap_ : float
        0: closed forms have none.
    n_iter_ : int
        Steps of gradient descent or rounds of iterated ridge that the solution is the
        result of; 1 for the other filters.
    n_features_in_ : int
        Number of features q.

    Notes
    -----
    Lin and Cevher, "Convergences of Regularized Algorithms and Stochastic Gradient
    Methods with Random Projections", JMLR 2020, section 2. With "ridge" it is the
    `SketchedKernelRegressor` of the square loss. Leave-one-out takes the sketch as
    given; for ridge it is that of n refits, for the others that of linear smoothers:
    see `nbsketch.solvers.smoother.leave_one_out`. Weights are scaled to mean one.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SpectralFilterRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = SpectralFilterRegressor(filter="landweber", size=50, random_state=0)
    >>> model.fit(X, y).predict([[0.5], [1.5]]).round(2).tolist()
    [0.48, 1.0]
    """

    # A closed form has nothing of an iterative solver to set.
    solver, tol, max_iter, verbose = "auto", 1e-6, 1, 0

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        bandwidth: Any = None,
        preprocessing: str | None = "auto",
        filter: Any = "ridge",
        order: int | None = None,
        step: float | None = None,
        n_steps: int | None = None,
        sketch: Any = "p-sparsified",
        size: Any = None,
        alpha: float | None = None,
        criterion: str = "gcv",
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.preprocessing = preprocessing
        self.filter = filter
        self.order = order
        self.step = step
        self.n_steps = n_steps
        self.sketch = sketch
        self.size = size
        self.alpha = alpha
        self.criterion = criterion
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
    ) -> SpectralFilterRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, q)
            Training rows, dense or sparse; float32 stays float32.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,), optional
            Non-negative weights.
        X_val, y_val : arrays, optional
            Other rows and their targets: alpha is then the one of least mean squared
            error on them.
        """
        with keeping_fitted(self):
            self._check_common()
            X, objective = self._prepare(X, y, sample_weight)
            others = self._check_validation(X, objective.targets, X_val, y_val)
            if others is not None and (self.alpha or self.n_steps) is not None:
                raise ValueError("`X_val` is for the choice of `alpha`, which is given")
            objective = replace(objective, validation=others)
            self._learn(X, objective)
            self._finish(objective)
        return self

    def _check_common(self) -> None:
        super()._check_common()
        check_choice("criterion", self.criterion, CRITERIA)
        filter = as_filter(self.filter, order=self.order, step=self.step)
        if self.n_steps is None:
            return
        check_integer("n_steps", self.n_steps)
        if not isinstance(filter, LandweberFilter):
            raise ValueError(
                f"`n_steps` has no meaning for {filter!r}, got {self.n_steps}"
            )
        if self.alpha is not None:
            raise ValueError(
                "`alpha` and `n_steps` are two spellings of one number: give one"
            )

    def _prepare(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Any, SpectralObjective]:
        X, y = self._check_X_y(X, y, multi_output=True, y_numeric=True)
        self._one_target = y.ndim == 1
        Y = y.reshape(len(y), -1).astype(float)
        objective = SpectralObjective(
            Y,
            check_weights(sample_weight, X),
            self.fit_intercept,
            SquareLoss(),
            IdentityOutput().factor(Y.shape[1]),
            as_filter(self.filter, order=self.order, step=self.step),
            self.criterion,
            self.n_steps,
        )
        return X, objective

    def _solve(
        self, objective: Any, drawn: SketchedData, control: SolveOptions
    ) -> tuple[FeatureSolution, NDArray | None]:
        """Return the answer and the projection; keep the path."""
        size, n = drawn.sketch.shape
        with threads_for(4.0 * n * size**2):
            projection, design = drawn.design()
            others = None
            if objective.validation is not None:
                rows = drawn.others(objective.validation[0], "X_val")
                others = StreamedDesign(drawn.sketch_map, projection, rows)
            answer, self.path_ = objective.search(design, self.alpha, others)
        return answer, projection

    def _finish(self, objective: Objective) -> None:
        if not hasattr(self, "path_"):  # a model of `fit_path`
            self.path_ = None
        if self._one_target:
            self._flatten()

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the predictions of the rows of X, of shape (n,) or (n, d)."""
        return self._decision(X)
