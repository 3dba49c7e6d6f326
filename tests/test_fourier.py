"""Random Fourier features: unbiased, by the right law, and a transformer."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import kernel_matrix, sparse_array
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import nbsketch
from nbsketch import (
    GaussianKernel,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    RandomFourierFeatures,
)
from nbsketch.solvers import scratch

WIDTHS = (0.7, 1.5, 3.0)
KERNELS = [
    GaussianKernel(1.3),
    GaussianKernel(WIDTHS),
    LaplacianKernel(3.0),
    LaplacianKernel(WIDTHS),
    MaternKernel(2.0, nu=0.5),
    MaternKernel(2.0, nu=1.5),
    MaternKernel(WIDTHS, nu=2.5),
    MaternKernel(WIDTHS, nu=math.inf),
]
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def points(n=25, q=3, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(n, q)).astype(dtype)


def variance(kernel, X, size):
    """Return the variance of each inner product: differences 2 (x - y) have k(2x, 2y).

    From cos^2 t = (1 + cos 2t) / 2, for size / 2 independent frequencies.
    """
    K = kernel_matrix(kernel, X, X)
    return (1 + kernel_matrix(kernel, 2 * X, 2 * X) - 2 * K**2) / size


@kernels
def test_inner_products_are_the_kernel_on_average(kernel):
    X, size = points(), 20_000
    Z = RandomFourierFeatures(kernel, size=size, random_state=1).fit_transform(X)
    error = np.abs(Z @ Z.T - kernel_matrix(kernel, X, X))
    assert (error <= 5 * np.sqrt(variance(kernel, X, size)) + 1e-12).all()
    # and no more exact than chance: the bound above is not slack
    assert error.max() > np.sqrt(variance(kernel, X, size).max())


@pytest.mark.thin(every=3)
@kernels
def test_variance_is_that_of_pairs(kernel):
    X, size, draws = points(6), 10, 250
    products = np.empty((draws, 6, 6))
    for seed in range(draws):
        features = RandomFourierFeatures(kernel, size=size, random_state=seed)
        Z = features.fit_transform(X)
        products[seed] = Z @ Z.T
    above = np.triu_indices(6, 1)
    measured = products.var(axis=0)[above]
    # Bounded by 1, so the fourth moment is at most the second.
    expected = variance(kernel, X, size)[above]
    assert_allclose(measured, expected, atol=5 * math.sqrt(expected.max() / draws))
    assert_allclose(measured, expected, rtol=0.5)


@kernels
def test_law_of_the_frequencies(kernel):
    features = RandomFourierFeatures(kernel, size=6000, random_state=2).fit(points())
    unit = features.frequencies_.T * np.asarray(kernel.bandwidth)
    nu = getattr(kernel, "nu", math.inf)
    if isinstance(kernel, LaplacianKernel):
        law = stats.cauchy
    else:
        law = stats.norm if math.isinf(nu) else stats.t(2 * nu)
        # jointly: the mean of squares is F distributed, chi^2 / 3 in the limit
        squares = (unit**2).mean(axis=1)
        joint = stats.chi2(3, scale=1 / 3) if math.isinf(nu) else stats.f(3, 2 * nu)
        assert stats.kstest(squares, joint.cdf).pvalue > 1e-3
    for column in unit.T:
        assert stats.kstest(column, law.cdf).pvalue > 1e-3


def test_pairs_share_a_frequency():
    X = points()
    features = RandomFourierFeatures(bandwidth=1.0, size=8, random_state=0).fit(X)
    phases = X @ features.frequencies_
    expected = np.hstack([np.cos(phases), np.sin(phases)]) / 2
    assert_allclose(features.transform(X), expected, rtol=0, atol=1e-14)
    assert_allclose((features.transform(X) ** 2).sum(axis=1), 1)


def test_one_seed_one_answer():
    X = points()
    first, again, other = (
        RandomFourierFeatures("matern", bandwidth=1.0, random_state=s).fit_transform(X)
        for s in (5, 5, 6)
    )
    assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_bandwidth_scales_the_same_directions():
    X = points()
    narrow, wide, median = (
        RandomFourierFeatures(bandwidth=b, random_state=0).fit(X)
        for b in (1.0, 2.0, None)
    )
    assert_allclose(narrow.frequencies_, 2 * wide.frequencies_)
    ratio = narrow.frequencies_ / median.frequencies_
    assert_allclose(ratio, median.kernel_.bandwidth)
    assert median.kernel_ == GaussianKernel().resolve(X)


def test_single_precision_is_kept():
    X = points(dtype=np.float32)
    options = {"bandwidth": 1.0, "size": 50, "random_state": 0}
    features = RandomFourierFeatures(**options).fit(X)
    Z = features.transform(X)
    assert Z.dtype == features.frequencies_.dtype == np.float32
    double = RandomFourierFeatures(**options).fit_transform(X.astype(float))
    assert_allclose(Z, double, rtol=0, atol=1e-5)
    assert features.transform(X.astype(float)).dtype == np.float32


def test_blocks_of_rows_do_not_matter(monkeypatch):
    X = points(300)
    features = RandomFourierFeatures(bandwidth=1.0, size=20, random_state=0).fit(X)
    whole = features.transform(X)
    monkeypatch.setattr(scratch, "_BLOCK_BYTES", 1)
    assert_allclose(features.transform(X), whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "matern"])
def test_sparse_rows_are_dense_rows_with_zeros(kernel):
    X = sparse_array((200, 30), 0.1, 0)
    features = RandomFourierFeatures(kernel, bandwidth=1.0, size=20, random_state=0)
    Z = features.fit_transform(X)
    assert isinstance(Z, np.ndarray)
    assert_allclose(Z, features.transform(X.toarray()), rtol=0, atol=1e-13)


def test_regression_in_a_pipeline():
    X = np.random.default_rng(0).uniform(-3, 3, size=(400, 1))
    y = np.sin(X[:, 0])
    features = RandomFourierFeatures(bandwidth=1.0, size=60, random_state=0)
    model = make_pipeline(features, Ridge(alpha=1e-3)).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.999
    assert len(model[:-1].get_feature_names_out()) == 60


@kernels
def test_from_a_file(kernel, tmp_path):
    X = points()
    features = RandomFourierFeatures(kernel, size=12, random_state=0).fit(X)
    features.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(again.transform(X), features.transform(X))
    assert again.kernel_ == features.kernel_


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 7}, ValueError, "`size` must be even .*, got 7"),
        ({"size": 0}, ValueError, "`size` must be at least 2, got 0"),
        ({"size": 2.0}, TypeError, "`size` must be an integer"),
        (
            {"kernel": "linear"},
            ValueError,
            "must be a Gaussian, Laplacian or Matern kernel",
        ),
        ({"kernel": LinearKernel()}, ValueError, "got LinearKernel"),
        (
            {"kernel": np.minimum},
            ValueError,
            "must be a Gaussian, Laplacian or Matern kernel",
        ),
        ({"bandwidth": (1.0, 2.0)}, ValueError, "one number per feature, 3, got 2"),
        ({"bandwidth": 0}, ValueError, "`bandwidth` must be in"),
        ({"random_state": "x"}, TypeError, "`random_state` must be"),
    ],
    ids=str,
)
def test_errors_name_the_argument_and_keep_the_model(options, error, message):
    X = points()
    features = RandomFourierFeatures(bandwidth=None, random_state=0).fit(X)
    before = features.transform(X)
    with pytest.raises(error, match=message):
        features.set_params(**options).fit(X)
    assert_array_equal(features.transform(X), before)


def test_not_fitted():
    with pytest.raises(NotFittedError):
        RandomFourierFeatures().transform(points())
