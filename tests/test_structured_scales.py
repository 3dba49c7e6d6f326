"""Structured prediction: length scales of the inputs, default sketches, summary."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import nbsketch
from nbsketch import InputOutputKernelRegressor
from nbsketch.kernels import GaussianKernel
from nbsketch.structured._outputs import principal_targets


def labels(n=250, q=8, seed=0):
    """Return inputs of which two features matter, and sets of three labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) * np.linspace(1, 30, q)
    first, second = X[:, 0], X[:, 1] / np.std(X[:, 1])
    return X, np.column_stack([first > 0, second > 0, first * second > 0]).astype(int)


def fitted(**options):
    return InputOutputKernelRegressor(random_state=0, **options).fit(*labels())


@pytest.mark.parametrize("output_kernel", ["gaussian", "linear"])
@pytest.mark.parametrize("size", [None, 100])
def test_learned_length_scales_decode_better(output_kernel, size):
    X, Y = labels(seed=1)
    common = {"output_kernel": output_kernel, "size": size, "alpha": 1e-3}
    learned, median = fitted(**common), fitted(bandwidth="median", **common)
    assert learned.length_scales_[:2].max() < learned.length_scales_[2:].min()
    assert median.length_scales_ is None
    wrong = [np.mean(model.predict(X) != Y) for model in (learned, median)]
    assert wrong[0] < 0.6 * wrong[1]


def test_length_scales_are_learned_unless_a_bandwidth_is_given():
    X, Y = labels(100)
    unasked, asked = (
        InputOutputKernelRegressor(bandwidth=given, random_state=0).fit(X, Y)
        for given in (None, "auto")
    )
    assert_array_equal(unasked.length_scales_, asked.length_scales_)
    assert_array_equal(unasked.predict(X), asked.predict(X))
    for options in (
        {"bandwidth": 2.0},
        {"bandwidth": "median"},
        {"kernel": GaussianKernel(2.0)},
        {"kernel": "linear"},
    ):
        model = InputOutputKernelRegressor(random_state=0, **options).fit(X, Y)
        assert model.length_scales_ is None and model.scaler_ is None
    many = np.hstack([X] * 7)
    for rows in (sp.csr_array(X), many):
        assert InputOutputKernelRegressor().fit(rows, Y).length_scales_ is None


def test_many_inputs_are_selected_and_the_model_is_saved(tmp_path):
    X, Y = labels(q=90)
    model = InputOutputKernelRegressor(bandwidth="auto", size=50, random_state=0)
    model.fit(X, Y).save(tmp_path / "model.npz")
    assert model.scaler_ is not None and model.landmarks_.shape[1] < 90
    again = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(again.predict(X), model.predict(X))
    lines = [line for line in again.summary().split("\n") if "length-scales" in line]
    assert len(lines) == 1 and " x0 " in lines[0] and " x1 " in lines[0]


def test_sketches_that_are_not_named():
    assert fitted().sketch_.is_identity
    one = fitted(size=20)
    assert one.sketch_.shape[0] == 20 and one.output_sketch_.is_identity
    other = fitted(output_size=4)
    assert other.output_sketch_.shape[0] == 4 and other.sketch_.is_identity
    with pytest.raises(ValueError, match="size"):
        fitted(sketch="identity", size=20)


def test_summary():
    text = fitted(size=20, bandwidth="median").summary()
    for words in ("size 20", "GaussianKernel, bandwidth", "candidates    4", "1e-05"):
        assert words in text


def test_principal_targets_are_those_of_the_gram_matrix():
    Y = np.random.default_rng(0).normal(size=(60, 2))
    found = principal_targets(GaussianKernel(2.0), Y, np.random.default_rng(0))
    K = GaussianKernel(2.0)(Y)
    centered = K - K.mean(axis=0)
    axes = np.linalg.eigh(centered.T @ centered / 60)[1]
    expected = centered @ axes[:, -5:]
    assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)
    assert (
        principal_targets(GaussianKernel(1.0), Y[:1], np.random.default_rng(0)).shape[0]
        == 1
    )


@pytest.mark.parametrize("output_kernel", ["gaussian", "linear"])
@pytest.mark.parametrize("bandwidth", [None, "auto"])
def test_equal_outputs_take_the_median_bandwidth(output_kernel, bandwidth):
    X, _ = labels(60)
    Y = np.full((60, 2), 3.0)
    model = InputOutputKernelRegressor(
        output_kernel=output_kernel, bandwidth=bandwidth, random_state=0
    ).fit(X, Y)
    assert model.length_scales_ is None
    assert model.kernel_ == GaussianKernel("median").resolve(X, None)
    assert_array_equal(model.predict(X), Y)


def test_errors_and_few_rows():
    X, Y = labels(40)
    model = InputOutputKernelRegressor(bandwidth="auto")
    with pytest.raises(ValueError, match="`bandwidth` can be 'auto' for dense X"):
        model.fit(sp.csr_array(X), Y)
    with pytest.raises(ValueError, match="`bandwidth` can be 'auto' for dense X"):
        InputOutputKernelRegressor("linear", bandwidth="auto").fit(X, Y)
    assert model.fit(X[:20], Y[:20]).length_scales_ is None
