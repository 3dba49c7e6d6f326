"""Synthetic documents with labels, as sparse binary rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from nbsketch._validation import check_integer, random_generator

# Words of a row from the whole vocabulary, words of a label, and their share in a row.
_BACKGROUND, _WORDS_OF_LABEL, _KEPT = 100, 25, 0.5


def make_documents(
    n_samples: int = 2000,
    *,
    n_words: int = 400,
    n_labels: int = 20,
    random_state: Any = None,
) -> tuple[csr_array, csr_array]:
    """Draw a multi-label problem: documents as sets of words, with their labels.

    A document has 1 label plus a Poisson(1.05) number of others, about 100 words from
    the whole vocabulary, and a random half of the 25 words of each of its labels. The
    frequencies of labels and words follow Zipf laws with exponents 0.8 and 0.5.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of documents.
    n_words : int, default=400
        Size of the vocabulary: number of columns of X.
    n_labels : int, default=20
        Number of columns of Y.
    random_state : None, int, numpy.random.Generator or numpy.random.RandomState
        Source of randomness; None draws a fresh one.

    Returns
    -------
    X : scipy.sparse.csr_array of shape (n_samples, n_words)
        Binary inputs: the words of each document.
    Y : scipy.sparse.csr_array of shape (n_samples, n_labels)
        Binary outputs (int8): the labels of each document, at least one.

    Raises
    ------
    TypeError, ValueError
        If a number is not a positive integer.

    Examples
    --------
    >>> from nbsketch.datasets import make_documents
    >>> X, Y = make_documents(500, n_words=300, n_labels=10, random_state=0)
    >>> X.shape, Y.shape, int(Y.sum(axis=1).min())
    ((500, 300), (500, 10), 1)
    """
    n_samples = check_integer("n_samples", n_samples)
    n_words = check_integer("n_words", n_words)
    n_labels = check_integer("n_labels", n_labels)
    rng = random_generator(random_state)
    labels = _draw_rows(rng, 1 + rng.poisson(1.05, n_samples), _zipf(n_labels, 0.8))
    words = _draw_rows(rng, rng.poisson(_BACKGROUND, n_samples), _zipf(n_words, 0.5))
    chosen = rng.integers(n_words, size=(n_labels, _WORDS_OF_LABEL))
    vocabulary = _counts(chosen.ravel(), np.full(n_labels, _WORDS_OF_LABEL), n_words)
    named = csr_array(labels @ vocabulary)
    named.data = np.where(rng.random(named.nnz) < _KEPT, 1.0, 0.0)
    named.eliminate_zeros()
    return _binary(words + named), _binary(labels).astype(np.int8)


def _zipf(count: int, power: float) -> NDArray:
    weights = np.arange(1, count + 1) ** -power
    return weights / weights.sum()


def _draw_rows(
    rng: np.random.Generator, counts: NDArray, frequencies: NDArray
) -> csr_array:
    """Return a binary matrix; row i has counts[i] draws, repetitions merged."""
    size = len(frequencies)
    return _binary(_counts(rng.choice(size, counts.sum(), p=frequencies), counts, size))


def _counts(columns: NDArray, counts: NDArray, n_columns: int) -> csr_array:
    """Return a matrix of ones, row i with the next counts[i] of the columns."""
    pointers = np.concatenate([[0], np.cumsum(counts)])
    ones = np.ones(len(columns))
    return csr_array((ones, columns, pointers), shape=(len(counts), n_columns))


def _binary(matrix: csr_array) -> csr_array:
    rows = csr_array(matrix)
    rows.sum_duplicates()
    rows.data[:] = 1
    return rows
