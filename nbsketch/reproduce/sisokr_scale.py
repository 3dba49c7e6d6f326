"""Structured prediction on a set of the size and shape of Bookmarks.

60,000 training and 27,856 test rows with 2,150 sparse binary inputs and 208 labels, as
in Bookmarks; the candidates are all distinct label sets of training. The data are made
up: this is about time and memory, and its F1 score is comparable with nothing.
"""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch.kernels import GaussianKernel
from nbsketch.metrics import example_f1
from nbsketch.reproduce._report import as_text
from nbsketch.sketches import PSparsifiedSketch, SubsamplingSketch
from nbsketch.structured import InputOutputKernelRegressor

N_TRAIN, N_TEST, N_WORDS, N_LABELS = 60_000, 27_856, 2150, 208
INPUT_SIZE, OUTPUT_SIZE = 8000, 500
# Words of a row that come from anywhere, and those that go with a label.
_BACKGROUND, _WORDS_OF_LABEL, _KEPT = 100, 25, 0.5


class Documents(NamedTuple):
    """Rows of words and their labels."""

    X: sp.csr_array
    Y: sp.csr_array


def run() -> list[dict[str, Any]]:
    """Train and predict, print the cost of each stage and the memory."""
    print("A made-up set of the size of Bookmarks: cost of each stage")
    documents = make_documents(N_TRAIN + N_TEST, N_WORDS, N_LABELS)
    rows = measure(documents, N_TRAIN, INPUT_SIZE, OUTPUT_SIZE)
    print(as_text(rows), end="\n\n")
    return rows


def measure(
    documents: Documents, n_train: int, input_size: int, output_size: int
) -> list[dict[str, Any]]:
    """Return one row: F1 score, seconds, and the memory of the process."""
    X, Y = documents
    model = InputOutputKernelRegressor(
        GaussianKernel(_spread(X[:n_train])),
        GaussianKernel(10**0.5),
        sketch=SubsamplingSketch(input_size),
        output_sketch=PSparsifiedSketch(output_size, law="gaussian"),
        alpha=1e-6,
        random_state=0,
        verbose=1,
    )
    start = time.perf_counter()
    model.fit(X[:n_train], Y[:n_train])
    middle = time.perf_counter()
    predicted = model.predict(X[n_train:])
    end = time.perf_counter()
    return [
        {
            "rows": n_train,
            "test rows": X.shape[0] - n_train,
            "candidates": model.candidates_.shape[0],
            "m_X": input_size,
            "m_Y": output_size,
            "f1": 100 * example_f1(Y[n_train:], predicted),
            "training": middle - start,
            "inference": end - middle,
            "GiB": _peak_memory(),
        }
    ]


def make_documents(n: int, n_words: int, n_labels: int, seed: int = 0) -> Documents:
    """Return rows of words, some of which go with the labels of the row.

    Labels and words have the frequencies of Zipf's law; a row has one label, and
    others by a Poisson law of mean one.
    """
    rng = np.random.default_rng(seed)
    labels = _draw_rows(rng, 1 + rng.poisson(1.05, n), _zipf(n_labels, 0.8))
    words = _draw_rows(rng, rng.poisson(_BACKGROUND, n), _zipf(n_words, 0.5))
    chosen = rng.integers(n_words, size=(n_labels, _WORDS_OF_LABEL))
    pointers = np.arange(0, chosen.size + 1, _WORDS_OF_LABEL)
    ones = np.ones(chosen.size)
    vocabulary = sp.csr_array(
        (ones, chosen.ravel(), pointers), shape=(n_labels, n_words)
    )
    named = sp.csr_array(labels @ vocabulary)
    kept = rng.random(named.nnz) < _KEPT
    named.data = np.where(kept, 1.0, 0.0)
    named.eliminate_zeros()
    return Documents(_binary(words + named), _binary(labels).astype(np.int8))


def _zipf(count: int, power: float) -> NDArray:
    weights = np.arange(1, count + 1) ** -power
    return weights / weights.sum()


def _draw_rows(
    rng: np.random.Generator, counts: NDArray, frequencies: NDArray
) -> sp.csr_array:
    """Return a binary matrix with about `counts` entries in its rows."""
    pointers = np.concatenate([[0], np.cumsum(counts)])
    columns = rng.choice(len(frequencies), size=pointers[-1], p=frequencies)
    shape = len(counts), len(frequencies)
    return _binary(
        sp.csr_array((np.ones(len(columns)), columns, pointers), shape=shape)
    )


def _binary(matrix: Any) -> sp.csr_array:
    rows = sp.csr_array(matrix)
    rows.sum_duplicates()
    rows.data[:] = 1
    return rows


def _spread(X: sp.csr_array) -> float:
    """Return a typical distance between rows."""
    return float(np.sqrt(2 * X.sum(axis=1).mean()))


def _peak_memory() -> float | None:
    """Return the most memory that the process has had, in GiB, where that is known."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
