"""Sparse rows against dense ones: values, products, estimators, and their memory."""

import functools
import math
import tracemalloc
from itertools import pairwise

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from reference import kernel_matrix, sparse_array
from test_gram import run_all

import nbsketch
from nbsketch import (
    CallableKernel,
    GaussianKernel,
    GaussianSketch,
    GaussianTanimotoKernel,
    IdentitySketch,
    JointQuantileRegressor,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    PrecomputedKernel,
    PSparsifiedSketch,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SobolevKernel,
    TanimotoKernel,
    _expansion,
)
from nbsketch._jit import threads
from nbsketch.gram import CompiledForm, Gram, fold
from nbsketch.gram import sparse as sparse_gram
from nbsketch.kernels import median_distance
from nbsketch.model_selection import cross_validate

KERNELS = [
    GaussianKernel(1.5),
    *(MaternKernel(1.5, nu) for nu in (0.5, 1.5, 2.5, math.inf)),
    PolynomialKernel(3, 0.5, 1.0),
    LinearKernel(),
    TanimotoKernel(),
    GaussianTanimotoKernel(0.7),
]
EACH = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
# The kernels of squared distances, which an expansion could make inaccurate.
NEAR = KERNELS[:5]
DENSE_ONLY = [LaplacianKernel(1.0), SobolevKernel(), PrecomputedKernel()]


def assert_close(actual, desired, tol):
    assert_allclose(actual, desired, rtol=0, atol=tol * np.abs(desired).max())


def sparse_rows(rng, n, n_features, density, dtype=np.float64):
    """Return CSR rows in [0, 1], the first of them without a nonzero.

    The features are of all frequencies: the last is as dense as asked for.
    """
    X = rng.random((n, n_features)).astype(dtype)
    shares = density * np.arange(1, n_features + 1) / n_features
    X[rng.random(X.shape) >= shares] = 0
    X[0] = 0
    return sp.csr_array(X)


# values -----------------------------------------------------------------------------


@pytest.mark.thin
@EACH
@pytest.mark.parametrize(
    ("n_features", "density"), [(1, 1.0), (6, 0.5), (50, 0.9), (300, 0.05), (300, 0.0)]
)
def test_values_are_those_of_dense_rows(kernel, n_features, density, rng, dtype, tol):
    X = sparse_rows(rng, 41, n_features, density, dtype)
    Y = sp.vstack([sparse_rows(rng, 23, n_features, density, dtype), X[7:12]])
    K = kernel(X, Y.tocsr())
    assert K.dtype == dtype and K.flags.c_contiguous
    assert_close(K, kernel_matrix(kernel, X.toarray(), Y.toarray()), tol)
    assert_close(kernel(X), kernel_matrix(kernel, X.toarray(), X.toarray()), tol)
    assert_close(kernel.diag(X), kernel.diag(X.toarray()), tol)


@EACH
def test_any_sparse_format_and_dense_rows_mix(kernel, rng):
    X, Y = sparse_rows(rng, 15, 9, 0.5), sparse_rows(rng, 8, 9, 0.5)
    desired = kernel(X.toarray(), Y.toarray())
    formats = [sp.csr_matrix, sp.csc_array, sp.coo_array, sp.coo_matrix, sp.lil_array]
    for form in (*formats, sp.csr_array.toarray):
        assert_close(kernel(form(X), Y), desired, 1e-14)
        assert_close(kernel(X, form(Y)), desired, 1e-14)


@pytest.mark.parametrize("family", [GaussianKernel, MaternKernel])
def test_a_bandwidth_for_each_feature(family, rng, dtype, tol):
    X = sparse_rows(rng, 30, 40, 0.4, dtype)
    kernel = family(bandwidth=rng.uniform(0.2, 5, 40))
    assert_close(kernel(X), kernel_matrix(kernel, X.toarray(), X.toarray()), tol)


@EACH
def test_types_mix(kernel, rng):
    X, Y = sparse_rows(rng, 9, 5, 0.5), sparse_rows(rng, 7, 5, 0.5)
    small = X.astype(np.float32)
    assert kernel(small, Y.astype(np.float32)).dtype == np.float32
    assert kernel(small, Y).dtype == np.float64
    assert_close(kernel(small, Y), kernel(small.toarray().astype(float), Y), 1e-14)
    counts = (3 * X).astype(np.int64)
    assert_close(kernel(counts, Y), kernel(counts.toarray().astype(float), Y), 1e-14)


@EACH
def test_rows_need_not_be_in_canonical_form(kernel, rng):
    X = sparse_rows(rng, 20, 8, 0.6)
    desired = kernel(X)
    # Columns backwards, each value in two halves; and zeros that are stored.
    twice = sp.csr_array((X.data / 2, X.indices, X.indptr), shape=X.shape)
    order = np.concatenate(
        [np.arange(2 * a, 2 * b)[::-1] for a, b in pairwise(X.indptr)]
    )
    data, indices = np.repeat(twice.data, 2)[order], np.repeat(twice.indices, 2)[order]
    messy = sp.csr_array((data, indices, 2 * X.indptr), shape=X.shape)
    before = messy.data.copy(), messy.indices.copy()
    assert_close(kernel(messy), desired, 1e-14)
    assert_array_equal(messy.data, before[0])
    assert_array_equal(messy.indices, before[1])
    rows, columns = np.indices(X.shape).reshape(2, -1)
    full = sp.coo_array((X.toarray().ravel(), (rows, columns)), shape=X.shape)
    assert_close(kernel(full), desired, 1e-14)
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    assert_array_equal(kernel(wide), desired)


@EACH
def test_blocks_and_tiles_of_any_size_give_the_same_values(kernel, rng, monkeypatch):
    X, Y = sparse_rows(rng, 37, 30, 0.6), sparse_rows(rng, 29, 30, 0.6)
    desired = kernel(X, Y)
    for name, value in (("_TILE_BYTES", 1), ("_BLOCK", 5), ("_BLOCK", 1)):
        monkeypatch.setattr(sparse_gram, name, value)
        assert_close(kernel(X, Y), desired, 1e-14)


@pytest.mark.parametrize("share", [-1.0, 0.1, 0.5, 2.0])
def test_frequent_features_may_be_kept_whole_or_in_lists(
    share, rng, monkeypatch, dtype, tol
):
    X = sparse_rows(rng, 40, 30, 0.8, dtype)
    monkeypatch.setattr(sparse_gram, "_WHOLE_SHARE", share)
    K = LinearKernel()(X)
    assert_close(K, kernel_matrix(LinearKernel(), X.toarray(), X.toarray()), tol)


# digits -----------------------------------------------------------------------------


@pytest.mark.thin
@pytest.mark.parametrize("kernel", NEAR, ids=repr)
@pytest.mark.parametrize("offset", [0, 1e3, 1e6])
def test_near_rows_keep_their_digits(kernel, offset, rng, dtype, tol):
    X = sparse_rows(rng, 30, 20, 0.5, np.float64)
    X.data += offset
    Y = X.copy()
    Y.data *= 1 + 1e-4 / max(1, offset) * rng.standard_normal(Y.data.size)
    X, Y = X.astype(dtype), Y.astype(dtype)
    assert_close(kernel(X, Y), kernel_matrix(kernel, X.toarray(), Y.toarray()), tol)
    assert (np.diag(kernel(X)) == 1).all()


@pytest.mark.parametrize("kernel", NEAR, ids=repr)
def test_huge_rows_give_the_least_value(kernel, rng, dtype):
    near = sparse_rows(rng, 9, 6, 0.7, dtype)
    largest = float(np.finfo(dtype).max)
    far = sp.csr_array(np.diag([1e15, math.sqrt(largest), 1e-3 * largest] * 2))
    far = far.astype(dtype)
    for K in (kernel(near, far), kernel(far, near), kernel(far, -far)):
        assert (K > 0).all() and K.max() < 1e-30
    assert_array_equal(np.diag(kernel(far)), 1)


@pytest.mark.parametrize("width", [1e-30, 1e30])
def test_extreme_bandwidths(width, rng, dtype):
    X = sparse_rows(rng, 20, 6, 0.9, dtype)
    for family in (GaussianKernel, MaternKernel):
        K, dense = family(width)(X), family(width)(X.toarray())
        assert_allclose(K, dense, rtol=0, atol=1e-30)


def test_norms_that_overflow_are_refused():
    X = sp.csr_array([[1e200, 0.0], [0.0, 1.0]])
    with pytest.raises(
        ValueError, match="`X` must have rows with finite squared norms"
    ):
        TanimotoKernel()(X)


# products ---------------------------------------------------------------------------


@pytest.mark.thin
@EACH
@pytest.mark.parametrize("recipe", [PSparsifiedSketch(9), GaussianSketch(9)], ids=repr)
def test_sketched_product(kernel, recipe, rng, dtype, tol):
    X = sparse_rows(rng, 70, 25, 0.3, dtype)
    K, S = Gram(kernel, X), recipe.draw(70, 1)
    assert K.shape == (70, 70)
    desired = kernel_matrix(kernel, X.toarray(), X.toarray()) @ S.to_csr().T
    product = K @ S.T
    assert product.dtype == dtype
    assert_close(product, desired, tol)
    v = rng.standard_normal(70)
    assert_close(K @ v, kernel_matrix(kernel, X.toarray(), X.toarray()) @ v, 10 * tol)


@pytest.mark.thin(times=1)
@EACH
@pytest.mark.parametrize("n", [1, 3, 4, 6, 50])
def test_weights_may_be_dense_or_sparse(kernel, n, rng, monkeypatch, dtype, tol):
    X, L = sparse_rows(rng, n, 12, 0.5, dtype), sparse_rows(rng, 33, 12, 0.5, dtype)
    W = sparse_array((7, 33), 0.3, rng)
    desired = W @ kernel_matrix(kernel, X.toarray(), L.toarray()).T
    for block in (2048, 10):
        monkeypatch.setattr(sparse_gram, "_BLOCK", block)
        for weights in (W.toarray(), W.tocsr(), W.tocsc(), W.astype(np.float32)):
            for rows, landmarks in ((X, L), (X.toarray(), L), (X, L.toarray())):
                product = fold(kernel, rows, landmarks, weights, dtype)
                assert product.shape == (7, n) and product.dtype == dtype
                narrow = weights.dtype == np.float32
                assert_close(product, desired, 1e-5 if narrow else tol)


@EACH
def test_the_parallel_loop_gives_the_same_bits(kernel, rng, dtype, monkeypatch):
    X = sparse_rows(rng, 203, 60, 0.3, dtype)
    K, S = Gram(kernel, X), PSparsifiedSketch(20, density=0.1).draw(203, 0)
    products = [K @ S.T]
    for loop in (0, threads._loop()):
        run = functools.partial(run_all, loop)
        monkeypatch.setattr(sparse_gram, "run_tiles", run)
        products.append(K @ S.T)
    assert_array_equal(products[0], products[1])
    assert_array_equal(products[1], products[2])


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="numba has one thread")
@pytest.mark.parametrize("kernel", KERNELS[:2] + KERNELS[-1:], ids=repr)
def test_bits_do_not_depend_on_the_number_of_threads(kernel, rng, dtype):
    X = sparse_rows(rng, 1500, 60, 0.3, dtype)
    K, S = Gram(kernel, X), PSparsifiedSketch(40).draw(1500, 0)
    products = []
    for count in (1, 2):
        numba.set_num_threads(count)
        products.append(K @ S.T)
    assert_array_equal(*products)


# other kernels ----------------------------------------------------------------------


def test_functions_get_sparse_rows(rng):
    X, passed = sparse_rows(rng, 60, 12, 0.5), []

    def products(A, B):
        passed.extend([A, B])
        return A @ B.T  # sparse as well

    kernel = CallableKernel(products)
    desired = kernel_matrix(LinearKernel(), X.toarray(), X.toarray())
    assert_close(kernel(X), desired, 1e-14)
    assert_close(kernel.diag(X), np.diag(desired), 1e-14)
    S = PSparsifiedSketch(5).draw(60, 0)
    assert_close(Gram(kernel, X) @ S.T, desired @ S.to_csr().T, 1e-13)
    assert all(isinstance(rows, sp.csr_array) for rows in passed)


@pytest.mark.parametrize("kernel", DENSE_ONLY, ids=repr)
def test_kernels_of_dense_rows_say_so(kernel, rng):
    X = sparse_rows(rng, 6, 6, 0.5)
    words = f"`X` must be dense for {type(kernel).__name__}, got a sparse matrix"
    for call in (kernel, kernel.diag, functools.partial(Gram, kernel)):
        with pytest.raises(TypeError, match=words):
            call(X)
    with pytest.raises(TypeError, match=words):
        SketchedKernelRegressor(kernel).fit(X, np.ones(6))
    model = SketchedKernelRegressor(kernel, alpha=0.1).fit(np.eye(6), np.arange(6.0))
    with pytest.raises(TypeError, match=words):
        model.predict(X)


def test_metrics_without_a_sparse_form_say_so(rng):
    class Own(GaussianKernel):
        def compiled_form(self, n_features):
            return CompiledForm("absolute", "exponential", np.ones(n_features))

    with pytest.raises(TypeError, match="sparse rows need a metric of inner products"):
        Own(1.0)(sparse_rows(rng, 5, 3, 0.5))


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (sp.csr_array([[math.nan, 1.0]]), ValueError, "`X` must be finite"),
        (sp.csr_array([[1j, 0]]), TypeError, "`X` must hold real numbers"),
        (sp.csr_array((0, 3)), ValueError, "`X` must be a non-empty 2-dimensional"),
        (sp.coo_array([1.0, 2.0]), ValueError, "`X` must be a non-empty 2-dimensional"),
    ],
)
def test_rows_are_checked(rows, error, words):
    with pytest.raises(error, match=words):
        GaussianKernel(1.0)(rows)
    with pytest.raises(error, match=words):
        Gram(GaussianKernel(1.0), rows)


def test_widths_are_checked(rng):
    X, Y = sparse_rows(rng, 5, 3, 0.5), sparse_rows(rng, 5, 4, 0.5)
    with pytest.raises(ValueError, match="`Y` must have 3 columns"):
        GaussianKernel(1.0)(X, Y)
    with pytest.raises(ValueError, match="`landmarks` must have 3 columns"):
        Gram(GaussianKernel(1.0), X, Y)


@pytest.mark.parametrize("n", [50, 1200])
def test_median_distance_is_that_of_dense_rows(n, rng):
    X = sparse_rows(rng, n - 20, 30, 0.2)
    X = sp.vstack([X, X[10:30]]).tocsr()  # some rows are equal
    for dtype in (np.float64, np.float32):
        rows = X.astype(dtype)
        expected = median_distance(rows.toarray(), rng=0)
        assert_allclose(median_distance(rows, rng=0), expected, rtol=1e-12)


# estimators -------------------------------------------------------------------------


@pytest.fixture
def data(rng):
    X = sparse_rows(rng, 300, 40, 0.3)
    return X, np.sin(3 * X[:, [39]].toarray()[:, 0]) + 0.1 * rng.standard_normal(300)


MODELS = [
    SketchedKernelRegressor(bandwidth="median", size=40),
    SketchedKernelRegressor(
        "matern", bandwidth="median", loss="huber", alpha=1e-3, size=30
    ),
    SketchedKernelRegressor("polynomial", sketch="gaussian", size=20, alpha=1e-3),
    SketchedKernelRegressor("tanimoto", sketch="identity", alpha=1e-2),
    SketchedKernelRegressor("gaussian-tanimoto", bandwidth=0.8, size=30),
    SketchedKernelRegressor("linear", loss="pinball", alpha=1e-3),
    JointQuantileRegressor(
        bandwidth="median",
        quantiles=(0.1, 0.5, 0.9),
        alpha=1e-3,
        size=25,
        calibration=0.2,
    ),
]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_predictions_are_those_of_dense_rows(model, data):
    (X, y), model = data, model.set_params(random_state=0)
    desired = model.fit(X.toarray(), y).predict(X.toarray())
    assert_close(model.predict(X), desired, 1e-12)
    # A kernel value is off by rounding, which the fit enlarges by its condition.
    assert_close(model.fit(X, y).predict(X), desired, 1e-8)
    assert isinstance(model.landmarks_, sp.csr_array)
    assert_close(model.predict(X.toarray()), desired, 1e-8)
    assert_close(model.predict(sp.csc_matrix(X)), desired, 1e-8)


@pytest.mark.parametrize("model", [MODELS[0], MODELS[3], MODELS[6]], ids=repr)
def test_models_in_files(model, data, tmp_path):
    X, y = data
    model = model.set_params(random_state=0).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert isinstance(again.landmarks_, sp.csr_array)
    assert again.landmarks_.shape == model.landmarks_.shape
    assert_array_equal(again.predict(X), model.predict(X))


def test_float32_rows_stay_so(data):
    X, y = data
    model = SketchedKernelRegressor(size=30, random_state=0, alpha=1e-3)
    desired = model.fit(X, y).predict(X)
    predictions = model.fit(X.astype(np.float32), y).predict(X)
    assert model.landmarks_.dtype == np.float32
    assert_close(predictions, desired, 1e-3)


def test_classes(data):
    X, y = data
    options = {"bandwidth": "median", "size": 30, "alpha": 1e-3, "random_state": 0}
    model = SketchedKernelClassifier(**options)
    desired = model.fit(X.toarray(), y > 0.5).decision_function(X.toarray())
    assert_close(model.fit(X, y > 0.5).decision_function(X), desired, 1e-6)


@pytest.mark.parametrize("keep", [True, False])
def test_features(keep, data, monkeypatch):
    X, _ = data
    monkeypatch.setattr(_expansion, "_BLOCK_BYTES", 1)
    model = SketchedFeatures(size=30, random_state=0)
    make = model.fit_transform if keep else lambda rows: model.fit(rows).transform(rows)
    dense, sparse = make(X.toarray()), make(X)
    assert_close(sparse @ sparse.T, dense @ dense.T, 1e-10)


def test_paths_and_cross_validation(data):
    X, y = data
    model = SketchedKernelRegressor(bandwidth="median", size=30, random_state=0)
    alphas, widths = [1e-2, 1e-4], [0.5, 2.0]
    paths = [model.fit_path(rows, y, alphas) for rows in (X, X.toarray())]
    for sparse, dense in zip(*paths, strict=True):
        assert_close(sparse.predict(X), dense.predict(X), 1e-8)
    for sketch in ("p-sparsified", "identity"):
        size = None if sketch == "identity" else 30
        model.set_params(sketch=sketch, size=size)
        found = [
            cross_validate(model, rows, y, widths, alphas).errors
            for rows in (X, X.toarray())
        ]
        assert_close(found[0], found[1], 1e-8)


def test_an_estimator_says_whether_it_takes_sparse_rows():
    for kernel, taken in [
        ("gaussian", True),
        ("laplacian", False),
        (TanimotoKernel(), True),
        (PrecomputedKernel(), False),
        (lambda X, Y: X @ Y.T, True),
        ("nothing", False),
    ]:
        for estimator in (SketchedKernelRegressor(kernel), SketchedFeatures(kernel)):
            assert estimator.__sklearn_tags__().input_tags.sparse == taken


# memory -----------------------------------------------------------------------------


def traced_peak(function):
    function()  # compiles
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def thin_rows(n, n_features, per_row, seed=0):
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, n_features, n * per_row)
    entries = rng.random(n * per_row), columns, per_row * np.arange(n + 1)
    X = sp.csr_array(entries, shape=(n, n_features))
    X.sum_duplicates()
    return X


@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[-1]], ids=repr)
def test_memory_is_that_of_the_nonzeros(kernel):
    X = thin_rows(20_000, 50_000, 10)  # 3 MB; dense it would be 8 GB
    S = PSparsifiedSketch(10).draw(20_000, 0)
    product = 10 * 20_000 * 8
    own = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    peak = traced_peak(lambda: Gram(kernel, X) @ S.T)
    assert peak <= product + 4 * own + 2 * sparse_gram._TILE_BYTES < 20 << 20


def test_memory_of_a_fit():
    X = thin_rows(2000, 50_000, 10)  # dense: 0.8 GB
    y = X.sum(axis=1)
    model = SketchedKernelRegressor(size=50, alpha=1e-3, random_state=0)
    assert traced_peak(lambda: model.fit(X, y).predict(X)) < 64 << 20


def test_rows_are_not_copied(rng):
    X = sparse_rows(rng, 30, 5, 0.5)
    K = Gram(GaussianKernel(1.0), X)
    assert np.shares_memory(K.X.data, X.data)
    assert K.landmarks is K.X
    assert_close(K @ IdentitySketch().draw(30, 0).T, K.kernel(X), 1e-14)
