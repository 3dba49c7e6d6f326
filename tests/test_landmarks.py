"""Landmarks of one's own: points that need not be training rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem

from nbsketch import (
    GaussianKernel,
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    LandmarkSketch,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    SubsamplingSketch,
    load,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3)) * [1.0, 20.0, 0.1]
Y = np.sin(2 * X[:, 0]) + X[:, 1] / 20 + 0.1 * RNG.normal(size=150)
POINTS = RNG.normal(size=(25, 3)) * [1.0, 20.0, 0.1]


MODELS = [
    SketchedKernelRegressor(alpha=1e-3),
    SketchedKernelRegressor(preprocessing="both", bandwidth=2.0, alpha=1e-3),
    SketchedKernelRegressor(bandwidth="auto", preprocessing="standard", alpha=1e-3),
    SketchedKernelRegressor(loss="huber", alpha=1e-3, tol=1e-9),
    SketchedKernelRegressor(),
    SpectralFilterRegressor(alpha=1e-3),
    JointQuantileRegressor((0.2, 0.8), non_crossing=None, alpha=1e-3, tol=1e-9),
    SketchedKernelClassifier(alpha=1e-3, tol=1e-9),
]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_points_that_are_training_rows_are_their_sub_sample(model):
    is_classifier = isinstance(model, SketchedKernelClassifier)
    y = Y > 0 if is_classifier else Y
    sampled = clone(model).set_params(sketch=SubsamplingSketch(40), random_state=0)
    rows = sampled.fit(X, y).sketch_.columns
    given = clone(model).set_params(sketch=LandmarkSketch(X[rows]), random_state=0)
    given.fit(X, y)
    assert_allclose(given.landmarks_, sampled.landmarks_, rtol=1e-12)
    method = "decision_function" if is_classifier else "predict"
    found, expected = getattr(given, method)(X), getattr(sampled, method)(X)
    assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_features_are_those_of_the_nystrom_method_with_given_components():
    gamma = 1 / (2 * 15.0**2)
    reference = Nystroem(gamma=gamma, n_components=25, random_state=0).fit(POINTS)
    expected = reference.transform(X)
    model = SketchedFeatures(GaussianKernel(15.0), sketch=LandmarkSketch(POINTS))
    for found in (model.fit(X).transform(X), model.fit_transform(X)):
        assert_allclose(found @ found.T, expected @ expected.T, atol=1e-8)
    assert_array_equal(model.landmarks_, POINTS)
    assert model.sketch_.shape == (25, 25)


def test_ridge_regression_on_points_outside_is_the_closed_form():
    kernel, alpha = GaussianKernel(15.0), 1e-2
    model = SketchedKernelRegressor(
        kernel, sketch=LandmarkSketch(POINTS), alpha=alpha, fit_intercept=False
    ).fit(X, Y)
    cross, own = kernel(X, POINTS), kernel(POINTS, POINTS)
    left = cross.T @ cross + len(X) * alpha * own
    coef = np.linalg.solve(left, cross.T @ Y)
    assert_allclose(model.predict(X), cross @ coef, atol=1e-6)


def test_points_are_prepared_as_the_rows_are():
    model = SketchedKernelRegressor(
        sketch=LandmarkSketch(POINTS), preprocessing="both", bandwidth=2.0
    ).fit(X, Y)
    assert_array_equal(model.landmarks_, model.scaler_.transform(POINTS))
    learned = SketchedKernelRegressor(sketch=LandmarkSketch(POINTS), random_state=0)
    assert learned.fit(X, Y).score(X, Y) > 0.9
    assert len(learned.length_scales_) == 3


def test_blocks_of_features_are_those_in_memory(monkeypatch):
    """Features that are stored, and those that are computed in every pass."""
    model = SketchedKernelRegressor(sketch=LandmarkSketch(POINTS), bandwidth=15.0)
    expected = model.fit(X, Y).predict(X)
    monkeypatch.setattr("nbsketch._sketch_map.KEEP_BYTES", 0)
    monkeypatch.setattr("nbsketch._sketch_map.fits", lambda *_, **__: False)
    assert_allclose(model.fit(X, Y).predict(X), expected, atol=1e-6)


def test_sgd_in_memory_and_in_streams():
    sketch = LandmarkSketch(POINTS)
    model = SketchedSGDRegressor(sketch=sketch, bandwidth=15.0, random_state=0)
    assert model.fit(X, Y).score(X, Y) > 0.6
    stream = SketchedSGDRegressor(sketch=sketch, bandwidth=15.0, random_state=0)
    for _ in range(20):
        stream.partial_fit(X, Y)
    assert stream.score(X, Y) > 0.5


def test_sparse_rows_and_single_precision():
    rows = sp.random_array((200, 30), density=0.2, rng=1, format="csr")
    y = np.asarray(rows.sum(axis=1)).ravel()
    options = {"bandwidth": 2.0, "alpha": 1e-4}
    sketch = LandmarkSketch(rows[:20])
    expected = SketchedKernelRegressor(
        sketch=LandmarkSketch(rows[:20].toarray()), **options
    ).fit(rows.toarray(), y)
    for points in (sketch, LandmarkSketch(rows[:20].toarray())):
        model = SketchedKernelRegressor(sketch=points, **options).fit(rows, y)
        assert sp.issparse(model.landmarks_)
        found = model.predict(rows)
        assert_allclose(found, expected.predict(rows.toarray()), atol=1e-8)
    with pytest.raises(TypeError, match="`points` must be dense"):
        SketchedKernelRegressor(sketch=sketch, **options).fit(rows.toarray(), y)
    single = SketchedKernelRegressor(sketch=LandmarkSketch(POINTS), bandwidth=15.0)
    assert single.fit(X.astype(np.float32), Y).landmarks_.dtype == np.float32


def test_rows_of_dask(tmp_path):
    da = pytest.importorskip("dask.array")
    data = np.vstack([X] * 5)  # more than are brought to one process
    targets = np.tile(Y, 5)
    lazy = da.from_array(data, chunks=(400, 3)), da.from_array(targets, chunks=400)
    for loss in ("square", "huber"):
        model = SketchedKernelRegressor(
            sketch=LandmarkSketch(POINTS), loss=loss, bandwidth=15.0, alpha=1e-3
        )
        expected = model.fit(data, targets).predict(X)
        assert_allclose(model.fit(*lazy).predict(X), expected, atol=1e-4)
    features = SketchedFeatures(sketch=LandmarkSketch(POINTS), bandwidth=15.0)
    expected = features.fit(data).transform(X)
    assert_allclose(features.fit(lazy[0]).transform(X), expected, atol=1e-8)


def test_models_are_saved_summarized_and_cloned(tmp_path):
    model = SketchedKernelRegressor(sketch=LandmarkSketch(POINTS)).fit(X, Y)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert_array_equal(again.predict(X), model.predict(X))
    assert_array_equal(again.sketch.points, POINTS)
    assert "25 landmarks, LandmarkSketch (given)" in again.summary()
    assert_array_equal(clone(again).sketch.points, POINTS)
    assert repr(model.sketch) == "LandmarkSketch(points=<25 rows>)"


def test_data_frames_and_lists_are_points():
    pandas = pytest.importorskip("pandas")
    assert_array_equal(LandmarkSketch(pandas.DataFrame(POINTS)).points, POINTS)
    assert_array_equal(LandmarkSketch(POINTS.tolist()).points, POINTS)
    mine = POINTS.copy()
    kept = LandmarkSketch(mine)
    mine[:] = 0
    assert_array_equal(kept.points, POINTS)


@pytest.mark.parametrize("points", [np.zeros(3), [[np.nan, 1.0]], np.empty((0, 3))])
def test_points_that_are_no_rows_are_refused(points):
    with pytest.raises(ValueError, match="`points` must"):
        LandmarkSketch(points)


def test_what_does_not_fit_together_is_named():
    sketch = LandmarkSketch(POINTS)
    with pytest.raises(ValueError, match="`points` must have 2 columns as `X`, got 3"):
        SketchedKernelRegressor(sketch=sketch).fit(X[:, :2], Y)
    with pytest.raises(ValueError, match="`size` requires the name"):
        SketchedKernelRegressor(sketch=sketch, size=10).fit(X, Y)
    with pytest.raises(ValueError, match="`size` requires the name"):
        SketchedKernelRegressor(sketch=sketch, size="auto").fit(X, Y)
    with pytest.raises(ValueError, match="precomputed"):
        SketchedKernelRegressor("precomputed", sketch=sketch).fit(np.eye(150), Y)
    with pytest.raises(TypeError, match="with one kernel expansion"):
        InputOutputKernelRegressor(sketch=sketch).fit(X, np.column_stack([Y, Y]))
