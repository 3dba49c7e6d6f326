"""Routing of rows through a binary tree, and sums over triangles of leaves."""

from typing import Any

from nbsketch._jit.compiler import REORDER, compiled

# Number of rows processed by one call.
TILE = 1024


@compiled()
def route(
    rows: Any, feature: Any, threshold: Any, child: Any, out: Any, first: int, last: int
) -> None:
    """Fill `out` (n,) with the leaf of each row.

    Node i sends rows with ``row[feature[i]] <= threshold[i]`` to node child[i] and the
    others to child[i] + 1; at a leaf the feature is -1 and child[i] is its number.
    """
    for tile in range(first, last):
        for i in range(tile * TILE, min((tile + 1) * TILE, rows.shape[0])):
            node = 0
            while feature[node] >= 0:
                right = not (rows[i, feature[node]] <= threshold[node])
                node = child[node] + right
            out[i] = child[node]


@compiled()
def tree_sums(
    rows: Any,
    feature: Any,
    threshold: Any,
    child: Any,
    value: Any,
    roots: Any,
    column: Any,
    out: Any,
    first: int,
    last: int,
) -> None:
    """Add the value of the leaf of each row in each tree to the tree's column of `out`.

    Trees are as for `route`, where `child` (2, nodes) has both children.
    """
    for tile in range(first, last):
        for k in range(roots.size):
            for i in range(tile * TILE, min((tile + 1) * TILE, rows.shape[0])):
                node = roots[k]
                while feature[node] >= 0:
                    right = not (rows[i, feature[node]] <= threshold[node])
                    node = child[int(right), node]
                out[i, column[k]] += value[node]


@compiled(fastmath=REORDER)
def column_squares(factor: Any, out: Any) -> None:
    """Fill `out` (n,) with the sums of squares of the columns of a lower triangle.

    `factor` is the transpose, in C order: row j holds column j from its diagonal on.
    """
    for j in range(factor.shape[0]):
        total = 0.0
        for i in range(j, factor.shape[1]):
            total += factor[j, i] * factor[j, i]
        out[j] = total
