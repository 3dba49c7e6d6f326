"""Which penalty: errors on a path of penalties, of which the least one is chosen.

A path of penalties for several levels or classes costs many times the last fit. The
penalty of a large problem is that of a smaller one with the same kernel: it has the
leading principal components of the features, on some of the rows. Fewer features and
rows need a stronger penalty: how much stronger is what ridge regression, with a penalty
in closed form, finds on both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch._progress import is_stopped, report
from nbsketch.fitting.settings import SolveOptions
from nbsketch.solvers import smoother
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.filters import Filter
from nbsketch.solvers.folds import Fold, fold_errors
from nbsketch.solvers.ridge import (
    RidgePath,
    cross_validation,
    leave_one_out,
    ridge_path,
)
from nbsketch.solvers.spectrum import Spectrum
from nbsketch.tuning.tuner import inliers

# Criteria of spectral filters.
CRITERIA = ("gcv", "leave-one-out")
# Penalties tried, relative to the one at which penalty and loss are of one size.
_RELATIVE_ALPHAS = np.logspace(1, -8, 19)
# Share of the rows that are held out, and accuracy of the fits on the others.
_HELD_OUT, _PATH_TOL = 0.2, 1e-2
# Steps after which a search from another solution is given up: rows that hardly leave
# anything to fit may send it astray.
_WARM_STEPS = 30
# A fifth of so few rows is too small for a steady choice: each is held out once, in so
# many folds.
_FOLD_ROWS, _FOLDS = 500, 5
# A path ends where so many penalties in a row lose by so much against the best.
_PATIENCE, _LOSS = 2, 1.001
# A whole path has so many penalties unless the error has fallen by this share before:
# the strongest ones all leave the constants, which differ by the accuracy of the fits.
_PLATEAU, _FALL = 10, 0.02
# Rows of the path once a callback has stopped the fit.
_FEW_ROWS = 2000
# The first penalty of a path over a guess of the best one, and its fewest penalties.
_STRONGEST, _FEWEST = 30.0, 5
# Leave-one-out errors of more rows do not improve the choice, and cost as much as the
# fit.
_MOST_VALIDATION_ROWS = 5000
# Share of the features, and the largest numbers of features and of rows, of the smaller
# problem.
_FEATURES, _MOST_FEATURES, _ROWS = 1 / 3, 200, 8000
# Rows times squared features of the smaller problem that has all features.
_ROWS_WORK = 2.5e9
# Tails of the targets that are cut off for ridge regression, if the loss is robust.
_TAILS = 0.01
# The least ratio of the two penalties.
_LEAST_RATIO = 1e-2


class AlphaPath(NamedTuple):
    """Penalties, the strongest first, and the errors of those that were tried."""

    alphas: NDArray
    errors: NDArray

    @property
    def best(self) -> float:
        """The penalty of least error; of equal ones the strongest."""
        return float(self.alphas[np.argmin(self.errors)])

    @property
    def interpolated(self) -> float:
        """The minimizer of a parabola in log alpha through the best and its neighbors.

        At an end of the path, the best penalty itself. The penalties must be evenly
        spaced in their logarithm.
        """
        i = int(np.argmin(self.errors))
        if i in (0, len(self.errors) - 1):
            return self.best
        before, least, after = self.errors[i - 1 : i + 2]
        curvature = before - 2 * least + after
        shift = 0.5 * (before - after) / curvature if curvature > 0 else 0.0
        return float(self.alphas[i] * (self.alphas[i + 1] / self.alphas[i]) ** shift)


class LeftOut(NamedTuple):
    """An objective on features, whose penalty is chosen by errors on rows left out."""

    objective: Any
    design: Design
    rng: np.random.Generator

    def path(self, alpha: float | None = None, guess: float | None = None) -> AlphaPath:
        """Return the losses on the rows of the folds; None: on a random fifth.

        The path of penalties (if `alpha` is None) ends where weaker ones lose, after
        ten at least unless the error has fallen by 2 %: the strongest all fit
        constants. For a robust loss, outliers under every penalty are excluded. With a
        single row nothing can be held out, and all errors are zero. If a callback stops
        the fit, the path is that of 2000 of the rows. A path with a guess of the best
        penalty starts at 30 times that, unless the first penalty is then the best.
        """
        rows = self._some_rows() if is_stopped() else self
        alphas = rows.default_alphas() if alpha is None else np.array([alpha])
        first = 0
        if guess is not None:
            stronger = int(np.count_nonzero(alphas > _STRONGEST * guess))
            first = min(stronger, len(alphas) - _FEWEST)
        path = rows._path(alphas[first:], 0 if first else _PLATEAU)
        if first == 0 or np.argmin(path.errors) > 0:
            return path
        return rows._path(alphas, _PLATEAU)

    def default_alphas(self) -> NDArray:
        """Return penalties from far too strong to almost none, the strongest first."""
        Z, objective = self.design, self.objective
        covariance = Z.gram(weights=objective.weights) / Z.shape[0]
        top = float(eigh(covariance)[0][-1]) if covariance.size else 0.0
        scale = top if top > 0 else 1.0
        return scale * objective.slope_ratio() * _RELATIVE_ALPHAS

    def _path(self, alphas: NDArray, least_count: int) -> AlphaPath:
        objective, n = self.objective, self.design.shape[0]
        if n == 1:
            return AlphaPath(alphas, np.zeros(len(alphas)))
        folds = objective.folds or [_random_part(n, self.rng)]
        validation = objective.take(np.concatenate([fold.test for fold in folds]))
        losses: list[NDArray] = []
        errors, least = np.empty(0), np.full(validation.targets.shape, np.inf)
        parts = [_Part(objective, self.design, fold) for fold in folds]
        for alpha in alphas:
            fitted = np.concatenate([part.fitted(float(alpha)) for part in parts])
            losses.append(validation.losses(fitted))
            least = np.minimum(least, np.abs(validation.targets - fitted))
            errors = mean_losses(validation, np.array(losses), least)
            lost = (errors[-_PATIENCE:] > _LOSS * errors.min()).sum() == _PATIENCE
            has_fallen = errors.min() < (1 - _FALL) * errors[0]
            if lost and (has_fallen or len(errors) >= least_count):
                break
            progress = {"iteration": len(errors), "objective": float(errors[-1])}
            if not is_stopped() and report("penalty", total=len(alphas), **progress):
                return self.path()
        return AlphaPath(alphas, errors)

    def _some_rows(self) -> LeftOut:
        n = self.design.shape[0]
        if n <= _FEW_ROWS:
            return self
        rows = np.sort(self.rng.choice(n, _FEW_ROWS, replace=False))
        return LeftOut(self.objective.take(rows), self.design.gather(rows), self.rng)

    def ridge(self, path: RidgePath, alpha: float | None = None) -> AlphaPath:
        """Return the errors of ridge regression on the rows of the folds.

        Without folds they are leave-one-out errors, of at most 5000 rows.
        """
        alphas = path.default_alphas()[::-1] if alpha is None else np.array([alpha])
        Y, weights = self.objective.targets, self.objective.weights
        if self.objective.folds is not None:
            args = self.design, Y, alphas, self.objective.folds, weights
            return AlphaPath(alphas, cross_validation(path, *args))
        rows = _validation_rows(len(Y), self.rng)
        args = self.design, Y, alphas, weights, rows
        return AlphaPath(alphas, leave_one_out(path, *args))

    def sampled_alpha(self) -> float:
        """Return the penalty on some of the rows, corrected by ridge regression.

        All features are kept, and so many rows that n r^2 is at most 2.5e9, at least
        8000.
        """
        rank = self.design.shape[1]
        return self._smaller_alpha(rank, max(_ROWS, int(_ROWS_WORK / rank**2)))

    def reduced_alpha(self) -> float:
        """Return the penalty of a smaller problem, corrected by ridge regression.

        The minima of the paths are interpolated: the grid is coarse beside the
        correction, which is the ratio of the penalties of least leave-one-out error on
        all and on the smaller features, between 0.01 and 1. With folds all rows are
        kept.
        """
        count = max(1, min(_MOST_FEATURES, round(_FEATURES * self.design.shape[1])))
        return self._smaller_alpha(count, _ROWS)

    def _smaller_alpha(self, n_features: int, most_rows: int) -> float:
        whole, n = self._ridge(), self.design.shape[0]
        part, rows = self.objective, np.arange(n)
        if part.folds is None and n > most_rows:
            rows = np.sort(self.rng.choice(rows, most_rows, replace=False))
            part = part.take(rows)
        Z = ArrayDesign(self.design.gather(rows).mv(whole.vectors[:, -n_features:]))
        smaller = LeftOut(part, Z, self.rng)
        least = self._by_ridge(whole)
        ridge = smaller._by_ridge(smaller._ridge())
        ratio = min(1.0, max(_LEAST_RATIO, least / ridge))
        guess = ridge * part.slope_ratio()
        return ratio * smaller.path(None, guess).interpolated

    def _ridge(self) -> RidgePath:
        options = {"sample_weight": self.objective.weights}
        Y, intercept = without_tails(self.objective), self.objective.fit_intercept
        return ridge_path(self.design, Y, fit_intercept=intercept, **options)

    def _by_ridge(self, path: RidgePath) -> float:
        """Return the penalty of least left-out error of ridge regression."""
        cut = replace(self.objective, targets=without_tails(self.objective))
        return self._replace(objective=cut).ridge(path).interpolated


def random_folds(n: int, rng: np.random.Generator) -> tuple[Fold, ...] | None:
    """Return five random folds of few rows; None for many."""
    if n > _FOLD_ROWS or n < _FOLDS:
        return None
    parts = np.array_split(rng.permutation(n), _FOLDS)
    return tuple(Fold(part, part) for part in map(np.sort, parts))


def _random_part(n: int, rng: np.random.Generator) -> Fold:
    """Return the fold that leaves out a fifth of the rows."""
    count = min(n - 1, max(1, round(_HELD_OUT * n)))
    out = np.sort(rng.permutation(n)[:count])
    return Fold(out, out)


class _Part:
    """The problem of one fold, solved for one penalty after the other.

    Features in memory are gathered for each solve, so that a single copy is stored;
    those elsewhere once.
    """

    def __init__(self, objective: Any, design: Design, fold: Fold) -> None:
        self._kept, self._test = fold.kept(design.shape[0]), fold.test
        self._design, self._objective = design, objective.take(self._kept)
        self._start: Any = None
        self._gathered: Design | None = None

    def fitted(self, alpha: float) -> NDArray:
        """Return the fit on the test rows for a penalty, (m, d)."""
        Z, options = self._features(), SolveOptions(tol=_PATH_TOL)
        solve, limited = self._objective.solve, options._replace(max_iter=_WARM_STEPS)
        solution = solve(Z, alpha, limited, self._start)
        if solution.shortfall and not is_stopped():
            solution = solve(Z, alpha, options)
        self._start = solution.as_start()
        rows = self._design.gather(self._test)
        return rows.mv(solution.coef) + solution.intercept

    def _features(self) -> Design:
        if self._gathered is not None:
            return self._gathered
        features = self._design.gather(self._kept)
        if not isinstance(self._design, ArrayDesign):
            self._gathered = features
        return features


def mean_losses(validation: Any, losses: NDArray, least: NDArray) -> NDArray:
    """Return means of losses (k, n) over the rows.

    Outliers, whose `least` residual over all penalties is large, are excluded.
    """
    is_used = inliers(least) if validation.is_robust else np.ones(len(least), bool)
    rows = np.flatnonzero(is_used)
    return np.average(losses[:, rows], axis=1, weights=validation.take(rows).weights)


def _validation_rows(n: int, rng: np.random.Generator) -> NDArray | None:
    """Return the rows whose leave-one-out errors count; None for all."""
    if n <= _MOST_VALIDATION_ROWS:
        return None
    return np.sort(rng.choice(n, _MOST_VALIDATION_ROWS, replace=False))


def filter_path(
    objective: Any,
    spectrum: Spectrum,
    filter: Filter,
    design: Design,
    alpha: float | None,
    validation: tuple[Design, NDArray] | None = None,
) -> AlphaPath:
    """Return errors of a spectral filter on validation rows, or on those of the folds.

    Without either they are those of its criterion.
    """
    alphas = filter.alphas(spectrum.top) if alpha is None else np.array([alpha])
    args = objective.targets, alphas
    if validation is not None:
        errors = smoother.held_out_error(spectrum, filter, *validation, alphas)
    elif objective.folds is not None:
        folds, weights = objective.folds, objective.weights
        errors = fold_errors(spectrum, filter, design, *args, folds, weights)
    elif objective.criterion == "gcv":
        errors = smoother.generalized_cross_validation(spectrum, filter, alphas)
    else:
        weights = objective.weights
        errors = smoother.leave_one_out(spectrum, filter, design, *args, weights)
    return AlphaPath(alphas, errors)


def without_tails(objective: Any) -> NDArray:
    """Return the targets, without outliers if the loss is robust to them."""
    Y = objective.targets
    if not objective.is_robust:
        return Y
    return np.clip(Y, *np.quantile(Y, [_TAILS, 1 - _TAILS], axis=0))
