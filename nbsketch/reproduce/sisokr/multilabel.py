"""Sketched structured prediction: the experiments of the SISOKR paper.

El Ahmad, Brogat-Motte, Laforgue and d'Alche-Buc, "Sketch In, Sketch Out: Accelerating
both Learning and Inference for Structured Prediction with Kernels", AISTATS 2024:
multi-label prediction on Bibtex, Bookmarks and Mediamill with the four methods; a
synthetic set of the size of Bookmarks, because Bookmarks itself cannot be downloaded by
a program; and the sizes of sketches of both sides of Bibtex, scored on validation rows
as the paper chooses them. Least squares on synthetic data: `least_squares`.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse as sp
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from nbsketch.datasets import make_documents
from nbsketch.kernels import GaussianKernel
from nbsketch.metrics import example_f1
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._data import MaybePath, load, sketch_of
from nbsketch.reproduce._report import (
    Row,
    Rows,
    peak_memory,
    read_csv,
    summarized,
    timed,
    where,
)
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.structured import (
    InputOutputKernelRegressor,
    select_input_size,
    select_output_size,
)

# Largest number of rows of a Gram matrix without an input sketch.
MOST_EXACT_ROWS = 10_000
# A synthetic set of the size and shape of Bookmarks: 2,150 sparse binary inputs and
# 208 labels; the candidates are all distinct label sets of training.
# Numbers of training and test rows, and sizes of both sketches.
LARGE = ENTRIES["sisokr_large"]["sizes"]
N_WORDS = 2150
N_LABELS = 208
# The set whose sizes are scored, sizes of inputs and outputs, and the share of rows
# that score them.
_SIZED = "bibtex"
SIZES = ENTRIES["sisokr_sizes"]["sizes"]
_VALIDATION = 0.2


class PaperFit(NamedTuple):
    """A method on a set, and figures of the authors: F1 in percent, and seconds.

    Squared bandwidths are those of the kernels (None: the mean number of labels); a
    size is None without a sketch, and a rank without a reduction.
    """

    set: str
    method: str
    alpha: float
    square: float
    output_square: float | None
    input_size: int | None = None
    output_size: int | None = None
    is_subsampled: bool = True
    paper_f1: float | None = None
    paper_training: float | None = None
    paper_inference: float | None = None
    output_rank: int | None = None

    def model(self, seed: int, labels: Any) -> InputOutputKernelRegressor:
        """Return the model for the labels of the training rows."""
        square = self.output_square or float(labels.sum(axis=1).mean())
        label = "sub-sampling" if self.is_subsampled else "20/n-SG"
        return InputOutputKernelRegressor(
            GaussianKernel(self.square**0.5),
            GaussianKernel(square**0.5),
            sketch=sketch_of(label, self.input_size),
            output_sketch=sketch_of("20/n-SG", self.output_size),
            output_rank=self.output_rank,
            alpha=self.alpha,
            random_state=seed,
        )


SETTINGS = [PaperFit(**r) for r in read_csv(Path(__file__).with_name("settings.csv"))]


def points(replicates: int, quick: bool, data_home: MaybePath = None) -> Points:
    """Yield setting, draw and data of the sets that are found."""
    for name in dict.fromkeys(setting.set for setting in SETTINGS):
        try:
            data = load(name, data_home)
        except FileNotFoundError as error:
            print(f"{name} was not found. {error}\n")
            continue
        X, X_test = scaled(data.X_train, data.X_test)
        split = X, data.y_train, X_test, data.y_test
        settings = [setting for setting in SETTINGS if setting.set == name]
        for seed, setting in product(range(replicates), settings):
            if setting.input_size is not None or X.shape[0] <= MOST_EXACT_ROWS:
                yield setting, seed, split


def measure(setting: PaperFit, seed: int, split: tuple[Any, ...]) -> Iterator[Row]:
    """Yield the score and the times of one draw."""
    X, Y, X_test, _ = split
    if seed == 0:  # compiles
        small = setting._replace(
            input_size=setting.input_size and 20, output_size=setting.output_size and 5
        )
        small.model(seed, Y).fit(X[:50], Y[:50]).predict(X_test[:50])
    row = {"set": setting.set, "method": setting.method}
    yield row | evaluate(setting.model(seed, Y), *split)


def evaluate(model: Any, X: Any, Y: Any, X_test: Any, Y_test: Any) -> Row:
    """Return "f1" in percent and the seconds of "training" and "inference"."""
    _, training = timed(model.fit, X, Y)
    predicted, inference = timed(model.predict, X_test)
    f1 = 100 * example_f1(Y_test, predicted)
    return {"f1": f1, "training": training, "inference": inference}


def summarize(rows: Rows) -> Rows:
    """Return a row of the table for each set and method."""
    settings = {(s.set, s.method): s._asdict() for s in SETTINGS}
    times = dict.fromkeys(("training", "inference"), min)
    table = summarized(rows, ("set", "method"), times, ["f1"])
    for row in table:
        exact = where(table, set=row["set"], method="IOKR")
        for part in times:
            row[f"{part}_faster"] = exact[0][part] / row[part] if exact else None
        setting = settings[row["set"], row["method"]]
        row |= {key: setting[key] for key in setting if key.startswith("paper_")}
    return table


def scaled(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Return inputs of deviation one in training, not centered so as to stay sparse."""
    scaler = StandardScaler(with_mean=False).fit(X)
    return scaler.transform(X), scaler.transform(X_test)


def large_points(replicates: int, quick: bool) -> Points:
    """Yield the one set and the sizes of the sketches."""
    n_train, n_test, *sizes = LARGE[quick]
    documents = make_documents(
        n_train + n_test, n_words=N_WORDS, n_labels=N_LABELS, random_state=0
    )
    yield *documents, n_train, *sizes


def measure_large(
    X: sp.csr_array, Y: sp.csr_array, n_train: int, input_size: int, output_size: int
) -> Iterator[Row]:
    """Yield one row: F1 score, seconds, and the memory of the process.

    The squared bandwidth is twice the mean number of words.
    """
    square = 2 * float(X[:n_train].sum(axis=1).mean())
    setting = PaperFit("large", "SISOKR", 1e-6, square, 10.0, input_size, output_size)
    model = setting.model(0, Y).set_params(verbose=1)
    row = evaluate(model, X[:n_train], Y[:n_train], X[n_train:], Y[n_train:])
    yield {
        "rows": n_train,
        "test_rows": X.shape[0] - n_train,
        "candidates": model.candidates_.shape[0],
        "input_size": input_size,
        "output_size": output_size,
        **row,
        "gibibytes": peak_memory(),
    }


def size_points(replicates: int, quick: bool, data_home: MaybePath = None) -> Points:
    """Yield draw, sizes of inputs and outputs, and the training rows of Bibtex."""
    data = load(_SIZED, data_home)
    X, _ = scaled(data.X_train, data.X_test)
    yield from product(range(replicates), [SIZES[quick]], [(X, data.y_train)])


def measure_sizes(
    seed: int, sizes: tuple[list[int], list[int]], rows: tuple[Any, Any]
) -> Iterator[Row]:
    """Yield a row for each side and size: its score, and the seconds it took.

    Outputs: F1 in percent of a perfect regression; inputs: minus the squared distance
    of predictions from the features of outputs, times twice the squared bandwidth,
    which is nearly that of the labels.
    """
    X, X_val, Y, Y_val = train_test_split(
        *rows, test_size=_VALIDATION, random_state=seed
    )
    (setting,) = (s for s in SETTINGS if (s.set, s.method) == (_SIZED, "SISOKR"))
    assert setting.output_square
    model = setting.model(seed, Y)
    paths = {
        "inputs": select_input_size(model, X, Y, X_val, Y_val, sizes[0]),
        "outputs": select_output_size(model, Y, Y_val, sizes[1]),
    }
    units = {"inputs": 2 * setting.output_square, "outputs": 100}
    for side, path in paths.items():
        columns = zip(path.sizes, units[side] * path.scores, path.seconds, strict=True)
        for size, score, seconds in columns:
            row = {"side": side, "size": size, "replicate": seed, "score": score}
            yield row | {"seconds": seconds}


def summarize_sizes(rows: Rows) -> Rows:
    """Return a row for each side and size: mean score, and the least time."""
    return summarized(rows, ("side", "size"), {"seconds": min}, ["score"])


RUNS = {
    "sisokr": Experiment("sisokr", points, measure, summarize),
    "sisokr_sizes": Experiment(
        "sisokr_sizes", size_points, measure_sizes, summarize_sizes
    ),
    "sisokr_large": Experiment("sisokr_large", large_points, measure_large),
}
