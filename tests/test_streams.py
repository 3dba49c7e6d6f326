"""Streams whose first calls have few rows: these are held until there are enough."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import nbsketch
from nbsketch import (
    LandmarkSketch,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SubsamplingSketch,
)
from nbsketch.solvers.sgm import stream_sgm

N = 400
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(N, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1]
OTHERS = RNG.uniform(-2, 2, size=(200, 2))
TRUTH = np.sin(2 * OTHERS[:, 0]) + OTHERS[:, 1]
FIXED = {"kernel": "gaussian", "bandwidth": 1.0, "size": 50, "random_state": 0}


def stream(model, ends, X=X, y=Y, **options):
    """Return the model after calls of partial_fit that end with these rows."""
    for start, stop in zip([0, *ends], [*ends, len(y)], strict=False):
        weights = {k: v[start:stop] for k, v in options.items()}
        model.partial_fit(X[start:stop], y[start:stop], **weights)
    return model


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("ends", [[1], [1, 2, 3], [7, 20], range(1, 60)])
@pytest.mark.parametrize(
    "params",
    [
        FIXED,
        {"random_state": 0},
        FIXED | {"size": None, "sketch": SubsamplingSketch(50)},
        FIXED | {"size": None, "sketch": LandmarkSketch(X[:50])},
        FIXED | {"sketch": "p-sparsified"},
        FIXED | {"alpha": 1e-4},
        FIXED | {"loss": "huber", "average": False},
    ],
    ids=["size", "defaults", "recipe", "landmarks", "sparse", "penalty", "huber"],
)
def test_a_stream_that_begins_with_one_row_learns(params, ends):
    model = SketchedSGDRegressor(**params)
    at_once = clone(model).partial_fit(X, Y).score(OTHERS, TRUTH)
    found = stream(model, ends)
    assert at_once > 0.9 and found.score(OTHERS, TRUTH) > at_once - 0.02
    assert found.size_ == (400 if params == {"random_state": 0} else 50)


def test_the_last_draw_is_a_first_call_of_all_rows_held():
    model = SketchedSGDRegressor(**FIXED)
    found = stream(clone(model), [3, 20], X[:60], Y[:60])
    expected = clone(model).partial_fit(X[:60], Y[:60])
    np.testing.assert_array_equal(found.predict(OTHERS), expected.predict(OTHERS))
    assert not hasattr(found, "_held") and found.size_ == 50
    # and continues as it does
    found.partial_fit(X[60:], Y[60:])
    expected.partial_fit(X[60:], Y[60:])
    np.testing.assert_array_equal(found.predict(OTHERS), expected.predict(OTHERS))


@pytest.mark.filterwarnings("error")  # a `size` above the rows so far is none
def test_few_rows_have_a_model_of_their_own():
    model = SketchedSGDRegressor(**FIXED)
    for count in (1, 2, 3):
        model.partial_fit(X[count - 1 : count], Y[count - 1 : count])
        assert np.isfinite(model.predict(OTHERS)).all()
    assert model.size_ == 2  # drawn again at 1, 2, 4, 8, ... rows
    assert model.n_features_in_ == 2
    with pytest.raises(ValueError, match="3 features"):
        model.partial_fit(np.ones((1, 3)), [0.0])
    assert model.partial_fit(X[3:4], Y[3:4]).size_ == 4


def test_weights_of_the_rows_that_are_held():
    weights = np.tile([1.0, 0.0, 2.0, 1.0], N // 4)
    model = SketchedSGDRegressor(**FIXED)
    found = stream(clone(model), [1, 3, 30, 70], sample_weight=weights)
    mixed = clone(model).partial_fit(X[:30], Y[:30], weights[:30])
    mixed.partial_fit(X[30:], Y[30:])
    expected = clone(model).partial_fit(X, Y, weights).score(OTHERS, TRUTH)
    for either in (found, mixed):
        assert either.score(OTHERS, TRUTH) > expected - 0.05


@pytest.mark.parametrize("kind", ["dense", "single", "sparse", "two outputs"])
@pytest.mark.parametrize("copy", ["file", "pickle", "clone"])
def test_a_saved_stream_goes_on(kind, copy, tmp_path):
    rows = {"sparse": sp.csr_array(X), "single": X.astype(np.float32)}.get(kind, X)
    targets = np.column_stack([Y, X[:, 0]]) if kind == "two outputs" else Y
    model = SketchedSGDRegressor(**FIXED).partial_fit(rows[:20], targets[:20])
    if copy == "file":
        model.save(tmp_path / "model.npz")
        again = nbsketch.load(tmp_path / "model.npz")
    elif copy == "pickle":
        again = pickle.loads(pickle.dumps(model))
    else:
        again = clone(model).partial_fit(rows[:20], targets[:20])
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    for either in (model, again):
        either.partial_fit(rows[20:], targets[20:])
        assert either.size_ == 50 and not hasattr(either, "_held")
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_wrong_held_rows_of_a_file_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    model = SketchedSGDRegressor(**FIXED).partial_fit(X[:20], Y[:20])
    for wrong in (
        model._held._replace(X=X[:20, :1]),
        model._held._replace(y=np.ones((19, 1))),
        model._held._replace(y=np.full((20, 1), np.nan)),
        model._held._replace(weights=-np.ones(20)),
        model._held._replace(kept=np.arange(20)),
    ):
        model._held = wrong
        with pytest.raises(ValueError, match="_held"):
            model.save(path)


def test_fit_and_failures_leave_nothing_behind():
    model = SketchedSGDRegressor(**FIXED).partial_fit(X[:5], Y[:5])
    held = model._held
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(X[5:9], np.full(4, np.nan))
    assert model._held is held
    assert not hasattr(model.fit(X, Y), "_held")


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("count", [2, 3])
def test_classes_of_a_stream_that_begins_with_one_row(loss, count):
    labels = np.digitize(Y, [0.0] if count == 2 else [-0.7, 0.7])
    truth = np.digitize(TRUTH, [0.0] if count == 2 else [-0.7, 0.7])
    model = SketchedSGDClassifier(bandwidth=0.7, loss=loss, random_state=0)
    for first in (1, 2, 3):
        model.partial_fit(X[first - 1 : first], labels[first - 1 : first], range(count))
        assert set(model.predict(OTHERS)) <= set(range(count))
    model = stream(model, [50, 90], X[3:], labels[3:])
    assert model.score(OTHERS, truth) > 0.85
    with pytest.raises(ValueError, match="class"):
        SketchedSGDClassifier().partial_fit(X[:1], labels[:1])


def test_kernel_values_are_not_held():
    K = np.exp(-((X[:10, None] - X[None, :10]) ** 2).sum(2))
    model = SketchedSGDRegressor(kernel="precomputed", size=5, random_state=0)
    model.partial_fit(K, Y[:10]).partial_fit(K[:3], Y[:3])
    assert not hasattr(model, "_held") and model.size_ == 5


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rows", [1, 100])
def test_streams_that_begin_with_few_rows_do_not_diverge(seed, rows):
    """Rows far from the first ones take shorter steps, also of the intercept."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = np.sin(X[:, 0])
    model = SketchedSGDRegressor(size=50, random_state=seed)
    for start in (0, *range(50, 600, rows)):
        part = slice(start, start + rows if start else 50)
        model.partial_fit(X[part], y[part])
    assert model.score(X, y) > 0.95


def test_the_intercept_has_one_feature_in_all_steps():
    """It makes of the method the projections on the equations of the rows."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(400, 3)) * np.exp(rng.normal(size=(400, 1)))
    y = Z @ [1.0, -2.0, 0.5] + 3.0
    options = {"step": 1.9, "batch_size": 1, "fit_intercept": True, "square_norm": 1.0}
    coef, intercept, _ = stream_sgm(Z, y, **options)
    w, b = np.zeros(3), np.mean(y)
    for z, target in zip(Z, y, strict=True):
        rate = 1.9 / 2 / max(z @ z, 1.0)
        move = rate * (target - z @ w - b)
        w, b = w + move * z, b + move
    np.testing.assert_allclose([*coef, intercept], [*w, b], rtol=1e-9)
    assert abs(b - 3.0) < 0.1


def constant_at_first(what):
    x, y = X.copy(), Y.copy()
    if what == "y":
        y[:100] = 1.0
    else:
        x[:100, what] = 3.0
    return x, y


@pytest.mark.parametrize(
    ("what", "words"),
    [(0, "column 0 had"), ([0, 1], "columns 0, 1 had"), ("y", "`y` had")],
)
@pytest.mark.parametrize("first", [100, 10])
def test_constants_of_the_first_samples_are_told(what, words, first):
    x, y = constant_at_first(what)
    model = SketchedSGDRegressor(**FIXED)
    with pytest.warns(
        UserWarning, match=f"^{words} only one value in the first .* sam"
    ):
        stream(model, range(first, 100, first), x[:100], y[:100])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("what", [0, "y"])
def test_constants_that_end_while_samples_are_held_are_not_told(what):
    x, y = constant_at_first(what)
    stream(SketchedSGDRegressor(**FIXED | {"size": 150}), range(50, 400, 50), x, y)


@pytest.mark.filterwarnings("error")
def test_constants_of_linear_and_sparse_streams_are_not_told():
    x, _ = constant_at_first(0)
    linear = SketchedSGDRegressor(kernel="linear", random_state=0)
    assert stream(linear, [100, 200, 300], x, x[:, 0]).score(OTHERS, OTHERS[:, 0]) > 0.9
    model = SketchedSGDRegressor(**FIXED)
    model.partial_fit(sp.csr_array(np.c_[X[:100, 0], np.zeros(100)]), Y[:100])


CHANGES = {
    "kernel": "laplacian",
    "bandwidth": 2.0,
    "preprocessing": "rank",
    "sketch": SubsamplingSketch(7),
    "size": 20,
    "fit_intercept": False,
    "loss": {"regressor": "huber", "classifier": "logistic"},
}


@pytest.mark.parametrize("begin", ["partial_fit", "fit"])
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_parameters_that_the_first_samples_fix_cannot_change(
    kind, saved, begin, tmp_path
):
    cls = SketchedSGDRegressor if kind == "regressor" else SketchedSGDClassifier
    y = Y if kind == "regressor" else Y > 0
    first = getattr(cls(**FIXED), begin)(X, y)
    if saved:
        first.save(tmp_path / "model.npz")
    for name, value in CHANGES.items():
        model = nbsketch.load(tmp_path / "model.npz") if saved else first
        before = getattr(model, name)
        value = value[kind] if name == "loss" else value
        model.set_params(**{name: value})
        with pytest.raises(ValueError, match=f"`{name}` must be {before} as in the fi"):
            model.partial_fit(X, y)
        model.set_params(**{name: before}).partial_fit(X, y)
        model.set_params(alpha=1e-4).partial_fit(X, y).set_params(alpha=None)


def dot(X, Y):
    return X @ Y.T + 1


def test_functions_as_kernels_are_fixed_by_name():
    model = SketchedSGDRegressor(dot, size=20, random_state=0).partial_fit(X, Y)
    pickle.loads(pickle.dumps(model)).partial_fit(X, Y)
    with pytest.raises(ValueError, match="`kernel` must be dot as in the first call"):
        model.set_params(kernel="linear").partial_fit(X, Y)
    model.fit(X, Y).partial_fit(X, Y)


@pytest.mark.parametrize(
    "before, after, changed",
    [
        (2, 2.0, 3),
        (np.float32(2.0), 2, 2.5),
        ([1, 2, 3], np.array([1.0, 2.0, 3.0]), (1.0, 2.0, 3.5)),
    ],
)
@pytest.mark.parametrize("saved", [False, True])
def test_equal_numbers_are_no_change_of_a_stream(
    before, after, changed, saved, tmp_path
):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    model = SketchedSGDRegressor("gaussian", bandwidth=before, size=20, random_state=0)
    model.partial_fit(rows, rows[:, 0])
    if saved:
        model.save(tmp_path / "model.npz")
        model = nbsketch.load(tmp_path / "model.npz")
    model.set_params(bandwidth=after).partial_fit(rows, rows[:, 0])
    with pytest.raises(ValueError, match=r"`bandwidth` must be .* as in the"):
        model.set_params(bandwidth=changed).partial_fit(rows, rows[:, 0])


def test_one_of_many_bandwidths_is_a_change_of_a_stream():
    rows = np.random.default_rng(0).normal(size=(60, 1500))
    widths = np.full(1500, 40.0)
    model = SketchedSGDRegressor("gaussian", bandwidth=widths, size=20, random_state=0)
    model.partial_fit(rows, rows[:, 0])
    widths = widths.copy()
    widths[700] = 41.0
    with pytest.raises(ValueError, match="`bandwidth` must be"):
        model.set_params(bandwidth=widths).partial_fit(rows, rows[:, 0])


def test_a_stream_goes_on_in_a_copy_of_a_model_with_objects_without_a_text():
    class Product:
        def __call__(self, X, Y):
            return (1 + X @ Y.T) ** 2

    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X[:, 0]
    model = SketchedSGDRegressor(kernel=Product(), random_state=0).partial_fit(X, y)
    again = copy.deepcopy(model).partial_fit(X, y)
    assert np.array_equal(again.predict(X), model.partial_fit(X, y).predict(X))
    with pytest.raises(ValueError, match=r"`kernel` must be .*Product object>"):
        model.set_params(kernel="gaussian").partial_fit(X, y)
