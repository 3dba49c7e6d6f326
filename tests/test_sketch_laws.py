"""The laws of the sketches that are no p-sparsified ones, and their transforms.

Statistics are compared with their expectations within five standard errors, at fixed
seeds; a p-value must exceed that of five standard errors.
"""

import math

import numba
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.sparse as sp
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal
from reference import dense_sketch

from nbsketch import (
    AccumulationSketch,
    CountSketch,
    GaussianKernel,
    GaussianSketch,
    PSparsifiedSketch,
    SparseJLSketch,
    SRHTSketch,
    SubsamplingSketch,
)
from nbsketch._jit import transforms
from nbsketch._jit.csr import fill_distinct
from nbsketch.gram import Gram
from nbsketch.sketches._sketch import integers, signs, start_of_permutation, uniforms

P_VALUE = 6e-7


def assert_uniform(places, n):
    """Assert that integers below n are uniform, by chi-square."""
    counts = np.bincount(np.ravel(places), minlength=n)
    assert counts.size == n
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert P_VALUE < scipy.stats.chi2(n - 1).sf(statistic) < 1 - P_VALUE


def assert_fair(flips):
    assert set(np.unique(flips)) == {-1, 1}
    assert abs(np.mean(flips)) <= 5 / math.sqrt(np.size(flips))


# streams ----------------------------------------------------------------------------


def test_uniforms_are_uniform_and_their_rows_independent():
    numbers = uniforms(0, 2000, 10)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert scipy.stats.kstest(numbers.ravel(), "uniform").pvalue > P_VALUE
    centerd = (numbers - 0.5) * math.sqrt(12)
    for product in (centerd[1:] * centerd[:-1], centerd[:, 1:] * centerd[:, :-1]):
        assert abs(product.mean()) <= 5 / math.sqrt(product.size)


@pytest.mark.parametrize("n", [1, 2, 7, 2**62])
def test_integers_are_below_their_bound(n):
    numbers = integers(1, 500, 3, n)
    assert ((numbers >= 0) & (numbers < n)).all()
    if n == 7:
        assert_uniform(numbers, 7)
    assert_array_equal(numbers[:20], integers(1, 20, 3, n))


def test_signs_are_fair():
    flips = signs(2, 300, 40)
    assert_fair(flips)
    assert_fair(flips[1:] * flips[:-1])
    assert_fair(flips[:, 1:] * flips[:, :-1])
    assert_array_equal(flips[:20], signs(2, 20, 40))


def test_a_permutation_starts_the_same_however_long():
    whole = start_of_permutation(3, 100, 100)
    assert_array_equal(np.sort(whole), np.arange(100))
    for size in (1, 50, 99):
        assert_array_equal(start_of_permutation(3, size, 100), whole[:size])
    assert_array_equal(start_of_permutation(0, 1, 1), [0])


def test_permutations_are_uniform():
    draws = np.array([start_of_permutation(seed, 4, 4) for seed in range(12_000)])
    order = {p: i for i, p in enumerate(sorted(set(map(tuple, draws.tolist()))))}
    assert len(order) == 24
    assert_uniform([order[tuple(draw)] for draw in draws.tolist()], 24)


# sub-sampling and accumulation ------------------------------------------------------


@pytest.mark.parametrize("replace", [False, True])
def test_rows_of_subsampling_are_uniform(replace):
    recipe = SubsamplingSketch(10, replace=replace)
    chosen = [recipe.draw(20, seed).to_csr().indices for seed in range(2000)]
    assert_uniform(np.array(chosen)[:, 0], 20)
    assert_uniform(np.array(chosen)[:, 9], 20)
    distinct = [len(set(row)) for row in chosen]
    assert (min(distinct) < 10) == replace


def test_accumulation_counts_and_signs():
    s, n, m = 400, 10_000, 6
    S = AccumulationSketch(s, m).draw(n, 0)
    entries = S.to_csr()
    units = entries.data / math.sqrt(n / (s * m))
    assert_allclose(units, np.rint(units), atol=1e-12)
    assert np.diff(entries.indptr).max() == m
    assert_uniform(entries.indices // 1000, 10)
    once = units[np.abs(units) < 1.5]
    assert len(once) > 0.99 * s * m
    assert_fair(np.rint(once))


def test_accumulation_sums_what_falls_on_the_same_entry():
    # With one column every term falls on it: sums of m signs over sqrt(m).
    m, recipe = 25, AccumulationSketch(1, 25)
    sums = np.array([recipe.draw(1, seed).to_csr().sum() for seed in range(3000)])
    heads = np.rint((sums * math.sqrt(m) + m) / 2).astype(int)
    expected = 3000 * scipy.stats.binom(m, 0.5).pmf(np.arange(m + 1))
    middle = expected > 10
    counts = np.bincount(heads, minlength=m + 1)
    statistic = ((counts - expected) ** 2 / expected)[middle].sum()
    assert scipy.stats.chi2(middle.sum()).sf(statistic) > P_VALUE
    assert AccumulationSketch(1, 2).draw(1, 1).to_csr().nnz in (0, 1)


def test_one_accumulated_sketch_is_subsampling_up_to_signs():
    dense = np.abs(dense_sketch(AccumulationSketch(6, 1).draw(50, 0)))
    assert_allclose(np.sort(dense, axis=1)[:, -2:], [[0, math.sqrt(50 / 6)]] * 6)


# hashed columns ---------------------------------------------------------------------


@pytest.mark.parametrize("c", [1, 3, 8, 10])
def test_columns_have_distinct_uniform_rows(c):
    rows = np.empty((5000, c), dtype=np.int32)
    fill_distinct(np.uint64(0), 10, np.full(10, -1), rows)
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()
    counts = np.bincount(rows.ravel(), minlength=10)
    deviation = math.sqrt(5000 * (c / 10) * (1 - c / 10))
    assert (np.abs(counts - 500 * c) <= 5 * deviation).all()
    pairs = (rows == 0).any(axis=1) & (rows == 9).any(axis=1)
    both = c * (c - 1) / 90
    error = 5 * math.sqrt(both * (1 - both) / 5000)
    assert abs(pairs.mean() - both) <= error + 1e-12


@pytest.mark.parametrize("recipe", [CountSketch(12), SparseJLSketch(12, 5)], ids=repr)
def test_columns_of_hashed_sketches(recipe):
    c = getattr(recipe, "nonzeros", 1)
    dense = dense_sketch(recipe.draw(3000, 0))
    assert ((dense != 0).sum(axis=0) == c).all()
    assert_allclose(np.abs(dense[dense != 0]), 1 / math.sqrt(c))
    assert_fair(np.sign(dense[dense != 0]))
    assert_allclose((dense**2).sum(axis=0), 1)


def test_number_of_nonzeros():
    for size, c in ((20, 8), (5, 5)):
        csr = SparseJLSketch(size).draw(60, 0).to_csr()
        assert csr.nnz == 60 * c
    full = np.abs(dense_sketch(SparseJLSketch(9, nonzeros=9).draw(30, 0)))
    assert_allclose(full, 1 / 3)
    for c in (0, 6, 2.0, True):
        with pytest.raises((TypeError, ValueError), match="`nonzeros` must be"):
            SparseJLSketch(5, nonzeros=c)
    for m in (0, 2.0, True):
        with pytest.raises((TypeError, ValueError), match="`m` must be"):
            AccumulationSketch(5, m=m)


# transforms -------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["hadamard", "dct", "fourier"])
@pytest.mark.parametrize("n", [1, 2, 4, 64, 512])
def test_orthogonal_without_padding_at_full_size(transform, n):
    dense = dense_sketch(SRHTSketch(n, transform).draw(n, 0))
    assert_allclose(dense.T @ dense, np.eye(n), atol=1e-12)


@pytest.mark.parametrize("n", [5, 6, 45])
@pytest.mark.parametrize("transform", ["dct", "fourier"])
def test_orthogonal_at_any_number_of_rows(transform, n):
    dense = dense_sketch(SRHTSketch(n, transform).draw(n, 0))
    assert_allclose(dense.T @ dense, np.eye(n), atol=1e-12)


@pytest.mark.parametrize("transform", ["hadamard", "dct", "fourier"])
def test_entries_are_those_of_the_transform(transform):
    n, s = 48, 20
    S = SRHTSketch(s, transform).draw(n, 5)
    if transform == "hadamard":
        matrix = scipy.linalg.hadamard(64)[:, :n] / 8.0
    elif transform == "dct":
        matrix = scipy.fft.dct(np.eye(n), axis=0, norm="ortho")
    else:
        spectrum = scipy.fft.rfft(np.eye(n), axis=0, norm="ortho")
        parts = np.stack([spectrum.real, spectrum.imag], axis=1).reshape(-1, n)
        matrix = math.sqrt(2) * np.delete(parts, [1, n + 1], axis=0)
        matrix[[0, -1]] /= math.sqrt(2)
    expected = math.sqrt(len(matrix) / s) * matrix[S.rows] * S.signs
    assert_allclose(dense_sketch(S), expected, atol=1e-13)
    assert_allclose(S @ np.eye(n), expected, atol=1e-13)
    assert_fair(signs(5, 3000)[:, 0])
    assert len(set(S.rows.tolist())) == s and S.rows.max() < len(matrix)


@pytest.mark.parametrize("n", [255, 256, 257, 700])
def test_hadamard_over_several_blocks(n, rng, dtype, tol):
    S = SRHTSketch(30).draw(n, 0)
    A = rng.standard_normal((n, 250)).astype(dtype)
    assert_allclose(S @ A, dense_sketch(S) @ A, atol=100 * tol)
    wide = np.asfortranarray(A)
    assert_array_equal(S @ wide, S @ A)


@pytest.mark.parametrize("transform", ["hadamard", "dct", "fourier"])
def test_kernel_products_of_transforms(transform, rng, dtype, tol):
    X, new = rng.standard_normal((2, 600, 4)).astype(dtype)
    kernel, S = GaussianKernel(2.0), SRHTSketch(15, transform).draw(600, 0)
    for rows in (new[:1], new[:100], new):
        desired = kernel(rows.astype(float), X.astype(float)) @ dense_sketch(S).T
        for form in (np.asarray, sp.csr_array):
            product = Gram(kernel, form(rows), form(X)) @ S.T
            assert product.dtype == dtype
            assert_allclose(product, desired, atol=100 * tol)


@pytest.mark.parametrize("recipe", [GaussianSketch(9), SRHTSketch(9)], ids=repr)
def test_streamed_products_do_not_depend_on_threads(recipe, rng):
    K = Gram(GaussianKernel(2.0), rng.standard_normal((2500, 3)))
    products = []
    for count in {1, numba.get_num_threads()}:
        numba.set_num_threads(count)
        S = recipe.draw(2500, 0)
        products.append(K @ S.T)
    assert_array_equal(products[0], products[-1])


def test_the_compiled_transform_is_the_python_one(rng, plain_python):
    tile, flips = rng.standard_normal((16, 3)), np.sign(rng.standard_normal(16))
    chosen = np.array([0, 5, 31, 17])
    compiled, plain = np.zeros((2, 4, 3))
    transforms.add_hadamard(tile, flips, 8, 16, chosen, 0.5, compiled)
    plain_python(transforms)
    transforms.add_hadamard.py_func(tile, flips, 8, 16, chosen, 0.5, plain)
    expected = 0.5 * scipy.linalg.hadamard(32)[chosen, 16:] * flips @ tile
    assert_allclose(compiled, expected, atol=1e-13)
    assert_allclose(plain, expected, atol=1e-13)


def test_transforms_want_real_numbers():
    with pytest.raises(TypeError, match="`A` must hold real numbers"):
        SRHTSketch(3).draw(8, 0) @ np.ones(8, dtype=complex)
    with pytest.raises(ValueError, match="`transform` must be one of"):
        SRHTSketch(3, transform="wavelet")


# norms ------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
@pytest.mark.parametrize("density", [0.1, 0.7])
def test_p_sparsified_sketches_keep_norms(law, density):
    """Lemma 5 of the p-sparsified paper: its bound holds, and the mean is the norm."""
    n, s, draws = 40, 25, 2000
    v = np.random.default_rng(0).normal(size=n)
    v /= np.linalg.norm(v)
    recipe = PSparsifiedSketch(s, density=density, law=law)
    rng = np.random.default_rng(1)
    norms = np.array([np.square(recipe.draw(n, rng) @ v).sum() for _ in range(draws)])
    # the fourth moment of an entry over its squared second one, less three
    excess = (1.0 if law == "rademacher" else 3.0) / density - 3.0
    variance = (2.0 + excess * np.sum(v**4)) / s
    assert abs(norms.mean() - 1) < 4 * math.sqrt(variance / draws)
    assert_allclose(norms.var(), variance, rtol=0.25)
    for t in (1.0, 2.0, 4.0):
        bound = 4 / density * math.sqrt(2 * t / s) + 4 * t / (s * density)
        assert np.mean(np.abs(norms - 1) > bound) <= 2 * math.exp(-t)
