"""Products with the lazy Gram matrix against dense ones, and what they may not cost."""

import functools
import math
import tracemalloc
from itertools import pairwise

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from reference import (
    dense_sketch,
    kernel_matrix,
    sketched_columns,
    sketched_core,
    sparse_array,
)
from threadpoolctl import threadpool_info, threadpool_limits

from nbsketch import (
    AccumulationSketch,
    CallableKernel,
    CountSketch,
    GaussianKernel,
    GaussianSketch,
    GaussianTanimotoKernel,
    IdentitySketch,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    PrecomputedKernel,
    PSparsifiedSketch,
    RademacherSketch,
    SobolevKernel,
    SparseJLSketch,
    SRHTSketch,
    SubsamplingSketch,
    TanimotoKernel,
)
from nbsketch._jit import gram as jit_gram
from nbsketch._jit import threads
from nbsketch.gram import CompiledForm, Gram, evaluate, fold, lazy
from nbsketch.gram import dense as dense_gram
from nbsketch.gram.dense import upper_triangle
from nbsketch.gram.form import METRICS, PROFILES
from nbsketch.kernels import Kernel


def cauchy(X, Y):
    return 1 / (1 + ((X[:, None] - Y[None]) ** 2).sum(axis=2))


COMPILED = [
    GaussianKernel(1.5),
    GaussianKernel((1.0, 0.5, 2.0, 1.0, 3.0)),
    LaplacianKernel(2.0),
    *(MaternKernel(1.5, nu) for nu in (0.5, 1.5, 2.5, math.inf)),
    PolynomialKernel(3, 0.5, 1.0),
    LinearKernel(),
    TanimotoKernel(),
    GaussianTanimotoKernel(0.7),
]
KERNELS = [*COMPILED, CallableKernel(cauchy), PrecomputedKernel()]
SKETCHES = [
    PSparsifiedSketch(9),
    PSparsifiedSketch(9, density=0.05),
    PSparsifiedSketch(9, density=0.6, law="gaussian"),
    PSparsifiedSketch(9, density=1.0),
    PSparsifiedSketch(9, density=1e-300),
    GaussianSketch(9),
    RademacherSketch(9),
    SubsamplingSketch(9),
    SubsamplingSketch(9, replace=True),
    AccumulationSketch(9, m=3),
    CountSketch(9),
    SparseJLSketch(9),
    SRHTSketch(9),
    SRHTSketch(9, transform="dct"),
    SRHTSketch(9, transform="fourier"),
    IdentitySketch(),
]


def assert_close(actual, desired, tol):
    """Assert equality up to a share of the largest number."""
    assert_allclose(actual, desired, rtol=0, atol=tol * np.abs(desired).max(initial=1))


def training(kernel, X):
    """Return the X of a fit, and what represents its rows."""
    if isinstance(kernel, PrecomputedKernel):
        X = kernel_matrix(GaussianKernel(1.0), X, X).astype(X.dtype)
        return X, np.arange(len(X))
    return X, X


@pytest.mark.thin
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("recipe", SKETCHES, ids=repr)
def test_sketched_product(kernel, recipe, rng, dtype, tol):
    X, rows = training(kernel, rng.standard_normal((70, 5)).astype(dtype))
    K, S = Gram(kernel, X), recipe.draw(70, 1)
    product = K @ S.T
    assert product.shape == (70, S.shape[0]) and product.dtype == dtype
    dense, matrix = kernel_matrix(kernel, X, rows), dense_sketch(S)
    assert_close(product, sketched_columns(dense, matrix), tol)
    assert_close(S @ product, sketched_core(dense, matrix), tol)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_other_products(kernel, rng, dtype, tol):
    X, rows = training(kernel, rng.standard_normal((50, 5)).astype(dtype))
    K = Gram(kernel, X)
    assert K.shape == (50, 50)
    desired = kernel_matrix(kernel, X, rows)
    array = K.kernel(K.X, K.landmarks)
    assert array.dtype == dtype
    assert_close(array, desired, tol)
    B = rng.standard_normal((50, 3))
    for dense in (B, np.asfortranarray(B), B.astype(np.float32)):
        assert_close(K @ dense, desired @ dense, tol)
    for density in (0.1, 0.9):
        sparse = sparse_array((50, 3), density, rng)
        for form in (sp.csr_array, sp.csc_array, sp.coo_array):
            product = K @ form(sparse)
            assert isinstance(product, np.ndarray) and product.dtype == dtype
            assert_close(product, desired @ sparse.toarray(), tol)


@pytest.mark.thin
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("recipe", SKETCHES, ids=repr)
def test_product_with_landmarks(kernel, recipe, rng, dtype, tol):
    X, rows = training(kernel, rng.standard_normal((60, 5)).astype(dtype))
    landmarks = rows[np.arange(3, 53)[::-1]]
    K = Gram(kernel, X[:20], landmarks)
    S = recipe.draw(50, 1)
    assert K.shape == (20, 50)
    desired = kernel_matrix(kernel, X[:20], landmarks)
    assert_close(K @ S.T, sketched_columns(desired, dense_sketch(S)), tol)


# Both metrics of wide data, and more rows and landmarks than fit into a tile.
@pytest.mark.thin(times=1)
@pytest.mark.parametrize("n_features", [1, 10, 40, 300])
@pytest.mark.parametrize("kernel", [GaussianKernel(9.0), LaplacianKernel(99.0)])
def test_more_rows_than_a_tile(kernel, n_features, rng, dtype, tol):
    X = rng.standard_normal((1111, n_features)).astype(dtype)
    S = PSparsifiedSketch(13).draw(1111, 2)
    desired = kernel(X.astype(np.float64)) @ dense_sketch(S).T
    assert_close(Gram(kernel, X) @ S.T, desired, tol)
    G = GaussianSketch(13).draw(1111, 2)
    desired = kernel(X.astype(np.float64)) @ dense_sketch(G).T
    assert_close(Gram(kernel, X) @ G.T, desired, 10 * tol)


@pytest.mark.parametrize("recipe", [PSparsifiedSketch(9), GaussianSketch(9)], ids=repr)
@pytest.mark.parametrize("n_features", [1, 3])
def test_sketched_product_on_the_unit_cube(recipe, n_features, rng, dtype, tol):
    X, kernel = rng.uniform(size=(70, n_features)).astype(dtype), SobolevKernel()
    S = recipe.draw(70, 1)
    desired = sketched_columns(kernel_matrix(kernel, X, X), dense_sketch(S))
    assert_close(Gram(kernel, X) @ S.T, desired, tol)
    with pytest.raises(ValueError, match=r"`X` must be in \[0, 1\]"):
        Gram(kernel, 2 * X)
    with pytest.raises(ValueError, match=r"`landmarks` must be in \[0, 1\]"):
        Gram(kernel, X, 2 * X)


@pytest.mark.parametrize("kernel", [GaussianKernel(2.0), MaternKernel(2.0)], ids=repr)
@pytest.mark.parametrize("n_features", [5, 40])
def test_types_of_rows_and_landmarks_mix(kernel, n_features, rng):
    X, L = rng.standard_normal((90, n_features)), rng.standard_normal((40, n_features))
    S = PSparsifiedSketch(7).draw(40, 0)
    desired = kernel_matrix(kernel, X, L) @ dense_sketch(S).T
    for left, right in ((X.astype(np.float32), L), (X, L.astype(np.float32))):
        product = Gram(kernel, left, right) @ S.T
        assert product.dtype == left.dtype
        assert_close(product, desired, 1e-5)


@pytest.mark.parametrize("kernel", [GaussianKernel(2.0), CallableKernel(cauchy)])
def test_shapes_are_checked(kernel, rng):
    K = Gram(kernel, rng.standard_normal((20, 2)), rng.standard_normal((10, 2)))
    S = PSparsifiedSketch(5).draw(20, 0)
    for wrong in (S.T, np.ones((20, 3)), sp.csr_array(np.ones((9, 3)))):
        with pytest.raises(
            ValueError, match=r"`B` in K @ B must have 10 rows, got sha"
        ):
            K @ wrong


@pytest.mark.parametrize("kernel", [*KERNELS, PolynomialKernel(2, 1.0, 0.0)], ids=repr)
def test_integers_and_lists_are_computed_in_float64(kernel, rng):
    X, rows = training(kernel, rng.standard_normal((30, 5)))
    X = np.rint(3 * X).astype(int)
    landmarks = (rows if rows.ndim == 1 else X)[:20]
    desired = kernel_matrix(kernel, X.astype(float), landmarks.astype(rows.dtype))
    S = PSparsifiedSketch(4).draw(20, 0)
    for rows_of in (np.asarray, np.ndarray.tolist):
        for some in (landmarks, landmarks.tolist()):
            K = Gram(kernel, rows_of(X), some)
            assert K.X.dtype == (K @ S.T).dtype == np.float64
            assert_close(K @ S.T, desired @ dense_sketch(S).T, 1e-12)
            assert_close(K @ np.eye(20), desired, 1e-12)
    assert Gram(kernel, X).landmarks.dtype == rows.dtype


def test_float32_stays_float32_and_is_not_copied(rng):
    X, L = (rng.standard_normal((n, 3)).astype(np.float32) for n in (20, 10))
    K = Gram(GaussianKernel(1.0), X, L)
    assert K.X is X and K.landmarks is L
    assert Gram(GaussianKernel(1.0), X).landmarks is X


@pytest.mark.parametrize(
    ("kernel", "X", "landmarks", "error", "words"),
    [
        (LinearKernel(), [1.0, 2.0], None, ValueError, "`X` must be a non-empty 2-dim"),
        (LinearKernel(), [[math.nan]], None, ValueError, "`X` must be finite"),
        (LinearKernel(), np.eye(3), np.eye(2), ValueError, "`landmarks` must have 3 c"),
        (LinearKernel(), [["a"]], None, TypeError, "`X` must hold real numbers"),
        (PrecomputedKernel(), np.eye(3), np.eye(3), TypeError, "must be indices of tr"),
        (PrecomputedKernel(), np.eye(3), [0.0, 1.0], TypeError, "must be indices of t"),
        (
            PrecomputedKernel(),
            np.eye(3),
            [0, 3],
            ValueError,
            r"must be in \[0, 2\], go",
        ),
        (
            PrecomputedKernel(),
            np.eye(3),
            [-1, 0],
            ValueError,
            r"must be in \[0, 2\], g",
        ),
    ],
)
def test_rows_and_landmarks_are_checked(kernel, X, landmarks, error, words):
    with pytest.raises(error, match=words):
        Gram(kernel, X, landmarks)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_vectors(kernel, rng, dtype, tol):
    X, rows = training(kernel, rng.standard_normal((40, 5)).astype(dtype))
    K, desired = Gram(kernel, X), kernel_matrix(kernel, X, rows)
    v = rng.standard_normal(40)
    for vector in (v, v.tolist(), sp.coo_array(v)):
        product = K @ vector
        assert product.shape == (40,) and product.dtype == dtype
        assert_close(product, desired @ v, tol)
    for wrong in (np.ones(39), 3.0, np.ones((40, 1, 1))):
        with pytest.raises(ValueError, match="`B` in K @ B must have 40 rows, got sha"):
            K @ wrong


@pytest.mark.parametrize("recipe", [GaussianSketch(5), IdentitySketch()], ids=repr)
def test_landmarks_are_not_copied_where_all_are_used(recipe, rng, monkeypatch):
    X, found = rng.standard_normal((30, 3)), []

    def look(kernel, X, landmarks, weights, dtype):
        found.append(landmarks)
        return fold(kernel, X, landmarks, weights, dtype)

    monkeypatch.setattr(lazy, "fold", look)
    K = Gram(GaussianKernel(1.0), X)
    K @ recipe.draw(30, 0).T
    K @ SubsamplingSketch(5).draw(30, 0).T
    assert found[0] is K.landmarks and len(found[1]) == 5


def test_tiles_are_folded_on_one_thread_of_blas(rng):
    def threads():
        return {
            library["num_threads"]
            for library in threadpool_info()
            if library["user_api"] == "blas"
        }

    def kernel(X, Y):
        found.append(threads())
        return X @ Y.T

    found = []
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        Gram(CallableKernel(kernel), rng.standard_normal((9, 2))) @ np.eye(9)
        assert threads() == before
    assert found == [{1}]


def test_every_code_of_compiled_kernels_has_a_name():
    public = {n: v for n, v in vars(jit_gram).items() if n.isupper() and n[0] != "_"}
    codes = {n: v for n, v in public.items() if n not in ("VECTOR", "BLOCK", "GROUP")}
    named = [*METRICS.values(), *PROFILES.values()]
    assert sorted(named) == sorted(codes.values()) and len(codes) == 11
    for names in (METRICS, PROFILES):
        assert sorted(names.values()) == list(range(len(names)))


@pytest.mark.parametrize(
    ("metric", "profile", "words"),
    [("cosine", "power", "`metric` must be one"), ("product", 0, "`profile` must be")],
)
def test_names_of_metrics_and_profiles_are_checked(metric, profile, words):
    with pytest.raises(ValueError, match=words):
        CompiledForm(metric, profile, np.ones(2))


def test_a_kernel_without_values_says_so():
    class Empty(Kernel):
        def compiled_form(self, n_features):
            return None

        def diag(self, X):
            return np.ones(len(X))

    with pytest.raises(NotImplementedError, match="Empty must define __call__"):
        Empty()(np.eye(2))


def large(kernel, dtype, n_features, n, recipe=None):
    """Return a Gram matrix and a sketch with enough work for parallel tiles."""
    X = np.random.default_rng(0).standard_normal((n, n_features)).astype(dtype)
    return Gram(kernel, X), (recipe or PSparsifiedSketch(40)).draw(n, 0)


needs_two_threads = pytest.mark.skipif(
    numba.config.NUMBA_NUM_THREADS < 2, reason="numba has one thread"
)


@needs_two_threads
@pytest.mark.parametrize("kernel", COMPILED[:1] + COMPILED[2:4], ids=repr)
@pytest.mark.parametrize("recipe", [PSparsifiedSketch(40), GaussianSketch(40)])
def test_bits_do_not_depend_on_the_number_of_threads(kernel, recipe, dtype):
    K, S = large(kernel, dtype, 10, 2000, recipe)
    products = []
    for count in (1, 2):
        numba.set_num_threads(count)
        products.append(K @ S.T)
        assert numba.get_num_threads() == count
    assert_array_equal(*products)


def run_all(loop, kernel, n_tiles, seconds, *args, together=0):
    """Replace run_tiles: run all tiles at once, by the parallel loop if it is given."""
    kernel(*args, 0, n_tiles, together or n_tiles, loop)


@pytest.mark.thin
@pytest.mark.parametrize("kernel", COMPILED[:1] + COMPILED[2:], ids=repr)
@pytest.mark.parametrize("n_features", [10, 40])
def test_the_parallel_loop_gives_the_same_bits(kernel, n_features, dtype, monkeypatch):
    K, S = large(kernel, dtype, n_features, 1500)
    products = [K @ S.T]
    for loop in (0, threads._loop()):
        run = functools.partial(run_all, loop)
        monkeypatch.setattr(dense_gram, "run_tiles", run)
        products.append(K @ S.T)
    assert_array_equal(products[0], products[1])
    assert_array_equal(products[1], products[2])


@pytest.mark.thin
@pytest.mark.parametrize("kernel", COMPILED[:1] + COMPILED[2:], ids=repr)
@pytest.mark.parametrize("n_features", [10, 40])
def test_bits_do_not_depend_on_the_width_of_tiles(
    kernel, n_features, dtype, monkeypatch
):
    K, S = large(kernel, dtype, n_features, 1003)
    products = []
    for cache in (1, 50 << 10, 1 << 30):
        monkeypatch.setattr(dense_gram, "_CACHE_BYTES", cache)
        products.append(K @ S.T)
    assert_array_equal(products[0], products[1])
    assert_array_equal(products[1], products[2])


@pytest.mark.thin
@pytest.mark.parametrize("kernel", COMPILED[:1] + COMPILED[2:], ids=repr)
@pytest.mark.parametrize("n", [1, 30, 700])
def test_triangle_has_the_bits_of_the_whole_matrix(kernel, n, rng):
    X = rng.standard_normal((n, 40))
    form = kernel.compiled_form(40)
    triangle = upper_triangle(form, X)
    assert_array_equal(np.triu(triangle), np.triu(evaluate(form, X, X)))


@pytest.mark.thin
@pytest.mark.parametrize("kernel", COMPILED[:1] + COMPILED[2:], ids=repr)
@pytest.mark.parametrize("n_features", [10, 40])
def test_bits_do_not_depend_on_blocks_of_rows(kernel, n_features, dtype):
    K, S = large(kernel, dtype, n_features, 1003)
    whole = K @ S.T
    for edges in ([0, 1, 2, 500, 1003], [0, 777, 1003]):
        blocks = [
            Gram(kernel, K.X[start:stop], K.X) @ S.T for start, stop in pairwise(edges)
        ]
        assert_array_equal(np.concatenate(blocks), whole)


def test_tiles_of_any_size_give_the_same_product(rng, monkeypatch):
    X = rng.standard_normal((100, 3))
    S = GaussianSketch(8).draw(100, 0)
    whole = Gram(CallableKernel(cauchy), X) @ S.T
    monkeypatch.setattr(lazy, "TILE_BYTES", 1)
    assert_close(Gram(CallableKernel(cauchy), X) @ S.T, whole, 1e-13)


@pytest.mark.parametrize("recipe", [PSparsifiedSketch(50), GaussianSketch(50)])
def test_callables_see_each_pair_once_and_tiles_only(recipe, rng):
    n, sizes = 2000, []

    def kernel(X, Y):
        sizes.append((len(X), len(Y)))
        return X @ Y.T

    S = recipe.draw(n, 0)
    Gram(CallableKernel(kernel), rng.standard_normal((n, 2))) @ S.T
    assert sum(rows * columns for rows, columns in sizes) == n * S.columns.size
    assert max(rows * columns for rows, columns in sizes) <= lazy.TILE_BYTES // 8


def peak_beyond_result(K, S):
    K @ S.T  # compiles
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        product = K @ S.T
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak - before - product.nbytes


@pytest.mark.thin(times=1)
@pytest.mark.parametrize(
    ("n", "n_features", "recipe"),
    [
        (20_000, 10, PSparsifiedSketch(100)),
        (3000, 280, PSparsifiedSketch(100)),
        (3000, 10, GaussianSketch(100)),
        (3000, 280, GaussianSketch(100)),
    ],
)
def test_memory_beyond_the_result(n, n_features, recipe, dtype):
    K, S = large(GaussianKernel(5.0), dtype, n_features, n, recipe)
    landmarks = S.columns.size * n_features * dtype.itemsize
    # Few tiles, few copies of the landmarks: far less than the 72 MB of 3000^2 values.
    assert peak_beyond_result(K, S) <= 4 * lazy.TILE_BYTES + 6 * landmarks < 64 << 20


def test_memory_of_callables(rng):
    K = Gram(CallableKernel(lambda X, Y: X @ Y.T), rng.standard_normal((4000, 3)))
    S = GaussianSketch(20).draw(4000, 0)
    assert peak_beyond_result(K, S) <= 8 * lazy.TILE_BYTES


def test_dense_weights_are_not_copied(rng):
    X, weights = rng.standard_normal((1000, 2)), rng.standard_normal((4000, 1000))
    fold(LinearKernel(), X[:10], X, weights)
    tracemalloc.start()
    try:
        fold(LinearKernel(), X[:10], X, weights)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < weights.nbytes / 4
