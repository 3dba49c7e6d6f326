"""Figures 1 to 4 of the p-sparsified paper: robust regression with outlying inputs.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 4.1 and appendix H.1: test error
and training time against the size of the sketch, on the synthetic problem of
`nbsketch.datasets.make_friedman_outliers` with 10,000 training and 10,000 test rows.

========  =====================  =====================
Command   Loss                   p-sparsified sketches
========  =====================  =====================
figure1   kappa-Huber            p-SR (Rademacher)
figure2   kappa-Huber            p-SG (Gaussian)
figure3   epsilon-insensitive    p-SR (Rademacher)
figure4   epsilon-insensitive    p-SG (Gaussian)
figure5   square                 p-SR (Rademacher)
outliers  kappa-Huber            p-SR (Rademacher)
========  =====================  =====================

figure5 is not in the paper: the same experiment with the loss of kernel ridge.

Kernel, losses and penalties are those of the authors' program, because the paper gives
no values: exp(-0.1 ||x - y||^2), kappa = 100 with alpha = 1e-7, epsilon = 4.64 with
alpha = 1e-8, and no intercept; the square loss has the penalty of the Huber loss. The
program scales S K S^T by p^2, so that its alpha corresponds to a far smaller one for
p-sparsified sketches; here it has the same meaning for every sketch, and smaller values
hardly change the test errors. Outlying inputs have the program's deviation of 0.25; in
"outliers", otherwise equal to figure1, the variance of 0.25 stated in the paper.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets import make_friedman_outliers
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.features import RandomFourierFeatures
from nbsketch.kernels import GaussianKernel
from nbsketch.losses import Loss
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._data import loss_of, sketch_of
from nbsketch.reproduce._figures import Panel, curves_of
from nbsketch.reproduce._report import Row, Rows, groups, summarized, timed, where
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.solvers.newton import solve_scalar
from nbsketch.solvers.stochastic import StochasticSolver

N_ROWS = 10_000
SIZES = ENTRIES["figure1"]["sizes"]
# Subsampling with landmarks that take as long as the other sketches, and longer.
LANDMARKS = ENTRIES["figure1"]["landmarks"]
NONZEROS = 5, 10, 30, 50  # expected per row of a p-sparsified sketch
SUBSAMPLING = "sub-sampling"
DENSE = "CountSketch", "Gaussian", "ROS"  # all training rows are landmarks
FOURIER = "random Fourier features"
ADAM = ", Adam"

_KERNEL = GaussianKernel(bandwidth=math.sqrt(1 / 0.2))  # exp(-0.1 ||x - y||^2)
_ADAM = StochasticSolver(
    learning_rate=0.05, n_epochs=25, batch_size=1, schedule="constant", shuffle=False
)
_ADAM_NONZEROS = 30
_FIRST_ROWS = 500
_LABELS = ENTRIES["figure1"]["labels"]
# The printed size.
_TYPICAL_SIZE = 100


class FigureFit(NamedTuple):
    """Loss and penalty, distribution of the sketches, spread of the outliers."""

    loss: Loss
    alpha: float
    law: Literal["rademacher", "gaussian"]
    outlier_std: float = 0.25


Data = tuple[NDArray, NDArray]
# A prediction function, and the number of training rows that it needs.
Fitted = tuple[Callable[[NDArray], NDArray], int]


def sizes_of(problem: FigureFit, quick: bool) -> dict[str, list[int]]:
    """Return the sizes of each series of a figure."""
    sizes = SIZES[quick]
    kind = f"n-S{problem.law[0].upper()}"
    names = [f"{k}/{kind}" for k in NONZEROS] + ["accumulation, m = 20", FOURIER]
    names += [*DENSE, f"{_ADAM_NONZEROS}/{kind}{ADAM}", "leverage", "pivoted Cholesky"]
    return {SUBSAMPLING: sizes + LANDMARKS[quick]} | dict.fromkeys(names, sizes)


def fit(problem: FigureFit, name: str, size: int, seed: int, data: Data) -> Fitted:
    """Fit the model of a series."""
    if name == FOURIER:
        return _fit_fourier(problem, size, seed, data)
    model = SketchedKernelRegressor(
        _KERNEL,
        loss=problem.loss,
        sketch=sketch_of(name.removesuffix(ADAM), size, N_ROWS),
        alpha=problem.alpha,
        fit_intercept=False,
        solver=_ADAM if name.endswith(ADAM) else "auto",
        random_state=seed,
    ).fit(*data)
    return model.predict, int(model.sketch_.columns.size)


def _fit_fourier(problem: FigureFit, size: int, seed: int, data: Data) -> Fitted:
    """Fit a linear model on random Fourier features, which needs no training rows."""
    X, y = data
    features = RandomFourierFeatures(_KERNEL, size=size, random_state=seed).fit(X)
    coef = solve_scalar(
        features.transform(X), y, problem.loss, problem.alpha, fit_intercept=False
    ).coef
    return lambda X_new: features.transform(X_new) @ coef, 0


def points(problem: FigureFit, replicates: int, quick: bool) -> Points:
    """Yield problem, name of a series, size, replicate, and if it is first."""
    for replicate in range(replicates):
        for name, sizes in sizes_of(problem, quick).items():
            for size in sizes:
                is_first = replicate == 0 and size == min(sizes)
                yield problem, name, size, replicate, is_first


def measure(
    problem: FigureFit, name: str, size: int, replicate: int, is_first: bool
) -> Iterator[Row]:
    """Yield the row of one fit.

    A replicate has its own training and test data, the same for all methods. The time
    includes drawing, features and solution; a small fit compiles first.
    """
    train, (X, y) = _data(N_ROWS, replicate, problem.outlier_std)
    if is_first:
        fit(problem, name, size, 0, (train[0][:_FIRST_ROWS], train[1][:_FIRST_ROWS]))
    (predict, landmarks), seconds = timed(fit, problem, name, size, replicate, train)
    yield {
        "series": name,
        "size": size,
        "replicate": replicate,
        "error": np.mean((y - predict(X)) ** 2) / np.ptp(y),
        "seconds": seconds,
        "landmarks": landmarks,
    }


@lru_cache(maxsize=1)
def _data(n: int, replicate: int, outlier_std: float) -> tuple[Data, Data]:
    """Return training and test data of a replicate."""
    draw = partial(make_friedman_outliers, n, outlier_std=outlier_std)
    return draw(random_state=2 * replicate), draw(random_state=2 * replicate + 1)


def summarize(rows: Rows) -> Rows:
    """Return one row for each series and size: mean error and minimal time.

    "subsampling_same_time" is the error of subsampling with as many landmarks as take
    the same time, interpolated between sizes; None outside the range of its times.
    """
    table = summarized(
        rows,
        ("series", "size"),
        {"seconds": min, "landmarks": np.mean},
        spreads=["error"],
        count="replicates",
    )
    others = where(table, series=SUBSAMPLING)
    for row in table:
        row["landmarks"] = round(row["landmarks"])
        row["subsampling_same_time"] = _error_at(row["seconds"], others)
    return table


def _error_at(seconds: float, table: Rows) -> float | None:
    """Return the error of subsampling at a given time, on logarithmic scales."""
    path = sorted((row["seconds"], row["error"]) for row in table)
    if not path or not path[0][0] <= seconds <= path[-1][0]:
        return None
    times, errors = np.log(path).T
    return float(np.exp(np.interp(math.log(seconds), times, errors)))


FIGURES = {
    name: FigureFit(loss_of(*entry["loss"]), **entry["fit"])
    for name, entry in ENTRIES.items()
    if "fit" in entry
}


def panels(fits: Rows) -> list[Panel]:
    """Return the paper's three panels, and a fourth with more landmarks."""
    table = summarize(fits)
    largest = max(row["size"] for row in table if row["series"] != SUBSAMPLING)
    same = [row for row in table if row["size"] <= largest]
    fast = [row for row in table if row["series"] not in DENSE]
    more = f"(d) Sub-sampling up to s = {max(row['size'] for row in table)}"
    return [
        _panel("(a) Error", same, "size", "error", "", "error_deviation"),
        _panel("(b) Time", same, "size", "seconds", "y"),
        _panel("(c) Error against time", same, "seconds", "error", "xy"),
        _panel(more, fast, "seconds", "error", "xy"),
    ]


def _panel(
    title: str, rows: Rows, x: str, y: str, log: str, deviation: str = ""
) -> Panel:
    """Return a curve per series, with a band of one standard error if available."""
    curves = curves_of(rows, "series", x, y, deviation)
    return Panel(title, _LABELS[x], _LABELS[y], curves, log)


def _typical(table: Rows) -> Rows:
    """Return the row of each series at the size nearest to the typical size."""
    return [
        min(group, key=lambda row: abs(row["size"] - _TYPICAL_SIZE))
        for group in groups(table, "series").values()
    ]


RUNS = {
    name: Experiment(
        name, partial(points, problem), measure, summarize, panels, _typical
    )
    for name, problem in FIGURES.items()
}
