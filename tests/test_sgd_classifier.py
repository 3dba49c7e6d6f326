"""SketchedSGDClassifier: fits, streams of labels, and chunks of an iterator."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

import nbsketch
from nbsketch import (
    SketchedKernelClassifier,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
)
from nbsketch.losses import as_loss
from nbsketch.solvers.sgm import solve_sgm

FIXED = {"bandwidth": 1.5, "size": 30, "random_state": 0}
LOSSES = ["hinge", "squared-hinge", "logistic"]
NAMES = np.array(["low", "middle", "high"])


def data(n=1500, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)
    return X, f > 0 if classes == 2 else NAMES[np.digitize(f, [-0.7, 0.7])]


def classifier(**options):
    return SketchedSGDClassifier(**(FIXED | options))


def slow_steps(Z, Y, loss, step, order, alpha, batch):
    """Take the steps one by one, on columns of signs, with an intercept."""
    kind, rank = as_loss(loss), Z.shape[1]
    curvature = {"hinge": 1.0, "squared-hinge": 1.0, "logistic": 0.25}[loss]
    eta = step / curvature / (2 * (Z**2).sum(axis=1).max())
    w, b = np.zeros((rank, Y.shape[1])), middle(Y, loss)
    for rows in order.reshape(-1, batch):
        f = Z[rows] @ w + b
        pull = -kind.derivative(Y[rows] * f) * Y[rows]
        w = (1 - eta * alpha) * w + eta * Z[rows].T @ pull / batch
        b = b + step / curvature / 2 * pull.mean(axis=0)
    return w, b


def middle(Y, loss):
    if loss == "hinge":
        return np.median(Y, axis=0)
    if loss == "squared-hinge":
        return Y.mean(axis=0)
    high = (Y > 0).sum(axis=0)
    return np.log((high + 0.5) / (len(Y) - high + 0.5))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("batch", [1, 4])
def test_steps_are_those_of_the_definition(loss, columns, batch):
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(40, 3)), np.sign(rng.normal(size=(40, columns)))
    order = rng.integers(40, size=60 * batch)
    step = 0.7 / (1.0 if loss != "logistic" else 4.0)
    options = {"step": step, "batch_size": batch, "alpha": 0.3, "fit_intercept": True}
    found = run(Z, Y, loss, order, options)
    expected = slow_steps(Z, Y, loss, step, order, 0.3, batch)
    assert_allclose(found[0], expected[0], atol=1e-12)
    assert_allclose(found[1], expected[1], atol=1e-12)


def run(Z, Y, loss, order, options):
    """Return coefficients and intercept of the compiled steps on rows in an order."""
    from nbsketch.solvers.design import ArrayDesign
    from nbsketch.solvers.sgm import SGMSearch

    search = SGMSearch(ArrayDesign(Z), Y, loss, **options)
    largest = np.full(len(order) // options["batch_size"], (Z**2).sum(axis=1).max())
    search.run(Z, order, largest)
    return search.point[:, :-1].T, search.point[:, -1]


@pytest.mark.parametrize("loss", LOSSES)
def test_columns_of_labels_are_classes_one_by_one(loss):
    rng = np.random.default_rng(1)
    Z, Y = rng.normal(size=(50, 4)), np.sign(rng.normal(size=(50, 3)))
    options = {"step": 0.5, "batch_size": 2, "n_steps": 200, "alpha": 0.1, "rng": 0}
    both = solve_sgm(Z, Y, loss, fit_intercept=True, **options)
    for j in range(3):
        one = solve_sgm(Z, Y[:, j], loss, fit_intercept=True, **options)
        assert_allclose(both.coef[:, j], one.coef, atol=1e-12)
        assert both.intercept[j] == pytest.approx(one.intercept, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [2, 3])
def test_decisions_come_near_those_of_the_certified_solver(loss, classes):
    X, y = data(3000, classes)
    exact = SketchedKernelClassifier(loss=loss, alpha=1e-2, **FIXED).fit(X, y)
    # steps of a constant length come as near as they are short
    model = classifier(loss=loss, alpha=1e-2, step=0.03).fit(X, y)
    scale = np.abs(exact.decision_function(X)).max()
    error = np.abs(model.decision_function(X) - exact.decision_function(X)).mean()
    assert error < 0.05 * scale
    assert (model.predict(X) == exact.predict(X)).mean() > 0.97
    assert model.coef_.shape == ((30,) if classes == 2 else (30, 3))
    assert model.decision_function(X).shape == ((3000,) if classes == 2 else (3000, 3))


def test_length_scales_are_learned_unasked():
    X, y = data(3000, 3)
    noise = np.random.default_rng(5).normal(size=(3000, 4))
    rows = np.hstack([X, noise])
    model = SketchedSGDClassifier(size=60, random_state=0)
    model.fit(rows[:2000], y[:2000])
    assert model.score(rows[2000:], y[2000:]) > 0.8
    assert model.length_scales_[:2].max() < model.length_scales_[2:].min()
    assert "length-scales" in model.summary() and model.alpha_ > 0


def test_probabilities():
    X, y = data(2000)
    model = classifier(loss="logistic").fit(X, y)
    chances = model.predict_proba(X)
    assert_allclose(chances[:, 1], expit(model.decision_function(X)))
    assert_allclose(chances.sum(axis=1), 1.0)
    X, y = data(2000, 3)
    chances = classifier(loss="logistic").fit(X, y).predict_proba(X)
    assert chances.shape == (2000, 3)
    assert_allclose(chances.sum(axis=1), 1.0)
    with pytest.raises(AttributeError, match="no attribute 'predict_proba'"):
        _ = classifier().fit(X, y).predict_proba


def test_a_stream_of_chunks_and_saving_it(tmp_path):
    X, y = data(2000, 3)
    model, other = classifier(loss="logistic"), classifier(loss="logistic")
    chunks = [(X[k : k + 500], y[k : k + 500]) for k in range(0, 2000, 500)]
    for chunk in chunks:
        model.partial_fit(*chunk)
    assert model.score(X, y) > 0.85 and model.n_steps_ == 2000
    other.partial_fit_chunks(iter(chunks[:2]))
    other.save(tmp_path / "model.npz")
    other = nbsketch.load(tmp_path / "model.npz").partial_fit_chunks(chunks[2:])
    assert_array_equal(other.coef_, model.coef_)
    assert_array_equal(other.predict(X), model.predict(X))


def test_classes_that_come_later():
    X, y = data(2000, 3)
    first = np.flatnonzero(y != "high")[:500]
    model = classifier(loss="logistic")
    model.partial_fit(X[first], y[first], classes=NAMES)
    assert model.classes_.tolist() == sorted(NAMES)
    model.partial_fit(X, y)
    assert model.score(X, y) > 0.8
    model.partial_fit(X, y, classes=NAMES[::-1], sample_weight=np.ones(2000))
    with pytest.raises(ValueError, match="`classes` must be"):
        model.partial_fit(X, y, classes=["low", "high"])
    unannounced = classifier().partial_fit(X[first], y[first])
    before = unannounced.coef_
    with pytest.raises(ValueError, match=r"must hold the classes .* got \[.high.\]"):
        unannounced.partial_fit(X, y)
    assert unannounced.coef_ is before


def test_a_fit_forgets_the_classes_of_a_stream():
    X, y = data(600, 3)
    model = classifier(class_weight={"low": 2.0}).partial_fit(X, y)
    X, y = data(600)
    assert model.set_params(class_weight=None).fit(X, y).classes_.tolist() == [0, 1]


def test_weights_of_classes():
    X, y = data(1200, 3)
    weights = np.where(y == "low", 3.0, 1.0)
    expected = classifier().fit(X, y, sample_weight=weights)
    found = classifier(class_weight={"low": 3.0}).fit(X, y)
    assert_array_equal(found.coef_, expected.coef_)
    expected = classifier().partial_fit(X, y, NAMES, sample_weight=weights)
    found = classifier(class_weight={"low": 3.0}).partial_fit(X, y, NAMES)
    assert_array_equal(found.coef_, expected.coef_)
    rows = np.flatnonzero(y != "low")
    found.partial_fit(X[rows], y[rows])  # a chunk without the class
    expected.partial_fit(X[rows], y[rows])
    assert_array_equal(found.coef_, expected.coef_)
    rare = np.sort(np.r_[np.flatnonzero(y != "low"), np.flatnonzero(y == "low")[:12]])
    plain = classifier().fit(X[rare], y[rare])
    balanced = classifier(class_weight="balanced").fit(X[rare], y[rare])
    found, before = (m.predict(X[y == "low"]) == "low" for m in (balanced, plain))
    assert found.mean() > before.mean()


def test_early_stopping_takes_labels():
    X, y = data(2000, 3)
    model = classifier(early_stopping=True, n_epochs=4)
    model.fit(X[:1000], y[:1000], X_val=X[1000:], y_val=y[1000:])
    assert len(model.path_["error"]) > 3
    with pytest.raises(ValueError, match=r"`y_val` must hold .* got \[.other.\]$"):
        model.fit(X[:9], y[:9], X_val=X[:2], y_val=["other", "low"])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"loss": "square"}, "`loss` must be a margin loss"),
        ({"class_weight": "balanced"}, "`class_weight` must be None or a dict"),
        ({"class_weight": {"else": 2.0}}, "`class_weight` must be of the classes"),
        ({"early_stopping": True}, "`early_stopping` False in partial_fit"),
    ],
)
def test_errors_of_streams(options, message):
    X, y = data(200, 3)
    model = classifier(**options)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, classes=NAMES)
    assert not hasattr(model, "classes_")


class Batch:
    """A record batch of Arrow, as NumPy sees it."""

    def __init__(self, values):
        self.values = values
        self.shape = values.shape

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


def test_chunks_of_any_iterator():
    X, y = np.random.default_rng(0).normal(size=(900, 2)), np.arange(900.0)
    parts = [slice(k, k + 300) for k in range(0, 900, 300)]
    expected, found = (SketchedSGDRegressor(**FIXED) for _ in "12")
    for rows in parts:
        expected.partial_fit(X[rows], y[rows], y[rows] % 3)
    chunks = ((Batch(X[k]), Batch(y[k]), Batch(y[k] % 3)) for k in parts)
    found.partial_fit_chunks(chunks)
    assert_array_equal(found.coef_, expected.coef_)


def test_chunks_that_fail_or_stop():
    X, y = np.random.default_rng(0).normal(size=(600, 2)), np.arange(600.0)
    model = SketchedSGDRegressor(**FIXED).fit(X, y)
    before = model.coef_

    def breaking():
        yield X, y
        raise ConnectionError("no more")

    with pytest.raises(ConnectionError):
        model.partial_fit_chunks(breaking())
    assert model.coef_ is before
    with pytest.raises(TypeError, match=r"must yield tuples \(X, y\)"):
        model.partial_fit_chunks([X])
    read = []
    chunks = ((read.append(k) or X, y) for k in range(5))
    model.set_params(callback=lambda state: len(read) == 2).partial_fit_chunks(chunks)
    assert read == [0, 1]


@pytest.mark.parametrize("model", [SketchedSGDClassifier, SketchedSGDRegressor])
def test_a_strong_penalty_does_not_diverge(model):
    X, y = data(300)
    found = model(alpha=1e4, bandwidth=1.0, random_state=0).fit(X, y.astype(float))
    assert np.abs(found.coef_).max() < 1e-2
