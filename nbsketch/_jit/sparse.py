"""Inner products, distances and similarities of sparse rows, without dense rows.

A block of landmarks is listed by feature: each nonzero of a row adds a multiple of a
short list to the sums of the landmarks with this feature. A feature present in many
landmarks is stored as a dense row of values instead, which is added contiguously, four
such rows at a time.
"""

import numpy as np

from nbsketch._jit import threads
from nbsketch._jit.compiler import compiled
from nbsketch._jit.threads import in_parallel

# Function of the inner product of two rows.
INNER, DISTANCE, SIMILARITY = range(3)

# Rows per tile, as many as in the tiles where sums become kernel values.
TILE_ROWS = 4


@compiled()
def _add_list(x, members, values, first, last, sums):
    for entry in range(first, last):
        sums[members[entry]] += x * values[entry]


@compiled()
def _add_whole(x, rows, whole, sums):
    x0 = x[0]
    x1 = x[1]
    x2 = x[2]
    x3 = x[3]
    v0 = whole[rows[0]]
    v1 = whole[rows[1]]
    v2 = whole[rows[2]]
    v3 = whole[rows[3]]
    for j in range(sums.size):
        sums[j] += x0 * v0[j] + x1 * v1[j] + x2 * v2[j] + x3 * v3[j]


@compiled()
def _add_products(rows, i, lists, x, taken, sums):
    """Add the inner products of row i with the landmarks to `sums` (m,)."""
    pointers, indices, data = rows
    starts, members, values, places, whole = lists
    count = 0
    for entry in range(pointers[i], pointers[i + 1]):
        feature = indices[entry]
        if places[feature] < 0:
            first = starts[feature]
            last = starts[feature + 1]
            _add_list(data[entry], members, values, first, last, sums)
            continue
        x[count] = data[entry]
        taken[count] = places[feature]
        count += 1
        if count == taken.size:
            _add_whole(x, taken, whole, sums)
            count = 0
    for k in range(count):
        x0 = x[k]
        v0 = whole[taken[k]]
        for j in range(sums.size):
            sums[j] += x0 * v0[j]


@compiled()
def fill_norms(rows, scale, norms, first):
    """Fill `norms` with the squared norms of scaled rows, from row `first` on."""
    pointers, indices, data = rows
    for i in range(norms.size):
        total = 0.0
        for entry in range(pointers[first + i], pointers[first + i + 1]):
            value = data[entry] * scale[indices[entry]]
            total += value * value
        norms[i] = total


@compiled()
def _distance(rows, i, landmarks, j, scale):
    """Return the squared distance of two rows, by the differences of their features."""
    pointers, indices, data = rows
    pointers_l, indices_l, data_l = landmarks
    a = pointers[i]
    last_a = pointers[i + 1]
    b = pointers_l[j]
    last_b = pointers_l[j + 1]
    total = 0.0
    while a < last_a or b < last_b:
        feature_a = indices[a] if a < last_a else scale.size
        feature_b = indices_l[b] if b < last_b else scale.size
        feature = min(feature_a, feature_b)
        difference = 0.0
        if feature_a == feature:
            difference += data[a]
            a += 1
        if feature_b == feature:
            difference -= data_l[b]
            b += 1
        difference *= scale[feature]
        total += difference * difference
    return total


@compiled()
def _expand(norm, norms, share, sums):
    """Convert inner products to squared distances; return the number of doubtful ones.

    A distance below `share` of the norms has lost digits; so has NaN.
    """
    doubtful = 0
    for j in range(sums.size):
        total = norm + norms[j]
        square = total - (sums[j] + sums[j])
        sums[j] = square
        doubtful += 0 if square > share * total else 1
    return doubtful


@compiled()
def _fill_distances(rows, i, landmarks, scale, norm, norms, share, sums):
    if _expand(norm, norms, share, sums) == 0:
        return
    for j in range(sums.size):
        if not sums[j] > share * (norm + norms[j]):
            sums[j] = _distance(rows, i, landmarks, j, scale)


@compiled()
def _fill_similarities(norm, norms, sums):
    for j in range(sums.size):
        union = norm + norms[j] - sums[j]
        sums[j] = sums[j] / union if union > 0 else 1


@compiled()
def _fill_tile(what, rows, landmarks, lists, norms, scale, share, out, start, tile):
    first = tile * TILE_ROWS
    last = min((tile + 1) * TILE_ROWS, out.shape[0])
    own_norms = np.empty(last - first, norms.dtype)
    fill_norms(rows, scale, own_norms, start + first)
    x = np.empty(4, out.dtype)
    taken = np.empty(4, np.int64)
    for k in range(first, last):
        i = start + k
        norm = own_norms[k - first]
        sums = out[k]
        sums[:] = 0
        _add_products(rows, i, lists, x, taken, sums)
        if what == DISTANCE:
            _fill_distances(rows, i, landmarks, scale, norm, norms, share, sums)
        elif what == SIMILARITY:
            _fill_similarities(norm, norms, sums)


@compiled(sources=(threads.__file__,))
def fill(
    what, rows, landmarks, lists, norms, scale, share, out, start,
    first, last, together, loop,
):  # fmt: skip
    """Fill tiles `first` to `last` - 1 of `out` (n, m), whose row 0 is row `start`.

    `rows` and `landmarks` are the arrays of CSR matrices with sorted columns, `lists`
    (starts, members, values, places, whole) the landmarks by feature, times the square
    of its scale, and the densely stored features, at their places. `norms` (m,) are the
    norms of the scaled landmarks.
    """
    if loop:
        in_parallel()
        return
    for tile in range(first, last):
        _fill_tile(what, rows, landmarks, lists, norms, scale, share, out, start, tile)
