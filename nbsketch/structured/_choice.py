"""Sets of candidates: one for all rows, or one for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.structured._decoding import Candidates, TopK, keep_best
from nbsketch.structured._outputs import OutputSpace
from nbsketch.structured._rows import (
    Objects,
    as_given,
    check_objects,
    check_outputs,
    stack,
)

# Candidates of neighboring rows that are encoded together.
_BATCH = 4096


class Pool(NamedTuple):
    """The outputs of a fitted model, and how to take others for them.

    A training output of a precomputed kernel is known by its index, another output by
    its kernel values with all training outputs.
    """

    outputs: Any  # rows, Objects, or indices
    encoded: Candidates
    space: OutputSpace
    precomputed: bool

    def check(self, name: str, value: Any) -> Any:
        """Return outputs in the form of those of the model."""
        if isinstance(self.outputs, Objects):
            return check_objects(name, value)
        if not self.precomputed:
            return self._check(name, value, self.outputs.shape[1])
        array = np.asarray(value)
        n = len(self.encoded)
        if array.ndim != 1:
            return self._check(name, array, n)
        if array.size == 0 or array.dtype.kind not in "iu":
            raise ValueError(
                f"`{name}` must hold indices of training outputs, or their kernel "
                f"values with new ones, got shape {array.shape} and dtype {array.dtype}"
            )
        if not 0 <= array.min() <= array.max() < n:
            raise ValueError(
                f"`{name}` must be in [0, {n - 1}], got {array.min()} to {array.max()}"
            )
        return array

    def _check(self, name: str, value: Any, n_features: int) -> Any:
        kernel = self.space.sketch_map.kernel
        return check_outputs(name, value, kernel, n_features=n_features)

    def encode(self, outputs: Any) -> Candidates:
        """Return checked outputs as candidates."""
        if not self.precomputed:
            return self.space.encode(outputs)
        if outputs.ndim == 1:
            return self.encoded.take(outputs)
        penalty = self.encoded.penalty
        if np.ptp(penalty) > 1e-9 * penalty.max():
            raise ValueError(
                "a precomputed `output_kernel` must be constant on its diagonal for "
                "outputs that are not in training: give a function of indices instead"
            )
        return self.space.encode(outputs, np.full(len(outputs), 2 * penalty[0]))


class OneSet(NamedTuple):
    """The same candidates for every row."""

    outputs: Any
    encoded: Candidates

    @property
    def largest(self) -> int:
        """Number of candidates."""
        return len(self.encoded)

    def keep_best(self, h: NDArray, start: int, best: TopK) -> None:
        """Find the best candidates of the rows from `start` on, of which h is given."""
        keep_best(h, self.encoded, best)

    def pick(self, index: NDArray) -> Any:
        """Return the candidates of some indices, one for each row."""
        return as_given(self.outputs[index])


class SetPerRow(NamedTuple):
    """Candidates of its own for each row."""

    sets: list[Any]
    pool: Pool

    @property
    def largest(self) -> int:
        """Number of candidates of the largest set."""
        return max(_count(one) for one in self.sets)

    def keep_best(self, h: NDArray, start: int, best: TopK) -> None:
        """Find the best candidates of the rows from `start` on, of which h is given."""
        for rows in _batches([_count(s) for s in self.sets[start : start + len(h)]]):
            sets = self.sets[start + rows.start : start + rows.stop]
            encoded = self.pool.encode(stack(sets))
            last = 0
            for i, one in enumerate(sets, start=rows.start):
                first, last = last, last + _count(one)
                row = slice(i, i + 1)
                keep_best(h[row], encoded.take(slice(first, last)), best.rows(row))

    def pick(self, index: NDArray) -> Any:
        """Return the candidates of some indices, one for each row."""
        chosen = [s[i : i + 1] for s, i in zip(self.sets, index, strict=True)]
        return as_given(stack(chosen))


def one_set(pool: Pool, candidates: Any = None) -> OneSet:
    """Return given candidates, or the outputs of training."""
    if candidates is None:
        return OneSet(pool.outputs, pool.encoded)
    outputs = pool.check("candidates", candidates)
    return OneSet(outputs, pool.encode(outputs))


def choose_set(
    pool: Pool, candidates: Any, candidate_sets: Any, n: int
) -> OneSet | SetPerRow:
    """Return the candidates of n rows from what the user gave."""
    if candidate_sets is None:
        return one_set(pool, candidates)
    if candidates is not None:
        raise ValueError("`candidates` and `candidate_sets` exclude each other")
    if not isinstance(candidate_sets, Iterable):
        raise TypeError(
            f"`candidate_sets` must be a sequence of sets, got {candidate_sets!r:.60}"
        )
    sets = [
        pool.check(f"candidate_sets[{i}]", one) for i, one in enumerate(candidate_sets)
    ]
    if len(sets) != n:
        raise ValueError(
            f"`candidate_sets` must have one set for each of {n} rows, got {len(sets)}"
        )
    return SetPerRow(sets, pool)


def _batches(counts: list[int]) -> Iterable[slice]:
    """Yield runs of sets, of about `_BATCH` candidates together."""
    start, total = 0, 0
    for i, count in enumerate(counts):
        if total and total + count > _BATCH:
            yield slice(start, i)
            start, total = i, 0
        total += count
    yield slice(start, len(counts))


def _count(outputs: Any) -> int:
    return int(outputs.shape[0])
