"""The regressor against dense formulas, its equivariances, and what it refuses."""

import pickle
import tracemalloc

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

from nbsketch import (
    GaussianKernel,
    GaussianSketch,
    GraphOutput,
    IdentitySketch,
    LaplacianKernel,
    PSparsifiedSketch,
    QuantileOutput,
    RademacherSketch,
    SketchedFeatures,
    SketchedKernelRegressor,
    SubsamplingSketch,
    _expansion,
    _sketch_map,
)
from nbsketch.fitting import penalty as penalties
from nbsketch.solvers import scratch

N, D = 60, 3
BANDWIDTH = 2.0
FACTOR = np.random.default_rng(9).normal(size=(D, D))
OUTPUTS = {
    "none": None,
    "full": FACTOR @ FACTOR.T,
    "rank one": np.outer(FACTOR[0], FACTOR[0]),
    "diagonal": np.diag([0.0, 1.0, 4.0]),
}
outputs = pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
constant = pytest.mark.parametrize("fit_intercept", [True, False])
SKETCHES = [
    PSparsifiedSketch(12),
    PSparsifiedSketch(12, density=0.1, law="gaussian"),
    GaussianSketch(12),
    RademacherSketch(12),
    SubsamplingSketch(12),
]
sketches = pytest.mark.parametrize("sketch", SKETCHES, ids=repr)


def laplacian(X, Y):
    return np.exp(-cdist(X, Y, "cityblock") / BANDWIDTH)


def data(n=N, d=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) + 1.0
    if d is None:
        return X, y
    return X, np.column_stack([y, X[:, :1] ** 2, X[:, 2:] - y[:, None]])[:, :d]


def some_weights(n=N):
    return np.random.default_rng(1).uniform(size=n) * (np.arange(n) % 5 > 0)


def regressor(**options):
    options = {"kernel": LaplacianKernel(bandwidth=BANDWIDTH), **options}
    return SketchedKernelRegressor(**{"alpha": 0.02, "random_state": 0, **options})


def dense_fit(K, S, Y, alpha, output=None, sample_weight=None, fit_intercept=True):
    """Solve the normal equations of the coefficients G; return G M, b and objective.

    The gradient in G of the objective of predictions K S^T G M + b vanishes.
    """
    n, d = Y.shape
    M = np.eye(d) if output is None else np.asarray(output)
    weights = np.ones(n) if sample_weight is None else sample_weight
    w = weights / weights.sum()
    P = np.diag(w) - (np.outer(w, w) if fit_intercept else 0)
    KS, inner = K @ S.T, S @ K @ S.T
    system = np.kron(M @ M, KS.T @ P @ KS) + alpha * np.kron(M, inner)
    side = (KS.T @ P @ Y @ M).T.ravel()
    G = np.linalg.lstsq(system, side, rcond=1e-13)[0].reshape(d, -1).T
    b = w @ (Y - KS @ G @ M) if fit_intercept else np.zeros(d)
    loss = w @ np.square(Y - KS @ G @ M - b).sum(axis=1)
    return G @ M, b, 0.5 * (loss + alpha * np.trace(inner @ G @ M @ G.T))


# against other implementations ------------------------------------------------------


@pytest.mark.thin
@sketches
@outputs
@constant
@pytest.mark.parametrize("weights", [None, some_weights()], ids=["equal", "weighted"])
def test_fit_solves_the_sketched_problem(sketch, output, fit_intercept, weights):
    X, Y = data(d=D)
    model = regressor(sketch=sketch, output=output, fit_intercept=fit_intercept)
    model.fit(X, Y, sample_weight=weights)
    if weights is not None:  # rows of weight zero are none
        X, Y, weights = X[weights > 0], Y[weights > 0], weights[weights > 0]
    S, K = model.sketch_.to_csr().toarray(), laplacian(X, X)
    B, b, objective = dense_fit(K, S, Y, 0.02, output, weights, fit_intercept)
    new, _ = data(15, seed=5)
    # forming normal equations costs the square of a condition number of about 1e3
    assert_allclose(
        model.predict(new), laplacian(new, X) @ S.T @ B + b, rtol=0, atol=1e-9
    )
    assert_allclose(model.coef_, B, rtol=0, atol=1e-7)
    assert_allclose(model.intercept_, b, rtol=0, atol=1e-9)
    assert_allclose(model.objective_, objective, rtol=1e-9)
    assert 0 <= model.dual_gap_ < 1e-12
    assert model.coef_.shape == (12, D)
    assert model.alpha_ == 0.02


@sketches
def test_one_output_flat_or_as_a_column(sketch):
    X, y = data()
    model = regressor(sketch=sketch).fit(X, y)
    S = model.sketch_.to_csr().toarray()
    B, b, _ = dense_fit(laplacian(X, X), S, y[:, None], 0.02)
    assert model.coef_.shape == (12,)
    assert isinstance(model.intercept_, float)
    assert_allclose(model.predict(X), (laplacian(X, X) @ S.T @ B)[:, 0] + b, atol=1e-9)
    column = regressor(sketch=sketch).fit(X, y[:, None])
    assert column.coef_.shape == (12, 1)
    assert_array_equal(column.predict(X), model.predict(X)[:, None])
    scaled = regressor(sketch=sketch, alpha=0.04, output=[[2.0]]).fit(X, y)
    assert_allclose(scaled.predict(X), model.predict(X), rtol=0, atol=1e-11)


@pytest.mark.thin
@outputs
@constant
@pytest.mark.parametrize(
    "sketch",
    [
        PSparsifiedSketch(N, density=0.5),
        PSparsifiedSketch(N, density=0.5, law="gaussian"),
        GaussianSketch(N),
        SubsamplingSketch(N),
    ],
    ids=repr,
)
def test_as_many_rows_as_data_is_the_exact_machine(sketch, output, fit_intercept):
    X, Y = data(d=D)
    options = {"output": output, "fit_intercept": fit_intercept}
    exact = regressor(sketch=IdentitySketch(), **options).fit(X, Y)
    model = regressor(sketch=sketch, **options).fit(X, Y)
    assert model.rank_ == N
    new, _ = data(15, seed=5)
    # a square random S has a condition number of about 1e3, and S K S^T its square
    assert_allclose(model.predict(new), exact.predict(new), rtol=0, atol=1e-7)
    assert_allclose(model.objective_, exact.objective_, rtol=1e-8)
    fewer = regressor(sketch=SubsamplingSketch(N // 2), **options).fit(X, Y)
    assert fewer.objective_ > exact.objective_ * (1 + 1e-6)


@pytest.mark.parametrize("weights", [None, some_weights()], ids=["equal", "weighted"])
@pytest.mark.parametrize(
    "sketch", [IdentitySketch(), SubsamplingSketch(N)], ids=["identity", "all rows"]
)
def test_kernel_ridge_of_scikit_learn(weights, sketch):
    X, Y = data(d=D)
    counted = N if weights is None else np.count_nonzero(weights)
    if isinstance(sketch, SubsamplingSketch):
        sketch = SubsamplingSketch(counted)
    model = SketchedKernelRegressor(
        GaussianKernel(gamma=0.7), sketch=sketch, alpha=1e-3, fit_intercept=False
    ).fit(X, Y, sample_weight=weights)
    total = N if weights is None else weights.sum()
    desired = KernelRidge(kernel="rbf", gamma=0.7, alpha=1e-3 * total)
    desired.fit(X, Y, sample_weight=weights)
    new, _ = data(15, seed=5)
    # all rows: Gaussian eigenvalues under 1e-12 of the largest are cut
    assert_allclose(model.predict(new), desired.predict(new), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "output",
    [
        QuantileOutput(quantiles=(0.2, 0.5, 0.8), gamma=2.0),
        GraphOutput(np.ones((3, 3))),
    ],
    ids=["quantile", "graph"],
)
def test_outputs_by_name_are_their_matrices(output):
    X, Y = data(d=D)
    by_matrix = regressor(size=None, output=output.matrix(D)).fit(X, Y)
    assert_allclose(
        regressor(output=output).fit(X, Y).predict(X), by_matrix.predict(X), rtol=1e-9
    )
    plain = regressor().fit(X, Y).predict(X)
    assert_array_equal(regressor(output="identity").fit(X, Y).predict(X), plain)
    assert np.abs(by_matrix.predict(X) - plain).max() > 1e-3


# alpha ------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, some_weights(40)], ids=["equal", "weighted"])
def test_default_alpha_has_the_least_leave_one_out_error(weights):
    X, y = data(40)
    model = regressor(sketch=SubsamplingSketch(15), alpha=None)
    model.fit(X, y, sample_weight=weights)
    Z = SketchedFeatures(
        model.kernel, sketch=SubsamplingSketch(15), random_state=0
    ).fit_transform(X)
    w = np.ones(40) if weights is None else weights / weights.mean()

    def error(alpha):
        total = 0.0
        for i in range(40):
            kept = np.where(np.arange(40) == i, 0.0, w)
            mean, y_mean = kept @ Z / kept.sum(), kept @ y / kept.sum()
            G = (Z - mean).T * kept @ (Z - mean) / 40 + alpha * np.eye(Z.shape[1])
            slope = np.linalg.solve(G, (Z - mean).T * kept @ (y - y_mean) / 40)
            total += w[i] * (y[i] - y_mean - (Z[i] - mean) @ slope) ** 2
        return total / 40

    best = error(model.alpha_)
    assert 1e-10 < model.alpha_ < 1.0
    for factor in (1e-4, 0.1, 10**-0.25, 10**0.25, 10.0, 1e4):
        assert best < error(model.alpha_ * factor)


def test_leave_one_out_of_many_rows_uses_some_of_them(monkeypatch):
    X, y = data(400)
    y = y + np.random.default_rng(5).normal(size=y.shape)
    weights = some_weights(400)
    weights[::2] = 0
    whole = regressor(alpha=None).fit(X, y, weights)
    monkeypatch.setattr(penalties, "_MOST_VALIDATION_ROWS", 100)
    used = []
    errors = penalties.leave_one_out

    def spy(*known):
        used.append(known[-1])
        return errors(*known)

    monkeypatch.setattr(penalties, "leave_one_out", spy)
    some = regressor(alpha=None).fit(X, y, weights)
    counted = np.count_nonzero(weights)
    assert len(np.unique(used[0])) == 100 and used[0].max() < counted < 200
    assert 0.05 < some.alpha_ / whole.alpha_ < 20
    again = regressor(alpha=None).fit(X, y, weights)
    assert again.alpha_ == some.alpha_


def test_default_alpha_does_not_interpolate_noise():
    # where the data say nothing but their mean, the fit must not say more
    X = data(80)[0]
    y = np.random.default_rng(3).normal(size=80)
    for sketch in (IdentitySketch(), SubsamplingSketch(80), PSparsifiedSketch(80)):
        model = SketchedKernelRegressor(
            "laplacian", bandwidth=0.3, sketch=sketch, alpha=None, random_state=0
        ).fit(X, y)
        assert model.predict(X).std() < 0.5 * y.std()


# equivariances ----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.02, None])
@pytest.mark.parametrize("sketch", ["identity", "p-sparsified"])
def test_targets_shifted_and_scaled(sketch, alpha):
    X, Y = data(d=D)
    # noise: without it the error is flat over many penalties, and rounding chooses
    Y = Y + np.random.default_rng(9).normal(size=Y.shape)
    options = {"sketch": sketch, "alpha": alpha, "output": OUTPUTS["full"]}
    model = regressor(**options).fit(X, Y)
    shift = np.array([100.0, -1000.0, 5.0])
    moved = regressor(**options).fit(X, -7.0 * Y + shift)
    assert moved.alpha_ == model.alpha_
    assert_allclose(
        moved.predict(X), -7.0 * model.predict(X) + shift, rtol=0, atol=1e-9
    )
    # the objective is a difference of numbers like the mean square of y
    assert_allclose(moved.objective_, 49 * model.objective_, rtol=1e-9, atol=1e-12)


def test_without_an_intercept_nothing_shifts():
    X, y = data()
    model = regressor(fit_intercept=False).fit(X, y)
    assert model.intercept_ == 0.0
    moved = regressor(fit_intercept=False).fit(X, y + 100).predict(X)
    assert np.abs(moved - 100 - model.predict(X)).max() > 0.1


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "matern"])
def test_median_bandwidth_goes_with_the_units_of_x(kernel):
    X, y = data()
    options = {"bandwidth": "median", "alpha": 0.02, "random_state": 0}
    desired = SketchedKernelRegressor(kernel, **options).fit(X, y).predict(X)
    moved = 1e-3 * X + 0.1
    found = SketchedKernelRegressor(kernel, **options).fit(moved, y).predict(moved)
    assert_allclose(found, desired, rtol=0, atol=1e-8)


@pytest.mark.parametrize("alpha", [0.02, None])
def test_columns_in_any_order(alpha):
    X, y = data(200)
    options = {"bandwidth": "median", "alpha": alpha, "size": 30, "random_state": 0}
    desired = SketchedKernelRegressor("gaussian", **options).fit(X, y).predict(X)
    turned = np.ascontiguousarray(X[:, ::-1])
    found = SketchedKernelRegressor("gaussian", **options).fit(turned, y)
    assert_allclose(found.predict(turned), desired, rtol=0, atol=1e-8)


@constant
@pytest.mark.parametrize("kernel", ["linear", "laplacian"])
def test_weights_are_repetitions(kernel, fit_intercept):
    X, Y = data(d=D)
    times = np.arange(N) % 3
    rows = np.repeat(np.arange(N), times)
    # linear: any sketch of at least three rows spans all functions
    options = {"sketch": "identity"} if kernel == "laplacian" else {"size": 8}
    options |= {"alpha": 0.1, "fit_intercept": fit_intercept, "random_state": 0}
    weighted = SketchedKernelRegressor(kernel, **options)
    weighted.fit(X, Y, sample_weight=5.0 * times)
    if kernel == "laplacian":
        options["bandwidth"] = weighted.kernel_.bandwidth
    repeated = SketchedKernelRegressor(kernel, **options).fit(X[rows], Y[rows])
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=0, atol=1e-10)
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-10)


# data types and inputs --------------------------------------------------------------


@pytest.mark.parametrize("sketch", ["identity", "p-sparsified", "gaussian"])
@pytest.mark.parametrize("alpha", [0.02, None])
def test_single_precision(sketch, alpha):
    X, y = data()
    size = None if sketch == "identity" else 15
    options = {"sketch": sketch, "size": size, "alpha": alpha}
    desired = regressor(**options).fit(X, y).predict(X)
    single = regressor(**options).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.landmarks_.dtype == np.float32
    found = single.predict(X.astype(np.float32))
    assert_allclose(found, desired, rtol=0, atol=1e-4)
    assert_allclose(single.predict(X), found, rtol=0, atol=1e-4)


def test_inputs_of_many_kinds():
    X, y = data()
    X, y = (10 * X).round(), (10 * y).round()
    desired = regressor().fit(X, y).predict(X)
    for kind in (np.int64, np.int8, object):
        model = regressor().fit(X.astype(kind), y.astype(kind))
        assert_array_equal(model.predict(X.astype(kind)), desired)
    assert_array_equal(
        regressor().fit(X.tolist(), y.tolist()).predict(X.tolist()), desired
    )
    strided = np.asfortranarray(np.repeat(X, 2, axis=1))[:, ::2]
    assert_array_equal(regressor().fit(strided, y).predict(strided), desired)


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = regressor().fit(frame, pandas.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    assert_array_equal(model.predict(frame), regressor().fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["c", "b", "a"]])


@pytest.mark.parametrize("sketch", ["identity", "p-sparsified", "subsampling"])
def test_precomputed_and_callable_kernels(sketch):
    X, y = data()
    new, _ = data(9, seed=5)
    options = {"sketch": sketch, "size": None if sketch == "identity" else 20}
    desired = regressor(**options).fit(X, y).predict(new)
    model = regressor(kernel="precomputed", **options).fit(laplacian(X, X), y)
    assert_allclose(model.predict(laplacian(new, X)), desired, rtol=0, atol=1e-10)
    model = regressor(kernel=laplacian, **options).fit(X, y)
    assert_allclose(model.predict(new), desired, rtol=0, atol=1e-10)


def test_a_single_row():
    for sketch in ("identity", "p-sparsified"):
        for alpha in (None, 0.1):
            model = SketchedKernelRegressor(sketch=sketch, alpha=alpha)
            model.fit([[1.0, 2.0]], [3.0])
            assert_allclose(model.predict([[0.0, 0.0], [1.0, 2.0]]), 3.0, rtol=1e-12)


@pytest.mark.parametrize("sketch", ["identity", "p-sparsified"])
@pytest.mark.parametrize("alpha", [None, 0.1])
def test_equal_rows_are_predicted_by_their_mean(sketch, alpha):
    _, y = data()
    model = SketchedKernelRegressor(sketch=sketch, alpha=alpha, random_state=0)
    model.fit(np.full((N, 2), 0.3), y)
    assert_allclose(model.predict([[0.3, 0.3]]), y.mean(), rtol=1e-9)


@pytest.mark.parametrize("sketch", ["identity", "p-sparsified"])
@pytest.mark.parametrize("alpha", [None, 0.1])
def test_constant_targets_are_predicted_everywhere(sketch, alpha):
    X, _ = data()
    model = regressor(sketch=sketch, alpha=alpha).fit(X, np.full(N, 0.3))
    assert_allclose(model.predict(X + 1), 0.3, rtol=1e-12)
    assert model.objective_ < 1e-28


def test_a_kernel_that_is_zero_predicts_the_mean():
    X, y = data()
    model = SketchedKernelRegressor("linear", size=5).fit(np.zeros_like(X), y)
    assert_allclose(model.predict(X[:3] * 0), y.mean(), rtol=1e-12)
    assert model.rank_ == 0


def test_a_model_predicts_in_the_precision_it_was_fitted_in():
    X, y = data()
    model = SketchedKernelRegressor(random_state=0).fit(X, y)
    single = X.astype(np.float32)
    assert_allclose(model.predict(single), model.predict(single.astype(float)))


# the same result --------------------------------------------------------------------


def test_random_state():
    X, y = data(120)

    def predictions(random_state):
        model = SketchedKernelRegressor(size=9, random_state=random_state)
        return model.fit(X, y).predict(X)

    desired = predictions(7)
    assert_array_equal(predictions(7), desired)
    assert_array_equal(predictions(np.random.default_rng(7)), desired)
    assert np.abs(predictions(8) - desired).max() > 1e-3
    legacy = [predictions(np.random.RandomState(7)) for _ in range(2)]
    assert_array_equal(*legacy)
    model = SketchedKernelRegressor(size=9, random_state=7)
    assert_array_equal(model.fit(X, y).fit(X, y).predict(X), desired)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("sketch", ["p-sparsified", "gaussian"])
def test_any_number_of_threads(sketch):
    X, y = data(1500)
    options = {"sketch": sketch, "size": 40, "random_state": 0}
    model = SketchedKernelRegressor(**options).fit(X, y)
    desired = model.predict(X)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        with threadpool_limits(1):
            single = SketchedKernelRegressor(**options).fit(X, y)
            found = single.predict(X)
        same_bits = single.predict(X[:50])
    finally:
        numba.set_num_threads(before)
    assert single.alpha_ == model.alpha_
    # the compiled parts agree to the bit; BLAS sums in another order
    assert_allclose(found, desired, rtol=0, atol=1e-10)
    assert_array_equal(same_bits, single.predict(X[:50]))


def test_prediction_in_blocks_is_prediction_in_one_go(monkeypatch):
    X, Y = data(200, d=D)
    model = regressor(size=None).fit(X, Y)
    desired = model.predict(X)
    monkeypatch.setattr(_expansion, "_BLOCK_BYTES", 1)
    assert_allclose(model.predict(X), desired, rtol=0, atol=1e-13)
    assert_allclose(model.predict(X[:1]), desired[:1], rtol=0, atol=1e-13)


@outputs
@pytest.mark.parametrize("alpha", [0.02, None])
def test_streaming_fit_is_the_fit(output, alpha, monkeypatch):
    X, Y = data(200, d=D)
    options = {"alpha": alpha, "output": output, "sketch": PSparsifiedSketch(12)}
    weights = some_weights(200)
    kept = regressor(**options).fit(X, Y, sample_weight=weights)
    monkeypatch.setattr(_sketch_map, "KEEP_BYTES", 0)
    monkeypatch.setattr(scratch, "_BLOCK_BYTES", 1)
    streamed = regressor(**options).fit(X, Y, sample_weight=weights)
    assert streamed.alpha_ == pytest.approx(kept.alpha_, rel=1e-10)
    assert_allclose(streamed.predict(X), kept.predict(X), rtol=0, atol=1e-10)
    assert_allclose(streamed.objective_, kept.objective_, rtol=1e-10)


# memory -----------------------------------------------------------------------------


def test_a_fitted_model_keeps_the_landmarks_only():
    n = 50_000
    X = np.random.default_rng(0).normal(size=(n, 2))
    options = {"bandwidth": "median", "size": 10, "random_state": 0}
    model = SketchedKernelRegressor(**options).fit(X, X[:, 0])
    assert_array_equal(model.landmarks_, X[model.sketch_.columns])
    assert len(model.landmarks_) < 300
    model.predict(X[:5])  # what prediction needs may be kept as well
    assert len(pickle.dumps(model)) < n  # an array of n numbers takes eight times that


def test_fit_never_holds_the_columns_of_the_gram_matrix():
    # the sample in which gross errors are sought is the same for any n
    n, s = 60_000, 50
    X = np.random.default_rng(0).normal(size=(n, 4))
    y = X[:, 0]
    # The search for length scales takes the same memory for any n.
    model = SketchedKernelRegressor(
        bandwidth=2.0, sketch="p-sparsified", size=s, random_state=0
    )
    model.fit(X[:3000], y[:3000])  # compiles
    tracemalloc.start()
    try:
        model.fit(X, y).predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    landmarks = len(model.landmarks_)
    assert landmarks > 800
    assert peak < n * landmarks * 8 / 3
    # S K and Z, copies of a few chunks and tiles: no third array of their size
    assert peak < 3 * n * s * 8


# scikit-learn -----------------------------------------------------------------------


def test_grid_search():
    X, y = data(120)
    grid = {"bandwidth": [0.02, 1.0], "size": [3, 40], "alpha": [1e-3, 10.0]}
    search = GridSearchCV(SketchedKernelRegressor(random_state=0), grid, cv=3)
    search.fit(X, y)
    assert search.best_params_ == {"alpha": 1e-3, "bandwidth": 1.0, "size": 40}
    assert search.best_score_ > 0.7


def test_grid_search_with_a_precomputed_kernel():
    X, y = data(120)
    model = SketchedKernelRegressor("precomputed", size=40, random_state=0)
    search = GridSearchCV(model, {"alpha": [1e-3, 10.0]}, cv=3).fit(laplacian(X, X), y)
    assert search.best_params_ == {"alpha": 1e-3}
    assert search.best_score_ > 0.7


def test_clone_pickle_parameters_and_score():
    X, Y = data(d=D)
    model = regressor(sketch=PSparsifiedSketch(12), output=OUTPUTS["full"])
    copy = clone(model)
    assert copy.get_params()["sketch"] == PSparsifiedSketch(12)
    desired = model.fit(X, Y).predict(X)
    assert not hasattr(copy, "coef_")
    assert_array_equal(copy.fit(X, Y).predict(X), desired)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), desired)
    assert_allclose(model.score(X, Y), r2_score(Y, desired), rtol=1e-12)
    model.set_params(alpha=1e3, output=None)
    assert_array_equal(model.predict(X), desired)
    assert model.fit(X, Y).score(X, Y) < copy.score(X, Y) - 0.1
    assert model.alpha_ == 1e3


def test_fitting_changes_no_argument():
    X, Y = data(d=D)
    weights, M = some_weights(), OUTPUTS["full"].copy()
    arguments = (X, Y, weights, M)
    before = [a.copy() for a in arguments]
    for sketch in ("identity", "p-sparsified"):
        model = regressor(sketch=sketch, output=M)
        parameters = model.get_params()
        model.fit(X, Y, sample_weight=weights).predict(X)
        assert all(model.get_params()[key] is parameters[key] for key in parameters)
    for argument, copy in zip(arguments, before, strict=True):
        assert_array_equal(argument, copy)


# errors -----------------------------------------------------------------------------


@pytest.fixture
def no_work(monkeypatch):
    """Fail as soon as a kernel is evaluated."""

    def fail(*args):
        pytest.fail("a kernel was evaluated")

    monkeypatch.setattr("nbsketch.gram.Product.__call__", fail)
    monkeypatch.setattr("nbsketch.kernels.evaluate", fail)


def with_a(value):
    array = np.ones((N, 3))
    array[4, 1] = value
    return array


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": 0.0}, r"`alpha` must be in \(0, inf\) or None, got 0.0"),
        ({"alpha": -1}, r"`alpha` must be in \(0, inf\) or None, got -1"),
        ({"alpha": np.inf}, r"`alpha` must be in \(0, inf\) or None, got inf"),
        ({"alpha": np.nan}, r"`alpha` must be in \(0, inf\) or None, got nan"),
        (
            {"alpha": "auto"},
            r"`alpha` must be a number in \(0, inf\) or None, got 'auto'",
        ),
        ({"alpha": True}, r"`alpha` must be a number in \(0, inf\) or None, got True"),
        (
            {"alpha": [0.1]},
            r"`alpha` must be a number in \(0, inf\) or None, got \[0.1\]",
        ),
        ({"size": 0}, "`size` must be at least 1, got 0"),
        ({"size": 2.5}, "`size` must be an integer at least 1, got 2.5"),
        ({"size": True}, "`size` must be an integer at least 1, got True"),
        ({"sketch": GaussianSketch(61)}, "`size` must be at most .* 60, got 61"),
        ({"sketch": "nystrom"}, r"`sketch` must be one of \[.*\], got 'nystrom'"),
        ({"sketch": 3}, "`sketch` must be a name or a SketchRecipe, got 3"),
        ({"sketch": GaussianSketch(3), "size": 3}, "`size` requires .*GaussianSk"),
        ({"sketch": "identity", "size": 3}, "`size` must be None .*'identity'"),
        ({"kernel": "rbf"}, r"`kernel` must be one of \[.*\], got 'rbf'"),
        ({"kernel": 3}, "`kernel` must be a name, a Kernel or a callable, got 3"),
        (
            {"kernel": GaussianKernel(), "bandwidth": 1},
            "`bandwidth` requires .*Gaussian",
        ),
        ({"kernel": "linear", "bandwidth": 1}, "`bandwidth` must be None .*linear"),
        ({"bandwidth": -1.0}, r"`bandwidth` must be in \(0, inf\), got .*-1.0"),
        ({"bandwidth": "mean"}, "`bandwidth` must be .*'median'.*, got 'mean'"),
        ({"bandwidth": [1, 2]}, "`bandwidth` must have one .* feature, 3, got 2"),
        ({"loss": "cubic"}, r"`loss` must be .*one of \[.*\], got 'cubic'"),
        ({"fit_intercept": "no"}, r"`fit_intercept` must be .*True\], got 'no'"),
        ({"output": [[1, 2], [2, 1]]}, "`output` must be .* semi-definite .* of -1"),
        ({"output": [[1, 2], [0, 1]]}, "`output` must be symmetric, got asymmetry 2"),
        ({"output": np.ones((2, 3))}, r"`output` must be square, got shape \(2, 3\)"),
        ({"output": np.zeros((2, 2))}, "`output` must be a nonzero positive semi"),
        ({"output": np.eye(3)}, "`output` must have 2 rows, .*, got 3"),
        ({"output": [[1, np.nan], [np.nan, 1]]}, "`output` must be finite, got NaN"),
        ({"output": np.eye(2) * 1j}, "`output` must hold real numbers, got .*complex"),
        ({"output": "graph"}, "`output` must be 'identity', an Output .* got 'graph'"),
        ({"kernel": "precomputed"}, r"`X` must be the square Gram .* \(60, 3\)"),
    ],
)
def test_bad_parameters_are_refused_before_the_work(options, words, no_work):
    X, Y = data(d=2)
    model = SketchedKernelRegressor(**options)
    parameters = vars(model).copy()
    with pytest.raises((TypeError, ValueError), match=words):
        model.fit(X, Y)
    assert vars(model) == parameters


@pytest.mark.parametrize(
    ("X", "y", "weights", "words"),
    [
        (with_a(np.nan), np.ones(N), None, "Input X contains NaN"),
        (with_a(np.inf), np.ones(N), None, "Input X contains infinity"),
        (np.ones(N), np.ones(N), None, "Expected 2D array, got 1D array"),
        (np.ones((N, 3, 1)), np.ones(N), None, "array with dim 3"),
        (np.ones((0, 3)), np.ones(0), None, r"0 sample\(s\)"),
        (np.ones((N, 0)), np.ones(N), None, r"0 feature\(s\)"),
        (np.ones((N, 3)) * 1j, np.ones(N), None, "Complex data not supported"),
        (np.full((N, 3), "a"), np.ones(N), None, "could not convert string to float"),
        (np.ones((N, 3)), np.ones(N - 1), None, r"inconsistent .*\[60, 59\]"),
        (np.ones((N, 3)), with_a(np.nan)[:, 1], None, "Input y contains NaN"),
        (np.ones((N, 3)), with_a(np.inf), None, "Input y contains infinity"),
        (np.ones((N, 3)), np.ones((N, 1, 1)), None, "array with dim 3"),
        (np.ones((N, 3)), np.ones((N, 0)), None, r"0 feature\(s\)"),
        (np.ones((N, 3)), 1j * np.ones(N), None, "Complex data not supported"),
        (np.ones((N, 3)), None, None, "requires y to be passed"),
        (np.ones((N, 3)), np.full(N, "1"), None, "`y` must .* numbers, got array.*'1'"),
        (
            np.ones((N, 3)),
            sp.csr_array(np.ones((N, 2))),
            None,
            "`y` must .* numbers, got <Compressed Sparse",
        ),
        (np.ones((N, 3)), np.ones(N), -np.ones(N), "Negative values .*sample_weight"),
        (np.ones((N, 3)), np.ones(N), np.ones(3), "`sample_weight` must have 60 rows"),
        (np.ones((N, 3)), np.ones(N), np.ones((N, 2)), r"must have shape \(n,\)"),
        (np.ones((N, 3)), np.ones(N), np.full(N, np.nan), "sample_weight contains NaN"),
        (np.ones((N, 3)), np.ones(N), np.zeros(N), "at least one non-zero|positive"),
    ],
)
def test_bad_data_are_refused_before_the_work(X, y, weights, words, no_work):
    model = SketchedKernelRegressor()
    parameters = vars(model).copy()
    with pytest.raises((TypeError, ValueError), match=words):
        model.fit(X, y, sample_weight=weights)
    assert vars(model) == parameters


def test_bad_kernel_functions():
    X, y = data()
    with pytest.raises(ValueError, match=r"`kernel` must return .* got shape \(3,\)"):
        regressor(kernel=lambda X, Y: np.ones(3)).fit(X, y)
    with pytest.raises(ValueError, match="`kernel` must return finite values"):
        regressor(kernel=lambda X, Y: np.full((len(X), len(Y)), np.nan)).fit(X, y)
    with pytest.raises(ValueError, match="`alpha` must be larger for this kernel"):
        regressor(kernel=lambda X, Y: -(X @ Y.T), sketch="identity").fit(X, y)


def test_errors_of_predict():
    X, y = data()
    with pytest.raises(NotFittedError):
        regressor().predict(X)
    model = regressor().fit(X, y)
    with pytest.raises(ValueError, match=r"has 2 features, but .* expecting 3"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.predict(with_a(np.nan))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        model.predict(X[:0])


def test_a_failed_fit_leaves_the_fitted_model_as_it_was():
    X, y = data()
    model = regressor().fit(X, y)
    desired = model.predict(X)
    before = vars(model).copy()
    calls = 0

    def kernel(X, Y):
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt

    model.set_params(kernel=kernel)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], y)
    assert calls == 1
    model.set_params(kernel=before["kernel"])
    assert vars(model) == before
    assert_array_equal(model.predict(X), desired)
    with pytest.raises(ValueError, match="`size`"):
        model.set_params(size=0).fit(X[:, :2], y)
    assert_array_equal(model.predict(X), desired)
