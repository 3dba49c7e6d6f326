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


def run_together(K: PartialOperator, searches: list[Steps]) -> list:
    """Run searches to their ends and return their results."""
    results: list = [None] * len(searches)
    products: dict[int, NDArray | None] = dict.fromkeys(range(len(searches)))
    while products:
        vectors = {}
        for i, product in products.items():
            try:
                vectors[i] = searches[i].send(product)  # type: ignore[arg-type]
            except StopIteration as end:
                results[i] = end.value
        products = dict(zip(vectors, _multiply(K, list(vectors.values())), strict=True))
    return results


def _multiply(K: PartialOperator, vectors: list[NDArray]) -> list[NDArray]:
    """Return K v for each vector, from the columns of K that it has entries for."""
    n, products = K.shape[0], [np.zeros(0)] * len(vectors)
    dense = []
    for i, v in enumerate(vectors):
        index = np.flatnonzero(v)
        if len(index) > _FEW * n:
            dense.append(i)
        else:
            products[i] = K.combine(index, v[index]) if len(index) else np.zeros(n)
    if dense:
        block = K @ np.column_stack([vectors[i] for i in dense])
        for i, product in zip(dense, np.ascontiguousarray(block.T), strict=True):
            products[i] = product
    return products
