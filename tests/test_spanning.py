"""Large default sketches keep the landmarks that span the others."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import (
    GaussianKernel,
    JointQuantileRegressor,
    LaplacianKernel,
    PrecomputedKernel,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch._expansion import projection, spanning_rows
from nbsketch.fitting import methods, sketched
from nbsketch.fitting import plan as sizes
from nbsketch.gram import SymmetricGram
from nbsketch.solvers.conjugate import solve_conjugate

N = 900
KERNEL = GaussianKernel(2.0)
LOSSES = ["square", "huber", "pinball", "epsilon_insensitive"]


@pytest.fixture
def large(monkeypatch):
    """Let defaults be large sketches of half or a third of the rows, by passes."""
    monkeypatch.setattr(sizes, "takes_all_rows", lambda *_: False)
    monkeypatch.setattr(sizes, "landmarks_size", lambda n, _: n // 2)
    monkeypatch.setattr(sizes, "_LARGE_SIZE", 50)
    monkeypatch.setattr(sizes, "_LARGE_SEARCH", 50)
    monkeypatch.setattr(sizes, "_LARGE_WORK", 0)
    monkeypatch.setattr(sizes, "LEVELS_ROWS", 100)
    monkeypatch.setattr(sketched, "_PROBED", 200)
    monkeypatch.setattr(sketched, "_INDEPENDENT", 160)


@pytest.fixture
def data():
    """Return samples of two features, and a smooth function of them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(N + 300, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


def model(loss="square", kernel=KERNEL, **options):
    return SketchedKernelRegressor(kernel, loss=loss, random_state=0, **options)


@pytest.mark.parametrize("work", [0, 1e10])
@pytest.mark.parametrize("loss", LOSSES)
def test_fewer_landmarks_have_the_same_predictions(
    large, data, monkeypatch, loss, work
):
    monkeypatch.setattr(methods, "_FAST_WORK", work)
    X, f = data
    y = f[:N] + 0.1 * np.random.default_rng(1).normal(size=N)
    few = model(loss, alpha=1e-4).fit(X[:N], y)
    monkeypatch.setattr(sketched, "_PROBED", N)
    many = model(loss, alpha=1e-4).fit(X[:N], y)
    assert few.size_ < 150 < 250 < many.size_
    assert_allclose(few.predict(X), many.predict(X), atol=0.02)
    assert few.objective_ == pytest.approx(many.objective_, rel=0.05)


@pytest.mark.parametrize("loss", LOSSES[:2])
def test_the_summary_says_that_landmarks_were_dropped(large, data, loss):
    X, f = data
    text = model(loss, alpha=1e-4).fit(X[:N], f[:N]).summary()
    assert "landmarks, which span the others of the default sketch" in text
    assert "the landmarks span the others: more would hardly" in text
    text = model(loss, alpha=1e-4, kernel=LaplacianKernel(1.0)).fit(X[:N], f[:N])
    assert "span" not in text.summary()
    assert "SubsamplingSketch (default)" in text.summary()


def test_quantiles(large, data):
    X, f = data
    y = f[:N] + 0.1 * np.random.default_rng(1).normal(size=N)
    found = JointQuantileRegressor([0.1, 0.5, 0.9], kernel=KERNEL, random_state=0)
    assert found.fit(X[:N], y).size_ < 150
    assert np.abs(found.predict(X[N:])[:, 1] - f[N:]).mean() < 0.05


def test_rough_kernels_and_given_sizes_keep_their_landmarks(large, data):
    X, f = data
    assert model(kernel=LaplacianKernel(1.0)).fit(X[:N], f[:N]).size_ == N // 2
    assert model(size=300).fit(X[:N], f[:N]).size_ == 300
    K = KERNEL(X[:N])
    assert model(kernel=PrecomputedKernel()).fit(K, f[:N]).size_ >= N // 2


@pytest.mark.parametrize("loss", ["square", "huber"])
def test_targets_without_noise(large, data, loss):
    X, f = data
    found = model(loss).fit(X[:N], f[:N])
    assert found.alpha_ < methods._WEAK and found.size_ < 200
    assert np.abs(found.predict(X[N:]) - f[N:]).mean() < 1e-5


def test_a_weak_penalty_needs_no_dual_on_all_rows(data, monkeypatch):
    monkeypatch.setattr(methods, "_FEATURE_ROWS", 100)
    monkeypatch.setattr(sketched, "_PROBED", 200)
    monkeypatch.setattr(sketched, "_INDEPENDENT", 160)
    X, f = data
    found = model("huber").fit(X[:N], f[:N])
    assert found.size_ < 200
    assert np.abs(found.predict(X[N:]) - f[N:]).mean() < 1e-5
    noisy = f[:N] + 0.3 * np.random.default_rng(1).normal(size=N)
    assert model("huber").fit(X[:N], noisy).size_ == N
    assert model("huber", alpha=1e-10).fit(X[:N], noisy).size_ == N


def test_a_weak_penalty_takes_the_first_pivots_that_are_affordable(
    large, data, monkeypatch
):
    monkeypatch.setattr(methods, "_CLOSED_FORM_WORK", N * 70.0**2)
    X, f = data
    assert model().fit(X[:N], f[:N]).size_ == 70
    monkeypatch.setattr(methods, "_SPANNING", 60)
    assert model().fit(X[:N], f[:N]).size_ == 60


def test_paths_have_the_landmarks(large, data):
    X, f = data
    alphas = [1e-2, 1e-5]
    path = model().fit_path(X[:N], f[:N], alphas)
    assert [found.alpha_ for found in path] == alphas
    K = SymmetricGram(KERNEL, X[:N])
    for alpha, found in zip(alphas, path, strict=True):
        assert found.size_ < 150
        exact = solve_conjugate(K, f[:N], alpha, tol=1e-6, random_state=0)
        expected = KERNEL(X[N:], X[:N]) @ exact.coef + exact.intercept
        assert_allclose(found.predict(X[N:]), np.ravel(expected), atol=1e-3)


def test_dask_has_the_same_landmarks(large, data):
    da = pytest.importorskip("dask.array")
    X, f = data
    local = model(alpha=1e-4).fit(X[:N], f[:N])
    rows = da.from_array(X[:N], chunks=(250, 2))
    spread = model(alpha=1e-4).fit(rows, da.from_array(f[:N], chunks=250))
    assert 0 < spread.size_ < 150
    assert_allclose(spread.predict(X[N:]), local.predict(X[N:]), atol=1e-3)


def test_rows_in_the_order_of_pivots_are_whitened_without_a_cut():
    X = np.random.default_rng(0).uniform(-2, 2, size=(300, 2))
    rows = spanning_rows(KERNEL(X), 300)
    C = KERNEL(X[rows])
    P = projection(C, tol=0.0)
    assert P.shape == C.shape and not np.tril(P, -1).any()
    assert projection(C).shape[1] < len(rows) < 300
    # The others are combinations of these.
    Z = KERNEL(X, X[rows]) @ P
    assert_allclose(np.square(Z).sum(axis=1), 1.0, atol=1e-9)
    assert len(spanning_rows(np.zeros((5, 5)), 3)) == 0
    assert spanning_rows(KERNEL(X), 60).tolist() == rows[:60].tolist()
    assert len(spanning_rows(KERNEL(X), 10)) == 0  # they leave too much


@pytest.mark.filterwarnings("ignore:the solver stopped")
def test_a_weak_penalty_is_raised_until_labels_with_a_margin_converge(monkeypatch):
    monkeypatch.setattr(methods, "_FEATURE_ROWS", 100)
    monkeypatch.setattr(methods, "_WEAK", 1.0)
    monkeypatch.setattr(methods, "_MOST_STEPS", 3)
    monkeypatch.setattr(sketched, "_PROBED", 200)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(N, 2))
    label = np.sin(2 * X[:, 0]) + X[:, 1] > 0
    found = SketchedKernelClassifier(loss="hinge", kernel=KERNEL, random_state=0)
    found.fit(X, label)
    assert found.size_ < 200 and found.dual_gap_ <= methods.LARGEST_GAP
    first = found.alpha_
    monkeypatch.setattr(methods, "_MOST_STEPS", 200)
    assert found.fit(X, label).alpha_ < first / 3.9


def test_equal_landmarks_of_a_rough_kernel_do_not_hide_the_others():
    X = np.random.default_rng(0).uniform(-2, 2, size=(150, 2))
    C = LaplacianKernel(1.0)(np.repeat(X, 2, axis=0))
    assert len(spanning_rows(C, 200)) == 150
    assert len(spanning_rows(C, 100)) == 0


def test_samples_in_single_precision_have_as_many(large, data):
    X, f = data
    found = [model(alpha=1e-6).fit(X[:N].astype(t), f[:N]).size_ for t in "fd"]
    assert found[0] == pytest.approx(found[1], abs=3)
