"""Joint quantile regression: all levels in one fit, with calibrated intervals."""

from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from nbsketch import _quantiles
from nbsketch._report import validation
from nbsketch.estimators._base import IterativeModel, score_of
from nbsketch.estimators._monotonic import constrain, planned
from nbsketch.fitting.objective import Problem
from nbsketch.fitting.objectives import JointQuantileObjective
from nbsketch.fitting.plan import Plan
from nbsketch.fitting.sketched import SketchedData
from nbsketch.metrics import pinball_loss
from nbsketch.outputs import QuantileOutput, check_levels
from nbsketch.rows.inputs import is_pairwise, row_by_row, rowwise
from nbsketch.rows.splits import split_last
from nbsketch.solvers.left_out import Folds


@validation.declares_parameters
class JointQuantileRegressor(RegressorMixin, IterativeModel):
    r"""Joint regression of several conditional quantiles, which do not cross.

    .. math:: \min_{f, b} \frac{1}{n} \sum_i w_i \sum_j
              \ell_{\tau_j}(y_i - f_j(x_i) - b_j) + \frac{\alpha}{2} \|f\|^2

    with the pinball losses of the levels :math:`\tau_j` and the output matrix
    :math:`M_{jl} = \exp(-\gamma (\tau_j - \tau_l)^2)`. The function f is restricted to
    the s rows of a random sketch.

    Parameters
    ----------
    quantiles : sequence of floats, default=(0.1, 0.3, 0.5, 0.7, 0.9)
        Levels, strictly ascending in (0, 1).
    gamma : float, default=1.0
        Coupling of the levels (>= 0). At 0 the quantile curves are parallel; larger
        values make them more independent.
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
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "rpcholesky", "accumulation", "countsketch", "sparse-jl", "srht", "identity", or
        a recipe. None: no sketch (all samples) if `size` is None and the default size
        is n, else "subsampling": a prediction then costs `size` kernel values.
    size : int, AutoSize, "auto" or None, default=None
        Number of rows s of a sketch given by name; "auto" doubles it until the held-out
        loss stops improving. None: n / 4, at most 3000 / d for d levels and at most the
        s with n s^2 = 1.8e10, but never below 100 (or n); from 12,000 / d (6000 for one
        level) dense samples with a stationary kernel, ``sketch=None`` and ``cv=None``:
        n / 3, at most 12,500 / d and the landmarks of the square loss. Larger sketches
        are more accurate and slower: up to the first default, and for fewer samples,
        solver steps cost (s d)^3; beyond, they are passes. If this gives n, a sketch
        given by name has n / 2 rows.
    alpha : float or None, default=None
        Penalty (> 0). None: the penalty with the lowest loss on a random fifth of the
        samples (five random folds for at most 500 samples), along a path of penalties;
        with passes (see `size`) a penalty of the level nearest to 0.5 on a sample of
        them, the strongest whose error exceeds the lowest by at most 0.5 %. Without
        passes and with r d > 400, for r features and d levels, the path uses a third of
        the features (at most 200) and at most 8000 samples; the penalty is then
        corrected by the ratio of the best ridge penalties of both problems.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Samples left out together when length scales, `size` or `alpha` are chosen.
        None: leave-one-out for length scales, a random fifth of the samples otherwise.
        An integer: that many contiguous blocks of samples (or of whole groups), for
        samples that depend on their neighbors. Scikit-learn splitters and (train, test)
        indices are used unchanged.
    fit_intercept : bool, default=True
        Whether to fit an intercept for each level. Without it, quantiles are biased if
        the targets are far from zero.
    non_crossing : {"sort", "constraint"} or None, default="sort"
        "sort": sort the predictions of each sample, which never increases the pinball
        loss. "constraint": minimize subject to ascending quantiles at the training
        samples of positive weight, and sort the predictions elsewhere; slower, and
        needs an intercept and solver="auto". None: return the values as fitted.
    monotonic_cst : array of int of shape (q,), dict of str or None, default=None
        1: quantiles do not decrease in this feature, -1: they do not increase, 0: no
        constraint; as in `SketchedKernelRegressor`. Not available with
        non_crossing="constraint".
    calibration : float in [0, 1), default=0.0
        Share of the samples excluded from the fit to calibrate the intervals: random
        samples or, with `cv`, the smallest number of last folds with at least this
        share.
    solver : {"auto", "adam", "sgd"} or StochasticSolver, default="auto"
        "auto" is a certified Newton method. "adam" and "sgd" are stochastic solvers for
        repeating experiments of the papers.
    tol : float, default=1e-3
        Relative tolerance: stop when the objective is certified to be within this share
        of the minimum; `dual_gap_` is the value reached. Smaller values hardly change
        predictions; pass 1e-6 for reproducible coefficients. The tolerance is raised to
        at least 5e-2 with passes (see `size`), and to 1e-4 on all of more than 2000
        samples; `summary` then reports it.
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
    coef_ : ndarray of shape (s, d)
        Coefficients of the sketched kernel functions, one column for each level.
    intercept_ : ndarray of shape (d,)
        Intercepts, one per level.
    quantiles_ : ndarray of shape (d,)
        Levels of the last fit.
    calibration_ : ndarray of shape (m, d + 1) or None
        Predicted quantiles of the m calibration samples and, in the last column, their
        targets. None: no calibration.
    calibration_weights_ : ndarray of shape (m,) or None
        Weights of the calibration samples, scaled to mean one. None: equal weights.
    landmarks_, kernel_, sketch_, scaler_, length_scales_, bandwidth_, size_,
    size_path_, alpha_, rank_, objective_, dual_gap_, n_iter_, n_copies_,
    n_features_in_, monotonic_violation_
        As in `SketchedKernelRegressor`.

    Notes
    -----
    Sangnier, Fercoq and d'Alche-Buc, "Joint quantile regression in vector-valued
    RKHSs", NeurIPS 2016; El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 4.
    Sorting: Chernozhukov, Fernandez-Val and Galichon, Econometrica 2010. Intervals:
    Romano, Patterson and Candes, "Conformalized quantile regression", NeurIPS 2019;
    with weights: Tibshirani, Barber, Candes and Ramdas, "Conformal prediction under
    covariate shift", NeurIPS 2019, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import JointQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, size=(300, 1))
    >>> y = X[:, 0] * rng.normal(size=300)
    >>> model = JointQuantileRegressor(
    ...     quantiles=(0.1, 0.5, 0.9), calibration=0.3, size=30, random_state=0
    ... ).fit(X, y)
    >>> model.predict([[0.2], [0.8]]).shape
    (2, 3)
    >>> print(model.predict_interval([[0.8]], coverage=0.8).round(1))
    [[-0.9  0.9]]
    """

    quantiles: Any = field(default=(0.1, 0.3, 0.5, 0.7, 0.9), kw_only=False)
    gamma: float = 1.0
    kernel: Any = "auto"
    non_crossing: str | None = "sort"
    monotonic_cst: Any = None
    calibration: float = 0.0
    tol: float = 1e-3

    def prepare(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Problem:
        """Check parameters and data; return the problem to solve."""
        plan = Plan.of(self)
        constrained = self._is_constrained()
        output = QuantileOutput(self.quantiles, self.gamma)
        rows = self._check_training(X, y, sample_weight, y_numeric=True)
        folds = self._folds(rows, groups)
        fitted, held_out, folds = self._split(len(rows.y), folds)
        columns = fitted if is_pairwise(self.kernel) else None
        held = rows.take(held_out, columns) if held_out.size else None
        rows = rows.take(fitted, columns) if held_out.size else rows
        objective = JointQuantileObjective(
            *self._terms(rows),
            output.quantiles,
            output.factor(output.size),
            constrained,
            folds=folds,
        )
        return planned(self, Problem(rows.X, objective, plan, False, held, rows.kept))

    def _is_constrained(self) -> bool:
        """Check `non_crossing`; return whether it constrains the fit."""
        validation.check_choice(
            "non_crossing", self.non_crossing, [None, "sort", "constraint"]
        )
        if self.non_crossing != "constraint":
            return False
        for name, needed in (("fit_intercept", True), ("solver", "auto")):
            if (got := getattr(self, name)) != needed:
                raise ValueError(
                    f"`{name}` must be {needed!r} for non_crossing='constraint', got "
                    f"{got!r}"
                )
        return True

    def _complete(self, problem: Problem, data: SketchedData) -> None:
        self.quantiles_ = np.array(self.quantiles, dtype=float)
        if self.monotonic_cst is not None:
            constrain(self, problem)
        self.calibration_ = None
        self.calibration_weights_ = None
        if problem.held_out is not None:
            rows = problem.held_out
            if self.monotonic_cst is None:
                Z = data.transform(rows.X, "X")
                quantiles = data.sketch_map.times(Z, self.coef_) + self.intercept_
            else:
                quantiles = self._values(rows.X)
            self.calibration_ = np.column_stack([quantiles, rows.y])
            self.calibration_weights_ = rows.relative_weights

    def _split(
        self, n: int, folds: Folds | None
    ) -> tuple[NDArray, NDArray, Folds | None]:
        """Return the samples to fit and to calibrate on, and the folds of the former.

        Calibration samples are random or, with folds, the last folds.
        """
        share = validation.check_real(
            "calibration", self.calibration, low=0, high=1, high_open=True
        )
        count = round(share * n)
        if count == n:
            raise ValueError(
                f"`calibration` must leave samples to fit on, got {share} of {n}"
            )
        if folds is not None:
            return split_last(folds, n, count)
        # A stream independent of those of the fit, which are spawned from the same
        # seed.
        order = validation.random_generator(self.random_state).permutation(n)
        return np.sort(order[count:]), np.sort(order[:count]), None

    @rowwise(row_by_row)
    def predict(self, X: ArrayLike) -> NDArray:
        """Return the quantiles of X, of shape (n, d)."""
        values = self._decision(X)
        return values if self.non_crossing is None else np.sort(values, axis=1)

    @rowwise(row_by_row)
    def predict_interval(self, X: ArrayLike, coverage: float) -> NDArray:
        """Return prediction intervals with the given coverage.

        The ends are the quantiles of levels (1 - coverage) / 2 and (1 + coverage) / 2,
        interpolated between the fitted levels. With calibration, both ends move
        outwards (or inwards) by the same distance, chosen on the calibration samples. A
        new sample from the same distribution is then covered with at least the stated
        probability, for any distribution of the data. Calibration samples count by
        their weights, the new sample with their mean weight.

        Parameters
        ----------
        X : array of shape (n, q)
            Samples.
        coverage : float in (0, 1)
            Probability of coverage. Both levels must be within the fitted levels.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends.
        """
        level = validation.check_level("coverage", coverage)
        levels = self._levels()
        tails = (1 - level) / 2, (1 + level) / 2
        slack = 1e-7  # coverage and levels may be rounded to float32
        if tails[0] < levels[0] - slack or tails[1] > levels[-1] + slack:
            raise ValueError(
                f"`coverage` must lie between the fitted levels {levels[0]:g} and "
                f"{levels[-1]:g}, got {level:g}, which needs {tails[0]:g} and "
                f"{tails[1]:g}"
            )
        values = np.sort(self._decision(X), axis=1)
        ends = _quantiles.between_levels(levels, values, tails)
        if self.calibration_ is not None:
            held, y = self._held_out()
            held = _quantiles.between_levels(levels, held, tails)
            outside = np.maximum(held[:, 0] - y, y - held[:, 1])
            ends += np.array([-1.0, 1.0]) * self._move(outside, level)
            ends = _quantiles.moved_outwards(ends, values)
        return _quantiles.uncrossed(ends)

    @rowwise(row_by_row)
    def predict_quantiles(self, X: ArrayLike, levels: Any) -> NDArray:
        r"""Return conditional quantiles at any levels.

        Quantiles are interpolated linearly between the fitted levels; outside, the
        distribution function has exponential tails that continue the slope between the
        outermost two levels. With calibration, each fitted quantile first moves by a
        conformal quantile of its residuals on the m calibration samples. A new sample
        is then below it with probability :math:`\tau` up to 1 / (m + 1) (the largest
        residual is used if m is too small).

        Parameters
        ----------
        X : array of shape (n, q)
            Samples.
        levels : float or sequence of floats
            Levels in (0, 1).

        Returns
        -------
        ndarray of shape (n, levels)
            Quantiles, ascending with the levels.
        """
        tau = check_levels("levels", np.atleast_1d(np.asarray(levels)))
        if tuple(tau) == tuple(self._levels()):
            return self._calibrated(X)
        self._check_several("predict_quantiles of other levels")
        return _quantiles.with_tails(self._levels(), self._calibrated(X), tau)

    @rowwise(lambda method, X, y: row_by_row(method, X, _quantiles.as_values(y, ())))
    def predict_cdf(self, X: ArrayLike, y: ArrayLike) -> NDArray:
        """Return the conditional distribution function P(Y <= y | X).

        It is the inverse of `predict_quantiles`.

        Parameters
        ----------
        X : array of shape (n, q)
            Samples.
        y : float, array of shape (k,), or array of shape (n, k) or (n, 1)
            Values: the same k values for each sample, or one row per sample.

        Returns
        -------
        ndarray of shape (n, k)
            Probabilities.
        """
        self._check_several("predict_cdf")
        quantiles = self._calibrated(X)
        values = _quantiles.as_values(y, quantiles.shape[:1])
        return _quantiles.distribution(self._levels(), quantiles, values)

    def _check_several(self, what: str) -> None:
        """Check that the model has at least two levels."""
        if len(self._levels()) == 1:
            raise ValueError(
                f"`quantiles` must have two or more levels for {what}, got "
                f"{tuple(self._levels().tolist())}: fit more levels"
            )

    def _levels(self) -> NDArray:
        # Models of older files have no `quantiles_`.
        return getattr(self, "quantiles_", np.asarray(self.quantiles, dtype=float))

    def _held_out(self) -> tuple[NDArray, NDArray]:
        """Return ascending quantiles of the calibration samples, and their targets."""
        held: Any = self.calibration_
        return np.sort(held[:, :-1], axis=1), held[:, -1]

    def _move(self, residuals: NDArray, level: float) -> float:
        """Return the conformal quantile of residuals of the calibration samples."""
        weights = self.calibration_weights_
        return _quantiles.conformal_quantile(residuals, level, weights)

    def _calibrated(self, X: Any) -> NDArray:
        """Return ascending quantiles at the fitted levels, shifted by calibration."""
        quantiles = np.sort(self._decision(X), axis=1)
        if self.calibration_ is None:
            return quantiles
        held, y = self._held_out()
        for k, level in enumerate(self._levels()):
            sign = 1.0 if level >= 0.5 else -1.0  # round away from the median
            above = sign * (y - held[:, k])
            move = self._move(above, max(level, 1 - level))
            quantiles[:, k] += sign * min(move, above.max())
        return np.sort(quantiles, axis=1)

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the negative mean pinball loss, summed over the levels.

        Dask collections of predictions and targets are gathered in this process.
        """
        metric = partial(pinball_loss, quantiles=self._levels())
        return -score_of(self, metric, X, y, sample_weight)
