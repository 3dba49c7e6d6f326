"""Sketched kernel regression for one or several targets."""

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, overload

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nbsketch._machine.memory import fits
from nbsketch._report.validation import declares_parameters, row_weights, warn
from nbsketch.estimators import _base, posterior
from nbsketch.estimators._monotonic import constrain, planned
from nbsketch.fitting.objective import Problem
from nbsketch.fitting.objectives import regression_objective
from nbsketch.fitting.plan import Plan
from nbsketch.fitting.sketched import SketchedData
from nbsketch.losses import SquareLoss, fitted_loss
from nbsketch.rows.inputs import (
    check_in_memory,
    is_dask,
    is_pairwise,
    row_by_row,
    rowwise,
)
from nbsketch.rows.outliers import (
    drawn_rows,
    far_outside,
    is_noise_free,
    outlier_warning,
    suspect_targets,
)
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.splits import check_groups
from nbsketch.rows.transform import transform_rows
from nbsketch.solvers._linear.cholesky import raised_cholesky, solve_positive_upper

# Number of samples checked for gross errors if X is lazy or memory is short.
_FEWER_ROWS = 400
# Smallest penalty for their leave-one-out residuals, relative to tr K.
_LEAST_SHIFT = 1e-12


@declares_parameters
class SketchedKernelRegressor(
    _base.ResidualLoss, _base.RegressorScore, _base.IterativeModel
):
    r"""Sketched kernel regression.

    .. math:: \min_{f, b} \frac{1}{n} \sum_i w_i\, \ell(f(x_i) + b, y_i)
              + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j (S^T G)_j\, M k(\cdot, x_j)

    over the s rows of a random sketch S. With d columns in y, the loss acts on the
    Euclidean norm of the residual, and the output matrix M couples the outputs.

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
        "pinball", "poisson", "gamma" (the last three for one target only), or a loss
        object with its parameters. "poisson" (targets >= 0; for rates, pass the
        exposure as `sample_weight`) and "gamma" (targets > 0) are half the deviance
        with the mean exp(f(x) + b), which `predict` returns.
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "rpcholesky", "accumulation", "countsketch", "sparse-jl", "srht", "identity",
        or a recipe.
        None: no sketch (all samples) if `size` is None and the default size is n; a
        prediction then costs n kernel values. Otherwise "subsampling": a prediction
        costs `size` kernel values.
    size : int, AutoSize, "auto" or None, default=None
        Number of rows s of a sketch given by name; "auto" doubles it until the held-out
        loss stops improving. Default for stationary kernels of dense samples with
        ``sketch=None`` and ``cv=None``: n up to 17,300 samples for the square loss with
        one output (fewer for several outputs or 60 features and more), n up to 8100 for
        other losses with one output, 5100 if they have kinks (pinball,
        epsilon-insensitive). Above, 2500 landmarks or more (fewer for several outputs;
        at most n / 3 for other losses than the square loss). Default in other cases: n
        if n <= 1500, else 1000, reduced above 50,000 samples so that n s^2 is constant
        (never below 100), for the square loss; min(n, 500), reduced above 200,000
        samples, for other losses. If this gives n, a sketch given by name has n / 2
        rows.
    alpha : float or None, default=None
        Penalty (> 0); n times this is the alpha of scikit-learn's ``KernelRidge``.
        None: chosen from the data. Square loss: the lowest leave-one-out error of at
        most 5000 samples, in closed form. If all of more than 1500 samples are used,
        models of at most 3200 samples are scored on a third of the samples (at most
        1600), and learned length scales are also multiplied by 0.5, 0.7 or 1. Other
        losses: the lowest loss on a random fifth of the samples (five random folds for
        at most 500 samples), along a path of penalties that ends where weaker penalties
        are worse. If all of more than 500 samples are used, as for the square loss with
        models of at most 1600 samples. Up to 5 % of the held-out rows, outliers under
        every penalty, are excluded. For the square loss without `output`, errors of
        several outputs are in units of their standard deviations.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Samples left out together when length scales, `size` or `alpha` are chosen.
        None: leave-one-out, in closed form (other losses: a random fifth of the
        samples). An integer: that many contiguous blocks of samples (or of whole
        groups), for samples that depend on their neighbors. Scikit-learn splitters and
        (train, test) indices are used unchanged.
    output : Output, array of shape (d, d) or None, default=None
        Output matrix M, positive semi-definite. None: the identity.
    fit_intercept : bool, default=True
        Whether to fit the intercept b, which is not penalized.
    monotonic_cst : array of int of shape (q,), dict of str or None, default=None
        1: predictions do not decrease in this feature, -1: they do not increase, 0: no
        constraint; one value per column, or a dict by column name. For one target and
        the square loss, without an output matrix; `alpha` is chosen without
        constraints, and the default sketch has n rows up to n = 1500, else 1000.
        Constraints are enforced on lines through a subset of the training samples; see
        `monotonic_violation_` and :doc:`/monotonic`.
    solver : {"auto", "adam", "sgd"} or StochasticSolver, default="auto"
        "auto": the closed form for the square loss; preconditioned conjugate gradients
        for all of more than 4000 samples and, with `alpha` or without `cv`, for
        ``sketch="subsampling"`` of size 2000 or more; a certified Newton method for the
        other losses. "adam" and "sgd" are stochastic solvers for repeating experiments
        of the papers.
    tol : float, default=1e-6
        Relative tolerance: stop when the objective is certified to be within this share
        of the minimum. 1e-4 is enough for prediction. The tolerance is raised to at
        least 1e-3 for conjugate gradients (also for smooth losses on large sketches),
        to 5e-2 for losses with kinks on many landmarks, and on all of more
        than 2000 samples to 1e-4 for smooth losses and to 1e-2 for those with kinks;
        `summary` then reports it.
    max_iter : int, default=1000
        Maximum number of iterations of the solver. A penalty that a fit to more than
        2000 samples chooses has at most 200 passes (60 steps on all samples).
    max_seconds : float or None, default=None
        Time limit of a fit. With more than 1500 samples (500 for the square loss
        without `alpha`) and neither `sketch` nor `size`, all samples are used if the
        time allows it, else the largest sketch that fits the time. The search for
        length scales respects the limit; the solver stops after at most twice the time,
        with a warning. The model then depends on the speed of the computer. None: no
        limit.
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
        Coefficients of the sketched kernel functions: f(x) = coef_^T S k_x.
    intercept_ : float or ndarray of shape (d,)
        Intercept b.
    landmarks_ : ndarray or csr_array of shape (s', p)
        Preprocessed training samples needed for prediction; no others are kept.
    kernel_, sketch_ : Kernel, Sketch
        Kernel with its bandwidth set, and the drawn sketch.
    loss_ : Loss
        Loss, with its thresholds.
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
        Penalty used.
    rank_ : int
        Rank r of S K S^T, equal to the number of features.
    objective_ : float
        Value of the objective.
    dual_gap_ : float
        Relative duality gap: the objective exceeds the minimum by at most this share.
        Infinite for a stochastic solver.
    n_iter_ : int
        Iterations of the solver; 1 for a closed form.
    n_copies_ : int
        Number of training samples merged into an identical one (:ref:`copies`).
    n_features_in_ : int
        Number of features q.
    suspects_ : ndarray of int
        Indices of samples whose targets look like gross errors, among at most 1000
        drawn ones, for the square loss. They are used in the fit, with an
        `OutlierWarning`.
    monotonic_violation_ : float
        With `monotonic_cst`: the largest change of a prediction against a constraint,
        as a constrained column of up to 1000 training samples moves along 50 quantiles
        and 50 evenly spaced values.
    posterior_ : dict
        After `fit_posterior` or ``predict(X, return_std=True)``: "noise" holds the
        noise variances, shape (d,); the other entries are used to compute standard
        deviations.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, "Fast Kernel Methods for Generic Lipschitz
    Losses via p-Sparsified Sketches", TMLR 2023, section 2. Weights are scaled to mean
    one: in the objective and in the median bandwidth, a sample of weight two is
    equivalent to the same sample twice. Samples of weight zero are removed first.

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
        """Check parameters and data; return the problem to solve."""
        plan = Plan.of(self)
        rows = self._check_training(X, y, sample_weight, **_base.NUMBERS)
        objective = regression_objective(*self._terms(rows), self.loss, self.output)
        objective = replace(objective, folds=self._folds(rows, groups))
        problem = Problem(rows.X, objective, plan, rows.y.ndim == 1, kept=rows.kept)
        return planned(self, problem)

    def _solve(self, problem: Problem) -> Self:
        super()._solve(problem)
        self.suspects_ = np.empty(0, dtype=np.intp)
        if self.loss_ == SquareLoss() and not is_pairwise(self.kernel_):
            self._tell_gross_errors(problem)
        return self

    def _tell_gross_errors(self, problem: Problem) -> None:
        """Set `suspects_`, and warn if there are any."""
        Y = problem.objective.targets
        drawn = drawn_rows(row_weights(problem.objective.weights, Y))
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
            reason = "the square loss excludes none"
            warn(outlier_warning(len(suspects), len(drawn), reason))

    def _left_out(self, rows: Any, Y: NDArray, n: int) -> NDArray:
        """Return the leave-one-out residuals of a model on all samples."""
        K = self.kernel_(rows, rows).astype(np.float64)
        shift = max(n * self.alpha_, _LEAST_SHIFT * float(np.trace(K)))
        upper, _ = raised_cholesky(K, shift)
        dual = solve_positive_upper(upper, Y - self.intercept_)
        inverse, _ = scipy.linalg.lapack.dpotri(upper, overwrite_c=1)
        return dual / inverse.diagonal()[:, None]

    def _complete(self, problem: Problem, data: SketchedData) -> None:
        objective: Any = problem.objective
        self.loss_ = objective.loss
        is_kept = self.sketch_.is_identity and self.loss_ == SquareLoss()
        training = {"targets": objective.targets.copy(), "weights": objective.weights}
        self._training = training if is_kept else None  # for a posterior
        if self.monotonic_cst is not None:
            constrain(self, problem)

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> NDArray: ...
    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[True]
    ) -> tuple[NDArray, NDArray]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return the predictions for X, of shape (n,) or (n, d).

        Parameters
        ----------
        X : array or sparse matrix of shape (n, q)
            Samples.
        return_std : bool, default=False
            Whether to return also the posterior standard deviation of the mean, in an
            array of the same shape. With a sketch, call `fit_posterior` first.
        """
        if return_std:
            posterior.ensure_posterior(self)
            return self.predict(X), self._std(X)
        if is_dask(X):
            return row_by_row(self.predict, X)
        return fitted_loss(self).mean(self._decision(X))

    @rowwise(row_by_row)
    def _std(self, X: ArrayLike) -> NDArray:
        return posterior.posterior_std(self, X)

    def fit_posterior(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Compute the posterior of the fitted model, for ``predict(return_std=True)``.

        A model of all samples needs no call: it computes the posterior at the first
        ``predict(X, return_std=True)``.

        Requires the square loss: the model is then the mean of a Gaussian process, and
        ``n * alpha_`` is the ratio of noise variance to prior variance. The noise
        variance is the larger of two estimates: maximum marginal likelihood, and
        residuals with their degrees of freedom. The computation takes one pass over the
        data and stores two matrices of shape (r, r).

        Parameters
        ----------
        X, y, sample_weight
            Data that the model was fitted to, in memory. A ValueError is raised if the
            objective on them differs from `objective_`.
        groups : array of shape (n,) or None, default=None
            Group of each sample. `explain.marginal_effects` then returns standard
            errors clustered by groups; standard deviations of predictions still assume
            independent noise.
        """
        check_is_fitted(self)
        check_in_memory("X", X, "a posterior")
        posterior.check_ridge(self, posterior.USE)
        check = partial(self._check_training, X, y, sample_weight, **_base.NUMBERS)
        given = None if groups is None else check(is_stream=True, reset=False)
        rows = check(reset=False)
        parts = posterior.fit_posterior(self, rows)
        if given is not None:
            labels: Any = check_groups(groups, given.n_given or len(given.y))
            labels = labels if given.kept is None else labels[given.kept]
            scores = posterior.group_scores(self, parts, given, labels, len(rows.y))
            parts["scores"] = scores
        self.posterior_ = parts
        return self
