"""Rates of regularized algorithms with random projections, compared with theory.

Lin and Cevher, "Convergences of Regularized Algorithms and Stochastic Gradient Methods
with Random Projections", JMLR 2020, on problems with known exponents: a
`nbsketch.datasets.DiagonalDesign` of capacity gamma = 1/2 and targets of source zeta.
With N = n^(1 / max(2 zeta + gamma, 1)), these are measured against the number n of
rows:

- the excess risk of each filter, of order N^(-2 zeta) if zeta is at most its
  qualification (1 for ridge regression, which saturates beyond);
- the squared distance to the target in the norm of the space, for zeta > 1/2 of order
  N^(1 - 2 zeta);
- the dimension of a random projection at which the excess risk of ridge regression
  (zeta > 1: iterated) is 1.25 times that without a projection. Up to logarithms, order
  N^gamma suffices for randomized sketches (Corollary 3) and leverage scores (Corollary
  5), N for plain Nystrom sub-sampling (Corollary 4, for 2 zeta + gamma > 1); for zeta >
  1, zeta times these exponents. Also on an `UnequalDesign`, on which the bounds of
  corollaries 3 and 4 part, and for squared distances in the norm of the space, with
  2 zeta - 1 in place of zeta;
- the excess risk of the projected stochastic gradient method in the four regimes of
  step, batch and number of steps, of the same order as for the filters;

and at a fixed number of rows, against the dimension m, the excess risk that a
projection adds to that of ridge regression. By Theorem 1 with a penalty of the order of
the projection error, m^(-1 / gamma) for sketches, it is of order m^(-2 zeta / gamma).

For zeta = 0.2 and 0.3 the target is not in the space of the kernel, and 2 zeta + gamma
is 0.9 and 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch import sketches
from nbsketch._machine.blas import eigh
from nbsketch.datasets import DiagonalDesign
from nbsketch.kernels import LinearKernel
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._data import sketch_of
from nbsketch.reproduce._figures import Curve, Panel
from nbsketch.reproduce._report import Row, Rows, groups, growth, replicated
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.solvers import filters as spectral
from nbsketch.solvers.sgm import REGIMES, sgm_regime, solve_sgm

DESIGN = DiagonalDesign(capacity=0.5, n_modes=1024)
NOISE = 0.3
SOURCES = 0.2, 0.3, 0.5, 1.0, 1.5
FILTERS: dict[str, spectral.Filter] = {
    "ridge": spectral.RidgeFilter(),
    "iterated ridge": spectral.IteratedRidgeFilter(order=2),
    "cutoff": spectral.CutoffFilter(),
    "Landweber": spectral.LandweberFilter(),
}
# Filters of the projections: ridge regression, where it does not saturate.
_PROJECTED = ["ridge" if source <= 1 else "iterated ridge" for source in SOURCES]
# Sources of the part on stochastic gradients.
PROJECTED_SOURCES = 0.5, 1.0
SKETCHES = "sub-sampling", "p-sparsified", "Gaussian", "ROS"
# Share of the first row below which a row of a sketch depends on earlier rows.
_DEPENDENT = 1e-10
# The required dimension: excess risk at most this multiple of that without projection.
FACTOR = 1.25
_ALPHAS = np.logspace(0.5, -6.5, 57)
_LARGEST_DIMENSION = 256
_DRAWS = 2  # of each sketch, per replicate
_NOISES = 4  # draws of noisy targets for the stochastic gradients
# Dimension of their projection, in units of n^{gamma / (2 zeta + gamma)}.
_SPARE = 6
_MOST_ROWS = 4096  # for them: the number of steps grows faster than n
# Theory gives step and number of steps up to constants. Values tried, in these units:
# steps are relative to the largest squared norm of a row, about 3.
_STOPS = 2.0 ** np.arange(1, 4.5, 0.5)
# The step of regime I is large and retains much noise of the batches.
_STEP_FACTORS = {"I": 0.25}
SIZES = ENTRIES["rates"]["sizes"]
_PROJECTIONS = "projection", "unequal", "norm projection"
# Rows and dimensions for the excess risk that a projection adds.
_FIXED_ROWS = 8192
_FIXED_DIMENSIONS = 4, 6, 8, 11, 16
# Plain Nystrom, by uniform subsampling, needs more landmarks than other sketches.
PLAIN = "sub-sampling"
# Projections of the stochastic gradients, and what is added to the name of a regime.
_GRADIENT_SKETCHES = {"": "p-sparsified", f", {PLAIN}": PLAIN}


@dataclass(frozen=True)
class UnequalDesign(DiagonalDesign):
    """Another kernel with these eigenvalues: k(x, x') is constant if x = x', else 0.

    Inputs are the modes, with frequencies equal to the eigenvalues: rare modes have
    leverage scores of order 1 / alpha, while those of a `DiagonalDesign` are bounded by
    the effective dimension.
    """

    def features(self, x: ArrayLike) -> NDArray:
        """Return the features of the modes at the quantiles x in [0, 1), (n, J)."""
        total = self.eigenvalues.sum()
        modes = np.searchsorted(self.eigenvalues.cumsum() / total, x, side="right")
        return np.sqrt(total) * np.eye(self.n_modes)[modes]


# Series, source, value.
Found = tuple[str, float, float | None]


class DesignSample(NamedTuple):
    """A draw of inputs: features, covariance, and covariance with each target."""

    X: NDArray  # (n, J)
    gram: NDArray  # (J, J)
    targets: NDArray  # f(x) for each source, (n, k)
    cross: NDArray  # (J, k)

    @classmethod
    def draw(
        cls, n: int, rng: np.random.Generator, design: DiagonalDesign | None = None
    ) -> DesignSample:
        """Draw n inputs of a design with the modes of `DESIGN`, the default."""
        X = (design or DESIGN).features(rng.random(n))
        targets = X @ np.column_stack([DESIGN.coefficients(s) for s in SOURCES])
        return cls(X, X.T @ X / n, targets, X.T @ targets / n)


def filter_risks(
    sample: DesignSample,
    filters: dict[str, spectral.Filter],
    basis: NDArray | None = None,
    power: float = 0.5,
    alphas: NDArray = _ALPHAS,
) -> dict[str, NDArray]:
    """Return the mean excess risks for each parameter and source, of shape (p, k).

    `basis` (J, m) has orthonormal columns that span the projection. Default: no
    projection. A `power` of 0 returns squared distances to the target in the norm of
    the space.
    """
    gram = sample.gram
    cross = sample.cross
    if basis is not None:
        gram = basis.T @ gram @ basis
        cross = basis.T @ cross
    values, vectors = eigh(gram)
    values = np.maximum(values, 0.0)
    cross = vectors.T @ cross
    modes = vectors if basis is None else basis @ vectors
    # In the orthonormal basis of the design, where a norm is a risk.
    scales = DESIGN.eigenvalues**power
    truth = np.column_stack([scales * DESIGN.coefficients(s) for s in SOURCES])
    modes = scales[:, None] * modes
    spread = np.square(modes).sum(axis=0) * values * NOISE**2 / len(sample.X)
    risks = {}
    for name, filter in filters.items():
        gains = filter.resolve(values[-1]).values(values[:, None], alphas)
        fitted = np.tensordot(modes, gains[:, :, None] * cross[:, None, :], axes=1)
        bias = np.square(fitted - truth[:, None, :]).sum(axis=0)
        risks[name] = bias + (spread @ np.square(gains))[:, None]
    return risks


def measure(replicate: int, n: int) -> Iterator[Row]:
    """Yield the rows of one replicate: part, series, source, n, replicate, value."""
    rng = np.random.default_rng([replicate, n])
    sample = DesignSample.draw(n, rng)
    risks = filter_risks(sample, FILTERS)
    distances = filter_risks(sample, FILTERS, power=0.0)
    parts = {
        "filter": _least(risks),
        "norm": _with_rate(_least(distances)),
        "projection": _dimensions(sample, risks, rng),
        "sgm": _gradients(sample, rng),
        "unequal": _unequal(n, rng),
        "norm projection": _dimensions(sample, distances, rng, 0.0),
    }
    for part, curves in parts.items():
        for series, source, value in curves:
            row = {"part": part, "series": series, "source": source}
            yield row | {"n": n, "replicate": replicate, "value": value}
    for size, series, source, value in _added(sample, risks["ridge"], rng):
        row = {"part": "dimension", "series": series, "source": source}
        added = value if value > 0 else None  # a projection may also reduce the risk
        yield row | {"n": size, "replicate": replicate, "value": added}


def _least(risks: dict[str, NDArray]) -> Iterator[Found]:
    """Yield series, source and the excess risk at the best parameter."""
    for name, risk in risks.items():
        for source, value in zip(SOURCES, risk.min(axis=0), strict=True):
            yield name, source, value


def _with_rate(distances: Iterator[Found]) -> Iterator[Found]:
    """Yield the squared distances in the norm for which the theorem has a rate."""
    for name, source, value in distances:
        if 0.5 < source <= FILTERS[name].qualification:
            yield name, source, value


def _dimensions(
    sample: DesignSample,
    exact: dict[str, NDArray],
    rng: np.random.Generator,
    power: float = 0.5,
) -> Iterator[Found]:
    """Yield series, source and the dimension required for a projection.

    `exact` are the risks without a projection, of the same `power`; in the norm of the
    space (0), targets outside it are omitted.
    """
    n = len(sample.X)
    most = min(_LARGEST_DIMENSION, n // 2)
    sizes = np.unique(np.rint(2 ** np.arange(1, np.log2(most) + 0.1, 0.5)).astype(int))
    filters = {name: FILTERS[name] for name in _PROJECTED}
    curves = [exact[name][:, k] for k, name in enumerate(_PROJECTED)]
    best = _ALPHAS[[curve.argmin() for curve in curves]]

    def risks_of(recipe: sketches.SketchRecipe) -> NDArray:
        """Return the mean risks for each size and source."""
        draws = []
        for _ in range(_DRAWS):
            # The first rows of these sketches are a smaller sketch of the same kind.
            basis = projection(sample, recipe, rng)
            for size in sizes:
                by_filter = filter_risks(sample, filters, basis[:, :size], power, best)
                draws.append([by_filter[f][k, k] for k, f in enumerate(_PROJECTED)])
        return np.mean(np.reshape(draws, (_DRAWS, len(sizes), -1)), axis=0)

    risks_by_name = {name: risks_of(sketch_of(name, most)) for name in SKETCHES}
    # The level of the scores in Corollary 5, with a largest eigenvalue of 1.
    levels = [n ** -_rate(source) for source in SOURCES]
    by_level = [risks_of(sketches.LeverageSketch(most, level)) for level in levels]
    risks_by_name["leverage"] = np.diagonal(by_level, axis1=0, axis2=2)
    for name, risks in risks_by_name.items():
        for k, source in enumerate(SOURCES):
            if source <= 0.5 - power:
                continue
            ratios = risks[:, k] / curves[k].min()
            yield name, source, first_crossing(sizes, ratios, FACTOR)


def _unequal(n: int, rng: np.random.Generator) -> Iterator[Found]:
    """Yield series, source and the dimension required with unequal leverage scores."""
    sample = DesignSample.draw(n, rng, UnequalDesign(DESIGN.capacity, DESIGN.n_modes))
    yield from _dimensions(sample, filter_risks(sample, FILTERS), rng)


def _added(
    sample: DesignSample, exact: NDArray, rng: np.random.Generator
) -> Iterator[tuple[int, str, float, float]]:
    """Yield dimension, sketch, source and the added risk at the best penalties."""
    most = max(_FIXED_DIMENSIONS)
    ridge = {"": FILTERS["ridge"]}
    for name in SKETCHES if len(sample.X) == _FIXED_ROWS else ():
        recipe = sketch_of(name, most)
        bases = [projection(sample, recipe, rng) for _ in range(_DRAWS)]
        for size in _FIXED_DIMENSIONS:
            parts = [basis[:, :size] for basis in bases]
            risks = [
                filter_risks(sample, ridge, part)[""].min(axis=0) for part in parts
            ]
            added = np.mean(risks, axis=0) - exact.min(axis=0)
            for source, value in zip(SOURCES, added, strict=True):
                if source <= 1:  # beyond, ridge regression saturates
                    yield size, name, source, value


def projection(
    sample: DesignSample, recipe: sketches.SketchRecipe, rng: np.random.Generator
) -> NDArray:
    """Return an orthonormal basis of the features that a sketch spans, (J, s).

    The first m columns span the first m rows; the column of a row that depends on
    earlier rows is zero.
    """
    rows = recipe.draw(len(sample.X), rng, X=sample.X, kernel=LinearKernel()) @ sample.X
    basis = np.zeros(rows.T.shape)
    least = _DEPENDENT * np.linalg.norm(rows[0])
    for i, row in enumerate(rows):
        left = row
        for _ in range(2):  # twice, to remove rounding errors
            left = left - basis[:, :i] @ (left @ basis[:, :i])
        norm = np.linalg.norm(left)
        if norm > least:
            basis[:, i] = left / norm
    return basis


def first_crossing(sizes: NDArray, values: NDArray, level: float) -> float | None:
    """Return where values first decrease to a level, log-log interpolated, or None."""
    below = np.flatnonzero(values <= level)
    if not below.size:
        return None
    last = below[0]
    if last == 0:
        return sizes[0]
    x = np.log(sizes[last - 1 : last + 1])
    y = np.log(values[last - 1 : last + 1])
    share = (y[0] - np.log(level)) / (y[0] - y[1])
    return np.exp(x[0] + share * (x[1] - x[0]))


def _gradients(sample: DesignSample, rng: np.random.Generator) -> Iterator[Found]:
    """Yield series, source and the excess risk at the best number of steps."""
    n = len(sample.X)
    gamma = DESIGN.capacity
    pairs = product(PROJECTED_SOURCES, _GRADIENT_SKETCHES.items())
    for source, (suffix, sketch) in pairs if n <= _MOST_ROWS else ():
        dimension = round(_SPARE * n ** (gamma * _rate(source)))
        basis = projection(sample, sketch_of(sketch, dimension), rng)
        Z = sample.X @ basis
        y = sample.targets[:, [SOURCES.index(source)]]
        Y = y + NOISE * rng.standard_normal((n, _NOISES))
        for name in REGIMES:
            step, batch, n_steps = sgm_regime(name, n, source=source, capacity=gamma)
            factor = _STEP_FACTORS.get(name, 1.0)
            stops = np.unique(np.ceil(n_steps / factor * _STOPS).astype(int)).tolist()
            path = solve_sgm(
                Z,
                Y,
                step=factor * step,
                batch_size=batch,
                n_steps=stops[-1],
                checkpoints=stops,
                rng=rng,
            ).path
            risks = [DESIGN.excess_risk(basis @ i.coef, source).mean() for i in path]
            yield name + suffix, source, min(risks)


def points(replicates: int, quick: bool) -> Points:
    """Return replicate and number of rows; each has its own inputs."""
    return list(product(range(replicates), SIZES[quick]))


def _rate(source: float) -> float:
    """Return the exponent of 1 / n in the best penalty."""
    return 1 / max(2 * source + DESIGN.capacity, 1.0)


def theory(part: str, series: str, source: float) -> float:
    """Return the theoretical exponent of n.

    Parameters
    ----------
    part : {"filter", "norm", "projection", "unequal", "norm projection", "sgm", \
            "dimension"}
        Excess risk of a filter, its squared distance in the norm of the space,
        dimension of a projection (on both designs, and in the norm), excess risk of
        stochastic gradients, or the excess risk that a projection of dimension n adds.
    series : str
        Name of the filter, the sketch or the regime.
    source : float
        Exponent zeta of the target.
    """
    gamma = DESIGN.capacity
    if part == "dimension":
        return -2 * source / gamma
    if part in _PROJECTIONS:
        smoothness = 2 * source - 1 if part == "norm projection" else source
        return max(1.0, smoothness) * (1 if series == PLAIN else gamma) * _rate(source)
    if part == "norm":
        return (1 - 2 * source) * _rate(source)
    if part == "filter":
        source = min(source, FILTERS[series].qualification)
    return -2 * source * _rate(source)


def summarize(values: Rows) -> Rows:
    """Return one row for each part, series and source: slope and theory."""
    table = []
    for (part, series, source), (sizes, curves) in _curves(values):
        stated = theory(part, series, source)
        row = {"part": part, "series": series, "source": source, "theory": stated}
        table.append(row | growth(sizes, curves))
    return table


def panels(values: Rows) -> list[Panel]:
    """Return a panel for each part and source."""
    by_part: dict[tuple[str, float], list[Curve]] = {}
    for (part, series, source), (sizes, replicates) in _curves(values):
        label = f"regime {series}" if part == "sgm" else series
        curve = Curve(label, sizes, replicates.mean(axis=0))
        by_part.setdefault((part, source), []).append(curve)
    result = []
    for (part, source), curves in by_part.items():
        title, quantity, x = ENTRIES["rates"]["parts"][part]
        lines = curves + _theory_lines(part, source, curves[-1])
        result.append(Panel(f"{title}zeta = {source:g}", x, quantity, lines, "xy"))
    return result


def _theory_lines(part: str, source: float, curve: Curve) -> list[Curve]:
    """Return lines with the theoretical slopes, through the middle of a curve."""
    x = np.log(curve.x)
    y = np.log(curve.y)
    series = {"theory": "Landweber" if part in ("filter", "norm") else "Gaussian"}
    if part in _PROJECTIONS:
        series = {f"theory, {PLAIN}": PLAIN, **series}
    lines = []
    for label, name in series.items():
        slope = theory(part, name, source)
        lines.append(Curve(label, curve.x, np.exp(y.mean() + slope * (x - x.mean()))))
    return lines


def _curves(
    values: Rows,
) -> Iterator[tuple[tuple[str, str, float], tuple[NDArray, NDArray]]]:
    """Yield (part, series, source) with sizes and values (replicates, sizes).

    A size is omitted if a value is missing, and a series with fewer than two sizes.
    """
    grouped = groups(values, "part", "series", "source")
    for (part, series, source), rows in grouped.items():
        sizes, curves = replicated(rows, "value")
        if len(sizes) > 1:
            yield (part, series, float(source)), (sizes, curves)


run = Experiment("rates", points, measure, summarize, panels)
