"""Structured prediction against dense formulas, sorting and other spellings."""

import itertools
import tracemalloc

import numba
import numpy as np
import pytest
import reference
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import nbsketch
from nbsketch import (
    AccumulationSketch,
    CallableKernel,
    CountSketch,
    GaussianKernel,
    GaussianSketch,
    InputOutputKernelRegressor,
    LaplacianKernel,
    LinearKernel,
    PolynomialKernel,
    PSparsifiedSketch,
    SRHTSketch,
    SubsamplingSketch,
    TanimotoKernel,
)
from nbsketch._jit import decoding as compiled
from nbsketch.structured import OutputEmbedding, _outputs, regressor
from nbsketch.structured._outputs import Candidates, Objects, TopK, distinct, keep_best

N, ALPHA = 60, 1e-3
INPUT_SKETCHES = ["identity", SubsamplingSketch(25), PSparsifiedSketch(20)]
OUTPUT_SKETCHES = [
    "identity",
    SubsamplingSketch(9),
    PSparsifiedSketch(5, law="gaussian"),
]
OUTPUT_SKETCHES += [GaussianSketch(4), SubsamplingSketch(30, replace=True)]
OTHER_SKETCHES = [AccumulationSketch(12, 5), CountSketch(12), SRHTSketch(12)]
# The first three have a constant diagonal, the others have not.
OUTPUT_KERNELS = [GaussianKernel(2.0), LaplacianKernel(3.0), TanimotoKernel()]
OUTPUT_KERNELS += [LinearKernel(), PolynomialKernel(2)]


@pytest.fixture
def data(rng):
    """Return X, label sets Y of which many are equal, and new X."""
    X, X_new = rng.normal(size=(N, 3)), rng.normal(size=(11, 3))
    return X, (rng.random((N, 6)) < 0.4).astype(np.int8), X_new


def make(**changes):
    return InputOutputKernelRegressor(
        **{
            "kernel": GaussianKernel(1.5),
            "output_kernel": GaussianKernel(2.0),
            "alpha": ALPHA,
            "random_state": 0,
        }
        | changes
    )


def dense_scores(model, X, Y, X_new, candidates):
    """Return the scores by the formula of the paper, from all rows of the data."""
    kernel, output_kernel = model.kernel_, model.output_kernel_
    return reference.structured_scores(
        reference.kernel_matrix(kernel, X_new, X),
        reference.kernel_matrix(kernel, X, X),
        reference.kernel_matrix(output_kernel, Y, Y),
        reference.kernel_matrix(output_kernel, candidates, Y),
        np.diag(reference.kernel_matrix(output_kernel, candidates, candidates)),
        reference.dense_sketch(model.sketch_),
        reference.dense_sketch(model.output_sketch_),
        model.alpha,
    )


@pytest.mark.thin
@pytest.mark.parametrize("output_kernel", OUTPUT_KERNELS, ids=repr)
@pytest.mark.parametrize("output_sketch", OUTPUT_SKETCHES, ids=str)
@pytest.mark.parametrize("sketch", INPUT_SKETCHES, ids=str)
def test_scores_are_those_of_the_dense_formula(
    data, sketch, output_sketch, output_kernel
):
    X, Y, X_new = data
    model = make(
        output_kernel=output_kernel, sketch=sketch, output_sketch=output_sketch
    ).fit(X, Y)
    expected = dense_scores(model, X, Y, X_new, model.candidates_)
    assert_allclose(model.decision_function(X_new), expected, rtol=0, atol=1e-8)
    best = model.candidates_[expected.argmax(axis=1)]
    assert_array_equal(model.predict(X_new), best)


@pytest.mark.parametrize("sketch", OTHER_SKETCHES, ids=str)
def test_every_sketch_serves_on_both_sides(data, sketch):
    X, Y, X_new = data
    model = make(sketch=sketch, output_sketch=sketch).fit(X, Y)
    expected = dense_scores(model, X, Y, X_new, model.candidates_)
    assert_allclose(model.decision_function(X_new), expected, rtol=0, atol=1e-8)


def test_without_sketches_it_is_the_plain_method(data):
    X, Y, X_new = data
    model = make(output_kernel=LinearKernel()).fit(X, Y)
    K = reference.gaussian(X, X, 1.5)
    h = reference.gaussian(X_new, X, 1.5) @ np.linalg.solve(
        K + N * ALPHA * np.eye(N), Y.astype(float)
    )
    C = model.candidates_.astype(float)
    distances = ((h[:, None] - C[None]) ** 2).sum(axis=2)
    assert_array_equal(model.predict(X_new), C[distances.argmin(axis=1)])
    expected = ((h**2).sum(axis=1)[:, None] - distances) / 2
    assert_allclose(model.decision_function(X_new), expected, atol=1e-12)


def test_candidates_are_the_distinct_outputs_in_order(data):
    X, Y, _ = data
    model = make().fit(X, Y)
    unique = list(dict.fromkeys(map(tuple, Y.tolist())))
    assert model.candidates_.tolist() == [list(row) for row in unique]
    assert model.predict(X).dtype == Y.dtype
    assert (model.rank_, model.output_rank_) == (N, len(unique))
    assert model.n_features_in_ == 3


@pytest.mark.parametrize("output_sketch", ["identity", PSparsifiedSketch(5)], ids=str)
def test_top_k_is_sorting(data, output_sketch):
    X, Y, X_new = data
    model = make(output_sketch=output_sketch).fit(X, Y)
    values = model.decision_function(X_new)
    order = np.argsort(-values, axis=1, kind="stable")
    for k in (1, 3, len(model.candidates_)):
        best = model.predict_topk(X_new, k)
        assert_array_equal(best.indices, order[:, :k])
        assert_array_equal(best.scores, np.take_along_axis(values, order[:, :k], 1))
    with pytest.raises(ValueError, match="`k` must be in"):
        model.predict_topk(X_new, len(model.candidates_) + 1)


def test_tiles_of_any_size_give_the_same(data, rng, monkeypatch):
    X, Y, _ = data
    X_new = rng.normal(size=(70, 3))
    model = make(output_sketch=PSparsifiedSketch(5)).fit(X, Y)
    expected = model.predict_topk(X_new, 4)
    for rows, candidates, points in [(1, 1, 1), (7, 5, 13), (64, 3, 1000)]:
        monkeypatch.setattr(_outputs, "_ROWS", rows)
        monkeypatch.setattr(_outputs, "_CANDIDATES", candidates)
        monkeypatch.setattr(regressor, "_MOST_ROWS", points)
        monkeypatch.setattr(regressor, "_FEWEST_ROWS", 1)
        best = model.predict_topk(X_new, 4)
        assert_array_equal(best.indices, expected.indices)
        assert_allclose(best.scores, expected.scores, atol=1e-12)


def test_threads_and_tiles_do_not_change_a_bit(rng):
    h, features = rng.normal(size=(300, 17)), rng.normal(size=(400, 17))
    candidates = Candidates(features, rng.random(400))
    results = []
    before = numba.get_num_threads()
    for threads, tile in itertools.product({1, before}, (100, 2048)):
        numba.set_num_threads(threads)
        _outputs._CANDIDATES, tile = tile, _outputs._CANDIDATES
        best = TopK.empty(300, 5)
        try:
            keep_best(h, candidates, best)
        finally:
            numba.set_num_threads(before)
            _outputs._CANDIDATES = tile
        results.append(best)
    for best in results[1:]:
        assert_array_equal(best.indices, results[0].indices)
        assert_array_equal(best.scores, results[0].scores)


def test_of_equal_scores_the_lower_index_wins(data):
    X, Y, X_new = data
    model = make(output_sketch=PSparsifiedSketch(5)).fit(X, Y)
    twice = np.concatenate([model.candidates_] * 3)
    once = model.predict_topk(X_new, 1)
    best = model.predict_topk(X_new, 3, twice)
    c = len(model.candidates_)
    assert_array_equal(best.indices, once.indices + np.array([0, c, 2 * c]))
    assert_array_equal(best.scores, once.scores + np.zeros(3))


def test_compiled_code_is_its_python(rng, plain_python):
    products = np.round(rng.normal(size=(20, 30)), 1)  # with ties
    penalty = np.round(rng.random(30), 1)
    results = []
    for run in (compiled.insert_best, compiled.insert_best.py_func):
        if len(results) == 1:
            plain_python(compiled)
        scores, indices = np.full((20, 4), -np.inf), np.full((20, 4), -1)
        run(products, penalty, 7, scores, indices, 6, 0, 4)
        results.append((scores, indices))
    order = np.argsort(penalty - products, axis=1, kind="stable")[:, :4]
    for scores, indices in results:
        assert_array_equal(indices, order + 7)
        assert_array_equal(scores, np.take_along_axis(products - penalty, order, 1))


def test_given_candidates(data, rng):
    X, Y, X_new = data
    model = make(output_kernel=LinearKernel(), sketch=SubsamplingSketch(25)).fit(X, Y)
    C = rng.normal(size=(8, 6))
    expected = dense_scores(model, X, Y, X_new, C)
    assert_allclose(model.decision_function(X_new, C), expected, atol=1e-8)
    assert_array_equal(model.predict(X_new, C), C[expected.argmax(axis=1)])


@pytest.mark.parametrize("output_sketch", ["identity", PSparsifiedSketch(5)], ids=str)
@pytest.mark.parametrize("batch", [1, 7, 4096])
def test_a_set_for_each_row(data, rng, output_sketch, batch, monkeypatch):
    monkeypatch.setattr("nbsketch.structured._outputs._BATCH", batch)
    monkeypatch.setattr(regressor, "_MOST_ROWS", 4)
    monkeypatch.setattr(regressor, "_FEWEST_ROWS", 1)
    X, Y, X_new = data
    model = make(output_kernel=LinearKernel(), output_sketch=output_sketch).fit(X, Y)
    sets = [rng.normal(size=(1 + i % 5, 6)) for i in range(len(X_new))]
    best = model.predict_topk(X_new, 3, candidate_sets=sets)
    predicted = model.predict(X_new, candidate_sets=sets)
    for i, one in enumerate(sets):
        row, known = X_new[i : i + 1], min(3, len(one))
        alone = model.predict_topk(row, known, one)
        assert_array_equal(best.indices[i, :known], alone.indices[0])
        assert_allclose(best.scores[i, :known], alone.scores[0], atol=1e-12)
        assert (best.indices[i, known:] == -1).all()
        assert (best.scores[i, known:] == -np.inf).all()
        assert_array_equal(predicted[i], one[best.indices[i, 0]])


@pytest.mark.parametrize("sketch", ["identity", SubsamplingSketch(25)], ids=str)
@pytest.mark.parametrize("output_sketch", ["identity", SubsamplingSketch(9)], ids=str)
@pytest.mark.parametrize("output_kernel", [OUTPUT_KERNELS[0], OUTPUT_KERNELS[3]])
def test_sparse_rows_are_dense_rows(data, rng, sketch, output_sketch, output_kernel):
    _, Y, _ = data
    X, X_new = ((rng.random((n, 15)) < 0.3) * rng.random((n, 15)) for n in (N, 11))
    model = make(
        output_kernel=output_kernel, sketch=sketch, output_sketch=output_sketch
    )
    dense = clone(model).fit(X, Y)
    sparse = model.fit(sp.csr_matrix(X), sp.coo_array(Y))
    assert sp.issparse(sparse.candidates_) and sp.issparse(sparse.landmarks_)
    assert_allclose(
        sparse.decision_function(sp.csr_array(X_new)),
        dense.decision_function(X_new),
        atol=1e-8,
    )
    predicted = sparse.predict(sp.csr_array(X_new))
    assert sp.issparse(predicted) and predicted.dtype == Y.dtype
    assert_array_equal(predicted.toarray(), dense.predict(X_new))


def test_stored_zeros_and_signs_do_not_make_rows_distinct():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 0.0], [0.0, 1.0]])
    explicit = sp.csr_array(
        ([1.0, 0.0, 1.0, 2.0, 1.0], [1, 0, 1, 0, 1], [0, 1, 3, 4, 5])
    )
    for given in (rows, explicit):
        first, owner = distinct(given)
        assert (first.tolist(), owner.tolist()) == ([0, 2], [0, 0, 1, 0])
    assert explicit.nnz == 5
    first, _ = distinct(Objects([[1], [1], "a", "a", (2,), (2,)]))
    assert first.tolist() == [0, 1, 2, 4]


def test_float32_inputs(data):
    X, Y, X_new = data
    model = make(sketch=SubsamplingSketch(10), output_sketch=SubsamplingSketch(5))
    expected = clone(model).fit(X, Y).decision_function(X_new)
    single = model.fit(X.astype(np.float32), Y)
    assert single.landmarks_.dtype == np.float32
    found = single.decision_function(X_new.astype(np.float32))
    assert_allclose(found, expected, atol=1e-3)


def letters(A, B):
    """Return the inner products of letter counts: a kernel of strings."""

    def counts(words):
        return np.array([[word.count(c) for c in "abc"] for word in words], dtype=float)

    return counts(A) @ counts(B).T


@pytest.mark.parametrize("sketch", ["identity", SubsamplingSketch(20)], ids=str)
@pytest.mark.parametrize("output_sketch", ["identity", SubsamplingSketch(15)], ids=str)
def test_objects_are_their_features(rng, sketch, output_sketch):
    words = ["".join(rng.choice(list("abc"), rng.integers(1, 6))) for _ in range(40)]
    counts = np.array([[word.count(c) for c in "abc"] for word in words], dtype=float)
    sketches = {"sketch": sketch, "output_sketch": output_sketch}
    strings = make(kernel=letters, output_kernel=letters, **sketches)
    strings.fit(words[:30], words[:30])
    rows = make(kernel=LinearKernel(), output_kernel=letters, **sketches)
    rows.fit(counts[:30], words[:30])
    assert strings.candidates_ == list(dict.fromkeys(words[:30]))
    assert_allclose(
        strings.decision_function(words[30:]),
        rows.decision_function(counts[30:]),
        atol=1e-8,
    )
    predicted = strings.predict(words[30:])
    assert predicted == rows.predict(counts[30:]) and set(predicted) <= set(words)
    sets = [words[:2], words[3:7]]
    chosen = strings.predict(words[30:32], candidate_sets=sets)
    assert all(one in some for one, some in zip(chosen, sets, strict=True))
    assert not hasattr(strings, "n_features_in_")


def test_a_function_of_rows(data):
    X, Y, X_new = data
    linear = CallableKernel(lambda A, B: np.asarray(A, float) @ np.asarray(B, float).T)
    model = make(output_kernel=linear, output_sketch=SubsamplingSketch(9)).fit(X, Y)
    named = make(output_kernel="linear", output_sketch=SubsamplingSketch(9)).fit(X, Y)
    found, expected = (m.decision_function(X_new) for m in (model, named))
    assert_allclose(found, expected, atol=1e-10)
    assert isinstance(model.predict(X_new), np.ndarray)


@pytest.mark.parametrize("sketch", ["identity", SubsamplingSketch(25)], ids=str)
@pytest.mark.parametrize("output_sketch", ["identity", SubsamplingSketch(9)], ids=str)
def test_precomputed_kernels(data, sketch, output_sketch):
    X, Y, X_new = data
    options = {"sketch": sketch, "output_sketch": output_sketch}
    model = make(**options).fit(X, Y)
    K, KY = reference.gaussian(X, X, 1.5), reference.gaussian(Y, Y, 2.0)
    K_new = reference.gaussian(X_new, X, 1.5)
    given = make(kernel="precomputed", output_kernel="precomputed", **options)
    given.fit(K, KY)
    assert_array_equal(given.candidates_, np.arange(N))
    expected = model.decision_function(X_new, Y)
    assert_allclose(given.decision_function(K_new), expected, atol=1e-8)
    some = np.array([5, 3])
    found = given.decision_function(K_new, some)
    assert_allclose(found, expected[:, some], atol=1e-8)
    assert set(given.predict(K_new, some)) <= {3, 5}
    new = reference.gaussian(Y[:4] + 1, Y, 2.0)
    expected = model.decision_function(X_new, Y[:4] + 1)
    assert_allclose(given.decision_function(K_new, new), expected, atol=1e-8)
    with pytest.raises(ValueError, match=r"`candidates` must be in \[0, 59\]"):
        given.predict(K_new, [60])
    with pytest.raises(ValueError, match="indices of training outputs"):
        given.predict(K_new, [0.5])


def test_new_outputs_need_a_known_diagonal(data):
    X, Y, X_new = data
    KY = Y.astype(float) @ Y.T
    model = make(output_kernel="precomputed").fit(X, KY)
    assert model.predict(X_new).shape == (11,)
    with pytest.raises(ValueError, match="must be constant on its diagonal"):
        model.predict(X_new, KY[:3])
    of_indices = make(output_kernel=lambda a, b: KY[np.ix_(a, b)])
    of_indices.fit(X, list(range(N)))
    assert_array_equal(of_indices.predict(X_new), model.predict(X_new))


@pytest.mark.parametrize("output_sketch", OUTPUT_SKETCHES[:3], ids=str)
@pytest.mark.parametrize("output_kernel", [OUTPUT_KERNELS[0], OUTPUT_KERNELS[3]])
def test_score_is_minus_the_mean_squared_distance(data, output_sketch, output_kernel):
    X, Y, _ = data
    model = make(output_kernel=output_kernel, output_sketch=output_sketch)
    model.fit(X[:40], Y[:40])
    KY = reference.kernel_matrix(output_kernel, Y, Y)
    R = reference.dense_sketch(model.output_sketch_)
    known = KY[:40, :40]
    project = R.T @ np.linalg.pinv(R @ known @ R.T, rcond=1e-10) @ R @ known
    K = reference.gaussian(X, X, 1.5)
    A = np.linalg.solve(K[:40, :40] + 40 * ALPHA * np.eye(40), K[:40, 40:])
    A = project @ A  # h(x) = sum_i A_i psi(y_i)
    norms = np.einsum("ij,ij->j", A, known @ A)
    inner = np.einsum("ij,ij->j", A, KY[:40, 40:])
    errors = norms - 2 * inner + np.diag(KY)[40:]
    assert_allclose(model.score(X[40:], Y[40:]), -errors.mean(), rtol=1e-8)


def test_it_can_be_searched_and_cloned(data):
    X, Y, _ = data
    model = make(kernel="gaussian", sketch="subsampling")
    grid = {"alpha": [1e-4, 1e-1], "bandwidth": [0.5, 2.0], "size": [5, 15]}
    search = GridSearchCV(model, grid, cv=2).fit(X, Y)
    assert (
        search.best_score_ < 0
        and np.isfinite(search.cv_results_["mean_test_score"]).all()
    )
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize("output_sketch", ["identity", SubsamplingSketch(9)], ids=str)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_save_and_load(data, tmp_path, output_sketch, kind):
    X, Y, X_new = data
    X_new = kind(X_new)
    model = make(sketch=PSparsifiedSketch(9), output_sketch=output_sketch)
    model.fit(kind(X), kind(Y)).save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(again.decision_function(X_new), model.decision_function(X_new))
    assert again.predict(X_new).dtype == Y.dtype
    assert again.score(X_new, Y[:11]) == model.score(X_new, Y[:11])
    assert again.seconds_ == model.seconds_


def test_a_model_of_a_function_is_not_saved(tmp_path):
    model = make(kernel=letters, output_kernel=letters).fit(["a", "b"], ["b", "a"])
    with pytest.raises(TypeError, match="a model file holds"):
        model.save(tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()


def test_the_same_seed_gives_the_same_model(data):
    X, Y, X_new = data
    sketches = {"sketch": PSparsifiedSketch(9), "output_sketch": PSparsifiedSketch(4)}
    first, second = (make(**sketches).fit(X, Y) for _ in range(2))
    assert_array_equal(first.decision_function(X_new), second.decision_function(X_new))
    other = make(**sketches, random_state=1).fit(X, Y)
    assert np.abs(other.decision_function(X_new) - first.decision_function(X_new)).max()
    # another input sketch leaves the output sketch as it is
    wider = make(sketch=PSparsifiedSketch(20), output_sketch=sketches["output_sketch"])
    wider.fit(X, Y)
    same = wider.output_sketch_.to_csr() - first.output_sketch_.to_csr()
    assert same.nnz == 0


def test_memory_does_not_grow_with_rows_times_candidates(rng):
    X, Y = rng.normal(size=(2000, 2)), rng.normal(size=(2000, 2))
    model = make(
        output_kernel=LinearKernel(),
        sketch=SubsamplingSketch(20),
        output_sketch=SubsamplingSketch(2),
    ).fit(X, Y)
    X_new, candidates = rng.normal(size=(6000, 2)), rng.normal(size=(6000, 2))
    model.predict(X_new[:10])
    tracemalloc.start()
    try:
        model.predict_topk(X_new, 2, candidates)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6 < X_new.shape[0] * candidates.shape[0] * 8 / 10


ONES = np.ones((4, 2))


@pytest.mark.parametrize(
    ("changes", "arguments", "error", "message"),
    [
        ({}, (ONES, ONES[:3]), ValueError, "`Y` must have 4 rows as `X`, got 3"),
        ({}, (ONES, np.ones(4)), ValueError, "`Y` must be a non-empty 2-dim"),
        ({}, (ONES, None), ValueError, "`Y` must hold an output"),
        ({}, (ONES, [["a"]] * 4), TypeError, "`Y` must hold real numbers"),
        (
            {},
            (ONES, [[1], [1, 2], [1], [1]]),
            ValueError,
            "`Y` must have rows of equal",
        ),
        ({}, (ONES, ONES * np.nan), ValueError, "`Y` must be finite"),
        ({}, (["a", "b"], ONES[:2]), ValueError, "could not convert string"),
        ({"alpha": 0}, (ONES, ONES), ValueError, "`alpha` must be in"),
        ({"verbose": -1}, (ONES, ONES), ValueError, "`verbose` must be"),
        (
            {"sketch": "identity", "size": 3},
            (ONES, ONES),
            ValueError,
            "`size` must be None",
        ),
        (
            {"output_sketch": "identity", "output_size": 3},
            (ONES, ONES),
            ValueError,
            "`output_size` must be None",
        ),
        (
            {"output_bandwidth": 1.0},
            (ONES, ONES),
            ValueError,
            "`output_bandwidth` requires",
        ),
        ({"output_kernel": "none"}, (ONES, ONES), ValueError, "`output_kernel` must"),
        (
            {"output_kernel": "gaussian", "output_bandwidth": -1.0},
            (ONES, ONES),
            ValueError,
            "`output_bandwidth` must be in",
        ),
        (
            {"output_sketch": "gaussian", "output_size": 0},
            (ONES, ONES),
            ValueError,
            "`output_size` must be at least 1",
        ),
        (
            {"output_kernel": LaplacianKernel(1.0)},
            (ONES, sp.csr_array(ONES)),
            TypeError,
            "`Y` must be dense for LaplacianKernel",
        ),
        (
            {"output_kernel": "precomputed"},
            (ONES, ONES),
            ValueError,
            "`Y` must be the square Gram matrix",
        ),
        (
            {"output_sketch": SubsamplingSketch(5)},
            (ONES, ONES),
            ValueError,
            "`output_size` must be at most the number of samples, 4",
        ),
        (
            {"output_kernel": "linear", "output_sketch": SubsamplingSketch(2)},
            (ONES, 0 * ONES),
            ValueError,
            "must not be zero on all samples",
        ),
        ({"kernel": letters}, ("abcd", ONES), TypeError, "a sequence of objects"),
        ({"kernel": letters}, ([], ONES), ValueError, "`X` must not be empty"),
        (
            {"kernel": lambda a, b: np.ones(3)},
            (list("abcd"), ONES),
            ValueError,
            r"must return numbers of shape \(4, 4\)",
        ),
        (
            {"kernel": lambda a, b: np.full((len(a), len(b)), np.inf)},
            (list("abcd"), ONES),
            ValueError,
            "must return finite values",
        ),
    ],
)
def test_bad_training_data(data, changes, arguments, error, message):
    X, Y, X_new = data
    model = make().fit(X, Y)
    before = model.decision_function(X_new)
    with pytest.raises(error, match=message):
        model.set_params(**changes).fit(*arguments)
    assert_array_equal(model.decision_function(X_new), before)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"candidates": ONES}, ValueError, "`candidates` must have 6 columns"),
        ({"candidates": np.ones((0, 6))}, ValueError, "`candidates` must be a non-em"),
        ({"candidates": [["a"] * 6]}, TypeError, "`candidates` must hold real"),
        ({"candidate_sets": [np.ones((2, 6))]}, ValueError, "per sample, 11, got 1"),
        ({"candidate_sets": 3}, TypeError, "`candidate_sets` must be a sequence"),
        (
            {"candidate_sets": [np.ones((2, 6))] * 10 + [np.ones((0, 6))]},
            ValueError,
            r"`candidate_sets\[10\]` must be a non-empty",
        ),
        (
            {"candidates": np.ones((2, 6)), "candidate_sets": [np.ones((2, 6))] * 11},
            ValueError,
            "either `candidates` or",
        ),
    ],
)
def test_bad_candidates_are_refused_before_heavy_work(
    data, options, error, message, monkeypatch
):
    X, Y, X_new = data
    model = make().fit(X, Y)
    monkeypatch.setattr(model, "_points", None)
    with pytest.raises(error, match=message):
        model.predict(X_new, **options)


def test_bad_calls_of_a_fitted_model(data):
    X, Y, X_new = data
    with pytest.raises(NotFittedError):
        make().predict(X_new)
    model = make().fit(X, Y)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(X_new[:, :2])
    with pytest.raises(ValueError, match="`y` must have 11 rows as `X`, got 60"):
        model.score(X_new, Y)


def test_verbose_reports_the_cost_of_each_stage(data, capsys, monkeypatch):
    X, Y, X_new = data
    sketches = {"sketch": PSparsifiedSketch(9), "output_sketch": PSparsifiedSketch(4)}
    make(verbose=1, **sketches).fit(X, Y).predict(X_new)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.endswith(" s") for line in lines)
    names = [line.split(": ")[0] for line in lines]
    assert names[0] == "outputs" and names[-2:] == ["candidates", "decoding"]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    make(verbose=1, **sketches).fit(X, Y)
    assert "\r\x1b[Kinputs: features: " in capsys.readouterr().err
    make(**sketches).fit(X, Y).predict(X_new)
    assert capsys.readouterr().err == ""


def test_the_memory_limit_decides_whether_inputs_are_sketched(rng):
    X = rng.uniform(-3, 3, size=(300, 1))
    Y = np.column_stack([np.sin(X), np.cos(X)])
    model = InputOutputKernelRegressor(output_kernel="linear", random_state=0)
    full = clone(model).fit(X, Y)
    nbsketch.set_memory_limit("1MB")
    try:
        limited = clone(model).fit(X, Y)
        asked = clone(model).set_params(sketch="identity").fit(X, Y)
    finally:
        nbsketch.set_memory_limit(None)
    assert full.sketch_.is_identity and asked.sketch_.is_identity
    for sketch in (limited.sketch_, limited.output_sketch_):
        assert sketch.shape[0] == 100  # of 65 that fit
    assert limited.score(X, Y) > -1e-3


def test_default_sketches_count_all_matrices_of_a_fit(rng):
    """Features of inputs and outputs, kernel values and the system: 5 copies."""
    X = rng.uniform(-3, 3, size=(1200, 3))
    Y = np.column_stack([np.sin(X), np.cos(X)])
    model = InputOutputKernelRegressor(bandwidth=1.0, random_state=0)
    sizes = []
    try:
        for copies in (4.9, 5.1):
            nbsketch.set_memory_limit(copies * 8 * 1200 * 600)
            sizes.append(model.fit(X, Y).sketch_.shape[0])
    finally:
        nbsketch.set_memory_limit(None)
    assert sizes == [300, 600]


@pytest.mark.parametrize("kind", ["rows", "precomputed", "few"])
def test_outputs_beyond_the_memory_limit_are_sub_sampled(kind, rng):
    X = rng.uniform(-3, 3, size=(300, 1))
    Y = np.column_stack([np.sin(X), np.cos(X)])
    Y = np.round(Y) if kind == "few" else Y
    outputs, kernel = Y, "gaussian"
    if kind == "precomputed":
        outputs, kernel = nbsketch.GaussianKernel(1.0)(Y), kind
    model = InputOutputKernelRegressor(output_kernel=kernel, random_state=0)
    nbsketch.set_memory_limit("1MB")
    try:
        model.fit(X, outputs)
        asked = clone(model).set_params(output_sketch="identity").fit(X, outputs)
        embedding = OutputEmbedding(kernel, random_state=0).fit(outputs)
    finally:
        nbsketch.set_memory_limit(None)
    assert asked.output_sketch_.is_identity
    assert embedding.output_sketch_.is_identity == (kind == "few")
    assert model.output_sketch_.is_identity == (kind == "few")  # distinct outputs count
    assert len(model.coef_) * model.coef_.shape[1] * 8 < 1024**2 / 2
    predicted = model.predict(X)
    predicted = Y[predicted] if kind == "precomputed" else predicted
    assert np.mean(np.square(predicted - Y)) < 0.01


@pytest.mark.parametrize("method", ["fit", "predict", "score"])
def test_memory_of_distinct_outputs_is_limited(method, rng):
    X = rng.uniform(-3, 3, size=(2400, 2))
    Y = np.column_stack([np.sin(X), X])
    model = InputOutputKernelRegressor(bandwidth=1.0, random_state=0)
    nbsketch.set_memory_limit("5MB")
    model.fit(X[:100], Y[:100]).score(X[:100], Y[:100])  # loads compiled code
    try:
        model = model if method == "fit" else model.fit(X, Y)
        tracemalloc.start()
        arguments = (X,) if method == "predict" else (X, Y)
        getattr(model, method)(*arguments)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        nbsketch.set_memory_limit(None)
    assert peak < 24 << 20  # 46 MB are a matrix of all pairs


# reduced rank and embeddings --------------------------------------------------------


@pytest.mark.parametrize("output_sketch", ["identity", PSparsifiedSketch(20)], ids=str)
def test_reduced_rank_is_that_of_the_predictions(data, output_sketch, tmp_path):
    X, Y, X_new = data
    w = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    w /= w.mean()
    options = {"output_kernel": LinearKernel(), "output_sketch": output_sketch}
    model = make(**options, output_rank=2).fit(X, Y, sample_weight=w)
    K = reference.gaussian(X, X, 1.5)
    A = np.linalg.solve(K + N * ALPHA * np.diag(1 / w), Y.astype(float))
    fitted = K @ A
    V = np.linalg.eigh(fitted.T @ (w[:, None] * fitted))[1][:, -2:]
    C = model.candidates_.astype(float)
    scores = reference.gaussian(X_new, X, 1.5) @ A @ V @ V.T @ C.T
    expected = scores - np.square(C).sum(axis=1) / 2
    assert_allclose(model.decision_function(X_new), expected, atol=1e-7)
    assert_allclose(model.decision_function(X_new, C), expected, atol=1e-7)
    assert (model.output_rank_, model.coef_.shape[1]) == (2, 2)
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(loaded.predict(X_new), model.predict(X_new))


def test_tags_ask_for_outputs_of_several_columns():
    tags = InputOutputKernelRegressor().__sklearn_tags__().target_tags
    assert tags.required and tags.multi_output and not tags.single_output


def test_all_directions_are_no_reduction(data):
    X, Y, X_new = data
    whole = make().fit(X, Y)
    model = make(output_rank=10_000).fit(X, Y)
    scores = whole.decision_function(X_new)
    assert_allclose(model.decision_function(X_new), scores, atol=1e-6)
    with pytest.raises(ValueError, match="output_rank"):
        make(output_rank=0).fit(X, Y)


@pytest.mark.parametrize("sketch", [None, PSparsifiedSketch(30)], ids=str)
def test_an_embedding_with_ridge_regression_is_the_structured_model(
    data, sketch, tmp_path
):
    X, Y, X_new = data
    kernel = GaussianKernel(2.0)
    embedding = OutputEmbedding(kernel, sketch=sketch, random_state=0).fit(Y)
    Z = embedding.encode(Y)
    K = reference.gaussian(X, X, 1.5)
    H = np.linalg.solve(K + N * ALPHA * np.eye(N), Z)
    points = reference.gaussian(X_new, X, 1.5) @ H
    if sketch is None:
        model = make(output_kernel=kernel).fit(X, Y)
        assert_array_equal(embedding.decode(points), model.predict(X_new))
        best, expected = embedding.decode_topk(points, 3), model.predict_topk(X_new, 3)
        assert_allclose(best.scores, expected.scores, atol=1e-7)
        assert_allclose(Z @ Z.T, kernel(Y.astype(float)), atol=1e-7)
    embedding.save(tmp_path / "embedding.npz")
    again = nbsketch.load(tmp_path / "embedding.npz")
    assert_array_equal(again.encode(Y), Z)
    assert_array_equal(embedding.decode(Z), Y if sketch is None else again.decode(Z))


def test_an_embedding_names_what_is_wrong(data):
    embedding = OutputEmbedding(random_state=0).fit(data[1])
    with pytest.raises(ValueError, match="`Z` must have"):
        embedding.decode(np.ones((3, 1)))
    with pytest.raises(ValueError, match="`Y` must have"):
        embedding.encode(np.ones((3, 1)))
    with pytest.raises(ValueError, match="`k` must be"):
        embedding.decode_topk(embedding.encode(data[1]), 10_000)


@pytest.mark.parametrize("kernel", ["linear", PolynomialKernel(degree=2)])
def test_an_offset_of_the_outputs_is_told(kernel, rng):
    """The model has no constant: at an offset of 1000 R2 is .58 for .99."""
    X = rng.normal(size=(60, 2))
    model = InputOutputKernelRegressor(output_kernel=kernel, bandwidth=1.0)
    with pytest.warns(UserWarning, match=r"shrunk to 0: .* pass Y - Y.mean\(axis=0\)"):
        model.fit(X, X + 1e3)
    model.set_params(output_kernel="gaussian").fit(X, X + 1e3)
    model.set_params(output_kernel=kernel).fit(X, X + 30.0)
    assert np.corrcoef(model.predict(X)[:, 0], X[:, 0])[0, 1] > 0.99
