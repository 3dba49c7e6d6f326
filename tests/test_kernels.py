"""Kernels against explicit formulas and scikit-learn, and the median heuristic."""

import copy
import dataclasses
import math
import pickle
import platform

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import ROOT
from numpy.testing import assert_allclose, assert_array_equal
from reference import differences, kernel_matrix
from scipy.spatial.distance import cdist, pdist
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import (
    laplacian_kernel,
    linear_kernel,
    polynomial_kernel,
    rbf_kernel,
)

from nbsketch import (
    CallableKernel,
    GaussianKernel,
    GaussianTanimotoKernel,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    PrecomputedKernel,
    SketchedKernelRegressor,
    SobolevKernel,
    TanimotoKernel,
)
from nbsketch._jit.gram import GROUP, lanes
from nbsketch.gram.dense import pack_landmarks
from nbsketch.kernels import as_kernel


def similarity(X, Y):
    """Return the Tanimoto similarity in terms of scikit-learn's linear kernel."""
    K = linear_kernel(X, Y)
    return K / ((X**2).sum(axis=1)[:, None] + (Y**2).sum(axis=1) - K)


# Each kernel, and scikit-learn's function for it.
TABLE = [
    (GaussianKernel(1.7), lambda X, Y: rbf_kernel(X, Y, gamma=0.5 / 1.7**2)),
    (LaplacianKernel(3.0), lambda X, Y: laplacian_kernel(X, Y, gamma=1 / 3.0)),
    (MaternKernel(1.7, 0.5), Matern(1.7, nu=0.5)),
    (MaternKernel(1.7, 1.5), Matern(1.7, nu=1.5)),
    (MaternKernel(1.7, 2.5), Matern(1.7, nu=2.5)),
    (MaternKernel(1.7, math.inf), Matern(1.7, nu=math.inf)),
    (
        PolynomialKernel(3, 0.2, 1.5),
        lambda X, Y: polynomial_kernel(X, Y, degree=3, gamma=0.2, coef0=1.5),
    ),
    (
        PolynomialKernel(1, 2.0, 0.0),
        lambda X, Y: polynomial_kernel(X, Y, degree=1, gamma=2.0, coef0=0.0),
    ),
    (LinearKernel(), linear_kernel),
    (TanimotoKernel(), similarity),
    (
        GaussianTanimotoKernel(0.6),
        lambda X, Y: np.exp(-(1 - similarity(X, Y)) / 0.6**2),
    ),
]
KERNELS = [kernel for kernel, _ in TABLE]
STATIONARY = KERNELS[:6]
MATERN = KERNELS[2:5]
EACH = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
EPS = {8: np.finfo(np.float64).eps, 4: np.finfo(np.float32).eps}


def assert_close(actual, desired, tol):
    assert_allclose(actual, desired, rtol=0, atol=tol * np.abs(desired).max())


# Both sides of the switch to expanded distances, which is at 32 features.
@pytest.mark.thin
@EACH
@pytest.mark.parametrize("n_features", [1, 2, 3, 7, 16, 31, 32, 33, 70])
def test_values_for_any_number_of_features(kernel, n_features, rng, dtype, tol):
    X, Y = (rng.standard_normal((n, n_features)).astype(dtype) for n in (21, 30))
    # Neighbors as well, so that some values are not small in many dimensions.
    Y[:10] = X[:10] + dtype.type(0.1) * Y[:10]
    K = kernel(X, Y)
    assert K.dtype == dtype and K.flags.c_contiguous
    assert_close(K, kernel_matrix(kernel, X, Y), tol)


@pytest.mark.parametrize(("kernel", "theirs"), TABLE, ids=[repr(k) for k in KERNELS])
@pytest.mark.parametrize("n_features", [3, 40])
def test_values_are_those_of_scikit_learn(kernel, theirs, n_features, rng):
    X, Y = (0.3 * rng.standard_normal((n, n_features)) for n in (21, 30))
    assert_close(kernel(X, Y), theirs(X, Y), 1e-12)


# Both sides of the edges of register blocks, and beyond one tile.
@pytest.mark.thin
@EACH
@pytest.mark.parametrize("n_features", [4, 40])
@pytest.mark.parametrize("n", [1, GROUP - 1, GROUP, GROUP + 1, 50])
def test_values_for_any_number_of_rows(kernel, n, n_features, rng, dtype, tol):
    block = lanes(8)
    for m in (1, 2, block - 1, block, block + 1, 50, 20 * block + 1):
        X, Y = (
            rng.standard_normal((size, n_features)).astype(dtype) for size in (n, m)
        )
        Y[0] = X[0] * dtype.type(1.01)
        assert_close(kernel(X, Y), kernel_matrix(kernel, X, Y), tol)


@pytest.mark.thin
@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("n_features", [5, 40])
def test_a_bandwidth_for_each_feature_scales_the_features(
    kernel, n_features, rng, dtype, tol
):
    X, Y = (rng.standard_normal((n, n_features)).astype(dtype) for n in (11, 12))
    widths = rng.uniform(0.5, 5, n_features)
    separate = dataclasses.replace(kernel, bandwidth=widths)
    one = dataclasses.replace(kernel, bandwidth=1.0)
    assert_close(separate(X, Y), one(X / widths, Y / widths), tol)
    assert hash(separate) == hash(dataclasses.replace(kernel, bandwidth=tuple(widths)))


@pytest.mark.thin
@EACH
@pytest.mark.parametrize("n_features", [1, 5, 31, 40])
def test_symmetric_positive_semidefinite(kernel, n_features, rng, dtype, tol):
    X = rng.standard_normal((60, n_features)).astype(dtype)
    K = kernel(X)
    assert_array_equal(K, kernel(X, X))
    exact = n_features < 32 and not isinstance(kernel, TanimotoKernel)
    assert_close(K, K.T, 0 if exact else tol)
    eigenvalues = np.linalg.eigvalsh(K.astype(np.float64))
    assert eigenvalues[0] >= -10 * tol * eigenvalues[-1]


@pytest.mark.thin
@EACH
@pytest.mark.parametrize("n_features", [5, 40])
def test_diagonal(kernel, n_features, rng, dtype, tol):
    X = rng.standard_normal((60, n_features)).astype(dtype)
    diagonal = kernel.diag(X)
    assert diagonal.shape == (60,) and diagonal.dtype == dtype
    assert_close(diagonal, np.diag(kernel(X)), tol)


@pytest.mark.thin
@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("n_features", [1, 3, 31])
@pytest.mark.parametrize("offset", [0, 1e6])
def test_ones_on_the_diagonal_are_exact(kernel, n_features, offset, rng, dtype):
    X = (offset + rng.standard_normal((70, n_features))).astype(dtype)
    assert (np.diag(kernel(X)) == 1).all()
    assert (kernel(X[5:6], X)[0, 5] == 1).all()


@pytest.mark.thin
@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("n_features", [3, 40])
@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_data_far_from_zero_keep_their_digits(
    kernel, n_features, offset, rng, dtype, tol
):
    center = offset * rng.standard_normal(n_features)
    X, Y = ((center + rng.standard_normal((n, n_features))) for n in (20, 30))
    X, Y = X.astype(dtype), Y.astype(dtype)
    kernel = dataclasses.replace(kernel, bandwidth=2.0 * math.sqrt(n_features))
    assert_close(kernel(X, Y), kernel_matrix(kernel, X, Y), tol)


def test_numbers_of_many_sizes_in_one_feature(rng, dtype, tol):
    # No shift suits all of them: far ones must not cost near ones their digits.
    L = np.concatenate([rng.standard_normal(20), [1e5, 1e7, 1e30, -1e6]])
    L = L.astype(dtype)[:, None]
    X = np.concatenate([rng.standard_normal((30, 1)).astype(dtype), L])
    for kernel in STATIONARY:
        assert_close(kernel(L, X), kernel_matrix(kernel, L, X), tol)


def expanded(kernel, landmarks):
    form = kernel.compiled_form(landmarks.shape[1])
    return pack_landmarks(form, landmarks).kernel[3]


@pytest.mark.parametrize("side", [0.99, 1.01])
@pytest.mark.parametrize("kernel", [STATIONARY[0], STATIONARY[5]], ids=repr)
def test_expanded_distances_lose_no_digit_that_matters(kernel, side, rng, dtype):
    n_features = 40
    limit = 1e3
    kernel = dataclasses.replace(kernel, bandwidth=math.sqrt(0.5 / math.log(2)))
    # Pairs of opposite landmarks on a sphere: their mean is the center and 2^-norm of
    # the difference is the kernel.
    L = rng.standard_normal((32, n_features))
    L *= math.sqrt(side * limit) / np.linalg.norm(L, axis=1, keepdims=True)
    L = np.concatenate([L, -L]).astype(dtype)
    assert expanded(kernel, L) == (side < 1)
    steps = rng.standard_normal((len(L), n_features)) / math.sqrt(n_features)
    rows = [L, L + 1e-3 * steps, L + steps, 1.5 * L, 2 * L, 10 * L, 0 * L, 1e3 * L]
    X = np.concatenate(rows).astype(dtype)
    K = kernel(X, L)
    desired = np.exp2(-(differences(X, L, 1.0) ** 2).sum(axis=2))
    assert np.isfinite(K).all()
    # The largest norms near a landmark set the error: a few times limit * eps.
    rounding = EPS[dtype.itemsize]  # of the result
    assert np.abs(K - desired).max() <= 4 * limit * EPS[8] + rounding


def test_one_far_landmark_switches_the_expansion_off(rng, dtype):
    L = rng.standard_normal((50, 40)).astype(dtype)
    kernel = GaussianKernel(10.0)
    assert expanded(kernel, L)
    L[7] *= 1e5
    assert not expanded(kernel, L)
    assert not expanded(GaussianKernel(10.0), L[:, :31])
    assert not expanded(MaternKernel(10.0), L / 1e5)


# Scaled, squared and expanded, these overflow early or late; and a row may be far
# from near landmarks.
@pytest.mark.thin
@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("n_features", [3, 40])
def test_huge_distances_give_the_least_value(kernel, n_features, rng, dtype):
    largest = np.finfo(dtype).max
    kernel = dataclasses.replace(kernel, bandwidth=1.0)
    scales = (1e4, 1e15, math.sqrt(largest), 1e-3 * float(largest))
    Y = np.stack([np.full(n_features, scale, dtype) for scale in scales])
    near = rng.standard_normal((9, n_features)).astype(dtype)
    for K in (kernel(near, Y), kernel(Y, near), kernel(Y, -Y)):
        assert (K > 0).all() and K.max() < 1e-30
    assert kernel(near, Y).min() >= np.finfo(dtype).tiny
    if kernel not in [
        dataclasses.replace(other, bandwidth=1.0) for other in MATERN[1:]
    ]:
        assert (kernel(near, Y) == np.finfo(dtype).tiny).all()


def test_values_fall_with_the_distance(dtype):
    distances = np.geomspace(1e-6, np.finfo(dtype).max / 10, 400).astype(dtype)
    for kernel in STATIONARY:
        kernel = dataclasses.replace(kernel, bandwidth=1.0)
        values = kernel(np.zeros((1, 1), dtype), distances[:, None])[0]
        slack = 4 * EPS[dtype.itemsize]
        assert (values[1:] <= values[:-1] * (1 + slack)).all()


def test_powers_of_two_are_accurate(rng, dtype):
    # Divided by this bandwidth a distance is an exponent of two, unchanged.
    kernel = LaplacianKernel(1 / math.log(2))
    assert kernel.compiled_form(1).scale == 1
    highest = -np.finfo(dtype).minexp
    wide = rng.uniform(0, highest, 40_000)
    halves = np.arange(0, highest, 0.5)
    around = np.concatenate(
        [halves, np.nextafter(halves, 1e9), np.nextafter(halves, 0)]
    )
    tiny = np.geomspace(1e-30, 1, 2000)
    t = np.concatenate([wide, around, tiny]).astype(dtype)
    values = kernel(np.zeros((1, 1), dtype), t[:, None])[0]
    desired = np.exp2(-t.astype(np.longdouble))
    error = np.abs(values.astype(np.longdouble) / desired - 1)
    assert error.max() <= 4 * EPS[dtype.itemsize]
    whole = np.arange(0.0, highest + 1, dtype=dtype)
    exact = kernel(np.zeros((1, 1), dtype), whole[:, None])[0]
    assert_array_equal(exact, np.exp2(-whole))


@pytest.mark.full
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="names of x86 features"
)
def test_processors_with_narrow_vectors(run_python):
    code = """
import numpy as np
from reference import kernel_matrix
from nbsketch import GaussianKernel, LaplacianKernel, LinearKernel
from nbsketch._jit import gram
assert (gram.VECTOR, gram.BLOCK, gram.GROUP) == (32, 2, 4)
rng = np.random.default_rng(0)
for q in (3, 40):
    X, Y = rng.standard_normal((9, q)), rng.standard_normal((50, q))
    Y[:9] = X
    for kernel in (GaussianKernel(q), LaplacianKernel(q), LinearKernel()):
        error = np.abs(kernel(X, Y) - kernel_matrix(kernel, X, Y)).max()
        assert error < 1e-13, (q, kernel, error)
"""
    tests = str(ROOT / "tests")
    features = "+sse2,+avx,+avx2,+fma"
    run_python(
        f"import sys; sys.path.append({tests!r})\n{code}",
        NUMBA_CPU_NAME="haswell",
        NUMBA_CPU_FEATURES=features,
    )


def test_gamma_is_another_spelling_of_the_bandwidth():
    assert GaussianKernel(gamma=0.125) == GaussianKernel(bandwidth=2.0)
    with pytest.raises(ValueError, match="`gamma` and `bandwidth` set the same number"):
        GaussianKernel(2.0, gamma=0.125)
    for gamma in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="`gamma` must be in"):
            GaussianKernel(gamma=gamma)
    with pytest.raises(TypeError, match="`gamma` must be a number"):
        GaussianKernel(gamma="scale")


VALUES = [*KERNELS, SobolevKernel(), PrecomputedKernel()]


@pytest.mark.parametrize("kernel", VALUES, ids=repr)
def test_kernels_are_values(kernel):
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert other == kernel and hash(other) == hash(kernel)
    assert sum(kernel == other for other in VALUES) == 1
    for field in dataclasses.fields(kernel):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(kernel, field.name, 3)


@pytest.mark.parametrize("family", [GaussianKernel, LaplacianKernel, MaternKernel])
class TestBandwidth:
    @pytest.mark.parametrize("width", [0, -1.0, math.nan, math.inf, [1.0, 0.0]])
    def test_is_positive(self, family, width):
        with pytest.raises(ValueError, match=r"`bandwidth` must be in \(0, inf\)"):
            family(bandwidth=width)

    @pytest.mark.parametrize("width", [True, None, 1j, [1.0, None], ["1"]])
    def test_is_a_number(self, family, width):
        with pytest.raises(TypeError, match="`bandwidth` must be a number"):
            family(bandwidth=width)

    @pytest.mark.parametrize("width", [[], np.ones((2, 2)), "mean"])
    def test_has_a_known_form(self, family, width):
        with pytest.raises(ValueError, match="`bandwidth` must be"):
            family(bandwidth=width)

    @pytest.mark.parametrize(
        ("width", "words"),
        [
            (-1, r"got -1$"),
            (np.int64(-1), r"got -1$"),
            ([2.0, np.float64(-1.5)], r"got -1\.5$"),
            ("a", r"one number per feature or 'median' .* 'auto'\), got 'a'$"),
            ([], r"one number per feature or 'median' .*, got shape \(0,\)$"),
        ],
    )
    def test_says_what_it_got(self, family, width, words):
        with pytest.raises(ValueError, match=words):
            family(bandwidth=width)

    def test_becomes_python_numbers(self, family):
        assert type(family(bandwidth=np.float32(2)).bandwidth) is float
        assert family(bandwidth=np.array([1, 2])).bandwidth == (1.0, 2.0)
        assert family(bandwidth=np.array(2.0)) == family(bandwidth=2)

    def test_has_one_number_per_feature(self, family, rng):
        X = rng.standard_normal((5, 3))
        kernel = family(bandwidth=[1.0, 2.0])
        for call in (kernel, kernel.resolve):
            with pytest.raises(ValueError, match="one number per feature, 3, got 2"):
                call(X)

    def test_median_must_be_set_from_data_first(self, family):
        with pytest.raises(ValueError, match="'median': set it from data with"):
            family()(np.ones((2, 2)))
        assert family().diag(np.ones((2, 2))).tolist() == [1, 1]

    def test_a_number_is_left_as_it_is(self, family, rng):
        kernel = family(bandwidth=2.0)
        assert kernel.resolve(rng.standard_normal((5, 3))) is kernel

    def test_median_is_the_median_distance(self, family, rng):
        X = rng.standard_normal((50, 3))
        difference = X[:, None] - X[None, :]
        order = 1 if family is LaplacianKernel else 2
        distances = np.linalg.norm(difference, ord=order, axis=2)
        desired = np.median(distances[np.triu_indices(50, 1)])
        assert_allclose(family().resolve(X).bandwidth, desired, rtol=1e-12)

    def test_median_leaves_equal_rows_out(self, family, rng):
        X = np.repeat(rng.standard_normal((4, 3)), [30, 1, 1, 1], axis=0)
        metric = "cityblock" if family is LaplacianKernel else "euclidean"
        distances = pdist(X, metric)
        desired = np.median(distances[distances > 0])
        assert_allclose(family().resolve(X).bandwidth, desired, rtol=1e-12)

    def test_median_follows_the_scale_of_the_data(self, family, rng):
        X = rng.standard_normal((40, 3))
        width = family().resolve(X).bandwidth
        for scale in (1e-6, 1024.0, 1e9):
            assert_allclose(
                family().resolve(scale * X).bandwidth, scale * width, rtol=1e-12
            )
        assert_allclose(
            family().resolve(1024.0 * X)(1024.0 * X), family().resolve(X)(X), rtol=1e-12
        )

    @pytest.mark.parametrize("X", [np.full((9, 2), 3.0), np.ones((1, 2))])
    def test_median_of_equal_rows_is_one(self, family, X):
        assert family().resolve(X).bandwidth == 1.0

    def test_median_of_many_rows_is_that_of_a_sample(self, family, rng):
        X = rng.standard_normal((1500, 3))
        one, again, other = (family().resolve(X, seed).bandwidth for seed in (0, 0, 1))
        assert one == again != other
        full = np.median(pdist(X, family._distance))
        # The median of a thousand rows is off by about one percent.
        assert_allclose([one, other], full, rtol=0.05)
        assert family().resolve(X[:1000], 0) == family().resolve(X[:1000], 1)

    def test_median_keeps_the_other_parameters(self, family, rng):
        X = rng.standard_normal((9, 2)).astype(np.float32)
        kernel = family(**({"nu": 2.5} if family is MaternKernel else {}))
        resolved = kernel.resolve(X)
        assert type(resolved) is family and type(resolved.bandwidth) is float
        assert dataclasses.replace(resolved, bandwidth="median") == kernel


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, math.inf, np.float32(1.5)])
def test_smoothness(nu):
    assert MaternKernel(1.0, nu).nu == nu


@pytest.mark.parametrize("nu", [1, 2.0, 0, -1, math.nan, 3.5])
def test_smoothness_is_known(nu):
    with pytest.raises(ValueError, match="`nu` must be"):
        MaternKernel(1.0, nu)


def test_parameters_of_the_polynomial():
    kernel = PolynomialKernel(np.int8(2), np.float32(0.5), 1)
    assert kernel == PolynomialKernel(2, 0.5, 1.0)
    assert [type(value) for value in dataclasses.astuple(kernel)] == [int, float, float]
    for degree in (0, -1, 1001):
        with pytest.raises(ValueError, match=r"`degree` must be in \[1, 1000\]"):
            PolynomialKernel(degree)
    with pytest.raises(TypeError, match="`degree` must be an integer"):
        PolynomialKernel(2.0)
    with pytest.raises(ValueError, match="`scale` must be in"):
        PolynomialKernel(2, 0.0)
    with pytest.raises(ValueError, match="`offset` must be in"):
        PolynomialKernel(2, 1.0, -1.0)


def unit_rows(rng, n, n_features, dtype=np.float64):
    return rng.uniform(size=(n, n_features)).astype(dtype)


class TestSobolev:
    @pytest.mark.parametrize("n_features", [1, 2, 7, 40])
    @pytest.mark.parametrize("n", [1, 9, 50])
    def test_values(self, n, n_features, rng, dtype, tol):
        X, Y = (unit_rows(rng, rows, n_features, dtype) for rows in (70, n))
        X[:2] = [[0], [1]]
        K = SobolevKernel()(X, Y)
        assert K.dtype == dtype
        assert_close(K, kernel_matrix(SobolevKernel(), X, Y), tol)
        if n_features == 1:  # the smaller number itself
            assert_array_equal(K, np.minimum(X, Y.T))
        assert_array_equal(SobolevKernel()(Y, X), K.T)

    @pytest.mark.parametrize("n_features", [1, 3])
    def test_positive_semidefinite(self, n_features, rng, dtype, tol):
        K = SobolevKernel()(unit_rows(rng, 60, n_features, dtype))
        eigenvalues = np.linalg.eigvalsh(K.astype(np.float64))
        assert eigenvalues[0] >= -10 * tol * eigenvalues[-1]

    def test_reproduces_functions(self):
        # f = k(., 1/4) - 2 k(., 3/4) has the norm of its derivative
        points, coef = np.array([[0.25], [0.75]]), np.array([1.0, -2.0])
        grid = np.linspace(0, 1, 1001)
        values = coef @ SobolevKernel()(points, grid[:, None])
        norm = (np.diff(values) ** 2).sum() / (grid[1] - grid[0])
        assert_allclose(coef @ SobolevKernel()(points) @ coef, norm, rtol=1e-12)

    def test_diagonal(self, rng, dtype, tol):
        X = unit_rows(rng, 20, 3, dtype)
        diagonal = SobolevKernel().diag(X)
        assert diagonal.dtype == dtype
        assert_close(diagonal, np.diag(SobolevKernel()(X)), tol)

    @pytest.mark.parametrize("wrong", [-1e-9, 1.5])
    def test_numbers_outside_the_unit_interval_are_refused(self, wrong):
        X, Y = np.array([[0.5, wrong]]), np.array([[0.5, 1.0]])
        words = r"must be in \[0, 1\] for SobolevKernel, got numbers from"
        with pytest.raises(ValueError, match="`X` " + words):
            SobolevKernel()(X, Y)
        with pytest.raises(ValueError, match="`Y` " + words):
            SobolevKernel()(Y, X)
        with pytest.raises(ValueError, match="`X` " + words):
            SobolevKernel().diag(X)


class TestTanimoto:
    def test_binary_rows_have_the_jaccard_index(self, rng):
        X = rng.random((30, 12)) < 0.4
        desired = 1 - cdist(X, X, "jaccard")
        assert_allclose(TanimotoKernel()(X), desired, rtol=0, atol=1e-15)

    def test_rows_of_zeros_are_alike(self, dtype):
        X = np.array([[0, 0], [0, 0], [1, 2]], dtype=dtype)
        desired = [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
        assert_array_equal(TanimotoKernel()(X), desired)
        least = math.exp(-1 / 0.5**2)
        values = GaussianTanimotoKernel(0.5)(X)
        assert_close(values, np.where(desired, 1, least), 4 * EPS[dtype.itemsize])

    def test_opposite_rows_have_the_least_similarity(self, rng):
        X = rng.standard_normal((20, 5))
        assert_allclose(np.diag(TanimotoKernel()(X, -X)), -1 / 3, rtol=1e-14)
        assert TanimotoKernel()(X, -2 * X).min() > -1 / 3

    @pytest.mark.parametrize("n_features", [3, 40])
    def test_scale_of_the_data_does_not_matter(self, n_features, rng, dtype, tol):
        X, Y = (rng.random((n, n_features)).astype(dtype) for n in (9, 12))
        for kernel in (TanimotoKernel(), GaussianTanimotoKernel(0.3)):
            for scale in (1e-9, 1e9):
                scaled = kernel(dtype.type(scale) * X, dtype.type(scale) * Y)
                assert_close(scaled, kernel(X, Y), tol)

    def test_distance_of_the_gaussian_one_is_that_of_the_plain_one(self, rng):
        X = rng.random((20, 4))
        T = TanimotoKernel()(X)
        square = np.diag(T)[:, None] + np.diag(T) - 2 * T
        desired = np.exp(-square / (2 * 0.7**2))
        assert_allclose(GaussianTanimotoKernel(0.7)(X), desired, rtol=1e-13)

    def test_tiny_bandwidths_leave_ones_and_the_least_value(self, dtype):
        K = GaussianTanimotoKernel(1e-200)(np.eye(2, dtype=dtype))
        tiny = np.finfo(dtype).tiny
        assert_array_equal(K, np.where(np.eye(2), dtype.type(1), tiny))

    def test_norms_that_overflow_are_refused(self, dtype):
        X = np.full((1, 2), np.sqrt(np.finfo(dtype).max), dtype=dtype)
        words = "`X` must have rows with finite squared norms for Gau.* scale `X`"
        with pytest.raises(ValueError, match=words):
            GaussianTanimotoKernel()(X)

    @pytest.mark.parametrize("width", [0, -1.0, math.nan, math.inf])
    def test_bandwidth_is_positive(self, width):
        with pytest.raises(ValueError, match=r"`bandwidth` must be in \(0, inf\)"):
            GaussianTanimotoKernel(width)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype, large", [(np.float32, 1e7), (np.float64, 1e52)])
def test_powers_that_overflow_are_refused(dtype, large, make):
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = SketchedKernelRegressor("polynomial", random_state=0)
    model.fit(make(X.astype(dtype)), X[:, 0])
    words = f"`X` must have rows .* PolynomialKernel.* overflows in {dtype.__name__}"
    rows = make((large * X).astype(dtype))
    with pytest.raises(ValueError, match=words):
        model.predict(rows)
    with pytest.raises(ValueError, match=words):
        PolynomialKernel()(rows)
    with pytest.raises(ValueError, match=words):
        model.fit(rows, X[:, 0])
    below = make((1e-3 * large * X).astype(dtype))
    assert np.isfinite(PolynomialKernel()(below)).all()


@EACH
class TestCalls:
    def test_types_mix(self, kernel, rng):
        X, Y = rng.standard_normal((9, 3)), rng.standard_normal((7, 3))
        small = X.astype(np.float32), Y.astype(np.float32)
        assert kernel(*small).dtype == np.float32
        assert kernel(X, small[1]).dtype == kernel(small[0], Y).dtype == np.float64
        assert_close(kernel(small[0], Y), kernel(small[0].astype(float), Y), 1e-15)
        assert_close(kernel(X.tolist(), Y), kernel(X, Y), 1e-15)
        whole = np.arange(12).reshape(4, 3)
        assert_array_equal(kernel(whole), kernel(whole.astype(np.float64)))

    def test_order_in_memory_does_not_matter(self, kernel, rng):
        X = rng.standard_normal((9, 6))
        desired = kernel(np.ascontiguousarray(X[::2, ::2]))
        assert_array_equal(kernel(X[::2, ::2]), desired)
        assert_array_equal(kernel(np.asfortranarray(X[::2, ::2])), desired)

    def test_arguments_are_left_as_they_are(self, kernel, rng):
        X, Y = rng.standard_normal((9, 3)), rng.standard_normal((7, 3))
        before = X.copy(), Y.copy()
        kernel(X, Y)
        assert_array_equal(X, before[0])
        assert_array_equal(Y, before[1])

    def test_errors(self, kernel):
        with pytest.raises(ValueError, match=r"`Y` must have 2 columns"):
            kernel(np.ones((3, 2)), np.ones((3, 3)))
        with pytest.raises(ValueError, match=r"`X` must be finite"):
            kernel([[math.nan]])
        with pytest.raises(ValueError, match=r"`Y` must be finite"):
            kernel([[1.0]], [[math.inf]])
        with pytest.raises(ValueError, match=r"`X` must be a non-empty 2-dimensional"):
            kernel([1.0, 2.0])


def cauchy(X, Y):
    return 1 / (1 + ((X[:, None] - Y[None]) ** 2).sum(axis=2))


def test_callables(rng, dtype):
    X, Y = rng.standard_normal((9, 3)), rng.standard_normal((7, 3))
    kernel = CallableKernel(cauchy)
    assert_array_equal(kernel(X, Y), cauchy(X, Y))
    assert_array_equal(kernel(X), cauchy(X, X))
    assert_array_equal(kernel.diag(X), np.ones(9))
    assert kernel == CallableKernel(cauchy) and hash(kernel)
    assert kernel.resolve(X) is kernel


def test_errors_of_callables():
    X = np.ones((3, 2))
    with pytest.raises(TypeError, match="`function` must be callable, got 3"):
        CallableKernel(3)
    with pytest.raises(ValueError, match=r"shape \(3, 1\), got shape \(1, 3\)"):
        CallableKernel(lambda X, Y: np.ones((len(Y), len(X))))(X, X[:1])
    with pytest.raises(ValueError, match="must return finite values"):
        CallableKernel(lambda X, Y: np.full((len(X), len(Y)), np.nan))(X)


def test_precomputed(rng):
    K = rng.standard_normal((6, 6))
    kernel = PrecomputedKernel()
    assert_array_equal(kernel(K), K)
    assert_array_equal(kernel(K[:2], [3, 0]), K[:2][:, [3, 0]])
    assert_array_equal(kernel.diag(K), np.diag(K))
    assert_array_equal(kernel.take(K, np.array([4, 1])), [4, 1])
    assert_array_equal(kernel.take(K[:2]), np.arange(6))
    with pytest.raises(ValueError, match=r"`X` must be the square .* shape \(2, 6\)"):
        kernel.diag(K[:2])


def test_precomputed_values_must_be_symmetric(rng):
    K = rng.standard_normal((300, 300))
    kernel = PrecomputedKernel()
    assert kernel.resolve(K + K.T) == kernel.resolve(K[:2]) == kernel
    with pytest.raises(ValueError, match=r"`X` must be a symmetric matrix .* row"):
        kernel.resolve(K)
    rounded = (K @ K.T).astype(np.float32)
    rounded[0, 1] *= 1 + 1e-6
    assert kernel.resolve(rounded) == kernel


def test_kernels_by_name():
    assert as_kernel("gaussian") == GaussianKernel("median")
    assert as_kernel("gaussian", 2.0) == GaussianKernel(2.0)
    assert as_kernel("laplacian", [1, 2]) == LaplacianKernel((1.0, 2.0))
    assert as_kernel("matern", 2) == MaternKernel(2.0, 1.5)
    assert as_kernel("polynomial") == PolynomialKernel(3, 1.0, 1.0)
    assert as_kernel("linear") == LinearKernel()
    assert as_kernel("sobolev") == SobolevKernel()
    assert as_kernel("tanimoto") == TanimotoKernel()
    assert as_kernel("gaussian-tanimoto") == GaussianTanimotoKernel(1.0)
    assert as_kernel("gaussian-tanimoto", 2) == GaussianTanimotoKernel(2.0)
    assert as_kernel("precomputed") == PrecomputedKernel()
    assert as_kernel(cauchy) == CallableKernel(cauchy)
    kernel = GaussianKernel(2.0)
    assert as_kernel(kernel) is kernel


def test_errors_of_names():
    with pytest.raises(ValueError, match=r"`kernel` must be one of .* got 'rbf'"):
        as_kernel("rbf")
    with pytest.raises(ValueError, match=r"must be None for kernel='linear', got 2\.0"):
        as_kernel("linear", 2.0)
    for name in ("linear", "sobolev", "tanimoto", "precomputed"):
        words = f"`bandwidth` must be None for kernel='{name}'"
        with pytest.raises(ValueError, match=words):
            as_kernel(name, 2.0)
    for kernel in (GaussianKernel(2.0), cauchy):
        with pytest.raises(ValueError, match="`bandwidth` requires the name"):
            as_kernel(kernel, 2.0)
    for bandwidth in (None, 2.0):
        with pytest.raises(TypeError, match=r"object or a name, .* GaussianKernel\("):
            as_kernel(GaussianKernel, bandwidth)
    for kernel in (None, 3, np.eye(2)):
        with pytest.raises(TypeError, match="`kernel` must be a name, a Kernel or a"):
            as_kernel(kernel)


# kernels of the papers --------------------------------------------------------------


def test_a_penalty_on_the_coefficients_is_another_kernel(rng):
    """(8) of Pohlen: (K K + n alpha I) a = K y, with predictions k(x, X) a."""
    X = rng.uniform(-1, 1, size=(60, 2))
    new = rng.uniform(-1, 1, size=(7, 2))
    y = rng.normal(size=60)
    kernel = GaussianKernel(0.7)
    alpha = 1e-3

    def penalizing_coefficients(A, B):
        return kernel(A, X) @ kernel(X, B)

    model = SketchedKernelRegressor(
        penalizing_coefficients, sketch="identity", alpha=alpha, fit_intercept=False
    ).fit(X, y)
    K = kernel(X)
    a = np.linalg.solve(K @ K + 60 * alpha * np.eye(60), K @ y)
    assert_allclose(model.predict(new), kernel(new, X) @ a, rtol=1e-6)


def test_the_kernel_of_functions_that_vanish_at_both_ends():
    """Example B.1 of Lin and Cevher: eigenvalues 1 / (pi j)^2 on [0, 1]."""

    def bridge(X, Y):
        return np.minimum(X, Y.T) - X @ Y.T

    x = (np.arange(400) + 0.5)[:, None] / 400
    values = np.linalg.eigvalsh(CallableKernel(bridge)(x, x))[::-1][:5] / 400
    assert_allclose(values, (np.pi * np.arange(1, 6)) ** -2.0, rtol=3e-4)
    model = SketchedKernelRegressor(bridge, sketch="identity", fit_intercept=False)
    ends = model.fit(x, np.cos(3 * x[:, 0])).predict([[0.0], [1.0]])
    assert_allclose(ends, 0, atol=1e-12)
