"""Products with the square Gram matrix, each value used twice, against dense ones."""

import functools
import tracemalloc

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from reference import kernel_matrix
from test_gram import COMPILED, KERNELS, assert_close, run_all, training

from nbsketch import (
    CallableKernel,
    GaussianKernel,
    LaplacianKernel,
    MaternKernel,
    PrecomputedKernel,
    SobolevKernel,
)
from nbsketch._jit import compiler, threads
from nbsketch._jit import gram as jit_gram
from nbsketch._jit import symmetric as jit_symmetric
from nbsketch.gram import SymmetricGram, dense
from nbsketch.gram import symmetric as symmetric_gram

SIZES = [1, 7, 48, 49, 200]


def operator(kernel, n, dtype, memory=0.0, n_features=5):
    X = np.random.default_rng(0).standard_normal((n, n_features)).astype(dtype)
    return SymmetricGram(kernel, X, dtype=dtype, memory=memory)


@pytest.mark.thin
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("memory", [0.0, 1e9])
def test_product(kernel, n, memory, rng, dtype, tol):
    X, landmarks = training(kernel, rng.standard_normal((n, 5)).astype(dtype))
    V = rng.standard_normal((n, 3))
    K = SymmetricGram(kernel, X, dtype=dtype, memory=memory)
    desired = kernel_matrix(kernel, X, landmarks) @ V
    for _ in range(2):  # values are made, and then read where they are kept
        assert_close(K @ V, desired, 10 * tol)
    assert_close(K @ V[:, 0], desired[:, 0], 10 * tol)
    assert (K @ V).dtype == np.float64 and K.n_products == 4


@pytest.mark.parametrize("outlier", [False, True])
@pytest.mark.parametrize(
    "kernel", [GaussianKernel(900.0), LaplacianKernel(900.0), MaternKernel(900.0)]
)
def test_single_precision_keeps_differences_of_large_numbers(kernel, outlier, rng):
    X = 1.6e9 + rng.uniform(0, 3600, size=(300, 2))  # an hour, in seconds since 1970
    X[7] -= 1e9 * outlier
    V = rng.standard_normal((300, 2))
    K = SymmetricGram(kernel, X, dtype=np.float32)
    assert_close(K @ V, kernel(X) @ V, 1e-6)
    assert_close(K.exact(np.arange(9), V), (kernel(X) @ V)[:9], 1e-6)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_rows_and_diagonal(kernel, rng, dtype, tol):
    X, landmarks = training(kernel, rng.standard_normal((60, 5)).astype(dtype))
    K, index = SymmetricGram(kernel, X, dtype=dtype), np.array([50, 3, 17])
    desired = kernel_matrix(kernel, X, landmarks)
    assert_close(K.rows(index), desired[index], 10 * tol)
    assert_close(K.diag(), np.diag(desired), 10 * tol)


def test_rows_in_single_precision_use_the_code_for_double_precision(rng, monkeypatch):
    types = set()

    def recorder(*args):
        arrays = (a for a in args if isinstance(a, np.ndarray))
        types.update(a.dtype for a in arrays if a.dtype.kind == "f")
        jit_gram.fold(*args)

    monkeypatch.setattr(dense, "fold", recorder)
    index = np.array([3, 8])
    X = rng.standard_normal((20, 3))
    K = SymmetricGram(GaussianKernel(1.0), X, dtype=np.float32)
    values = GaussianKernel(1.0)(np.float64(K.X))[index]
    assert_array_equal(K.rows(index), np.float32(values))
    assert_array_equal(K.block(index), values[:, index])
    assert_close(K.combine(index, np.ones(2)), values.sum(axis=0), 1e-12)
    assert K.rows(index).dtype == np.float32 and types == {np.dtype(np.float64)}


def test_a_precomputed_matrix_is_not_copied_in_double_precision(rng):
    matrix = rng.standard_normal((1000, 3)) @ rng.standard_normal((3, 1000))
    matrix = np.float32(matrix + matrix.T)
    tracemalloc.start()
    try:
        K = SymmetricGram(PrecomputedKernel(), matrix, memory=0.0)
        combined = K.combine(np.array([3, 8]), np.ones(2))
        assert tracemalloc.get_traced_memory()[1] < matrix.nbytes
    finally:
        tracemalloc.stop()
    assert_close(combined, matrix[:, [3, 8]].sum(axis=1), 1e-6)


@pytest.mark.parametrize("kernel", [GaussianKernel(1.5), LaplacianKernel(2.0)])
def test_more_rows_than_a_block(kernel, rng, dtype, tol):
    n = 2111
    X = rng.standard_normal((n, 40)).astype(dtype)
    V = rng.standard_normal((n, 2))
    K = SymmetricGram(kernel, X, dtype=dtype)
    assert_close(K @ V, kernel(X.astype(np.float64)) @ V, 10 * tol)


def test_product_on_the_unit_cube(rng, dtype, tol):
    X, kernel = rng.uniform(size=(130, 3)).astype(dtype), SobolevKernel()
    K = SymmetricGram(kernel, X, dtype=dtype)
    V = rng.standard_normal((130, 2))
    assert_close(K @ V, kernel_matrix(kernel, X, X) @ V, 10 * tol)
    with pytest.raises(ValueError, match=r"`X` must be in \[0, 1\]"):
        SymmetricGram(kernel, 2 * X)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("kernel", [k for k in COMPILED if k.takes_sparse], ids=repr)
@pytest.mark.parametrize("memory", [0.0, 1e9])
def test_sparse_rows(kernel, memory, rng, monkeypatch):
    monkeypatch.setattr(symmetric_gram, "_BLOCK_ROWS", 64)
    X = rng.standard_normal((150, 5)) * (rng.random((150, 5)) < 0.4)
    V = rng.standard_normal((150, 2))
    K = SymmetricGram(kernel, sp.csr_array(X), dtype=np.float64, memory=memory)
    for _ in range(2):
        assert_close(K @ V, kernel_matrix(kernel, X, X) @ V, 1e-12)


@pytest.mark.parametrize("kernel", COMPILED, ids=repr)
def test_the_matrix_is_symmetric_to_the_bit(kernel, dtype):
    K = operator(kernel, 150, dtype)
    matrix = K @ np.eye(150)
    assert_array_equal(matrix, matrix.T)


@pytest.mark.parametrize("kernel", COMPILED[:1] + COMPILED[2:4], ids=repr)
def test_kept_values_give_the_same_bits(kernel, dtype, rng):
    V = rng.standard_normal((1500, 2))
    made, kept = (operator(kernel, 1500, dtype, memory) for memory in (0.0, 1e9))
    products = [made @ V, made @ V, kept @ V, kept @ V]
    for other in products[1:]:
        assert_array_equal(products[0], other)


@pytest.mark.parametrize("memory", [0.0, 1e9])
def test_loops_and_threads_give_the_same_bits(memory, dtype, rng, monkeypatch):
    K = operator(GaussianKernel(1.5), 3000, dtype, memory)
    V = rng.standard_normal((3000, 2))
    products = []
    for count in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        numba.set_num_threads(count)
        products.append(K @ V)
    for loop in (0, threads._loop()):
        run = functools.partial(run_all, loop)
        monkeypatch.setattr(symmetric_gram, "run_tiles", run)
        products.append(K @ V)
    for other in products[1:]:
        assert_array_equal(products[0], other)


def test_sums_are_in_double_precision(rng):
    n = 3000
    X = rng.standard_normal((n, 3)).astype(np.float32)
    K = SymmetricGram(GaussianKernel(50.0), X)
    rows = np.arange(0, n, 300)
    columns = K @ np.eye(n)[:, rows]  # float32 values
    v = np.zeros(n)
    v[rows] = np.where(np.arange(10) % 2, 1e8, -1e8) + rng.standard_normal(10)
    assert_array_equal(columns, columns.astype(np.float32))
    assert_allclose(K @ v, columns @ v[rows], rtol=0, atol=1e-6)


def test_callables_evaluate_each_pair_of_blocks_once(rng, monkeypatch):
    monkeypatch.setattr(symmetric_gram, "_BLOCK_ROWS", 32)
    pairs = []

    def kernel(X, Y):
        pairs.append(len(X) * len(Y))
        return X @ Y.T

    X = rng.standard_normal((100, 2))
    K = SymmetricGram(CallableKernel(kernel), X, dtype=np.float64)
    once = 3 * 32**2 + 3 * 32**2 + 3 * 32 * 4 + 16
    for count in (1, 1):  # the second time, values are read
        assert_allclose(K @ X, X @ X.T @ X)
        assert sum(pairs) == count * once
    K = SymmetricGram(CallableKernel(kernel), X, dtype=np.float64, memory=0)
    pairs.clear()
    for count in (1, 2):
        assert_allclose(K @ X, X @ X.T @ X)
        assert sum(pairs) == count * once


def peak_memory(kernel, X, memory):
    K, v = SymmetricGram(kernel, X[:100], memory=memory), np.ones(len(X))
    K @ v[:100]  # compiles
    tracemalloc.start()
    try:
        K = SymmetricGram(kernel, X, memory=memory)
        K @ v
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory(rng):
    X = rng.standard_normal((6000, 5)).astype(np.float32)
    triangle = 2 * 6000**2
    assert peak_memory(GaussianKernel(2.0), X, triangle - 1) < 16 * X.nbytes
    kept = peak_memory(GaussianKernel(2.0), X, triangle)
    assert triangle <= kept <= 1.1 * triangle + 16 * X.nbytes


def test_arguments_are_checked(rng):
    X = rng.standard_normal((10, 2))
    with pytest.raises(ValueError, match="`dtype` must be one of"):
        SymmetricGram(GaussianKernel(1.0), X, dtype=np.int32)
    with pytest.raises(ValueError, match=r"`V` must have shape \(10,\) or \(10, d\)"):
        SymmetricGram(GaussianKernel(1.0), X) @ np.ones(9)


@pytest.mark.parametrize("module", [compiler, jit_gram, threads])
def test_code_on_disk_expires_with_the_files_it_is_made_of(module):
    index = jit_symmetric.multiply._cache._cache_file
    own = jit_symmetric.multiply._cache._impl.locator
    other = type(own).from_function(module.compiled, module.__file__)
    assert other.get_source_stamp() in index._source_stamp[1:]
