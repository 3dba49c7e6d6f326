"""What scalar problems on the same features share: the Gram matrix of all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from nbsketch.solvers.design import Design


def shared(design: Design, n_problems: int) -> Design:
    """Return the features for some problems, which are solved one by one."""
    alone = n_problems == 1 or design.keeps_rows
    return design if alone else SharedDesign(design)


class SharedDesign(Design):
    """Features that keep the Gram matrix of all their rows once it is computed.

    The first Newton step of every class needs it.
    """

    def __init__(self, design: Design) -> None:
        self.shape, self.dtype = design.shape, design.dtype
        self._design = design
        self._grams: dict[bool, NDArray] = {}

    def blocks(self) -> Iterator[tuple[int, int, NDArray]]:
        """Yield the blocks of the features."""
        return self._design.blocks()

    def mv(self, W: Any) -> NDArray:
        """Return ``Z W``."""
        return self._design.mv(W)

    def rmv(self, A: Any, rows: NDArray | None = None) -> NDArray:
        """Return ``Z[rows]^T A``."""
        return self._design.rmv(A, rows)

    def gram(
        self,
        rows: NDArray | None = None,
        weights: NDArray | None = None,
        *,
        exact: bool = True,
    ) -> NDArray:
        """Return ``Z[rows]^T diag(weights) Z[rows]``; keep that of all rows."""
        if rows is not None or weights is not None:
            return self._design.gram(rows, weights, exact=exact)
        if exact not in self._grams:
            self._grams[exact] = self._design.gram(exact=exact)
        return self._grams[exact].copy()

    def gather(self, rows: NDArray) -> Design:
        """Return the features of the given rows."""
        return self._design.gather(rows)

    def collect(self) -> NDArray:
        """Return all features as one array, which may be shared."""
        return self._design.collect()

    def total(
        self, function: Callable[..., tuple], *args: Any, rows: Sequence = ()
    ) -> tuple:
        """Return the sums of the tuples ``function(block, *parts, *args)``."""
        return self._design.total(function, *args, rows=rows)
