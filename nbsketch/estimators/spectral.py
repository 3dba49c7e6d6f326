"""Regression with a spectral filter of the sketched covariance."""

from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin

from nbsketch._report.validation import check_choice, check_integer, declares_parameters
from nbsketch.estimators import _base
from nbsketch.fitting.callbacks import watched_fit
from nbsketch.fitting.objective import FeatureSolution, Problem
from nbsketch.fitting.objectives import SpectralObjective
from nbsketch.fitting.plan import Plan
from nbsketch.fitting.sketched import SketchedData
from nbsketch.losses import SquareLoss
from nbsketch.outputs import IdentityOutput
from nbsketch.solvers.filters import Filter, LandweberFilter, as_filter


@declares_parameters
class SpectralFilterRegressor(
    MultiOutputMixin, _base.RegressorScore, _base.SketchedModel
):
    r"""Least squares on a sketched subspace, regularized by a spectral filter.

    .. math:: f(x) = b + \hat w^T z(x), \qquad
              \hat w = V\, G_\alpha(u)\, V^T Z^T y / n, \qquad
              Z^T Z / n = V \operatorname{diag}(u)\, V^T,

    where z(x) are the features of the sketch (see `SketchedFeatures`), centered
    together with y if b is fitted. One eigendecomposition is used for every filter and
    every alpha.

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
    filter : str or Filter, default="ridge"
        "ridge", "iterated-ridge", "cutoff" (principal components), "landweber"
        (gradient descent), or a filter object.
    order : int or None, default=None
        Number of rounds of "iterated-ridge". None: 2.
    step : float or None, default=None
        Step size of "landweber", at most 1 over the largest eigenvalue of the
        covariance of the features. None: that value.
    n_steps : int or None, default=None
        Number of steps T of "landweber", instead of alpha = 1 / (step T).
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "rpcholesky", "accumulation", "countsketch", "sparse-jl", "srht", "identity", or
        a recipe. None: no sketch (all samples) if `size` is None and the default size
        is n, else "subsampling": a prediction then costs `size` kernel values.
    size : int, AutoSize, "auto" or None, default=None
        Number of rows s of a sketch given by name; "auto" doubles it until the held-out
        loss stops improving. None: n if n <= 1500, else 1000, reduced above 50,000
        samples so that n s^2 is constant (never below 100). If this gives n, a sketch
        given by name has n / 2 rows.
    alpha : float or None, default=None
        Parameter of the filter (> 0): a penalty, a threshold, or 1 / (step size times
        number of steps). None: chosen on a path of 53 values from 10 to 1e-12 times the
        largest eigenvalue (gradient descent: from one step to 1e12).
    cv : int, splitter, iterable of (train, test) or None, default=None
        Samples left out together when length scales, `size` or `alpha` are chosen.
        None: leave-one-out for length scales, `criterion` otherwise. An integer: that
        many contiguous blocks of samples (or of whole groups), for samples that depend
        on their neighbors. Scikit-learn splitters and (train, test) indices are used
        unchanged.
    criterion : {"gcv", "leave-one-out"}, default="leave-one-out"
        Criterion to choose alpha: the leave-one-out error, at the cost of one more pass
        over the features, or generalized cross-validation, at no extra cost, for noise
        of equal size everywhere. Ignored with `cv`.
    fit_intercept : bool, default=True
        Whether to fit the intercept b, which is not penalized.
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
    coef_ : ndarray of shape (s,) or (s, d)
        Coefficients of the sketched kernel functions: f(x) = coef_^T S k_x + b.
    intercept_ : float or ndarray of shape (d,)
        Intercept b.
    landmarks_ : ndarray or csr_array of shape (s', p)
        Preprocessed training samples needed for prediction; no others are kept.
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
    size_path_ : dict or None
        For ``size="auto"``: arrays "size", "loss" and "seconds" of the sizes tried.
    alpha_ : float
        Parameter of the filter used.
    path_ : dict or None
        If alpha was chosen: arrays "alpha" (strongest first), "n_iter" and "error",
        the mean squared error (of several outputs, the sum over their variances).
    rank_ : int
        Rank r of S K S^T, equal to the number of features.
    objective_ : float
        Half the mean squared training residual.
    dual_gap_ : float
        Always 0: the solution is in closed form.
    n_iter_ : int
        Steps of gradient descent or rounds of iterated ridge; 1 for other filters.
    n_copies_ : int
        Number of training samples merged into an identical one (:ref:`copies`).
    n_features_in_ : int
        Number of features q.

    Notes
    -----
    Lin and Cevher, "Convergences of Regularized Algorithms and Stochastic Gradient
    Methods with Random Projections", JMLR 2020, section 2. With "ridge", the model
    equals `SketchedKernelRegressor` with the square loss. Leave-one-out errors treat
    the sketch as fixed; for ridge they equal those of n refits, for the other filters
    they use the formula of linear smoothers (see
    `nbsketch.solvers.left_out.leave_one_out`). Weights are scaled to mean one; samples
    of weight zero are removed first.

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

    filter: Any = "ridge"
    order: int | None = None
    step: float | None = None
    n_steps: int | None = None
    criterion: str = "leave-one-out"

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
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, q)
            Training samples; float32 is kept. Memory-mapped arrays are read in blocks;
            numeric Dask arrays and data frames are processed by their workers.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        groups : array of shape (n,) or None, default=None
            Group label of each sample, for `cv`.
        X_val, y_val : arrays or None, default=None
            Validation samples and targets: alpha minimizes the mean squared error on
            them. None: alpha is chosen by `criterion`.
        """
        with watched_fit(self):
            problem = self.prepare(X, y, sample_weight, groups)
            validation = self._check_validation(
                problem.rows, problem.objective.targets, X_val, y_val
            )
            if validation is not None and (self.alpha or self.n_steps) is not None:
                raise ValueError(
                    "`X_val` must be None if `alpha` or `n_steps` is given: validation "
                    "data are used to choose them"
                )
            return self._solve(problem._replace(validation=validation))

    def prepare(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Problem:
        """Check parameters and data; return the problem to solve."""
        plan = Plan.of(self)
        filter = self._check_filter()
        rows = self._check_training(X, y, sample_weight, **_base.NUMBERS)
        terms = self._terms(rows)
        objective = SpectralObjective(
            *terms,
            SquareLoss(),
            IdentityOutput().factor(terms[0].shape[1]),
            filter,
            self.criterion,
            self.n_steps,
            folds=self._folds(rows, groups),
        )
        return Problem(rows.X, objective, plan, rows.y.ndim == 1, kept=rows.kept)

    def _check_filter(self) -> Filter:
        """Return the filter after checking its parameters."""
        check_choice("criterion", self.criterion, ["gcv", "leave-one-out"])
        filter = as_filter(self.filter, order=self.order, step=self.step)
        if self.n_steps is None:
            return filter
        check_integer("n_steps", self.n_steps)
        if not isinstance(filter, LandweberFilter):
            raise ValueError(
                f"`n_steps` must be None for {filter!r}, got {self.n_steps}"
            )
        if self.alpha is not None:
            raise ValueError(
                "`alpha` and `n_steps` set the same number: pass only one of them"
            )
        return filter

    def _publish(
        self, problem: Problem, data: SketchedData, solution: FeatureSolution
    ) -> Self:
        self.path_ = solution.path
        return super()._publish(problem, data, solution)
