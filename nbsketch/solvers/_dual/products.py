"""Products with K for several searches at once.

A search is a generator: it yields a vector and is sent the product of K with it. The
searches of all columns run side by side, so that one pass over K serves all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._linear.operator import PartialOperator

ResultT = TypeVar("ResultT")
# What a search yields, is sent, and returns.
Steps = Generator[NDArray, NDArray, ResultT]

# Share of the columns up to which they are evaluated alone, twice as dear per value.
_FEW = 1 / 12


class Products:
    """Products with K, whole or of the few columns that a vector has entries for."""

    def __init__(self, K: PartialOperator) -> None:
        self.K = K

    def multiply(self, vectors: list[NDArray]) -> list[NDArray]:
        """Return K v for each vector."""
        n, out = self.K.shape[0], [np.zeros(0)] * len(vectors)
        whole = []
        for i, v in enumerate(vectors):
            index = np.flatnonzero(v)
            if len(index) > _FEW * n:
                whole.append(i)
            elif len(index):
                out[i] = self.K.combine(index, v[index])
            else:
                out[i] = np.zeros(n)
        if whole:
            found = self.K @ np.column_stack([vectors[i] for i in whole])
            for i, product in zip(whole, np.ascontiguousarray(found.T), strict=True):
                out[i] = product
        return out


def run_together(products: Products, searches: list[Steps]) -> list:
    """Run searches to their ends and return their results."""
    results: list = [None] * len(searches)
    waiting: dict[int, NDArray | None] = dict.fromkeys(range(len(searches)))
    while waiting:
        asked = {}
        for i, answer in waiting.items():
            try:
                asked[i] = searches[i].send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                results[i] = end.value
        answers = products.multiply(list(asked.values()))
        waiting = dict(zip(asked, answers, strict=True))
    return results
