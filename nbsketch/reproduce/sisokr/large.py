"""Structured prediction on a synthetic set of the size and shape of Bookmarks.

60,000 training and 27,856 test rows with 2,150 sparse binary inputs and 208 labels; the
candidates are all distinct label sets of training. This measures time and memory: the
F1 score on synthetic data is not comparable with that on Bookmarks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from nbsketch.datasets import make_documents
from nbsketch.kernels import GaussianKernel
from nbsketch.metrics import example_f1
from nbsketch.reproduce._report import Row, timed
from nbsketch.reproduce.experiment import Experiment
from nbsketch.sketches import PSparsifiedSketch, SubsamplingSketch
from nbsketch.structured import InputOutputKernelRegressor

N_TRAIN, N_TEST, N_WORDS, N_LABELS = 60_000, 27_856, 2150, 208
INPUT_SIZE, OUTPUT_SIZE = 8000, 500


NOTES = (
    "training, inference: processor seconds of `fit` and `predict`; gibibytes: largest "
    "memory of the process, with the data. The F1 score is not that of Bookmarks.",
)


def points(replicates: int, quick: bool) -> Iterator[tuple[Any, ...]]:
    """Yield the one set and the sizes of the sketches."""
    documents = make_documents(
        N_TRAIN + N_TEST, n_words=N_WORDS, n_labels=N_LABELS, random_state=0
    )
    yield *documents, N_TRAIN, INPUT_SIZE, OUTPUT_SIZE


def measure(
    X: sp.csr_array, Y: sp.csr_array, n_train: int, input_size: int, output_size: int
) -> list[Row]:
    """Return one row: F1 score, seconds, and the memory of the process."""
    model = InputOutputKernelRegressor(
        GaussianKernel(_spread(X[:n_train])),
        GaussianKernel(10**0.5),
        sketch=SubsamplingSketch(input_size),
        output_sketch=PSparsifiedSketch(output_size, law="gaussian"),
        alpha=1e-6,
        random_state=0,
        verbose=1,
    )
    _, training = timed(model.fit, X[:n_train], Y[:n_train])
    predicted, inference = timed(model.predict, X[n_train:])
    return [
        {
            "rows": n_train,
            "test_rows": X.shape[0] - n_train,
            "candidates": model.candidates_.shape[0],
            "input_size": input_size,
            "output_size": output_size,
            "f1": 100 * example_f1(Y[n_train:], predicted),
            "training": training,
            "inference": inference,
            "gibibytes": _peak_memory(),
        }
    ]


def _spread(X: sp.csr_array) -> float:
    """Return a typical distance between rows."""
    return float(np.sqrt(2 * X.sum(axis=1).mean()))


def _peak_memory() -> float | None:
    """Return the peak memory of the process in GiB; None if it cannot be read."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


run = Experiment(
    name="sisokr_large",
    title="Structured prediction on a synthetic set of the size of Bookmarks",
    notes=NOTES,
    replicates=(1, 1),
    points=points,
    measure=measure,
    label="{2} rows",
)
