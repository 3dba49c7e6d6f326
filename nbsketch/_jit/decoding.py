"""The best candidates of each row, updated tile by tile."""

from nbsketch._jit.compiler import compiled


@compiled()
def _keep_row(products, penalty, first, scores, index):
    """Insert the candidates of one row; of equal scores the earlier one is first."""
    last = scores.size - 1
    for c in range(products.size):
        score = products[c] - penalty[c]
        if score > scores[last]:
            place = last
            while place > 0 and score > scores[place - 1]:
                scores[place] = scores[place - 1]
                index[place] = index[place - 1]
                place -= 1
            scores[place] = score
            index[place] = first + c


@compiled()
def insert_best(products, penalty, first, scores, index, width, start, stop):
    """Update the best candidates of the rows in tiles `start` to `stop` - 1.

    `products` (n, c) belong to the candidates `first` to `first` + c - 1, `penalty`
    (c,) is subtracted from each, `scores` and `index` (n, k) are descending in each
    row.
    """
    for i in range(start * width, min(stop * width, products.shape[0])):
        _keep_row(products[i], penalty, first, scores[i], index[i])
