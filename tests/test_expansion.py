"""Kernel expansions of fitted models: values, preparation, threads."""

import pickle
import threading

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from reference import dense_sketch, kernel_matrix

from nbsketch import (
    AccumulationSketch,
    CallableKernel,
    CountSketch,
    GaussianKernel,
    GaussianSketch,
    IdentitySketch,
    JointQuantileRegressor,
    PSparsifiedSketch,
    SketchedFeatures,
    SketchedKernelRegressor,
    SRHTSketch,
    SubsamplingSketch,
    _expansion,
)
from nbsketch._expansion import Expansion, PivotedCholesky
from nbsketch.gram import Product, lazy

N = 90
SKETCHES = [
    PSparsifiedSketch(12, density=0.1),
    PSparsifiedSketch(12),
    SubsamplingSketch(12),
    AccumulationSketch(12, m=4),
    CountSketch(12),
    GaussianSketch(12),
    SRHTSketch(12),
    SRHTSketch(12, transform="dct"),
    IdentitySketch(),
]
each_sketch = pytest.mark.parametrize("recipe", SKETCHES, ids=repr)


def problem(n=500):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def regressor(**options):
    return SketchedKernelRegressor(
        bandwidth=1.0, size=40, alpha=1e-4, random_state=0, **options
    )


@pytest.mark.thin
@each_sketch
@pytest.mark.parametrize("d", [0, 1, 2, 5, 40])
@pytest.mark.parametrize(
    "kernel",
    [GaussianKernel(1.5), CallableKernel(lambda X, Y: X @ Y.T)],
    ids=["compiled", "function"],
)
def test_values(recipe, d, kernel, rng, monkeypatch):
    X, new = rng.standard_normal((N, 3)), rng.standard_normal((333, 3))
    S = recipe.draw(N, 0)
    B = rng.standard_normal((S.shape[0], d))
    expansion = Expansion(Product(kernel, X[S.columns], S.weights), B)
    desired = kernel_matrix(kernel, new, X) @ dense_sketch(S).T @ B
    for block in (1, 1 << 20):
        monkeypatch.setattr(_expansion, "_BLOCK_BYTES", block)
        values = expansion(new)
        assert values.flags.c_contiguous and expansion.n_columns == d
        assert_allclose(values, desired, rtol=0, atol=1e-10)
        some, out = np.array([3, 4, 300]), np.zeros((333, d))
        expansion.fill(new, some, out)
        assert_allclose(out[some], desired[some], rtol=0, atol=1e-10)
        assert np.count_nonzero(out) == 3 * d
    assert expansion(new, np.float32).dtype == np.float32


def test_values_of_sparse_rows_and_of_a_factor(rng):
    X = rng.random((N, 6)) * (rng.random((N, 6)) < 0.5)
    kernel, S = GaussianKernel(2.0), PSparsifiedSketch(12, density=0.1).draw(N, 0)
    K = kernel(X) @ dense_sketch(S).T
    columns = Product(kernel, sp.csr_array(X[S.columns]), S.weights)
    B = rng.standard_normal((12, 1))
    assert_allclose(Expansion(columns, B)(sp.csr_array(X)), K @ B, atol=1e-10)
    P = PivotedCholesky.of(dense_sketch(S) @ K)
    dense = P.lift(np.eye(P.rank), 12)
    assert_allclose(Expansion(columns, P)(sp.csr_array(X)), K @ dense, atol=1e-8)


@each_sketch
def test_transposed_products(recipe, rng):
    S = recipe.draw(N, 0)
    B = rng.standard_normal((S.shape[0], 3))
    assert_allclose(S.T @ B, dense_sketch(S).T @ B, rtol=0, atol=1e-12)
    assert_allclose(S.T @ B[:, 0], dense_sketch(S).T @ B[:, 0], rtol=0, atol=1e-12)


@pytest.fixture
def packings(monkeypatch):
    """Return a list that has an entry for each packing of landmarks."""
    found, pack = [], lazy.pack_landmarks

    def counted(form, landmarks, dtype=np.float64):
        found.append(len(landmarks))
        return pack(form, landmarks, dtype)

    monkeypatch.setattr(lazy, "pack_landmarks", counted)
    return found


def test_landmarks_are_packed_once_for_each_fit(packings):
    X, y = problem()
    model = regressor().fit(X, y)
    packings.clear()
    first = [model.predict(X[i : i + 1])[0] for i in range(5)]
    assert len(packings) == 1
    assert_array_equal(model.predict(X)[:5], first)
    assert len(packings) == 1
    model.set_params(alpha=1.0).fit(X, y)
    packings.clear()
    assert np.abs(model.predict(X)[:5] - first).max() > 1e-3
    assert len(packings) == 1


def test_coefficients_that_are_changed_count():
    X, y = problem()
    model = regressor().fit(X, y)
    before = model.predict(X) - model.intercept_
    model.coef_ *= 2  # in place
    assert_allclose(model.predict(X) - model.intercept_, 2 * before, atol=1e-9)
    model.coef_ = model.coef_ / 4
    assert_allclose(model.predict(X) - model.intercept_, before / 2, atol=1e-9)


def test_preparation_is_not_part_of_the_model(tmp_path):
    X, y = problem()
    model = regressor().fit(X, y)
    names, size = set(vars(model)), len(pickle.dumps(model))
    desired = model.predict(X)
    assert set(vars(model)) == names and len(pickle.dumps(model)) == size
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), desired)
    assert model in _expansion._prepared
    count = len(_expansion._prepared)
    del model
    assert len(_expansion._prepared) == count - 1


def test_several_threads_may_predict():
    X, y = problem()
    model = regressor().fit(X, y)
    desired = regressor().fit(X, y).predict(X)
    found, start = [], threading.Barrier(4)

    def work():
        start.wait(60)
        found.extend(model.predict(X) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for values in found:
        assert_array_equal(values, desired)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="numba has one thread")
def test_values_do_not_depend_on_threads():
    X, y = problem(6000)
    models = [
        regressor().fit(X[:500], y[:500]),
        JointQuantileRegressor((0.1, 0.5, 0.9), bandwidth=1.0, size=40, random_state=0),
        SketchedFeatures(bandwidth=1.0, size=40, random_state=0).fit(X[:500]),
    ]
    models[1].fit(X[:500], y[:500])
    for model in models:
        call = getattr(model, "predict", None) or model.transform
        found = []
        for threads in (1, 2):
            numba.set_num_threads(threads)
            found.append(call(X))
        assert_array_equal(*found)
