"""Tables 2 and 6 of the p-sparsified paper: multi-output regression on four real sets.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 4.2: test aRRMSE and training
time of kernel ridge without a sketch and with sketches of s = 100 rows, on the river
flow (rf1, rf2) and supply chain (scm1d, scm20d) sets of Spyromitros-Xioufis et al.; for
each target in appendix H.2, with the range of errors of those authors' methods. Not in
the paper, but in its theory: losses of vectors and an output matrix, on rf1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.kernels import GaussianKernel, median_distance
from nbsketch.metrics import rrmse
from nbsketch.model_selection import cross_validate
from nbsketch.outputs import GraphOutput
from nbsketch.reproduce import ENTRIES, _data
from nbsketch.reproduce._data import WITHOUT, Key, MaybePath, Setting, Split, loss_of
from nbsketch.reproduce._report import Row, Rows, groups, read_csv, summarized, where
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.solvers.exact import solve_exact

SPARSIFIED = "20/n-SR", "20/n-SG"
# Suffix of methods with the settings of the authors' program.
PROGRAM = ", program"
METHODS = WITHOUT, *SPARSIFIED, "accumulation", "CountSketch"
# Mean loss and training time in seconds in the paper's tables.
PAPER = read_csv(Path(__file__).with_name("paper.csv"))
# All rows by conjugate gradients instead of a Cholesky decomposition.
ITERATIVE = "without sketch, iterative"

# Grids: multiples of the median distance between rows, and penalties; wide enough that
# no choice is at an end. Without a sketch each penalty costs a factorization.
_BANDWIDTH_FACTORS = 2.0 ** np.arange(-1, 11)
_ALPHAS = 10.0 ** np.arange(-12, -1.5, 0.5)
_COARSE_ALPHAS = 10.0 ** np.arange(-10, -2)
_TUNING_DRAWS = 5

# Coefficient of the squared distance and penalty of each sketch in the authors'
# program, for all sets. Its S K S^T of p-sparsified sketches is p^2 times ours.
_PROGRAM = ENTRIES["table2"]["program"]


SETS = "rf1", "rf2", "scm1d", "scm20d"
SIZE = 100  # of the sketches
SETTINGS = Path(__file__).with_name("table2_tuning.json")
# The rows of the table: the paper's, and conjugate gradients on all rows.
ROWS = WITHOUT, ITERATIVE, *METHODS[1:], *(method + PROGRAM for method in _PROGRAM)
# A fit without a sketch hardly varies: it is repeated only to measure its time.
_EXACT_REPLICATES = 3
# Targets in the order of the columns of the data, and their values in the paper.
TARGETS = read_csv(Path(__file__).with_name("table6_paper.csv"))
# Losses of the norm of the residual vector. Their parameters were not tuned.
_VECTOR = ENTRIES["vector"]["losses"]


def model_of(method: str, setting: Setting, seed: int) -> Any:
    """Return an estimator of a method with the bandwidth and penalty of a setting."""
    if method == WITHOUT:
        return CholeskyRidge(**setting)
    label = WITHOUT if method == ITERATIVE else method.removesuffix(PROGRAM)
    return SketchedKernelRegressor(
        "gaussian",
        sketch=_data.sketch_of(label, SIZE),
        fit_intercept=not method.endswith(PROGRAM),
        random_state=seed,
        **setting,
    )


class CholeskyRidge:
    """Kernel ridge regression by a Cholesky decomposition of the Gram matrix."""

    def __init__(self, bandwidth: float, alpha: float) -> None:
        self._kernel = GaussianKernel(bandwidth)
        self._alpha = alpha

    def fit(self, X: NDArray, Y: NDArray) -> CholeskyRidge:
        """Solve for the coefficients of all rows."""
        self._X = X
        self._coef, self._intercept, _ = solve_exact(self._kernel(X), Y, self._alpha)
        return self

    def predict(self, X: NDArray) -> NDArray:
        """Return the predictions for new rows."""
        return self._kernel(X, self._X) @ self._coef + self._intercept


def tune(split: Split, method: str) -> Setting:
    """Choose a setting by 5-fold cross-validation on the training rows.

    The criterion is the aRRMSE, averaged over five draws of the sketch.
    """
    exact = method == WITHOUT
    median = median_distance(split.X_train, rng=0)
    runs = [
        cross_validate(
            SketchedKernelRegressor(
                sketch=_data.sketch_of(method, SIZE), random_state=seed
            ),
            split.X_train,
            split.Y_train,
            median * _BANDWIDTH_FACTORS,
            _COARSE_ALPHAS if exact else _ALPHAS,
        )
        for seed in range(1 if exact else _TUNING_DRAWS)
    ]
    mean = runs[0]._replace(errors=np.mean([run.errors for run in runs], axis=0))
    bandwidth, alpha = mean.best(split.Y_train.var(axis=0))
    return {"bandwidth": bandwidth, "alpha": alpha}


def errors_of(split: Split, model: Any, seed: int) -> tuple[NDArray, float]:
    """Return the RRMSE of each target on the test rows, and the seconds of the fit."""
    predicted, seconds = split.fit(model, start=0 if seed else 2 * SIZE)
    return rrmse(split.Y_test, predicted, split.Y_train.mean(axis=0)), seconds


def compare(
    rows: Rows,
    losses: Sequence[str],
    typical: Callable[[Any], Any],
    paper: Rows | None = None,
) -> Rows:
    """Return a row per set and method: mean and deviation of losses, and times.

    Parameters
    ----------
    rows : sequence of dict
        Losses and "seconds" of each replicate. Speed-ups are relative to the method
        without a sketch.
    losses : sequence of str
        The columns with losses.
    typical : callable
        Aggregates the seconds of all replicates.
    paper : sequence of dict
        `PAPER`, to add its columns. Default: none.
    """
    table = summarized(rows, ("set", "method"), {"seconds": typical}, losses)
    exact = {row["set"]: row["seconds"] for row in where(table, method=WITHOUT)}
    for row in table:
        name = row["set"]
        method = row["method"]
        is_compared = method != WITHOUT and name in exact
        row["faster"] = exact[name] / row["seconds"] if is_compared else None
        if paper:
            published = where(paper, set=name, method=method.removesuffix(PROGRAM))
            for key in ("paper", "paper_seconds"):
                row[key] = published[0][key] if published else None
    return table


def points(
    replicates: int,
    quick: bool,
    tuning: MaybePath = None,
    data_home: MaybePath = None,
    sets: Sequence[str] | None = None,
) -> Points:
    """Yield set, method, split, setting, size and seed of each draw of a sketch."""
    splits = {name: _load(name, data_home) for name in _data.selected(sets, SETS)}
    settings = _settings(splits, tuning)
    for name, method in product(splits, ROWS):
        exact = method in (WITHOUT, ITERATIVE)
        for seed in range(_EXACT_REPLICATES if exact else replicates):
            yield name, method, splits[name], settings[name, method], seed


def measure(
    name: str, method: str, split: Split, setting: Setting, seed: int
) -> Iterator[Row]:
    """Yield error and time of one fit, and its setting."""
    errors, seconds = errors_of(split, model_of(method, setting, seed), seed)
    row = {"set": name, "method": method, "arrmse": errors.mean()}
    yield row | {"seconds": seconds} | setting


def summarize(rows: Rows) -> Rows:
    """Return a row for each set and method, with its setting."""
    table = compare(rows, ("arrmse",), min, PAPER)
    firsts = [group[0] for group in groups(rows, "set", "method").values()]
    return [
        row | {key: first[key] for key in ("bandwidth", "alpha")}
        for row, first in zip(table, firsts, strict=True)
    ]


run = Experiment("table2", points, measure, summarize)


def target_points(
    replicates: int,
    quick: bool,
    data_home: MaybePath = None,
    sets: Sequence[str] | None = None,
) -> Points:
    """Yield the points whose methods are in Table 6."""
    every = points(replicates, quick, data_home=data_home, sets=sets)
    return (point for point in every if point[1] in METHODS)


def measure_targets(
    name: str, method: str, split: Split, setting: Setting, seed: int
) -> Iterator[Row]:
    """Yield the error of each target in one fit."""
    errors, _ = errors_of(split, model_of(method, setting, seed), seed)
    for target, error in zip(where(TARGETS, set=name), errors, strict=True):
        yield {**target, "method": method, "error": error}


def summarize_targets(rows: Rows) -> Rows:
    """Return a row per target, with each method next to its value in the paper."""
    table = []
    for (name, target), group in groups(rows, "set", "target").items():
        row = {"set": name, "target": target}
        for mean in summarized(group, ["method"], {"error": np.mean}):
            method = mean["method"]
            row |= {method: mean["error"], f"{method}, paper": group[0][method]}
        table.append(row | {"low": group[0]["low"], "high": group[0]["high"]})
    return table


targets = Experiment("table6", target_points, measure_targets, summarize_targets)


def vector_points(replicates: int, quick: bool, data_home: MaybePath = None) -> Points:
    """Yield method, estimator, split and seed of each draw of a sketch."""
    split = _load("rf1", data_home).with_standardized_targets()
    method = SPARSIFIED[0]
    bandwidth = _settings({"rf1": split}, None)["rf1", method]["bandwidth"]
    model = SketchedKernelRegressor(
        bandwidth=bandwidth, sketch=_data.sketch_of(method, SIZE), random_state=0
    )
    X, Y, *_ = split
    options: Setting = {name: {"loss": loss_of(*_VECTOR[name])} for name in _VECTOR}
    options["graph"] = {"output": GraphOutput(np.abs(np.corrcoef(Y.T)), mu=0.5)}
    for name, given in options.items():
        variant = clone(model).set_params(**given)
        _, alpha = cross_validate(variant, X, Y, [bandwidth], _ALPHAS).best()
        for seed in range(replicates):
            yield name, variant.set_params(alpha=alpha), split, seed


def measure_vector(name: str, model: Any, split: Split, seed: int) -> Iterator[Row]:
    """Yield error and time of one fit."""
    model = clone(model).set_params(random_state=seed)
    errors, seconds = errors_of(split, model, seed)
    row = {"set": "rf1", "method": name, "alpha": model.alpha}
    yield row | {"arrmse": errors.mean(), "seconds": seconds}


by_loss = partial(compare, losses=("arrmse",), typical=min)
vector = Experiment("vector", vector_points, measure_vector, by_loss)
RUNS = {"table2": run, "table6": targets, "vector": vector}


def _load(name: str, data_home: MaybePath) -> Split:
    return Split.published(_data.load(name, data_home, preparation="paper"))


def _settings(splits: dict[str, Split], tuning: MaybePath) -> dict[Key, Setting]:
    """Return the setting of every set and method, choosing missing ones."""
    settings = _data.settings_for(
        list(product(splits, METHODS)),
        lambda key: tune(splits[key[0]], key[1]),
        SETTINGS,
        tuning,
    )
    for name, split in splits.items():
        settings[name, ITERATIVE] = settings[name, WITHOUT]
        for method, (factor, alpha) in _PROGRAM.items():
            if method in SPARSIFIED:
                alpha *= (20 / len(split.X_train)) ** 2
            of_program = {"bandwidth": (2 * factor) ** -0.5, "alpha": alpha}
            settings[name, method + PROGRAM] = of_program
    return settings
