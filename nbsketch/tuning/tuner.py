"""Length-scales, inputs, kernel family and penalty, learned from the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch._jit.tuning import GAUSSIAN, MATERN_12, MATERN_32, MATERN_52
from nbsketch._validation import check_choice, check_integer, random_generator
from nbsketch.kernels import GaussianKernel, Kernel, MaternKernel
from nbsketch.tuning.inputs import PREPROCESSINGS, InputScaler, fit_scaler
from nbsketch.tuning.robust import trim
from nbsketch.tuning.rows import Rows, prepare
from nbsketch.tuning.search import (
    LAST,
    NEAR,
    ROUNDS,
    Budget,
    Round,
    is_rough,
    isotropic_start,
    learn,
    outer_product_start,
    settle,
)

_FAMILIES = {
    "gaussian": GAUSSIAN,
    "matern-1/2": MATERN_12,
    "matern-3/2": MATERN_32,
    "matern-5/2": MATERN_52,
}
# What "auto" stands for. Small models cannot choose: they favor smooth families, which
# lose in the large one.
_BEST = "matern-3/2"
# From so many columns on, the search starts from average gradients.
_MANY = 50
# How many times its rows there are to be for a last round.
_SPARE = 1.5
# Rows of the comparison at the end.
_JUDGES = 1500


class _Candidate(NamedTuple):
    scaler: InputScaler
    family: int
    point: NDArray


@dataclass(frozen=True)
class Tuned:
    """What `tune` found.

    Attributes
    ----------
    kernel : Kernel
        Kernel on the columns that `scaler` makes, with a bandwidth for each; on X
        itself where there is no scaler.
    scaler : InputScaler or None
        The transformation of the inputs; None where the bandwidths can do its work.
    alpha : float
        A penalty that suits, in the normalization of the estimators.
    relevance : ndarray of shape (q,)
        For each feature, the inverse length-scale in units of its standard deviation
        (of its ranks, and of both together, where it has them).
    error : float
        Leave-one-out root mean squared error in standard deviations of the targets, of
        a small model on a sample.
    isotropic_error : float
        The same with one length-scale for all columns.
    """

    kernel: Kernel
    scaler: InputScaler | None
    alpha: float
    relevance: NDArray
    error: float
    isotropic_error: float


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
    max_iter: int = 60,
    max_seconds: float = np.inf,
    rng: Any = None,
    callback: Callable[[int, float], None] | None = None,
) -> Tuned:
    r"""Learn the length-scales of a kernel from data, at a cost independent of n.

    The exact leave-one-out error of a small ridge with sub-sampled landmarks is
    minimized over log length-scales and log penalty in short rounds of L-BFGS, each on
    at most 2000 rows drawn afresh; see `nbsketch.tuning.criterion` and `search`. One
    length-scale for all stays in the comparison at the end.

    Parameters
    ----------
    X : ndarray of shape (n, q)
        Rows.
    Y : ndarray of shape (n, d)
        Targets; each counts in units of its standard deviation.
    family : {"auto", "gaussian", "matern-1/2", "matern-3/2", "matern-5/2"}
        Kernel family. "auto" is Matern 3/2, the best on average.
    preprocessing : {"auto", "standard", "rank", "both"}
        What the kernel sees of each feature; see `fit_scaler`. "auto" is "both".
    size : int
        Number of landmarks of the model to come. With many of them, and a target rough
        enough to profit, a last round has 400 landmarks.
    sample_weight : ndarray of shape (n,), optional
        Non-negative weights.
    alpha : float, optional
        The penalty of the model to come, to which the length-scales then suit. By
        default it is learned with them.
    robust : bool
        Whether to leave out up to 5 % of the rows with wild residuals.
    max_iter : int
        Largest number of iterations, all rounds together.
    max_seconds : float
        A safety valve: no iteration starts later. It makes results depend on the
        machine.
    rng : None, int or Generator
        The same number gives the same result.
    callback : callable, optional
        Called after each iteration with its number and the error that it reached, as in
        `Tuned.error`.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tuning import tune
    >>> X = np.random.default_rng(0).uniform(size=(400, 3))
    >>> Y = np.sin(6 * X[:, :1])
    >>> tuned = tune(X, Y, rng=0)
    >>> bool(tuned.relevance[0] > 10 * tuned.relevance[1:].max())
    True
    """
    check_choice("family", family, ["auto", *_FAMILIES])
    check_choice("preprocessing", preprocessing, ["auto", *PREPROCESSINGS])
    check_integer("size", size)
    check_integer("max_iter", max_iter)
    rng, budget = random_generator(rng), Budget(max_iter, max_seconds, callback)
    code = _FAMILIES[_BEST if family == "auto" else family]
    with one_thread():
        kept, cut = _kept(X, Y, sample_weight, alpha, code, robust, rng, budget)
        scaler = fit_scaler(
            X, "both" if preprocessing == "auto" else preprocessing, rng, kept
        )
        rows = prepare(X, Y, sample_weight, scaler, kept, cut, alpha)
        # One length-scale for all is a question of the features, not of their ranks.
        plain = scaler.without_ranks() if scaler.plain.size else scaler
        isotropic = isotropic_start(replace(rows, scaler=plain), code, rng)
        learned, plan = _learned(rows, isotropic, code, size, rng, budget)
        pool = {
            "isotropic": _Candidate(plain, code, isotropic),
            "learned": _Candidate(scaler, code, learned),
        }
        errors, best = _choose(rows, pool, plan, rng)
    return _result(best, len(X), errors)


def _kept(
    X: NDArray,
    Y: NDArray,
    weights: NDArray | None,
    alpha: float | None,
    family: int,
    robust: bool,
    rng: np.random.Generator,
    budget: Budget,
) -> tuple[NDArray, float]:
    """Return the indices of the rows that tuning may see, and the cut."""
    kept = np.arange(len(X)) if weights is None else np.flatnonzero(weights > 0)
    cut = np.inf
    if robust:
        # In ranks, a row far outside would be a neighbor of the outermost.
        scaler = fit_scaler(X, "standard", rng, kept)
        rows = prepare(X, Y, weights, scaler, kept, alpha=alpha)
        kept, cut = trim(rows, family, rng, budget)
    return kept, cut


def _learned(
    rows: Rows,
    isotropic: NDArray,
    family: int,
    size: int,
    rng: np.random.Generator,
    budget: Budget,
) -> tuple[NDArray, Round]:
    """Return the point that the rounds of the search end at, and the last of them."""
    # As many columns as there are, at the same distances in the mean.
    count = len(rows.scaler.center)
    shift = np.log(count / (len(isotropic) - 1)) / 2
    point = np.append(np.full(count, isotropic[0] - shift), isotropic[-1])
    if len(point) > _MANY:
        point = outer_product_start(rows, family, point, rng)
    rounds = [r._replace(landmarks=min(r.landmarks, max(size, 100))) for r in ROUNDS]
    point = learn(rows, point, rounds, rng, budget, family)
    # Only with rows to spare: on the same rows it would overfit.
    large = size > LAST.landmarks and len(rows.kept) >= _SPARE * LAST.rows
    if large and not budget.is_spent and is_rough(rows, point, rng, family):
        return learn(rows, point, [LAST], rng, budget, family), LAST
    return point, rounds[-1]


def _choose(
    rows: Rows, pool: dict[str, _Candidate], plan: Round, rng: np.random.Generator
) -> tuple[dict[str, float], _Candidate]:
    """Compare candidates on one more sample; return log errors and the choice.

    The sample has as many landmarks as the last round: scales learned with many of them
    are too short for few.
    """
    drawn, errors = rows.draw(rng, min(plan.rows, _JUDGES)), {}
    for name, (scaler, family, point) in pool.items():
        sample = replace(rows, scaler=scaler).take(drawn, plan.landmarks)
        errors[name], point = settle(sample, family, point, NEAR)
        pool[name] = _Candidate(scaler, family, point)
    # Each length-scale has fitted some noise: what Akaike's criterion allows for that.
    noise = 2 * (len(pool["learned"].point) - 2) / len(rows.kept)
    isotropic = errors["isotropic"] < errors["learned"] + noise
    best = "isotropic" if isotropic else "learned"
    return errors | {"best": errors[best]}, pool[best]


def _result(best: _Candidate, n: int, errors: dict[str, float]) -> Tuned:
    scaler, family, point = best
    lengths = np.exp(-point[:-1])
    features = np.concatenate([scaler.plain, scaler.ranked])
    squares = np.bincount(features, 1 / np.square(lengths), scaler.n_features)
    folded = not scaler.ranked.size
    widths = lengths * scaler.width if folded else lengths
    return Tuned(
        kernel=_kernel(family, widths),
        scaler=None if folded else scaler,
        alpha=float(np.exp(point[-1])) / n,
        relevance=np.sqrt(squares),
        error=float(np.exp(errors["best"] / 2)),
        isotropic_error=float(np.exp(errors["isotropic"] / 2)),
    )


def _kernel(family: int, bandwidth: NDArray) -> Kernel:
    if family == GAUSSIAN:
        return GaussianKernel(bandwidth=bandwidth)
    nu = {MATERN_12: 0.5, MATERN_32: 1.5, MATERN_52: 2.5}[family]
    return MaternKernel(bandwidth=bandwidth, nu=nu)
