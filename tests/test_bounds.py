"""Bad indices and weights are refused by each public way in, before compiled code."""

import numpy as np
import pytest
import scipy.sparse as sp

import nbsketch
from nbsketch import GaussianKernel, LinearKernel, PrecomputedKernel
from nbsketch.gram import Gram
from nbsketch.sketches import DenseSketch, IdentityMatrix, Sketch, TransformSketch
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.newton import solve_scalar

X = np.random.default_rng(0).normal(size=(12, 3))


def crafted(attribute, value, kind=sp.csr_array, shape=(4, 3)):
    """Return a sparse matrix of which one pointer or index is wrong."""
    matrix = kind(np.ones(shape))
    array = np.array(getattr(matrix, attribute))
    array[2] = value
    setattr(matrix, attribute, array)
    return matrix


BAD = [("indices", 10**8), ("indices", -1), ("indptr", 10**8), ("indptr", -1)]
EACH_BAD = pytest.mark.parametrize(("attribute", "value"), BAD)
EACH_KIND = pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix])


@EACH_KIND
@EACH_BAD
def test_a_sketch_of_a_matrix_of_the_user(attribute, value, kind):
    with pytest.raises(ValueError, match=r"`matrix(.indices)?` must"):
        Sketch(crafted(attribute, value, kind))


@EACH_BAD
def test_rows_and_landmarks(attribute, value):
    bad, good = crafted(attribute, value), sp.csr_array(np.ones((4, 3)))
    kernel = GaussianKernel(1.0)
    for call in (
        lambda: kernel(bad),
        lambda: kernel(good, bad),
        lambda: Gram(kernel, bad),
        lambda: Gram(kernel, good, bad),
        lambda: Gram(kernel, X, bad),
    ):
        with pytest.raises(ValueError, match=r"must (have|be in)"):
            call()


@EACH_KIND
@EACH_BAD
def test_a_sparse_factor_of_a_gram_matrix(attribute, value, kind):
    bad = crafted(attribute, value, kind, (12, 3))
    with pytest.raises(ValueError, match=r"`B(.indices)?` must"):
        Gram(LinearKernel(), X) @ bad


@EACH_BAD
@pytest.mark.parametrize(
    "model",
    [
        nbsketch.SketchedKernelRegressor(bandwidth=1.0, size=3, alpha=1.0),
        nbsketch.SketchedSGDRegressor(bandwidth=1.0, size=3),
        nbsketch.InputOutputKernelRegressor(bandwidth=1.0),
        nbsketch.SketchedFeatures(bandwidth=1.0, size=3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_rows_of_an_estimator(model, attribute, value):
    rows, targets = sp.csr_array(np.ones((4, 3))), np.arange(4.0)
    if isinstance(model, nbsketch.InputOutputKernelRegressor):
        targets = targets[:, None]
    model.fit(rows, targets)
    with pytest.raises(ValueError, match="must"):
        model.fit(crafted(attribute, value), targets)
    use = getattr(model, "predict", None) or model.transform
    with pytest.raises(ValueError, match="must"):
        use(crafted(attribute, value))


@EACH_BAD
def test_outputs_of_a_structured_predictor(attribute, value):
    model = nbsketch.InputOutputKernelRegressor(bandwidth=1.0, output_bandwidth=1.0)
    model.fit(np.eye(4), sp.csr_array(np.ones((4, 3))))
    bad = crafted(attribute, value)
    with pytest.raises(ValueError, match=r"`Y(.indices)?` must"):
        model.fit(np.eye(4), bad)
    with pytest.raises(ValueError, match=r"`candidates(.indices)?` must"):
        model.predict(np.eye(4), bad)


@pytest.mark.parametrize("index", [[12], [-1], [0, 10**8]])
def test_landmarks_of_a_precomputed_kernel(index):
    K = X @ X.T
    with pytest.raises(ValueError, match=r"`landmarks` must be in \[0, 11\]"):
        Gram(PrecomputedKernel(), K, np.array(index))
    with pytest.raises(ValueError, match=r"`landmarks` must be in \[0, 11\]"):
        PrecomputedKernel()(K, index)
    with pytest.raises(TypeError, match="`landmarks` must be indices"):
        PrecomputedKernel()(K, [0.5])


@pytest.mark.parametrize("rows", [[3, 1], [12], [-1, 2], [0, 10**8]])
def test_rows_of_a_design(rows):
    design, index = ArrayDesign(X), np.array(rows)
    for call in (
        lambda: design.gather(index),
        lambda: design.rmv(np.ones(len(rows)), index),
        lambda: design.gram(index),
    ):
        with pytest.raises(ValueError, match=r"`rows` must ascend within \[0, 11\]"):
            call()


@pytest.mark.parametrize("rows", [[16], [-1], []])
def test_rows_of_a_transform(rows):
    signs = np.ones(12, dtype=np.int8)
    with pytest.raises(ValueError, match=r"`rows` must be in \[0, 15\]"):
        TransformSketch("hadamard", signs, np.array(rows, dtype=int), 1.0)
    with pytest.raises(ValueError, match="`signs` must be 1 or -1"):
        TransformSketch("hadamard", 2 * signs, np.array([1]), 1.0)
    with pytest.raises(ValueError, match="`scale` must be"):
        TransformSketch("hadamard", signs, np.array([1]), np.inf)


def test_other_matrices_of_sketches():
    with pytest.raises(TypeError, match="`matrix` must be a sparse matrix"):
        Sketch(np.eye(3))
    with pytest.raises(ValueError, match="`matrix` must be finite"):
        Sketch(sp.csr_array(np.full((2, 2), np.nan)))
    with pytest.raises(ValueError, match="`matrix` must be finite"):
        DenseSketch(np.full((2, 2), np.inf))
    with pytest.raises(TypeError, match="`matrix` must be float32 or float64"):
        DenseSketch(np.ones((2, 2), dtype=np.float16))
    with pytest.raises(ValueError, match="`matrix` must be the identity"):
        IdentityMatrix(sp.csr_array(2 * np.eye(3)))


@pytest.mark.parametrize(
    "weights",
    [np.ones(11), np.zeros(12), -np.ones(12), np.full(12, np.nan), np.full(12, np.inf)],
    ids=["short", "zero", "negative", "nan", "infinite"],
)
def test_sample_weights(weights):
    y = X[:, 0]
    for call in (
        lambda: nbsketch.SketchedKernelRegressor(size=3, bandwidth=1.0, alpha=1.0).fit(
            X, y, weights
        ),
        lambda: nbsketch.SketchedSGDRegressor(size=3, bandwidth=1.0).fit(X, y, weights),
        lambda: nbsketch.SketchedKernelClassifier(size=3, bandwidth=1.0).fit(
            X, y > 0, weights
        ),
        lambda: nbsketch.JointQuantileRegressor(size=3, bandwidth=1.0).fit(
            X, y, weights
        ),
        lambda: nbsketch.SpectralFilterRegressor(size=3, bandwidth=1.0).fit(
            X, y, weights
        ),
        lambda: solve_scalar(X, y, "huber", 1.0, sample_weight=weights),
    ):
        with pytest.raises(ValueError, match=r"(?i)sample.weight"):
            call()
