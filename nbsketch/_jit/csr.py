"""Random matrices written straight into the arrays that hold them.

Where entry (i, j) is nonzero with probability p, independently of all others, a row
walks from one nonzero to the next by geometric skips, so time and memory grow with the
number of nonzeros and not with the number of columns. Each row has its own random
streams, keyed by (seed, row): one for positions, one for values. So the first rows of a
matrix are the same however many follow. Matrices whose columns are independent instead
of their rows have streams of columns.
"""

import math

import numpy as np

from nbsketch._jit.compiler import compiled

RADEMACHER, GAUSSIAN = range(2)

# The constants of the splitmix64 generator (Steele, Lea and Flood 2014), and one more
# odd number that sets the streams of different rows apart.
_WEYL = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ROW = np.uint64(0xD1342543DE82EF95)
_POSITIONS = np.uint64(1)
_VALUES = np.uint64(2)
_SHIFTS = np.array([30, 27, 31, 11], dtype=np.uint64)
_UNIT = 2.0**-53


@compiled()
def _mix(z):
    z = (z ^ (z >> _SHIFTS[0])) * _MIX_1
    z = (z ^ (z >> _SHIFTS[1])) * _MIX_2
    return z ^ (z >> _SHIFTS[2])


@compiled()
def _stream(seed, row, purpose):
    return _mix(_mix(seed + purpose * _WEYL) + np.uint64(row + 1) * _ROW)


@compiled()
def _uniform(state):
    """Return a number in (0, 1]."""
    return ((_mix(state) >> _SHIFTS[3]) + np.uint64(1)) * _UNIT


@compiled()
def _next_column(state, column, n_columns, log_absent):
    """Return the next nonzero column, or `n_columns` when the row has ended."""
    skip = math.log(_uniform(state)) / log_absent
    # Compared as floats: a skip may be too large for an integer.
    return column + 1 + int(skip) if skip < n_columns - column - 1 else n_columns


@compiled()
def count_entries(seed, n_columns, log_absent, counts):
    """Write the number of nonzeros of each row into `counts`.

    `log_absent` is log(1 - p), the logarithm of the probability of a zero.
    """
    for row in range(counts.size):
        state = _stream(seed, row, _POSITIONS)
        column = -1
        count = -1
        while column < n_columns:
            state += _WEYL
            column = _next_column(state, column, n_columns, log_absent)
            count += 1
        counts[row] = count


@compiled()
def _value(state, law):
    if law == RADEMACHER:
        return 1.0 if _mix(state) & np.uint64(1) else -1.0
    radius = math.sqrt(-2.0 * math.log(_uniform(state)))
    return radius * math.cos(2.0 * math.pi * _uniform(state + _WEYL))


@compiled()
def fill_entries(seed, n_columns, log_absent, law, scale, pointers, columns, values):
    """Write the columns and values of the nonzeros that `count_entries` counted."""
    for row in range(pointers.size - 1):
        state = _stream(seed, row, _POSITIONS)
        column = -1
        drawn = _stream(seed, row, _VALUES)
        for entry in range(pointers[row], pointers[row + 1]):
            state += _WEYL
            drawn += _WEYL + _WEYL
            column = _next_column(state, column, n_columns, log_absent)
            columns[entry] = column
            values[entry] = scale * _value(drawn, law)


@compiled()
def _fill_row(seed, law, scale, out, row):
    drawn = _stream(seed, row, _VALUES)
    for column in range(out.shape[1]):
        drawn += _WEYL + _WEYL
        out[row, column] = scale * _value(drawn, law)


@compiled()
def fill_dense(seed, law, scale, out, first, last):
    """Fill rows `first` to `last` - 1 of `out` with the values of a full matrix."""
    for row in range(first, last):
        _fill_row(seed, law, scale, out, row)


@compiled()
def fill_uniforms(seed, out):
    """Fill each row of `out` (n, k) with numbers uniform on (0, 1] of its stream."""
    for row in range(out.shape[0]):
        state = _stream(seed, row, _POSITIONS)
        for k in range(out.shape[1]):
            state += _WEYL
            out[row, k] = _uniform(state)


@compiled()
def fill_signs(seed, out):
    """Fill each row of `out` (n, k) with random signs of its stream."""
    for row in range(out.shape[0]):
        state = _stream(seed, row, _VALUES)
        for k in range(out.shape[1]):
            state += _WEYL
            out[row, k] = 1 if _mix(state) & np.uint64(1) else -1


@compiled()
def fill_distinct(seed, n_values, taken, out):
    """Fill each row of `out` (n, k) with k distinct integers below `n_values`.

    Floyd's algorithm: exactly k draws, and any k of them are equally likely. `taken`
    has `n_values` entries, all negative.
    """
    for row in range(out.shape[0]):
        state = _stream(seed, row, _POSITIONS)
        for k in range(out.shape[1]):
            state += _WEYL
            top = n_values - out.shape[1] + k
            value = min(int((1.0 - _uniform(state)) * (top + 1)), top)
            if taken[value] == row:
                value = top
            taken[value] = row
            out[row, k] = value


@compiled()
def draw_rows(seed, first, n_rows, cumulative, guide, out):
    """Fill `out` with the random rows number `first`, `first + 1`, ... of a stream.

    The row of a number does not depend on how the stream is cut. All `n_rows` are
    equally likely if `cumulative` is empty. Otherwise it holds the sums of positive
    weights up to each row, a row is as likely as its weight is large, and `guide` says
    at which row to look first.
    """
    last = cumulative.size - 1
    for k in range(out.size):
        state = seed + np.uint64(first + k + 1) * _WEYL
        uniform = (_mix(_mix(state)) >> _SHIFTS[3]) * _UNIT
        if last < 0:
            out[k] = int(uniform * n_rows)
            continue
        row = guide[int(uniform * guide.size)]
        while row < last and cumulative[row] <= uniform * cumulative[last]:
            row += 1
        out[k] = row
