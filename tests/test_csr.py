"""The compiled generator of sparse random matrices: its form and its law.

Statistics are compared with their expectations within five standard errors, at fixed
seeds; a p-value must exceed that of five standard errors.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal

from nbsketch._jit import csr
from nbsketch._jit.csr import (
    GAUSSIAN,
    RADEMACHER,
    count_entries,
    fill_dense,
    fill_entries,
)

P_VALUE = 6e-7


def draw(seed, rows, n_columns, p, law=RADEMACHER, scale=1.0):
    log_absent = math.log1p(-p) if p < 1 else -math.inf
    pointers = np.zeros(rows + 1, dtype=np.int64)
    count_entries(np.uint64(seed), n_columns, log_absent, pointers[1:])
    np.cumsum(pointers, out=pointers)
    columns = np.full(pointers[-1], -1)
    values = np.full(pointers[-1], np.nan)
    fill_entries(
        np.uint64(seed), n_columns, log_absent, law, scale, pointers, columns, values
    )
    return pointers, columns, values


def as_mask(pointers, columns, n_columns):
    mask = np.zeros((len(pointers) - 1, n_columns), dtype=bool)
    for row, (first, last) in enumerate(pairwise(pointers)):
        mask[row, columns[first:last]] = True
    return mask


def assert_near(sample, mean, deviation):
    """Assert that the mean of independent draws is within five standard errors."""
    assert abs(np.mean(sample) - mean) <= 5 * deviation / math.sqrt(np.size(sample))


@pytest.mark.parametrize("p", [1e-6, 0.01, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("n_columns", [1, 2, 500])
def test_rows_are_sorted_without_duplicates(p, n_columns):
    pointers, columns, values = draw(0, 50, n_columns, p)
    assert pointers[0] == 0 and (np.diff(pointers) >= 0).all()
    for first, last in pairwise(pointers):
        row = columns[first:last]
        assert (np.diff(row) > 0).all()
        assert ((row >= 0) & (row < n_columns)).all()
    assert np.isfinite(values).all()


def test_density_one_gives_every_entry():
    pointers, columns, _ = draw(0, 7, 30, 1.0)
    assert_array_equal(pointers, 30 * np.arange(8))
    assert_array_equal(columns, np.tile(np.arange(30), 7))


@pytest.mark.parametrize("p", [1e-18, 1e-19, 1e-30, 1e-300, 5e-324])
def test_skips_beyond_the_range_of_integers_end_the_row(p):
    pointers, _, _ = draw(0, 100, 10**9, p)
    assert pointers[-1] == 0


@pytest.mark.parametrize("p", [0.002, 0.05, 0.7])
def test_counts_of_rows_are_binomial(p):
    n_columns, rows = 1000, 4000
    counts = np.diff(draw(1, rows, n_columns, p)[0])
    law = scipy.stats.binom(n_columns, p)
    assert_near(counts, law.mean(), law.std())
    fourth = (3 + law.stats("k")) * law.var() ** 2
    squares = (counts - law.mean()) ** 2
    assert_near(squares, law.var(), math.sqrt(fourth - law.var() ** 2))


def test_positions_are_uniform():
    n_columns, rows, p = 200, 5000, 0.03
    mask = as_mask(*draw(2, rows, n_columns, p)[:2], n_columns)
    excess = mask.sum(axis=0) - rows * p
    statistic = (excess**2).sum() / (rows * p * (1 - p))
    assert scipy.stats.chi2(n_columns).sf(statistic) > P_VALUE
    assert scipy.stats.chi2(n_columns).cdf(statistic) > P_VALUE


def test_neighbors_are_independent():
    n_columns, rows, p = 400, 3000, 0.1
    mask = as_mask(*draw(3, rows, n_columns, p)[:2], n_columns)
    for lag in (1, 2, 7):
        both = (mask[:, lag:] & mask[:, :-lag]).sum(axis=1)
        # Pairs that share an entry are correlated.
        pairs = n_columns - lag
        variance = pairs * p**2 * (1 - p**2) + 2 * (pairs - lag) * p**3 * (1 - p)
        assert_near(both, pairs * p**2, math.sqrt(variance))


def test_rows_are_independent():
    n_columns, rows, p = 400, 3000, 0.1
    mask = as_mask(*draw(4, rows, n_columns, p)[:2], n_columns)
    for lag in (1, 2, 64):
        first = np.arange(rows - lag)
        first = first[first // lag % 2 == 0]  # no row in two pairs
        both = mask[first] & mask[first + lag]
        assert_near(both, p**2, math.sqrt(p**2 * (1 - p**2)))


@pytest.mark.parametrize("step", [1, 2**32, 0x9E3779B97F4A7C15])
def test_seeds_are_independent(step):
    n_columns, rows, p = 400, 1500, 0.1
    one, other = (
        as_mask(*draw(seed % 2**64, rows, n_columns, p)[:2], n_columns)
        for seed in (5, 5 + step)
    )
    assert_near(one & other, p**2, math.sqrt(p**2 * (1 - p**2)))
    assert_near(one[1:] & other[:-1], p**2, math.sqrt(p**2 * (1 - p**2)))


def test_rademacher_values_are_fair_signs():
    pointers, _, values = draw(6, 300, 1000, 0.3, RADEMACHER, 0.25)
    assert set(values) == {-0.25, 0.25}
    signs = 4 * values
    assert_near(signs, 0, 1)
    for lag in (1, 2, 300):
        assert_near(signs[lag:] * signs[:-lag], 0, 1)
    starts = pointers[:-1]
    assert_near(signs[starts][1:] * signs[starts][:-1], 0, 1)


def test_gaussian_values_are_normal():
    values = draw(7, 300, 1000, 0.3, GAUSSIAN, 0.25)[2] / 0.25
    assert_near(values, 0, 1)
    assert_near(values**2, 1, math.sqrt(2))
    assert_near(values**4, 3, math.sqrt(96))
    assert scipy.stats.kstest(values, "norm").pvalue > P_VALUE
    squares = values**2 - 1
    for lag in (1, 2, 300):
        assert_near(values[lag:] * values[:-lag], 0, 1)
        assert_near(squares[lag:] * squares[:-lag], 0, 2)


def test_gaussian_tails_are_there():
    # The most extreme of N normal values is beyond 4 but not beyond 7 deviations.
    values = draw(8, 100, 10_000, 1.0, GAUSSIAN)[2]
    assert 4 < values.max() < 7 and -7 < values.min() < -4


@pytest.mark.parametrize("law", [RADEMACHER, GAUSSIAN])
def test_values_do_not_depend_on_positions(law):
    pointers, columns, values = draw(9, 300, 1000, 0.2, law)
    parity = 1 - 2 * (columns % 2)
    assert_near(values * parity, 0, 1)
    gap = np.diff(columns, prepend=0)
    gap[pointers[:-1]] = columns[pointers[:-1]]
    centerd = (gap - gap.mean()) / gap.std()
    assert_near(values * centerd, 0, 1)
    deviation = {RADEMACHER: 0.0, GAUSSIAN: math.sqrt(2)}[law]
    assert_near((values**2 - 1) * centerd, 0, deviation)


def test_values_do_not_depend_on_other_positions_of_the_row():
    # Streams that share numbers would tie a value to the gap of another entry.
    rows, entries, p = 4000, 8, 0.1
    pointers, columns, values = draw(12, rows, 500, p, GAUSSIAN)
    full = pointers[:-1][np.diff(pointers) >= entries, None] + np.arange(entries)
    gaps = np.diff(columns[full], axis=1, prepend=-1)
    gaps = (gaps - gaps.mean(axis=0)) / gaps.std(axis=0)
    squares = (values[full] ** 2 - 1) / math.sqrt(2)
    assert len(full) > 0.99 * rows
    correlations = squares.T @ gaps / len(full)
    assert np.abs(correlations).max() <= 5 / math.sqrt(len(full))


def test_a_row_depends_on_seed_and_row_alone():
    few, many = draw(10, 3, 100, 0.2), draw(10, 30, 100, 0.2)
    for short, long in zip(few, many, strict=True):
        assert_array_equal(short, long[: len(short)])
    # Positions do not depend on the law of the values.
    assert_array_equal(few[1], draw(10, 3, 100, 0.2, GAUSSIAN)[1])


def test_the_compiled_code_is_the_python_code(plain_python):
    expected = draw(11, 5, 60, 0.3, GAUSSIAN, 0.5)
    plain_python(csr)
    log_absent = math.log1p(-0.3)
    counts = np.empty(5, dtype=np.int64)
    pointers, columns, values = (np.empty_like(array) for array in expected)
    # Unsigned integers are meant to wrap around.
    with np.errstate(over="ignore"):
        seed = np.uint64(11)
        count_entries.py_func(seed, 60, log_absent, counts)
        pointers[:] = np.concatenate([[0], np.cumsum(counts)])
        fill_entries.py_func(
            seed, 60, log_absent, GAUSSIAN, 0.5, pointers, columns, values
        )
        uniform = csr._uniform(np.uint64(2**64 - 1))
    assert_array_equal(pointers, expected[0])
    assert_array_equal(columns, expected[1])
    assert_allclose(values, expected[2], rtol=1e-14)
    assert 0 < uniform <= 1


def test_uniform_numbers_are_never_zero():
    # Of the 2^53 values the least is 2^-53, whose logarithm is finite.
    states = np.arange(20_000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    @njit
    def uniforms(states):
        return [csr._uniform(state) for state in states]

    numbers = np.array(uniforms(states))
    assert ((numbers > 0) & (numbers <= 1)).all()
    assert scipy.stats.kstest(numbers, "uniform").pvalue > P_VALUE


def test_rows_of_a_dense_matrix_do_not_depend_on_slices_and_strides():
    expected = np.empty((3, 40))
    fill_dense(np.uint64(5), GAUSSIAN, 0.5, expected, 0, 3)
    for dtype in (np.float32, np.float64):
        wide = np.zeros((3, 80), dtype)
        fill_dense(np.uint64(5), GAUSSIAN, 0.5, wide[:, ::2], 2, 3)
        fill_dense(np.uint64(5), GAUSSIAN, 0.5, wide[:, ::2], 0, 2)
        assert_array_equal(wide[:, ::2], expected.astype(dtype))
        assert not wide[:, 1::2].any()
