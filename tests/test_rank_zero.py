"""Rows on which a kernel is zero: every model is its constant, without an error."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from nbsketch import (
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelClassifier,
    load,
)

N = 12
Y = np.random.default_rng(0).normal(size=N) + 5
LABELS = np.repeat(["a", "b", "c"], [7, 3, 2])
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2, N)
MEAN = np.average(Y, weights=WEIGHTS)
# Zero rows of the kernels whose rank is zero on them.
ROWS = {
    "linear": np.zeros((N, 2)),
    "sparse": sp.csr_array((N, 2)),
    "precomputed": np.zeros((N, N)),
}
# Where the fits have no settings, one output, weighted rows: the constant.
MODELS = [
    (SketchedKernelRegressor, {}, Y, MEAN),
    (SketchedKernelRegressor, {"size": 4}, Y, MEAN),
    (SketchedKernelRegressor, {"sketch": "leverage", "size": 3}, Y, MEAN),
    (SketchedKernelRegressor, {"loss": "poisson"}, Y, MEAN),
    (SketchedKernelRegressor, {"loss": "huber"}, Y, None),
    (SketchedKernelRegressor, {"fit_intercept": False}, Y, 0.0),
    (SketchedKernelRegressor, {}, np.c_[Y, -Y], [MEAN, -MEAN]),
    (SpectralFilterRegressor, {}, Y, MEAN),
    (JointQuantileRegressor, {"alpha": 0.1}, Y, None),
    (SketchedKernelClassifier, {}, LABELS, "a"),
    (SketchedKernelClassifier, {"loss": "logistic"}, LABELS, "a"),
    (SketchedSGDRegressor, {}, Y, None),
    (SketchedSGDRegressor, {"alpha": 0.1}, Y, None),
    (SketchedSGDRegressor, {"fit_intercept": False}, Y, 0.0),
    (SketchedSGDClassifier, {"alpha": 0.1}, LABELS, "a"),
    (InputOutputKernelRegressor, {"output_kernel": "linear"}, np.zeros((N, 2)), 0.0),
]


def fitted(estimator, X, y):
    is_weighted = not isinstance(estimator, InputOutputKernelRegressor)
    return estimator.fit(X, y, **{"sample_weight": WEIGHTS} if is_weighted else {})


def quiet(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", "no penalty from")
        return fitted(estimator, X, y)


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("rows", ROWS)
def test_models_are_constants_and_saved(rows, tmp_path):
    X = ROWS[rows]
    for kind, settings, y, constant in MODELS:
        kernel = "precomputed" if rows == "precomputed" else "linear"
        model = quiet(kind(kernel=kernel, random_state=0, **settings), X, y)
        predictions = model.predict(X)
        assert_array_equal(predictions, np.tile(predictions[:1].T, N).T)
        if isinstance(constant, str):
            assert predictions[0] == constant
        elif constant is not None:
            assert_allclose(predictions[0], constant, rtol=1e-5)
        elif kind is not JointQuantileRegressor:
            assert abs(predictions[0] - np.median(Y)) < 0.5
        model.save(tmp_path / "model.npz")
        for copied in (load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
            assert_array_equal(copied.predict(X), predictions)
        assert "nan" not in model.summary()


@pytest.mark.parametrize("kind", [SketchedSGDRegressor, SketchedSGDClassifier])
def test_streams_may_begin_with_zero_rows(kind):
    rng = np.random.default_rng(2)
    zeros, later = np.zeros((600, 2)), rng.normal(size=(3000, 2))
    for settings in ({}, {"alpha": 1e-3}):
        model = kind("linear", random_state=0, **settings)
        model.partial_fit(zeros, rng.random(600) < 0.5)
        targets = later[:, 0] > 0
        assert len(np.unique(model.predict(later))) == 1
        for _ in range(3):  # columns that were zero are learned
            model.partial_fit(later, targets)
        assert model.score(later, targets) > 0.5


SKETCHES = "p-sparsified gaussian leverage srht countsketch sparse-jl accumulation"


@pytest.mark.parametrize("sketch", SKETCHES.split())
def test_every_sketch(sketch):
    X = np.zeros((N, N))
    model = quiet(SketchedKernelRegressor("precomputed", sketch=sketch), X, Y)
    assert model.rank_ == 0
    assert_allclose(model.predict(X), MEAN)
    features = SketchedFeatures("precomputed", sketch=sketch).fit(X)
    assert features.transform(X).shape == (N, 0)


def test_quantiles_are_those_of_the_targets():
    X = np.zeros((N, 2))
    levels = [0.25, 0.75]
    model = JointQuantileRegressor(levels, kernel="linear", alpha=0.1).fit(X, Y)
    low, high = model.predict(X)[0]
    assert np.mean(Y - low <= 1e-4) == pytest.approx(0.25, abs=1 / N)
    assert np.mean(Y - high <= 1e-4) == pytest.approx(0.75, abs=1 / N)


def test_steps_without_intercept_have_not_diverged():
    X = np.random.default_rng(3).normal(size=(100, 1))
    model = SketchedSGDRegressor("linear", fit_intercept=False, random_state=0)
    model.fit(X, 10 + X[:, 0])  # the loss of zero is a hundred times that of the mean
    assert np.isfinite(model.coef_).all()


def test_zero_output_kernels_are_refused_by_name():
    X = np.random.default_rng(0).normal(size=(N, 2))
    model = InputOutputKernelRegressor(output_kernel="linear", output_size=1)
    with pytest.raises(ValueError, match="`output_kernel` must not be zero"):
        model.fit(X, np.zeros((N, 2)))


@pytest.mark.filterwarnings("ignore:no penalty:UserWarning")
@pytest.mark.parametrize("n", [29, 30, 50])
@pytest.mark.parametrize("loss", ["square", "huber", "logistic"])
def test_equal_rows_have_a_constant_whatever_rounding_makes_of_their_features(loss, n):
    """Products round equal rows differently: a variance of 1e-32 is none."""
    y = np.random.default_rng(0).normal(size=n)
    X = np.ones((n, 2))
    if loss == "logistic":
        model = SketchedKernelClassifier(loss=loss, random_state=0).fit(X, y > 0)
        expected = np.log(np.mean(y > 0) / np.mean(y < 0))
    else:
        model = SketchedKernelRegressor(loss=loss, random_state=0).fit(X, y)
        expected = y.mean() if loss == "square" else model.intercept_
        assert abs(model.predict(X[:1])[0] - y.mean()) < 0.1
    assert abs(model.intercept_ - expected) < 2e-3 and model.alpha_ > 1e-3


def test_trees_without_splits_are_saved(tmp_path):
    X, y = np.zeros((60, 2)), np.arange(60) % 2
    model = TabularKernelClassifier(random_state=0).fit(X, y)
    assert model.partners_
    model.save(tmp_path / "m.npz")
    np.testing.assert_allclose(load(tmp_path / "m.npz").predict_proba(X[:2]), 0.5)
