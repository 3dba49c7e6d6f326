"""Sketched structured prediction: the experiments of the SISOKR paper.

El Ahmad, Brogat-Motte, Laforgue and d'Alche-Buc, "Sketch In, Sketch Out: Accelerating
both Learning and Inference for Structured Prediction with Kernels", AISTATS 2024:
multi-label prediction on Bibtex, Bookmarks and Mediamill with the four methods; least
squares on synthetic data (`least_squares`); and a synthetic set of the size of
Bookmarks (`large`), because Bookmarks itself cannot be downloaded by a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from nbsketch import datasets
from nbsketch.kernels import GaussianKernel
from nbsketch.metrics import example_f1
from nbsketch.reproduce._report import (
    Row,
    Rows,
    column,
    groups,
    read_csv,
    spread,
    timed,
    where,
)
from nbsketch.reproduce.experiment import RESULTS, Experiment
from nbsketch.reproduce.sisokr import large, least_squares
from nbsketch.sketches import (
    IdentitySketch,
    PSparsifiedSketch,
    SketchRecipe,
    SubsamplingSketch,
)
from nbsketch.structured import InputOutputKernelRegressor

METHODS = ("IOKR", "SIOKR", "ISOKR", "SISOKR")
# Largest number of rows of a Gram matrix without an input sketch.
MOST_EXACT_ROWS = 10_000
NOTES = (
    "F1: percent, averaged over the published test rows; mean and deviation over the "
    "draws of sketches. Candidates: the distinct label sets of the training rows.",
    "Seconds: `fit`, including the draws, and `predict` of all test rows; the minimum "
    "over the replicates. Inputs are divided by their deviation and stay sparse.",
    "Kernels, penalties and sketch sizes are those of the authors' program: Gaussian "
    "kernels on both sides; sub-sampling or p-SG sketches of inputs, p-SG of outputs, "
    "density 20/n.",
    "paper_...: figures of the authors, whose seconds are from another machine.",
    f"IOKR and ISOKR are left out beyond {MOST_EXACT_ROWS} training rows.",
)


class Setting(NamedTuple):
    """Penalty, squared bandwidths (None: the mean number of labels) and sketches."""

    alpha: float
    square: float
    output_square: float | None
    input_size: int | None = None
    output_size: int | None = None
    subsampled: bool = True

    def model(self, seed: int, labels: Any) -> InputOutputKernelRegressor:
        """Return the model for the labels of the training rows."""
        square = self.output_square or float(labels.sum(axis=1).mean())
        return InputOutputKernelRegressor(
            GaussianKernel(self.square**0.5),
            GaussianKernel(square**0.5),
            sketch=_sketch(self.input_size, self.subsampled),
            output_sketch=_sketch(self.output_size),
            alpha=self.alpha,
            random_state=seed,
        )


def _sketch(size: int | None, subsampled: bool = False) -> SketchRecipe:
    if size is None:
        return IdentitySketch()
    if subsampled:
        return SubsamplingSketch(size)
    return PSparsifiedSketch(size, law="gaussian")


class Published(NamedTuple):
    """Figures of the authors: F1 in percent, seconds of training and inference."""

    f1: float | None = None
    training: float | None = None
    inference: float | None = None


class Problem(NamedTuple):
    """A data set with the settings and the figures of the authors."""

    load: Callable[..., Any]
    settings: dict[str, Setting]
    paper: dict[str, Published]


SETS = {
    "bibtex": Problem(
        datasets.load_bibtex,
        {
            "IOKR": Setting(1e-5, 1e4, 1.0),
            "SIOKR": Setting(1e-6, 1e4, 1e7, 2250),
            "ISOKR": Setting(1e-5, 1e4, 1e6, None, 200),
            "SISOKR": Setting(1e-5, 1e4, 1e4, 2250, 200),
        },
        {
            "IOKR": Published(44.9, 2.54, 1.18),
            "SIOKR": Published(44.7, 1.99, 1.22),
            "ISOKR": Published(44.8, 2.51, 0.58),
            "SISOKR": Published(44.1, 1.41, 0.46),
        },
    ),
    "bookmarks": Problem(
        datasets.load_bookmarks,
        {
            "SIOKR": Setting(1e-9, 1e4, None, 8000, None, subsampled=False),
            "SISOKR": Setting(1e-8, 1e4, 10.0, 8000, 500),
        },
        {"SIOKR": Published(39.1, 354, 297), "SISOKR": Published(39.3, 118, 20)},
    ),
    "mediamill": Problem(
        datasets.load_mediamill,
        {
            "IOKR": Setting(1e-8, 100.0, None),
            "SIOKR": Setting(1e-8, 100.0, None, 8000, None, subsampled=False),
            "ISOKR": Setting(1e-8, 100.0, 10.0, None, 500),
            "SISOKR": Setting(1e-8, 100.0, 10.0, 8000, 500),
        },
        {
            "IOKR": Published(58.17, 621, 204),
            "SIOKR": Published(57.33, 199, 121),
            "ISOKR": Published(58.02, 636, 9),
            "SISOKR": Published(57.26, 66, 4),
        },
    ),
}


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
    plot_only: bool = False,
) -> list[Row]:
    """Run the three experiments (see `nbsketch.reproduce` for the parameters).

    Replicates are draws of each sketch, and synthetic data sets: 5, or 1 if `quick`,
    which leaves the large synthetic set out. Files are sisokr.csv and
    sisokr_large.csv with their pages, if `out` is given, and sisokr_synthetic.csv, .md
    and .png, which alone `plot_only` makes.
    """
    if plot_only:
        rows = _read(out)
    else:
        rows = TABLE(replicates, quick, out, data_home=data_home)
    least_squares.run(replicates, quick, out, plot_only)
    if not (quick or plot_only):
        large.run(out=out)
    return rows


def _read(out: Path | None) -> list[Row]:
    file = (out or RESULTS) / "sisokr.csv"
    return read_csv(file) if file.exists() else []


def points(
    replicates: int, quick: bool, data_home: Path | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield set, method, setting, draw and data of the sets that are found."""
    for name, problem in SETS.items():
        try:
            data = problem.load(data_home=data_home)
        except FileNotFoundError as error:
            print(f"{name} was not found. {error}\n")
            continue
        X, X_test = scaled(data.X_train, data.X_test)
        for seed, (method, setting) in product(
            range(replicates), problem.settings.items()
        ):
            if setting.input_size is not None or X.shape[0] <= MOST_EXACT_ROWS:
                split = X, data.y_train, X_test, data.y_test
                yield name, method, setting, seed, split


def measure(
    name: str, method: str, setting: Setting, seed: int, split: tuple[Any, ...]
) -> Iterator[Row]:
    """Yield the score and the times of one draw."""
    yield {"set": name, "method": method, **evaluate(setting, seed, *split)}


def summarize(rows: Rows) -> list[Row]:
    """Return a row of the table for each set and method."""
    return [
        {
            "set": name,
            "method": method,
            **spread("f1", column(group, "f1")),
            **_times("training", group, where(rows, set=name, method="IOKR")),
            **_times("inference", group, where(rows, set=name, method="IOKR")),
            **_published(SETS[name].paper.get(method, Published())),
        }
        for (name, method), group in groups(rows, "set", "method").items()
    ]


def _published(figures: Published) -> Row:
    return {f"paper_{name}": value for name, value in figures._asdict().items()}


def _times(part: str, rows: Rows, exact: Rows) -> Row:
    """Return the minimal seconds of a part, and how many times faster than IOKR."""
    seconds = float(column(rows, part).min())
    faster = float(column(exact, part).min()) / seconds if exact else None
    return {part: seconds, f"{part}_faster": faster}


def evaluate(
    setting: Setting, seed: int, X: Any, Y: Any, X_test: Any, Y_test: Any
) -> Row:
    """Return "f1" in percent and the seconds of "training" and "inference"."""
    if seed == 0:  # compiles
        small = setting._replace(
            input_size=setting.input_size and 20, output_size=setting.output_size and 5
        )
        small.model(seed, Y).fit(X[:50], Y[:50]).predict(X_test[:50])
    model = setting.model(seed, Y)
    _, training = timed(model.fit, X, Y)
    predicted, inference = timed(model.predict, X_test)
    f1 = 100 * example_f1(Y_test, predicted)
    return {"f1": f1, "training": training, "inference": inference}


def scaled(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Return inputs of deviation one in training, not centered so as to stay sparse."""
    dense = not sp.issparse(X)
    square = X**2 if dense else X.power(2)
    variance = square.mean(axis=0) - np.square(X.mean(axis=0))
    factor = 1 / np.sqrt(np.where(variance > 1e-12, variance, 1.0))
    if dense:
        return X * factor, X_test * factor
    diagonal = sp.diags_array(factor)
    return sp.csr_array(X @ diagonal), sp.csr_array(X_test @ diagonal)


TABLE = Experiment(
    name="sisokr",
    title="Multi-label prediction",
    notes=NOTES,
    replicates=(5, 1),
    points=points,
    measure=measure,
    label="{0} {1}",
    summarize=summarize,
)
