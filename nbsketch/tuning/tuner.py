"""Learn length scales, preprocessing, kernel family and penalty from the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from nbsketch._jit.tuning import FAMILIES
from nbsketch._machine.blas import one_thread
from nbsketch._report.validation import (
    check_choice,
    check_integer,
    random_generator,
    row_weights,
)
from nbsketch.kernels import LEARNABLE, Kernel, StationaryKernel
from nbsketch.rows.copies import merged_weights
from nbsketch.rows.outliers import NORMAL, inliers, is_learned, noise_scale
from nbsketch.rows.splits import as_folds, block_labels, merges_copies
from nbsketch.rows.transform import MANY, PREPROCESSINGS, InputScaler, fit_scaler
from nbsketch.solvers.left_out import Fold
from nbsketch.tuning.blocks import learn, left_out_error
from nbsketch.tuning.criterion import LandmarkCriterion
from nbsketch.tuning.descent import LEAST_INVERSE, Budget
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.screening import Selection, screen
from nbsketch.tuning.search import (
    NEAR,
    Descents,
    criterion_of,
    isotropic_start,
    median_start,
    outer_product_start,
    settle,
    shared_start,
    spread_start,
)

# Default maximum of the iterations of all descents together.
ITERATIONS = 300
# Residual, in standard deviations, beyond which a row is trimmed,
OUT = 4.0
# and within which it is restored.
_IN = 5.0
# Rows and landmarks of a fit.
_FIT = 2000, 100
# Rows of the first of the two searches, from which the second continues.
_FIRST = 300
# Factor from a median absolute deviation to three standard deviations.
_CUT = 3 * NORMAL
# Rows among which trimmed ones need some neighbors,
_NEIGHBORS = 1000
_RANK = 5
# at up to this factor of the distances between these rows.
_REACH = 1.5
# The family of "auto". Small models cannot choose it: they favor smooth families, which
# have larger errors in the final model.
BEST_FAMILY = "matern-3/2"
# If there are at most this many features, all of them are also searched,
_CHEAP = 100
# unless this share of them is selected;
_DENSE = 0.5
# with more features, only if more than this share is selected.
_SPARSE = 0.25
_VALIDATION_ROWS = 1500  # of the final comparison
# Bounds of its landmarks: 400 landmarks choose the same, for 0.15 s more.
_VALIDATION_LANDMARKS = 100, 200
# Sketches with fewer landmarks may need longer length scales than all rows; sketches
# with up to half as many use the full change.
_MOST_LANDMARKS = 1200
# The change to longer length scales, which is repeated
_LONGER = -np.log([1.5]), NEAR[1]
# while the log squared error decreases by this much,
_GAIN = 0.02
# at most this many times.
_MOST_STEPS = 5
# Columns with one value in all but this share of the rows may be dropped, because too
# few rows show whether they are relevant,
_RARE = 0.1
# unless the residuals of these rows are larger by this factor.
_LARGE = 2.0
# If blocks are left out, a search can fit this many directions to noise.
_DIRECTIONS = 20
# The search restarts if the log squared error of equal length scales is above the first
# number and the lowest error above one of the others: without restarts, 10 of 48 fits
# to functions of 1 to 3 of 10 to 30 features learned hardly anything, now none. Blocks
# find a slope in 31 of 40 draws, the evidence in 24, in twice the time.
_HARDLY = -0.6
# It is kept if it lowers the error by this; smaller differences on noise are chance.
_CLEARLY = 0.1
_RESTARTS = {"blocks": -1.0, "evidence": -0.2}


@dataclass(frozen=True)
class Tuned:
    """Result of `tune`.

    Attributes
    ----------
    kernel : Kernel
        Kernel on the columns returned by `scaler`, with one bandwidth each; on X itself
        if `scaler` is None.
    scaler : InputScaler or None
        Preprocessing of the features. None if the bandwidths absorb it.
    alpha : float
        Suitable penalty, in the normalization of the estimators.
    relevance : ndarray of shape (q,)
        Inverse length scale of each feature, in units of its standard deviation (of its
        ranks, or of both together). Zero for constant and dropped features.
    error : float
        Root mean squared error, in standard deviations of the targets, of a small model
        on a sample: leave-one-out, or of the blocks of `cv`.
    isotropic_error : float
        The same with equal length scales.
    """

    kernel: Kernel
    scaler: InputScaler | None
    alpha: float
    relevance: NDArray
    error: float
    isotropic_error: float

    @property
    def length_scales(self) -> NDArray:
        """Length scales, (q,): inverse relevances, infinite where these are zero."""
        with np.errstate(divide="ignore"):
            return 1 / self.relevance


def tune(
    X: NDArray,
    Y: NDArray,
    *,
    family: str = "auto",
    preprocessing: str = "auto",
    size: int = 1000,
    sample_weight: NDArray | None = None,
    alpha: float | None = None,
    robust: bool = False,
    cv: int | Iterable[tuple[Any, Any]] | Sequence[Fold] | None = None,
    groups: NDArray | None = None,
    max_iter: int = ITERATIONS,
    max_seconds: float = np.inf,
    rng: Any = None,
    callback: Callable[[int, float], Any] | None = None,
) -> Tuned:
    r"""Learn the length scales of a kernel from data, at a cost independent of n.

    Log length scales and log penalty are searched by BFGS with bounded steps. The
    criterion is the leave-one-out error and the evidence of exact ridge regression on
    small blocks of neighboring rows; then, with noise, the evidence of 600 random rows,
    checked by the leave-one-out errors of both. With fewer than 3000 rows or without
    noise it is that evidence alone. See `nbsketch.tuning.search`. With more than 50
    features, relevant features are first selected by tests on ranks, and the others are
    dropped; see `nbsketch.tuning.screening`. Equal length scales are a candidate in the
    final comparison.

    Parameters
    ----------
    X : ndarray of shape (n, q)
        Samples.
    Y : ndarray of shape (n, d)
        Targets, standardized internally.
    family : {"auto", "gaussian", "matern-1/2", "matern-3/2", "matern-5/2", "laplacian"}
        Kernel family. "auto": "matern-3/2", the best on average. "laplacian": the
        product kernel ``exp(-sum_k |x_k - z_k| / l_k)``, for targets with steps and
        kinks.
    preprocessing : {"auto", "standard", "rank", "both"}
        Preprocessing of the features, see `fit_scaler`. "auto": "both".
    size : int, default=1000
        Number of landmarks of the model to be fitted. The final comparison uses this
        number, but at least 100 and at most 200. With fewer than 1200, the result may
        have longer length scales than for a model of all of 3000 samples or more.
    sample_weight : ndarray of shape (n,), default=None
        Nonnegative weights. Samples of weight zero do not influence the result. None:
        equal weights. Duplicates (equal X and Y) are merged into one sample with the
        sum of their weights, except for pairs of index arrays.
    alpha : float, default=None
        Penalty of the model to be fitted, for which length scales are learned. None:
        the penalty is learned with them.
    robust : bool, default=False
        Whether to trim up to 5 % of the samples, those with outlying residuals.
    cv : None, int, iterable of (train, test) or sequence of Fold, default=None
        Samples left out together in the criterion. None: leave-one-out. An integer:
        that many contiguous blocks, for samples whose neighbors nearly repeat them, as
        in time series. Pairs of index arrays: the test sets, as yielded by a
        scikit-learn splitter; samples in several test sets belong to the first. More
        than 10 blocks are merged into 10; all features are searched in addition to the
        selected ones.
    groups : ndarray of shape (n,), default=None
        Group of each sample. With ``cv=None`` each group is left out, with an integer
        that many blocks of whole groups.
    max_iter : int, default=300
        Maximum number of iterations of all descents together.
    max_seconds : float, default=inf
        Time after which no iteration starts. With a finite value the result depends on
        the speed of the computer.
    rng : None, int or Generator, default=None
        Random state. Pass an int for reproducible results.
    callback : callable, default=None
        Called after each iteration with its number and the error, as in `Tuned.error`;
        if it returns true, the search ends.

    Returns
    -------
    tuned : Tuned
        Kernel, preprocessing and penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tuning import tune
    >>> X = np.random.default_rng(0).uniform(size=(400, 3))
    >>> Y = np.sin(6 * X[:, :1])
    >>> tuned = tune(X, Y, rng=0)
    >>> tuned.relevance.round(2).tolist()
    [0.52, 0.0, 0.0]
    """
    check_choice("family", family, ["auto", *LEARNABLE])
    check_choice("preprocessing", preprocessing, ["auto", *PREPROCESSINGS])
    check_integer("size", size)
    check_integer("max_iter", max_iter)
    columns = "both" if preprocessing == "auto" else preprocessing
    budget = Budget(max_iter, max_seconds, callback)
    search = ScaleSearch(columns, size, random_generator(rng), budget)
    Y = np.asarray(Y, dtype=np.float64)
    if merges_copies(cv):
        sample_weight = merged_weights(X, Y, sample_weight)
    folds = as_folds(cv, len(X), groups, sample_weight)
    family = BEST_FAMILY if family == "auto" else family
    return search.learn(X, Y, sample_weight, folds, family, alpha, robust)


@dataclass(frozen=True)
class ScaleSearch:
    """Options, random state and budget of all candidates."""

    preprocessing: str
    size: int
    rng: np.random.Generator
    budget: Budget
    # With fewer columns, a search starts from equal length scales.
    few_columns: ClassVar[int] = MANY

    def learn(
        self,
        X: Any,
        Y: NDArray,
        sample_weight: NDArray | None,
        folds: Sequence[Fold] | None,
        family: str,
        alpha: float | None,
        robust: bool,
    ) -> Tuned:
        """Return the result for samples without duplicates: see `tune`.

        `folds` are left out together; None: single samples.
        """
        n = X.shape[0]
        weights = row_weights(sample_weight, Y)
        weighed = np.flatnonzero(weights)
        labels = block_labels(folds, n)
        with one_thread():
            # In ranks, a sample far outside would be a neighbor of the outermost.
            kind = "standard" if robust else self.preprocessing
            first = fit_scaler(X, kind, self.rng, weighed, weights=weights)
            given = Rows(
                X, Y, weights, first, weighed, FAMILIES[family], np.inf, alpha, labels
            )
            rows, *_ = given.standardized()
            point = None
            if robust:
                kept, cut, point = trim(rows, self.rng, self.budget)
                scaler = fit_scaler(
                    X, self.preprocessing, self.rng, kept, weights=weights
                )
                given = replace(given, scaler=scaler, kept=kept, cut=cut)
                rows, *_ = given.standardized()
                few = len(scaler.features) < MANY
                point = shared_start(rows, point) if few else None
            _, errors, best = self.search(rows, point)
        return _result(best, LEARNABLE[family], len(weighed), errors)

    def search(
        self, rows: Rows, warm: NDArray | None = None
    ) -> tuple[dict[str, Selection], dict[str, float], Selection]:
        """Return the candidates, their log errors and the choice.

        See `candidates`. The search restarts from the median distance, on blocks and by
        evidence, if equal length scales learn hardly anything: the best of them are
        then so long, with so much noise, that a search from there may find no slope.
        """
        pool = self.candidates(rows, warm)
        errors, best = self.choose(rows, pool)
        # The draws after the search remain the same.
        again = replace(self, rng=np.random.default_rng(0))
        for name, most in _RESTARTS.items():
            if errors["isotropic"] > _HARDLY and errors["best"] > most:
                data = rows.take(rows.drawn(again.rng))
                point = median_start(data.rows, rows.family)
                if name == "blocks":
                    point = learn(data, rows.family, point, again.rng, self.budget)
                    point = again._learned(rows, point)
                else:
                    point = Descents(rows, again.rng, self.budget).by_evidence(point)
                trial = pool | {name: Selection(rows.scaler, point)}
                found = again.choose(rows, trial)
                if found[0]["best"] < errors["best"] - _CLEARLY:
                    pool = trial
                    errors, best = found
        return pool, errors, best

    def candidates(
        self, rows: Rows, warm: NDArray | None = None
    ) -> dict[str, Selection]:
        """Return the candidates by name.

        `warm`: another start of the search for all columns.
        """
        # Equal length scales concern the features, not their ranks.
        plain = rows.without_ranks()
        isotropic = isotropic_start(plain, self.rng)
        pool = {"isotropic": Selection(plain.scaler, isotropic)}
        selection = self._selected(rows)
        if selection is not None:
            selected = replace(rows, scaler=selection.scaler)
            point = self._learned(selected, selection.point)
            pool["selected"] = Selection(selection.scaler, point)
        if selection is None or self._may_miss(rows, len(selection.features)):
            start = spread_start(rows, isotropic)
            if len(rows.scaler.center) >= self.few_columns:
                start = outer_product_start(rows, start, self.rng)
            point = self._learned(rows, start, warm)
            pool["learned"] = Selection(rows.scaler, point)
        return pool

    def _selected(self, rows: Rows) -> Selection | None:
        """Return the relevant features among many, and a scaler for them."""
        if rows.X.shape[1] <= MANY or self.budget.is_spent:
            return None
        selection = screen(rows, self.rng, self.budget)
        if selection is None or len(selection.features) > MANY:
            return selection
        # With few features, more of them get rank scores.
        return selection.rescaled(
            fit_scaler(
                rows.X,
                self.preprocessing,
                self.rng,
                rows.kept,
                selection.features,
                weights=rows.weights,
            )
        )

    def _may_miss(self, rows: Rows, n_selected: int) -> bool:
        """Return whether to search all features as well as the selected ones."""
        # Tests assume exchangeable rows, which left-out blocks are not.
        q = rows.X.shape[1]
        share = n_selected / q
        is_unlike = share < _DENSE if q <= _CHEAP else share > _SPARSE
        return is_unlike or rows.labels is not None

    def _learned(
        self, rows: Rows, point: NDArray, warm: NDArray | None = None
    ) -> NDArray:
        search = Descents(rows, self.rng, self.budget)
        if rows.labels is None:
            return search.learn(point, warm)
        # Blocks alone have 1.6 times the error on one in three parts of concrete.
        drawn = rows.draw(self.rng, _VALIDATION_ROWS)
        criterion = criterion_of(rows, drawn, _VALIDATION_LANDMARKS[1])
        tried = search.learn(point), search.by_evidence(point)
        return settle(criterion, NEAR, *tried)[1]

    def choose(
        self, rows: Rows, pool: dict[str, Selection]
    ) -> tuple[dict[str, float], Selection]:
        """Compare candidates on a new sample; return log errors and the choice."""
        drawn = rows.with_rare(rows.draw(self.rng, _VALIDATION_ROWS))
        together = rows.drawn(self.rng)
        landmarks = int(np.clip(self.size, *_VALIDATION_LANDMARKS))
        errors = {}
        scores = {}
        for name, (scaler, start) in pool.items():
            scaled = replace(rows, scaler=scaler)
            criterion = criterion_of(scaled, drawn, landmarks)
            errors[name], point = settle(
                criterion, NEAR, *_without_rare(criterion, start), start
            )
            pool[name] = Selection(scaler, point)
            if rows.is_noisy and rows.has_blocks:
                # On small blocks, whose error resembles that of all rows.
                data = scaled.take(together)
                errors[name] = left_out_error(data, rows.family, point, self.rng)
            # Akaike's correction for the noise fitted by each length scale.
            most = len(point) if rows.labels is None else _DIRECTIONS
            n_varying = np.isfinite(scaler.width).sum()
            free = 0 if name == "isotropic" else min(n_varying - 1, most)
            scores[name] = errors[name] + 2 * free / len(rows.kept)
        best = min(reversed(scores), key=scores.__getitem__)
        return errors | {"best": errors[best]}, self._for_landmarks(rows, pool[best])

    def _for_landmarks(self, rows: Rows, selection: Selection) -> Selection:
        """Return longer length scales if few landmarks clearly need them.

        Blocks learn the length scales for all rows.
        """
        share = min(_MOST_LANDMARKS / self.size - 1, 1.0)
        is_searched = rows.labels is None and rows.has_blocks
        if not is_searched or share <= 0 or self.budget.is_spent:
            return selection
        scaler, start = selection
        size = min(self.size, _MOST_LANDMARKS // 2)
        drawn = rows.draw(self.rng, max(3 * size, _VALIDATION_ROWS))
        criterion = criterion_of(replace(rows, scaler=scaler), drawn, size)
        error, point = settle(criterion, NEAR, start)
        for _ in range(_MOST_STEPS):
            before = error
            error, longer = settle(criterion, _LONGER, point)
            if error > before - _GAIN:
                break
            point = longer
        moved = start[:-1] + share * (point - start)[:-1]
        return Selection(scaler, np.append(moved, start[-1]))


def _without_rare(criterion: LandmarkCriterion, point: NDArray) -> list[NDArray]:
    """Return the point without irrelevant rare columns, if there are any.

    Rare columns have one value in nearly all rows. They are relevant if the residuals
    of the other rows, left out of a fit without rare columns, are larger than usual.
    """
    X = criterion.data.rows
    others = np.median(X, axis=0) != X
    rare = _rare(X)
    if not rare.any():
        return []
    without = np.where(np.append(rare, False), LEAST_INVERSE, point)
    _, without = settle(criterion, NEAR, without)
    residuals = np.abs(criterion.residuals(without)).sum(axis=1)
    sizes = residuals @ others[:, rare] / others[:, rare].sum(axis=0)
    rare[rare] = sizes <= _LARGE * residuals.mean()
    without = np.where(np.append(rare, False), LEAST_INVERSE, point)
    return [without] if rare.any() else []


def _result(
    best: Selection, kernel: StationaryKernel, n: int, errors: dict[str, float]
) -> Tuned:
    scaler, point = best
    lengths = np.where(np.isfinite(scaler.width), np.exp(-point[:-1]), np.inf)
    squares = np.bincount(scaler.features, 1 / np.square(lengths), scaler.n_features)
    # Bandwidths absorb a scaler, unless it has ranks or drops features.
    folded = not (scaler.ranked.size or scaler.is_partial)
    widths = lengths * scaler.width if folded else lengths
    return Tuned(
        kernel=replace(kernel, bandwidth=widths),
        scaler=None if folded else scaler,
        alpha=float(np.exp(point[-1])) / n,
        relevance=np.sqrt(squares),
        error=float(np.exp(errors["best"] / 2)),
        isotropic_error=float(np.exp(errors["isotropic"] / 2)),
    )


def trim(
    rows: Rows, rng: np.random.Generator, budget: Budget
) -> tuple[NDArray, float, NDArray]:
    """Return the indices of the inliers, a threshold for the Huber loss, and a point.

    Fit with equal length scales and trim the rows with residuals above 4 standard
    deviations, at most 5 %; run a short search on the others and trim all rows again
    with a limit of 5; twice. The threshold is three standard deviations of the
    residuals, in units of the standard deviation of the targets of the inliers. If a
    short search on all rows predicts the trimmed ones, they are tails of the signal,
    and inliers, without a threshold. Rows that no fold leaves out have training
    residuals, which are not used for deviations.
    """
    candidates = rows
    targets = rows.Y[rows.kept]
    weights = rows.weights[rows.kept]
    rows = rows.clipped()
    point = isotropic_start(rows, rng)
    curvature = None
    for limit in (OUT, _IN, _IN):
        if limit == _IN:
            search = Descents(rows, rng, budget)
            most = None if curvature else _FIRST
            point, curvature = search.learn_briefly(point, curvature, most)
        residuals, fitted = _residuals(rows, candidates, point, rng)
        usual = inliers(residuals, targets, limit, ~fitted, weights)
        sizes = np.linalg.norm(residuals[usual & ~fitted], axis=1)
        cut = _CUT * float(np.median(sizes)) if sizes.size else 0.0
        rows = candidates.keep(usual, cut)
        if limit == OUT and not usual.all():
            point = isotropic_start(rows, rng)
    if not usual.all():
        usual[~usual] = _are_flagged(rows, candidates.kept[~usual], point)
        rows = candidates.keep(usual, cut)
    tails = _tails(~usual, residuals, candidates, point, budget)
    if tails.any():
        return candidates.kept[usual | tails], np.inf, point
    spread = np.sqrt(rows.Y[rows.kept].var(axis=0).mean())
    return rows.kept, cut / spread if min(cut, spread) > 0 else np.inf, point


def _are_flagged(rows: Rows, trimmed: NDArray, point: NDArray) -> NDArray:
    """Return the mask of trimmed rows that are inliers but for values of rare columns.

    Flags without effect leave their rows without neighbors. Values outside the range of
    the other rows are no flags.
    """
    drawn = rows.with_rare(rows.draw(np.random.default_rng(0), _FIT[0]))
    criterion = criterion_of(rows, drawn, _FIT[1])
    sample = criterion.data
    rare = _rare(sample.rows)
    if not rare.any():
        return np.zeros(len(trimmed), bool)
    X = rows.transform(trimmed)
    usual = np.median(sample.rows, axis=0)
    inside = np.clip(X, sample.rows.min(axis=0), sample.rows.max(axis=0)) == X
    flagged = ((usual != X) & rare).any(axis=1)
    flagged &= (inside | ~rare).all(axis=1)
    predict = criterion.predictor(point)
    offset = np.median(sample.Y - predict(sample.rows), axis=0)
    residuals = rows.Y[trimmed] - predict(np.where(rare, usual, X)) - offset
    scale = noise_scale(criterion.residuals(point), sample.Y, sample.weights)
    return flagged & (np.abs(residuals) <= _IN * scale).all(axis=1)


def _rare(X: NDArray) -> NDArray:
    """Return the mask of columns with one value in nearly all rows, but not in all."""
    share = np.mean(np.median(X, axis=0) != X, axis=0)
    return (share > 0) & (share < _RARE)


def _tails(
    trimmed: NDArray,
    residuals: NDArray,
    candidates: Rows,
    point: NDArray,
    budget: Budget,
) -> NDArray:
    """Return the mask of trimmed rows that are tails of the signal.

    A short search on all rows predicts them, and they have neighbors among the others,
    but for rare flags: rows far outside are predictable, but their length scales are
    not those inside.
    """
    rng = np.random.default_rng(0)  # the draws of the search remain the same
    tails = trimmed.copy()
    if tails.any():
        # Rare columns of two values count as constant.
        X = candidates.transform(candidates.draw(np.random.default_rng(0), _FIT[0]))
        flags = _rare(X) & ((X.min(axis=0) == X) | (X.max(axis=0) == X)).all(axis=0)
        width = np.where(flags, np.inf, candidates.scaler.width)
        others = replace(candidates, scaler=replace(candidates.scaler, width=width))
        tails[trimmed] = have_neighbors(others, trimmed, rng)
    if not tails.any():
        return tails
    point, _ = Descents(candidates, rng, budget).learn_briefly(point)
    plain, _ = _residuals(candidates, candidates, point, rng)
    return tails & is_learned(tails, residuals, plain)


def have_neighbors(rows: Rows, trimmed: NDArray, rng: np.random.Generator) -> NDArray:
    """Return whether the trimmed rows are near others, as these are to each other."""
    others = rows.keep(~trimmed, rows.cut)
    first, second = np.array_split(rows.transform(others.draw(rng, _NEIGHBORS)), 2)
    reach = _REACH * np.quantile(_nearest(first, second), 0.99)
    return rows.values(partial(_nearest, first), rows.kept[trimmed])[:, 0] <= reach


def _nearest(others: NDArray, rows: NDArray) -> NDArray:
    """Return the distances (n, 1) of rows to the fifth nearest of the others."""
    rank = min(_RANK, len(others)) - 1
    return np.partition(cdist(rows, others), rank, axis=1)[:, [rank]]


def _residuals(
    rows: Rows, candidates: Rows, point: NDArray, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """Return residuals of all candidates (k, d) for a small fit to some of `rows`.

    Fitted rows have leave-one-out residuals. The second array is the mask of rows that
    no fold leaves out.
    """
    drawn = rows.draw(rng, _FIT[0])
    criterion = criterion_of(rows, drawn, _FIT[1])
    predict = criterion.predictor(point)
    residuals = candidates.Y[candidates.kept] - rows.values(predict, candidates.kept)
    # The mean of the targets is not in the predictions.
    residuals -= np.median(residuals, axis=0)
    place = np.searchsorted(candidates.kept, drawn)
    inside = (
        np.zeros(len(drawn), bool) if rows.labels is None else rows.labels[drawn] < 0
    )
    own = criterion.residuals(point) + (candidates.Y[drawn] - rows.Y[drawn])
    residuals[place[~inside]] = own[~inside]
    fitted = np.zeros(len(residuals), bool)
    fitted[place[inside]] = True
    return residuals, fitted
