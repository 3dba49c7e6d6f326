"""Sets of candidates: one for all rows, or one for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from nbsketch.structured._decoding import Candidates, TopK, keep_best
from nbsketch.structured._outputs import TrainingOutputs
from nbsketch.structured._rows import as_given, stack

# Number of candidates of consecutive rows that are encoded together.
_BATCH = 4096


class OneSet(NamedTuple):
    """The same candidates for every row."""

    outputs: Any
    encoded: Candidates

    @property
    def largest(self) -> int:
        """Number of candidates."""
        return len(self.encoded)

    def keep_best(self, h: NDArray, start: int, best: TopK) -> None:
        """Update `best` for the rows from `start` on, whose points are `h`."""
        keep_best(h, self.encoded, best)

    def pick(self, index: NDArray) -> Any:
        """Return the candidate with the given index of each row."""
        return as_given(self.outputs[index])


class SetPerRow(NamedTuple):
    """A different set of candidates for each row."""

    sets: list[Any]
    training: TrainingOutputs

    @property
    def largest(self) -> int:
        """Number of candidates of the largest set."""
        return max(_count(one) for one in self.sets)

    def keep_best(self, h: NDArray, start: int, best: TopK) -> None:
        """Update `best` for the rows from `start` on, whose points are `h`."""
        for rows in _batches([_count(s) for s in self.sets[start : start + len(h)]]):
            sets = self.sets[start + rows.start : start + rows.stop]
            encoded = self.training.encode(stack(sets))
            last = 0
            for i, one in enumerate(sets, start=rows.start):
                first, last = last, last + _count(one)
                row = slice(i, i + 1)
                keep_best(h[row], encoded.take(slice(first, last)), best.rows(row))

    def pick(self, index: NDArray) -> Any:
        """Return the candidate with the given index of each row."""
        chosen = [s[i : i + 1] for s, i in zip(self.sets, index, strict=True)]
        return as_given(stack(chosen))


def one_set(training: TrainingOutputs, candidates: Any = None) -> OneSet:
    """Return the given candidates; None means the training outputs."""
    if candidates is None:
        return OneSet(training.rows, training.encoded)
    outputs = training.check("candidates", candidates)
    return OneSet(outputs, training.encode(outputs))


def choose_set(
    training: TrainingOutputs, candidates: Any, candidate_sets: Any, n: int
) -> OneSet | SetPerRow:
    """Return the candidates of n rows from the arguments of `predict`."""
    if candidate_sets is None:
        return one_set(training, candidates)
    if candidates is not None:
        raise ValueError("`candidates` and `candidate_sets` exclude each other")
    if not isinstance(candidate_sets, Iterable):
        raise TypeError(
            f"`candidate_sets` must be a sequence of sets, got {candidate_sets!r:.60}"
        )
    sets = [
        training.check(f"candidate_sets[{i}]", one)
        for i, one in enumerate(candidate_sets)
    ]
    if len(sets) != n:
        raise ValueError(
            f"`candidate_sets` must have one set for each of {n} rows, got {len(sets)}"
        )
    return SetPerRow(sets, training)


def _batches(counts: list[int]) -> Iterable[slice]:
    """Yield slices of consecutive sets with about `_BATCH` candidates together."""
    start, total = 0, 0
    for i, count in enumerate(counts):
        if total and total + count > _BATCH:
            yield slice(start, i)
            start, total = i, 0
        total += count
    yield slice(start, len(counts))


def _count(outputs: Any) -> int:
    return int(outputs.shape[0])
