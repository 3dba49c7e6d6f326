"""Sketched kernel regression, scalar and vector-valued."""

import warnings
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, overload

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from nbsketch._machine.memory import fits
from nbsketch._report.validation import declares_parameters
from nbsketch.estimators import _base, posterior
from nbsketch.estimators._monotonic import check_monotonic, constrain, planned
from nbsketch.fitting.objective import FeatureSolution, Problem
from nbsketch.fitting.objectives import regression_objective
from nbsketch.fitting.plan import Plan
from nbsketch.fitting.sketched import SketchedData
from nbsketch.losses import SquareLoss, as_loss
from nbsketch.rows.inputs import is_dask, is_pairwise, row_by_row, rowwise
from nbsketch.rows.outliers import (
    drawn_rows,
    far_outside,
    is_noise_free,
    outlier_warning,
    suspect_targets,
)
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.transform import transform_rows
from nbsketch.solvers._linear.cholesky import raised_cholesky, solve_positive_upper

# Rows that tell gross errors if they have to be brought here or memory is short.
_FEWER_ROWS = 400
# Least penalty in their left-out residuals, relative to the trace of the kernel matrix.
_LEAST_SHIFT = 1e-12


@declares_parameters
class SketchedKernelRegressor(
    _base.ResidualLoss, _base.RegressorScore, _base.IterativeModel
):
    r"""Sketched kernel regression.

    .. math:: \min_{f, b} \frac{1}{n} \sum_i w_i\, \ell(f(x_i) + b, y_i)
              + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j (S^T G)_j\, M k(\cdot, x_j)

    over the s rows of a random sketch S. With d columns in y the loss is one of the
    Euclidean norm of the residual, and M an output matrix that couples the outputs.

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
        "pinball", "poisson", "gamma" (these three for one target only), or a loss
        object with its parameters. "poisson" (targets >= 0; of rates, pass the exposure
        as `sample_weight`) and "gamma" (targets > 0) are half the deviance of the mean
        exp(f(x) + b), which `predict` returns.
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "rpcholesky", "accumulation", "countsketch", "sparse-jl", "srht", "identity",
        or a recipe.
        None: all rows, without a sketch, if `size` is None and the default size is n:
        a prediction then costs n kernel values. Else "subsampling", and a prediction
        costs `size` kernel values.
    size : int, AutoSize, "auto" or None, default=None
        Number of rows s of a sketch given by name; "auto" doubles it until the held-out
        loss stops improving. None and ``sketch=None``, for stationary kernels of dense
        rows and ``cv=None``: square loss: n up to 17,300 rows of one output (fewer
        for several outputs or 60 features and more); other losses of one output: n up
        to 8100 rows, 5100 if they have kinks (pinball, epsilon-insensitive). Beyond,
        the square loss has 2500 landmarks or more, fewer of several outputs. Else n if
        n <= 1500, else 1000, reduced above 50,000 rows so that n s^2 is constant (never
        below 100), for the square loss; min(n, 500), reduced above 200,000 rows, for
        other losses.
        A sketch given by name has n / 2 rows where this is n.
    alpha : float or None, default=None
        Penalty (> 0); n times this is the alpha of scikit-learn's ``KernelRidge``. None
        chooses it. Square loss: the least leave-one-out error of at most 5000 rows, in
        closed form; for all of more than 1500 rows, the least error on a third of
        them, at most 1600, of a model of at most 3200 others, where learned length
        scales are multiplied by 0.5, 0.7 or 1 as well. Other losses: the least loss on
        a fifth of the rows, held out at random (at most 500 rows: all, in five random
        folds), along a path of penalties that ends where weaker ones lose; for all of
        more than 500 rows as for the square loss, of models of at most 1600 rows. Up to
        5 % of the held-out rows, outliers under every penalty, are excluded.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Rows that are left out together where length scales, `size` or `alpha` are
        chosen. None: single rows, in closed form (other losses: a random fifth).
        An integer: that many contiguous blocks of rows, or of whole groups, for rows
        that depend on their neighbors. Splitters of scikit-learn and index arrays are
        used unchanged.
    output : Output, array of shape (d, d) or None, default=None
        Output matrix M, positive semi-definite. None: the identity.
    fit_intercept : bool, default=True
        Whether to fit the constant b; it is not penalized.
    monotonic_cst : array of int of shape (q,), dict of str or None, default=None
        1: predictions do not fall where this column rises, -1: they do not rise, 0: no
        constraint; in the order of the columns, or by their names. For one target and
        the square loss, without output matrix; `alpha` is chosen without constraints,
        and the default sketch is n rows up to 1500, else 1000. It holds on a sample of
        lines through training rows; see `monotonic_violation_` and :doc:`/monotonic`.
    solver : {"auto", "adam", "sgd"} or StochasticSolver, default="auto"
        "auto": the closed form for the square loss, or preconditioned conjugate
        gradients for all rows if there are more than 4000 and, with `alpha` or without
        `cv`, for ``sketch="subsampling"`` of size 2000 or more; a certified Newton
        method for the other losses. "adam" and "sgd" repeat the experiments of the
        papers.
    tol : float, default=1e-6
        Relative tolerance: stop when the objective is certified to be within this share
        of the minimum. 1e-4 is enough for prediction. Conjugate gradients, for
        smooth losses on large sketches as well, stop at the larger of this and 1e-3,
        losses with kinks on their default landmarks at 5e-2, other losses on all of
        more than 2000 rows at the larger of this and 1e-4, which `summary` says.
    max_iter : int, default=1000
        Largest number of iterations of the solver.
    max_seconds : float or None, default=None
        Time limit of a fit. With more than 1500 rows (500 for the square loss without
        `alpha`), and without `sketch` and `size`, the exact machine or the largest
        sketch that the time allows is taken. Learning of length scales ends in time,
        the solver after at most twice the time, with a warning. The model then depends
        on the machine. None: no limit.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results: the sketch is identical for any number of
        threads, predictions agree up to rounding.
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
        Coefficients of the sketched kernel functions: f(x) = coef_^T S k_x.
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
    size_path_ : dict or None
        For ``size="auto"``: arrays "size", "loss" and "seconds" of the sizes tried.
    alpha_ : float
        The penalty used.
    rank_ : int
        Rank r of S K S^T, the number of features.
    objective_ : float
        Value of the objective.
    dual_gap_ : float
        Relative: the objective is at most this share above the minimum. Infinite for
        a stochastic solver.
    n_iter_ : int
        Iterations of the solver; 1 for a closed form.
    n_copies_ : int
        Number of training rows that are merged into an equal one (:ref:`copies`).
    n_features_in_ : int
        Number of features q.
    suspects_ : ndarray of int
        Rows whose targets look like gross errors, of at most 1000 drawn ones, for the
        square loss; an `OutlierWarning` says so. They are used.
    monotonic_violation_ : float
        With `monotonic_cst`: the largest change of a prediction against a constraint,
        where a constrained column of up to 1000 training rows moves along 50 quantiles.
    posterior_ : dict
        After `fit_posterior`: "noise", the noise variances (d,), and what standard
        deviations are computed from.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, "Fast Kernel Methods for Generic Lipschitz
    Losses via p-Sparsified Sketches", TMLR 2023, section 2. Weights are scaled to mean
    one, so that in the objective and the median bandwidth a row of weight two counts as
    the same row twice. A row of weight zero is left out before anything else.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = SketchedKernelRegressor(size=50, random_state=0).fit(X, y)
    >>> model.predict([[0.5], [1.5]]).round(2).tolist()
    [0.48, 1.0]
    """

    loss: Any = "square"
    output: Any = None
    monotonic_cst: Any = None

    def prepare(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Problem:
        """Check parameters and data; return the problem that `fit` solves."""
        plan = Plan.of(self)
        rows = self._check_training(X, y, sample_weight, **_base.NUMBERS)
        objective = regression_objective(*self._terms(rows), self.loss, self.output)
        objective = replace(objective, folds=self._folds(rows, groups))
        single = rows.y.ndim == 1
        if self.monotonic_cst is not None:
            check_monotonic(self, rows.X, single)
            plan = planned(plan, objective)
        return Problem(rows.X, objective, plan, single, kept=rows.kept)

    def _solve(self, problem: Problem) -> Self:
        super()._solve(problem)
        self.suspects_ = np.empty(0, dtype=np.intp)
        if as_loss(self.loss) == SquareLoss() and not is_pairwise(self.kernel_):
            self._tell_gross_errors(problem)
        return self

    def _tell_gross_errors(self, problem: Problem) -> None:
        """Set `suspects_`, and warn if there are any."""
        Y = problem.objective.targets
        weights = problem.objective.weights
        drawn = drawn_rows(np.ones(len(Y)) if weights is None else weights)
        if not len(drawn):
            return
        is_large = not fits(8.0 * len(drawn) ** 2, copies=5)
        if is_large or isinstance(problem.rows, PartitionedRows):
            drawn = drawn[:_FEWER_ROWS]
        rows = transform_rows(problem.rows[drawn], self.scaler_, self.kernel_)
        left_out = partial(self._left_out, rows, Y[drawn], len(Y))
        mask, residuals = suspect_targets(self.kernel_, rows, Y[drawn], left_out)
        if mask.any() and is_noise_free(residuals, Y[drawn]):
            mask &= far_outside(Y[drawn], mask)
        suspects = drawn[mask]
        if len(suspects):
            kept = problem.kept
            self.suspects_ = np.sort(suspects if kept is None else kept[suspects])
            reason = "the square loss leaves none out"
            told = outlier_warning(len(suspects), len(drawn), reason)
            warnings.warn(told, stacklevel=4)

    def _left_out(self, rows: Any, Y: NDArray, n: int) -> NDArray:
        """Return left-out residuals of the exact machine."""
        K = self.kernel_(rows, rows).astype(np.float64)
        shift = max(n * self.alpha_, _LEAST_SHIFT * float(np.trace(K)))
        upper, _ = raised_cholesky(K, shift)
        dual = solve_positive_upper(upper, Y - self.intercept_)
        inverse, _ = scipy.linalg.lapack.dpotri(upper, overwrite_c=1)
        return dual / inverse.diagonal()[:, None]

    def _publish(
        self, problem: Problem, data: SketchedData, solution: FeatureSolution
    ) -> Self:
        super()._publish(problem, data, solution)
        if self.monotonic_cst is not None:
            constrain(self, problem)
        return self

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> NDArray: ...
    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[True]
    ) -> tuple[NDArray, NDArray]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return the predictions of the rows of X, of shape (n,) or (n, d).

        Parameters
        ----------
        X : array or sparse matrix of shape (n, q)
            Rows.
        return_std : bool, default=False
            Whether to return the posterior standard deviation of the mean as well, of
            the same shape: see `fit_posterior`.
        """
        if return_std:
            std = self._std(X)  # first, for it may be refused
            return self.predict(X), std
        if is_dask(X):
            return row_by_row(self.predict, X)
        return as_loss(self.loss).mean(self._decision(X))

    @rowwise(row_by_row)
    def _std(self, X: ArrayLike) -> NDArray:
        return posterior.posterior_std(self, X)

    def fit_posterior(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Compute the posterior of the fitted model, for ``predict(return_std=True)``.

        For the square loss, of which the model is the mean of a Gaussian process with
        the noise variance over the prior variance ``n * alpha_``. The noise variance
        is the larger of that of largest marginal likelihood and that of the residuals
        and their degrees of freedom. It takes a pass over the rows and keeps two
        matrices of the size of the sketch, squared.

        Parameters
        ----------
        X, y, sample_weight
            The data that the model was fitted to, in memory. Other data, on which the
            objective is not `objective_`, raise a ValueError.
        """
        posterior.check_posterior(self, X)
        rows = self._check_training(X, y, sample_weight, **_base.NUMBERS, reset=False)
        self.posterior_ = posterior.fit_posterior(self, rows)
        return self
