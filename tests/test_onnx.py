"""Graphs of expansions: onnxruntime predicts what the model predicts."""

import numpy as np
import pytest
import scipy.sparse as sp

from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TanimotoKernel,
)

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4))
X[:, 1] = np.round(X[:, 1])  # ties of ranks
X[:, 2] = np.exp(3 * X[:, 2])  # a heavy tail
Y = np.sin(X[:, 0]) + X[:, 1]
NEW = np.vstack([X[:50], 3 * RNG.normal(size=(100, 4))])
SMALL = {"size": 30, "random_state": 0}


def scores(model, path, rows=NEW):
    model.to_onnx(path / "model.onnx")
    session = onnxruntime.InferenceSession(path / "model.onnx")
    return session.run(["scores"], {"X": rows})[0]


@pytest.mark.thin(times=1)
@pytest.mark.parametrize(
    "kernel", ["auto", "gaussian", "laplacian", "matern", "linear", "polynomial"]
)
@pytest.mark.parametrize("preprocessing", [None, "standard", "both"])
@pytest.mark.filterwarnings("ignore:the kernel hardly")  # the heavy tail, cubed
def test_kernels_and_preprocessing(kernel, preprocessing, tmp_path):
    model = SketchedKernelRegressor(kernel, preprocessing=preprocessing, **SMALL)
    expected = model.fit(X, Y).predict(NEW)
    found = scores(model, tmp_path)
    np.testing.assert_allclose(found, expected, atol=1e-6 * abs(expected).max())


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (SketchedKernelRegressor(sketch="p-sparsified", **SMALL), "predict"),
        (SketchedKernelRegressor(sketch="identity", alpha=1e-3), "predict"),
        (SketchedKernelClassifier(**SMALL), "decision_function"),
        (SketchedKernelRegressor(loss="poisson", **SMALL), "predict"),
        (SpectralFilterRegressor(**SMALL), "predict"),
        (SketchedSGDRegressor(**SMALL), "predict"),
        (JointQuantileRegressor((0.2, 0.8), non_crossing=None, **SMALL), "predict"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_models(model, method, tmp_path):
    counts = getattr(model, "loss", None) == "poisson"
    model.fit(X, Y > 0 if counts or method == "decision_function" else Y)
    expected = getattr(model, method)(NEW)
    found = scores(model, tmp_path)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-6 * abs(expected).max())


def test_the_loss_is_that_of_the_fit(tmp_path):
    model = SketchedKernelRegressor(loss="poisson", **SMALL).fit(X, Y > 0)
    expected = model.predict(NEW), model.summary()
    model.set_params(loss="square")
    np.testing.assert_allclose(scores(model, tmp_path), expected[0], rtol=1e-5)
    assert model.summary() == expected[1]


def test_several_outputs(tmp_path):
    model = SketchedKernelRegressor(**SMALL).fit(X, np.column_stack([Y, -2 * Y]))
    np.testing.assert_allclose(scores(model, tmp_path), model.predict(NEW), atol=1e-5)


def test_kernels_without_a_graph_are_refused(tmp_path):
    rows = abs(X)
    for model, data in (
        (SketchedKernelRegressor(TanimotoKernel(), **SMALL), rows),
        (SketchedKernelRegressor(lambda A, B: A @ B.T, **SMALL), rows),
        (SketchedKernelRegressor("gaussian", **SMALL), sp.csr_array(rows)),
    ):
        with pytest.raises(TypeError, match="`kernel` must be Gaussian, Laplacian"):
            model.fit(data, Y).to_onnx(tmp_path / "model.onnx")


@pytest.mark.filterwarnings("ignore:.X. varies in")  # too little to count
@pytest.mark.thin(times=1)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", ["auto", "gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("preprocessing", ["auto", None, "standard", "rank", "both"])
@pytest.mark.parametrize("offset", [1.7e9, 1.7e12])
def test_columns_with_a_large_offset(kernel, preprocessing, offset, dtype, tmp_path):
    """Differences that are exact in the type of the rows."""
    spread = 1.0 if dtype is np.float64 else offset / 1e4
    rows = np.column_stack([offset + spread * X[:, 0], X[:, 1]]).astype(dtype)
    model = SketchedKernelRegressor(kernel, preprocessing=preprocessing, **SMALL)
    expected = model.fit(rows, Y).predict(rows)
    found = scores(model, tmp_path, rows.astype(float))
    room = 1e-8 if dtype is np.float64 else 1e-6
    np.testing.assert_allclose(found, expected, atol=room * np.ptp(Y))


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "matern"])
def test_landmarks_in_two_far_groups(kernel, tmp_path):
    rows = X + 1e7 * (X[:, :1] > 0)
    model = SketchedKernelRegressor(kernel, bandwidth=1.0, **SMALL).fit(rows, Y)
    found = scores(model, tmp_path, rows)
    np.testing.assert_allclose(found, model.predict(rows), atol=1e-8 * np.ptp(Y))
