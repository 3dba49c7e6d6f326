"""Least squares with sketched inputs and outputs: error and time against sketch sizes.

The synthetic set of El Ahmad, Brogat-Motte, Laforgue and d'Alche-Buc, AISTATS 2024, as
stated in their slides: n = 10,000, d = 300, linear kernels, x ~ N(0, C), y = C H x + e,
e ~ N(0, E), eigenvalues k^(-3/2) of C and 0.2 k^(-1/10) of E, H with independent
standard normal entries, and p-SR sketches of density 20/n on both sides. Not stated by
the authors, and chosen here: random bases of C and E; one penalty for all methods, the
best for exact ridge regression on 1,000 further rows; 1,000 test rows; the sizes; all
training outputs as candidates of the decoding.

`rates` measures growth with n: of both times, and of the excess risk, the root of the
mean squared distance of h(x) from C H x, which is known here.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.reproduce import ENTRIES, _report
from nbsketch.reproduce._data import sketch_of
from nbsketch.reproduce._figures import Curve, Panel, curves_of
from nbsketch.reproduce._report import Row, Rows, column, timed, where
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.structured import InputOutputKernelRegressor

N_TRAIN = ENTRIES["sisokr_synthetic"]["rows"]
N_OTHERS = 1_000
N_FEATURES = 300
SIZES = ENTRIES["sisokr_synthetic"]["sizes"]
# Fixed size of one sketch while the other varies.
FIXED_SIZE = 200
_ALPHAS = 10.0 ** np.arange(-9, 1)


RATE_ROWS = ENTRIES["sisokr_rates"]["rows"]
# Exponents of n: times of a p-sparsified sketch with p = 20/n and of all rows; and of
# the bound, with 2/3 as the capacity of inputs and 1, the largest, for outputs.
STATED = ENTRIES["sisokr_rates"]["stated"]


class LinearProblem(NamedTuple):
    """Training and test data with the penalty, and the best predictions."""

    X: NDArray
    Y: NDArray
    X_test: NDArray
    Y_test: NDArray
    alpha: float
    truth: NDArray


class SketchPair(NamedTuple):
    """A method, the side whose size varies, and both sizes (None: no sketch)."""

    name: str
    side: str
    input_size: int | None
    output_size: int | None


@lru_cache(maxsize=1)
def make_problem(n: int, seed: int) -> LinearProblem:
    """Draw the data and choose the penalty on further rows."""
    rng = np.random.default_rng(seed)
    k = np.arange(1.0, N_FEATURES + 1)
    C, root = _covariance(rng, k**-1.5)
    _, noise_root = _covariance(rng, 0.2 * k**-0.1)
    slope = C @ rng.standard_normal((N_FEATURES, N_FEATURES))
    total = n + 2 * N_OTHERS
    X = rng.standard_normal((total, N_FEATURES)) @ root
    Y = X @ slope.T + rng.standard_normal((total, N_FEATURES)) @ noise_root
    train = slice(n)
    choice = slice(n, n + N_OTHERS)
    alpha = _best_alpha(X[train], Y[train], X[choice], Y[choice])
    X_test = X[n + N_OTHERS :]
    Y_test = Y[n + N_OTHERS :]
    return LinearProblem(X[train], Y[train], X_test, Y_test, alpha, X_test @ slope.T)


def _covariance(rng: np.random.Generator, values: NDArray) -> tuple[NDArray, NDArray]:
    """Return a covariance with given eigenvalues in a random basis, and its root."""
    basis, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    return (basis * values) @ basis.T, (basis * np.sqrt(values)) @ basis.T


def _best_alpha(X: NDArray, Y: NDArray, X_val: NDArray, Y_val: NDArray) -> float:
    covariance = X.T @ X / len(X)
    cross = X.T @ Y / len(X)
    errors = [
        np.square(
            Y_val - X_val @ np.linalg.solve(covariance + a * np.eye(N_FEATURES), cross)
        ).sum()
        for a in _ALPHAS
    ]
    return float(_ALPHAS[np.argmin(errors)])


def methods(sizes: list[int]) -> list[SketchPair]:
    """Return the methods and sizes; the method without sketches comes last."""
    return [
        *(SketchPair("SIOKR", "input", m, None) for m in sizes),
        *(SketchPair("SISOKR", "input", m, FIXED_SIZE) for m in sizes),
        *(SketchPair("ISOKR", "output", None, m) for m in sizes),
        *(SketchPair("SISOKR", "output", FIXED_SIZE, m) for m in sizes),
        SketchPair("IOKR", "input", None, None),
    ]


def points(replicates: int, quick: bool) -> Points:
    """Yield method, number of rows and replicate; without sketches there is one."""
    for seed in range(replicates):
        for method in methods(SIZES[quick])[: None if seed == 0 else -1]:
            yield method, N_TRAIN[quick], seed


def measure(method: SketchPair, n: int, seed: int) -> Iterator[Row]:
    """Yield one measurement: error, and seconds of training and inference."""
    problem = make_problem(n, seed)
    if seed == 0:  # compiles
        count = max(*SIZES[0], FIXED_SIZE)
        start = problem._replace(X=problem.X[:count], Y=problem.Y[:count])
        evaluate(method, start, seed)
    yield {**method._asdict(), "replicate": seed} | evaluate(method, problem, seed)


def evaluate(method: SketchPair, problem: LinearProblem, seed: int) -> Row:
    """Return error, root of the excess risk, and seconds of training and inference."""
    model = InputOutputKernelRegressor(
        "linear",
        "linear",
        sketch=sketch_of("p-sparsified", method.input_size),
        output_sketch=sketch_of("p-sparsified", method.output_size),
        alpha=problem.alpha,
        random_state=seed,
    )
    _, training = timed(model.fit, problem.X, problem.Y)
    _, inference = timed(model.predict, problem.X_test)
    error = -model.score(problem.X_test, problem.Y_test)
    excess = np.sqrt(-model.score(problem.X_test, problem.truth))
    times = {"training": training, "inference": inference}
    return {"error": error, "excess": excess} | times


def summarize(rows: Rows) -> Rows:
    """Return a row for each method and pair of sizes."""
    times = dict.fromkeys(("training", "inference"), min)
    return _report.summarized(rows, SketchPair._fields, times, ["error"])


def panels(rows: Rows) -> list[Panel]:
    """Return error, training and inference time against both sizes."""
    table = summarize(rows)
    return [
        Panel(
            f"{label} against the {side} sketch",
            f"Size of the {side} sketch",
            label,
            list(_curves(table, side, name)),
            "" if name == "error" else "y",
        )
        for name, label in ENTRIES["sisokr_synthetic"]["labels"].items()
        for side in ("input", "output")
    ]


def _curves(table: Rows, side: str, name: str) -> Iterator[Curve]:
    """Yield a curve for each method, and a horizontal line for IOKR."""
    size = f"{side}_size"
    varied = [row for row in where(table, side=side) if row["name"] != "IOKR"]
    yield from curves_of(varied, "name", size, name)
    sizes = column(varied, size)
    exact = where(table, name="IOKR")[0][name]
    yield Curve("IOKR", [sizes.min(), sizes.max()], [exact, exact])


def rate_points(replicates: int, quick: bool) -> Points:
    """Yield method, number of rows and replicate."""
    sizes = {"IOKR": None, "SISOKR": FIXED_SIZE}
    for seed, n in product(range(replicates), RATE_ROWS[quick]):
        for name, size in sizes.items():
            yield SketchPair(name, "input", size, size), n, seed


def measure_rate(method: SketchPair, n: int, seed: int) -> Iterator[Row]:
    """Yield one measurement with its number of rows."""
    yield from ({"n": n, **row} for row in measure(method, n, seed))


def summarize_rates(rows: Rows) -> Rows:
    """Return slope and stated exponent for each method and quantity."""
    table = []
    for name, quantity in product(STATED, STATED["IOKR"]):
        n, curves = _report.replicated(where(rows, name=name), quantity)
        row = {"name": name, "quantity": quantity, "stated": STATED[name][quantity]}
        table.append(row | _report.growth(n, curves))
    return table


RUNS = {
    "sisokr_synthetic": Experiment(
        "sisokr_synthetic", points, measure, summarize, panels
    ),
    "sisokr_rates": Experiment(
        "sisokr_rates", rate_points, measure_rate, summarize_rates
    ),
}
