"""The example of docs/files.rst predicts what the saved model predicts."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from nbsketch import (
    JointQuantileRegressor,
    LandmarkSketch,
    SketchedKernelRegressor,
    SpectralFilterRegressor,
)

EXAMPLE = Path(__file__).parents[1] / "docs" / "predict_numpy.py"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4))
X[:, 1] = np.round(X[:, 1])  # ties of ranks
X[:, 2] = np.exp(3 * X[:, 2])  # a heavy tail
Y = np.sin(X[:, 0]) + X[:, 1]
NEW = np.vstack([X[:50], 3 * RNG.normal(size=(100, 4))])
MODELS = [
    SketchedKernelRegressor(),
    SketchedKernelRegressor(size=40),
    SketchedKernelRegressor("gaussian", bandwidth=2.0, size=40),
    SketchedKernelRegressor("laplacian", preprocessing="both", size=40),
    SketchedKernelRegressor("laplacian", bandwidth=[1.0, 2.0, 9.0, 3.0], size=40),
    SketchedKernelRegressor(sketch="p-sparsified", size=30),
    SketchedKernelRegressor(sketch="countsketch", size=30),
    SketchedKernelRegressor(sketch=LandmarkSketch(X[:20])),
    SketchedKernelRegressor(loss="poisson", size=40),
    SketchedKernelRegressor(loss="huber", bandwidth=2.0, alpha=1e-3),
    SpectralFilterRegressor(size=40),
    JointQuantileRegressor(
        (0.2, 0.8), bandwidth=2.0, alpha=1e-3, size=40, non_crossing=None
    ),
]


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_numpy_predicts_from_the_file(model, outputs, tmp_path):
    counts = getattr(model, "loss", None) == "poisson"
    y = np.abs(Y) if counts else Y
    single = counts or isinstance(model, JointQuantileRegressor)
    if outputs == 2 and not single:
        y = np.column_stack([Y, Y**2])
    model.set_params(random_state=0).fit(X, y).save(tmp_path / "model.npz")
    found = runpy.run_path(str(EXAMPLE))["predict"](tmp_path / "model.npz", NEW)
    expected = model.predict(NEW)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())


def test_the_example_imports_numpy_alone():
    lines = EXAMPLE.read_text("utf-8").splitlines()
    imports = [line for line in lines if line.startswith(("import", "from"))]
    assert imports == ["import json", "import numpy as np"]
