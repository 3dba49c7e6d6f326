"""Routing of rows through a binary tree, and sums over triangles of leaves."""

from numba.cpython.unsafe.numbers import trailing_zeros

from nbsketch._jit.compiler import REORDER, compiled

# Number of rows processed by one call.
TILE = 1024
# Number of rows for which the nodes of a tree are evaluated together.
BLOCK = 256
# Blocks are multiples of it: remainders of vectorized loops would take longer.
LANES = 8


@compiled()
def route(rows, feature, threshold, child, out, first, last):
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
    rows, feature, threshold, others, value, starts, target, leaves, out, first, last
):
    """Add the value of the leaf of each row in tree k to target[k] in `out`.

    `rows` (blocks, q, width) and `out` (blocks, targets, width) have the rows of a
    block side by side; `leaves` (blocks, width) is a buffer of integers. Values
    starts[k] to starts[k + 1] - 1 are those of the leaves of tree k from left to right;
    its inner nodes, one less, start at starts[k] - k.

    A descent would be a chain of loads. Instead all nodes are compared with a block of
    rows: unless ``row[feature[j]] <= threshold[j]``, node j removes the leaves of its
    left branch, which are not in the bits `others[j]`. The first leaf that remains is
    that of the row (Lucchese et al., QuickScorer, SIGIR 2015).
    """
    width = rows.shape[2]
    for block in range(first, last):
        for k in range(target.size):
            for i in range(width):
                leaves[block, i] = -1
            for j in range(starts[k] - k, starts[k + 1] - k - 1):
                # Loads outside of the loop over rows, which is then vectorized.
                q = feature[j]
                t = threshold[j]
                bits = others[j]
                for i in range(width):
                    fewer = leaves[block, i] & bits
                    leaves[block, i] = (
                        leaves[block, i] if rows[block, q, i] <= t else fewer
                    )
            place = starts[k]
            r = target[k]
            for i in range(width):
                out[block, r, i] += value[place + trailing_zeros(leaves[block, i])]


@compiled(fastmath=REORDER)
def column_squares(factor, out):
    """Fill `out` (n,) with the sums of squares of the columns of a lower triangle.

    `factor` is the transpose, in C order: row j holds column j from its diagonal on.
    """
    for j in range(factor.shape[0]):
        total = 0.0
        for i in range(j, factor.shape[1]):
            total += factor[j, i] * factor[j, i]
        out[j] = total
