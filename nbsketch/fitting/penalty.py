"""The penalty with the lowest held-out loss.

For several levels or classes, a path of penalties costs many times the final fit. The
penalty of a large problem is therefore chosen on a smaller one with the same kernel:
the leading principal components of the features, on a subset of the rows. Fewer
features and rows need a stronger penalty; the correction is estimated by ridge
regression, whose penalty is in closed form, on both problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.blas import eigh
from nbsketch._machine.memory import fits
from nbsketch._report.progress import is_stopped, path_callback, report
from nbsketch._report.validation import warn
from nbsketch.fitting.plan import SolveOptions
from nbsketch.rows.outliers import clipped, deviations, is_learned, within_gap
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.filters import RidgeFilter
from nbsketch.solvers.left_out import Fold, Folds, cross_validation, leave_one_out
from nbsketch.solvers.spectrum import (
    RidgePath,
    covariance,
    extended,
    least_share,
    ridge_path,
)

# Penalties tried, relative to the one at which penalty and loss are of equal size.
_RELATIVE_ALPHAS = np.logspace(1, -12, 27)
# After this many, further penalties are tried while the error decreases.
_FIRST_ALPHAS = 19
# Share of held-out rows, and accuracy of the fits on the others.
_HELD_OUT = 0.2
_PATH_TOL = 1e-2
# Maximum number of steps of a warm-started search: rows that leave almost nothing to
# fit may make it diverge.
_WARM_STEPS = 60
# A fifth of this few rows is too small for a stable choice: use this many folds, so
# that each row is held out once.
_FOLD_ROWS = 500
_FOLDS = 5
# A path ends after this many consecutive penalties with larger errors than the best, by
# more than the accuracy of the fits: smooth kernels have plateaus where the model is
# linear or quadratic.
_PATIENCE = 2
# The last penalties of a long path must improve by this factor.
_LOSS = 1.001
# A path has at least this many penalties unless the error has decreased by this share
# before: the strongest all fit constants, with errors that differ only by the accuracy
# of the fits.
_PLATEAU = 10
_FALL = 0.02
# Relative difference of errors that is due to rounding, for example of kernels so
# narrow that all penalties are equivalent.
_TIE = 1e-6
# Share of the error of a constant above which a path may have ended on a plateau.
_LOW = 0.9
# Number of rows for the penalty after the fit has been stopped.
_FEW_ROWS = 2000
# The first penalty of a path relative to a guess of the best, and its minimum length.
_STRONGEST = 30.0
_FEWEST = 5
# Leave-one-out errors of more rows do not improve the choice, and cost as much as the
# fit.
_MOST_VALIDATION_ROWS = 5000
# Share of the features, and the maximum numbers of features and rows, of the smaller
# problem.
_FEATURES = 1 / 3
_MOST_FEATURES = 200
_ROWS = 8000
# Up to this many rows times squared features, the path uses all rows, and the smaller
# problem all features.
_SMALL_PATH = 1e10
_ROWS_WORK = 2.5e9
# Tails of the targets cut off for ridge regression, if the loss is robust.
_TAILS = 0.01
# Minimum ratio of the two penalties.
_LEAST_RATIO = 1e-2
# Means of targets, in standard deviations, that are subtracted.
_FAR = 1e3


class AlphaPath(NamedTuple):
    """Penalties in descending order, and the errors of those tried."""

    alphas: NDArray
    errors: NDArray
    from_constant: bool = True  # whether the strongest penalty fits a constant

    @property
    def best(self) -> float:
        """The penalty with the lowest error; of equal ones the strongest."""
        are_least = self.errors <= (1 + _TIE) * self.errors.min()
        return float(self.alphas[np.argmax(are_least)])

    @property
    def is_low(self) -> bool:
        """Whether some error is clearly below the error of the strongest penalty."""
        return bool(self.errors.min() < _LOW * self.errors[0])

    @property
    def interpolated(self) -> float:
        """Minimizer of the parabola in log alpha through the best and its neighbors.

        At an end of the path, the best penalty. The penalties must be evenly spaced in
        their logarithm.
        """
        i = int(np.argmin(self.errors))
        if i in (0, len(self.errors) - 1):
            return self.best
        shift = vertex(*self.errors[i - 1 : i + 2])
        return float(self.alphas[i] * (self.alphas[i + 1] / self.alphas[i]) ** shift)

    def warn_of_constant(self) -> None:
        """Warn if the best penalty is at an end and no better than a constant."""
        errors = self.errors
        ends = 0, len(errors) - 1
        lowest = errors.min()
        is_end = len(errors) > 1 and np.argmin(errors) in ends
        falls = not self.from_constant or lowest < (1 - _FALL) * errors[0]
        if not is_end or falls or is_stopped():
            return
        if lowest > 0:  # else a constant is exact
            first, last = self.alphas[list(ends)]
            warn(
                f"no penalty from {first:.1e} to {last:.1e} predicts held-out rows "
                "better than a constant: if the targets are not noise, scale `X` "
                "or pass another `kernel`, `bandwidth` or `alpha`"
            )


def vertex(before: float, least: float, after: float) -> float:
    """Return the minimizer of the parabola through values at -1, 0 and 1."""
    curvature = before - 2 * least + after
    return 0.5 * (before - after) / curvature if curvature > 0 else 0.0


class LeftOutErrors(NamedTuple):
    """An objective on features, with its penalty chosen by held-out errors."""

    objective: Any
    design: Design
    rng: np.random.Generator

    def choose_alpha(self) -> float:
        """Return the penalty with the lowest held-out loss; five folds of small data.

        A smaller problem is used if that of all features is expensive or exceeds the
        memory.
        """
        objective = self.objective
        n, rank = self.design.shape
        is_stored = fits(self.design.dtype.itemsize * n * rank)
        if objective.is_expensive(rank) or not is_stored:
            return self.reduced_alpha()
        if n * rank**2 > _SMALL_PATH:
            return self.smaller_alpha(rank, max(_ROWS, int(_ROWS_WORK / rank**2)))
        folds = objective.folds or random_folds(n, self.rng)
        guess = None
        if objective.begins_near_ridge:
            guess = self._replace(objective=replace(objective, folds=None)).guess()
        divided = replace(objective, folds=folds)
        path = self._replace(objective=divided).path(None, guess)
        path.warn_of_constant()
        return path.interpolated

    def path(self, alpha: float | None = None, guess: float | None = None) -> AlphaPath:
        """Return the losses on the folds; None: on a random fifth of the rows.

        The path of penalties (`alpha` None) ends when weaker penalties are worse, after
        at least ten penalties unless the error has decreased by 2 %, because the
        strongest all fit constants. For a robust loss, gross errors under every penalty
        are excluded. A single row cannot be held out; all errors are then zero. With a
        guess of the best penalty, the path starts at 30 times the guess, unless the
        first penalty is then the best. A path that explains hardly anything continues
        at the guess if ridge regression explains more.
        """
        if is_stopped():
            return self._some_rows()._short_path(alpha)
        alphas = self.default_alphas() if alpha is None else np.array([alpha])
        first = 0 if guess is None else _first_near(guess, alphas)
        path = self._path(alphas[first:], 0 if first else _PLATEAU)
        if is_stopped():
            return path
        if first > 0 and np.argmin(path.errors) == 0:
            return self._path(alphas, _PLATEAU)
        if first > 0 or len(path.errors) == len(alphas) or path.is_low:
            return path._replace(from_constant=first == 0)
        guess = self.guess()
        if guess >= alphas[len(path.errors) - 1]:
            return path
        return min(path, self.path(None, guess), key=lambda path: path.errors.min())

    def _short_path(self, alpha: float | None) -> AlphaPath:
        """Return a penalty, or five near the best of ridge regression, and errors."""
        if alpha is not None:
            return self._path(np.array([alpha]), _PLATEAU)
        alphas = self.default_alphas()
        first = _first_near(self.guess(), alphas)
        return self._path(alphas[first:][:_FEWEST], 0 if first else _PLATEAU)

    def guess(self) -> float:
        """Return the best penalty of ridge regression, on the scale of the loss."""
        return self._ridge_alpha(self._ridge()) * self.objective.slope_ratio()

    def default_alphas(self) -> NDArray:
        """Return penalties from very strong to almost zero, in descending order.

        Almost zero is relative to the smallest variance of columns in their own units.
        """
        Z = self.design
        objective = self.objective
        spread = covariance(Z, objective.weights, objective.fit_intercept)
        top = float(eigh(spread)[0][-1]) if spread.size else 0.0
        scale = top if top > 0 else 1.0
        alphas = scale * objective.slope_ratio() * _RELATIVE_ALPHAS
        return extended(alphas, least_share(Z, spread))

    def _path(self, alphas: NDArray, least_count: int) -> AlphaPath:
        objective = self.objective
        folds = self._folds() if self.design.shape[0] > 1 else []
        if not folds:
            return AlphaPath(alphas, np.zeros(len(alphas)))
        validation = objective.take(np.concatenate([fold.test for fold in folds]))
        # Columns in their own units are fitted one after the other.
        weaker = len(alphas) - len(_RELATIVE_ALPHAS)
        fewest = weaker + _FEWEST if weaker > 0 else 0
        fits: list[NDArray] = []
        parts = [_Part(objective, self.design, fold) for fold in folds]
        was_stopped = is_stopped()
        goal = objective.fitted_loss()
        for alpha in alphas:
            fits.append(np.concatenate([part.fitted(float(alpha)) for part in parts]))
            errors = held_out_errors(validation, fits)
            is_fitted = all(part.least < goal for part in parts)
            is_over = len(errors) >= fewest and _is_over(errors, least_count)
            if is_stopped() == was_stopped and (is_fitted or is_over):
                break
            if not was_stopped and report(
                "penalty",
                total=len(alphas),
                iteration=len(errors),
                objective=float(errors[-1]),
            ):
                return self.path(alphas[0] if len(alphas) == 1 else None)
        return AlphaPath(alphas, errors)

    def _folds(self) -> list[Fold]:
        """Return the folds whose other rows have a solution."""
        n = self.design.shape[0]
        folds = self.objective.folds or [_random_part(n, self.rng)]
        solved = [f for f in folds if self.objective.has_solution(f.kept(n))]
        if lost := len(folds) - len(solved):
            warn(
                f"`y` is 0 in all training samples of {lost} of the folds, which do "
                "not count in the choice of the penalty: pass a splitter as `cv` that "
                "spreads the events, or `alpha`"
            )
        return solved

    def _some_rows(self) -> LeftOutErrors:
        """Return the errors on 2000 of the rows."""
        n = self.design.shape[0]
        if n <= _FEW_ROWS:
            return self
        rows = np.sort(self.rng.choice(n, _FEW_ROWS, replace=False))
        return LeftOutErrors(
            self.objective.take(rows), self.design.gather(rows), self.rng
        )

    def by_ridge(self, path: RidgePath, alphas: NDArray) -> NDArray:
        """Return the held-out errors of ridge regression on the folds.

        Without folds they are leave-one-out errors of at most 5000 rows.
        """
        objective = self.objective
        Y = objective.targets
        weights = objective.weights
        if objective.folds is not None:
            args = self.design, Y, alphas, objective.folds, weights
            return cross_validation(path, *args)
        rows = None
        if len(Y) > _MOST_VALIDATION_ROWS:
            rows = self.rng.choice(len(Y), _MOST_VALIDATION_ROWS, replace=False)
            rows.sort()
        args = self.design, Y, alphas, weights, rows
        return leave_one_out(path, RidgeFilter(), *args)

    def reduced_alpha(self) -> float:
        """Return the penalty of a third of the features (at most 200), 8000 rows."""
        count = max(1, min(_MOST_FEATURES, round(_FEATURES * self.design.shape[1])))
        return self.smaller_alpha(count, _ROWS)

    def smaller_alpha(self, n_features: int, most_rows: int) -> float:
        """Return the penalty of a smaller problem, corrected by ridge regression.

        The smaller problem has the leading principal components of the features. The
        minima of the paths are interpolated, because the grid is coarse relative to the
        correction. The correction is the ratio of the best leave-one-out penalties on
        all and on the smaller features, between 0.01 and 1. With folds all rows are
        kept.
        """
        spectrum = self._ridge()
        n = self.design.shape[0]
        part = self.objective
        rows = np.arange(n)
        if part.folds is None and n > most_rows:
            rows = np.sort(self.rng.choice(rows, most_rows, replace=False))
            part = part.take(rows)
        Z = ArrayDesign(self.design.gather(rows).mv(spectrum.vectors[:, -n_features:]))
        smaller = LeftOutErrors(part, Z, self.rng)
        least = self._ridge_alpha(spectrum)
        alpha = smaller._ridge_alpha(smaller._ridge())
        ratio = min(1.0, max(_LEAST_RATIO, least / alpha))
        path = smaller.path(None, alpha * part.slope_ratio())
        path.warn_of_constant()
        return ratio * path.interpolated

    def _ridge(self) -> RidgePath:
        return ridge_path(
            self.design, self._ridge_targets(), **self.objective._weighting
        )

    def _ridge_targets(self) -> NDArray:
        Y = without_tails(self.objective)
        return Y - far_means(self.objective, Y)

    def _ridge_alpha(self, path: RidgePath) -> float:
        """Return the penalty of ridge regression with the lowest held-out error."""
        cut = replace(self.objective, targets=self._ridge_targets())
        alphas = path.alphas(RidgeFilter())
        errors = self._replace(objective=cut).by_ridge(path, alphas)
        return AlphaPath(alphas, errors).interpolated


def _first_near(guess: float, alphas: NDArray) -> int:
    """Return the index of the first penalty of a path near a guess of the best."""
    return min(int((alphas > _STRONGEST * guess).sum()), _FIRST_ALPHAS - _FEWEST)


def random_folds(n: int, rng: np.random.Generator) -> Folds | None:
    """Return five random folds of small data; None for large data."""
    if n > _FOLD_ROWS or n < _FOLDS:
        return None
    parts = np.array_split(rng.permutation(n), _FOLDS)
    return tuple(Fold(part, part) for part in map(np.sort, parts))


def _random_part(n: int, rng: np.random.Generator) -> Fold:
    """Return the fold that leaves out a random fifth of the rows."""
    count = min(n - 1, max(1, round(_HELD_OUT * n)))
    out = np.sort(rng.permutation(n)[:count])
    return Fold(out, out)


def _is_over(errors: NDArray, least_count: int) -> bool:
    """Return whether weaker penalties need not be tried.

    They are tried, whatever their number, until the error has decreased below that of
    the first penalty or risen above it: until then all of them fit a constant.
    """
    last = errors[-_PATIENCE:]
    lowest = errors.min()
    if len(last) < _PATIENCE:
        return False
    if lowest >= (1 - _FALL) * errors[0]:
        has_risen = (last > (1 + _PATH_TOL) * errors[0]).all()
        return bool(has_risen) and len(errors) >= least_count
    if len(errors) < _FIRST_ALPHAS:
        return bool((last > (1 + _PATH_TOL) * lowest).all())
    return bool(last.min() * _LOSS > errors[:-_PATIENCE].min())


class _Part:
    """The problem of one fold, solved for one penalty after the other.

    Features in memory are gathered for each solve, so that a single copy is stored;
    other features once. A cold start follows a warm one that takes too many steps.
    """

    def __init__(self, objective: Any, design: Design, fold: Fold) -> None:
        self._kept = fold.kept(design.shape[0])
        self._test = fold.test
        self._design, self._objective = design, objective.take(self._kept)
        self._start: Any = None
        self.least = np.inf
        self._gathered: Design | None = None

    def fitted(self, alpha: float) -> NDArray:
        """Return the predictions of the test rows for a penalty, (m, d)."""
        Z = self._features()
        options = SolveOptions(tol=_PATH_TOL, callback=path_callback())
        solve = self._objective.solve
        solution = None
        if self._start is not None:
            limited = options._replace(max_iter=_WARM_STEPS)
            solution = solve(Z, alpha, limited, self._start)
        if solution is None or (solution.shortfall and not is_stopped()):
            solution = solve(Z, alpha, options)
        self.least = solution.objective
        self._start = solution.as_start()
        return self._design.gather(self._test).mv(solution.coef) + solution.intercept

    def _features(self) -> Design:
        if self._gathered is not None:
            return self._gathered
        features = self._design.gather(self._kept)
        if not isinstance(self._design, ArrayDesign):
            self._gathered = features
        return features


def held_out_errors(validation: Any, fits: Sequence[NDArray]) -> NDArray:
    """Return mean losses (k,) of predictions (k arrays (n, d)) on the counted rows."""
    rows = counted_rows(validation, fits)
    return np.array([validation.take(rows).mean_loss(fitted[rows]) for fitted in fits])


def counted_rows(validation: Any, fits: Sequence[NDArray]) -> NDArray:
    """Return the rows without gross errors; all of them for losses that are not robust.

    Gross errors are beyond a gap for all predictions. They are tails of the signal if
    some predictions have learned them that are not the best for the other rows.
    """
    rows = np.arange(len(validation.targets))
    if not validation.is_robust:
        return rows
    residuals = [validation.targets - fitted for fitted in fits]
    least = np.min(np.abs(residuals), axis=0)
    near = within_gap(deviations(least, validation.targets, None, validation.weights))
    if near.all():
        return rows
    part = validation.take(rows[near])
    best = np.argmin([part.mean_loss(fitted[near]) for fitted in fits])
    if any(is_learned(~near, residuals[best], values) for values in residuals):
        return rows
    return rows[near]


def without_tails(objective: Any, share: float = _TAILS) -> NDArray:
    """Return the targets, clipped if the loss is robust: gross errors and a share."""
    Y = objective.targets
    return clipped(Y, share) if objective.is_robust else Y


def far_means(objective: Any, Y: NDArray) -> NDArray:
    """Return the means of targets (n, d) that are far from zero, 0 for the others.

    Leave-one-out divides residuals of weak penalties by tiny numbers. If targets keep
    such means, these residuals have no correct digits.
    """
    means, squares = means_and_squares(objective, Y)
    return np.where(np.abs(means) > _FAR * np.sqrt(squares), means, 0.0)


def means_and_squares(objective: Any, Y: NDArray) -> tuple[NDArray, NDArray]:
    """Return means, 0 without an intercept, and mean squared distances from them."""
    weights = objective.weights
    means = np.average(Y, axis=0, weights=weights) * objective.fit_intercept
    return means, np.average(np.square(Y - means), axis=0, weights=weights)
