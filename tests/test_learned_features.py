"""Length scales of transformers, learned from targets."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

import nbsketch
from nbsketch import RandomFourierFeatures, SketchedFeatures
from nbsketch.features import as_targets

TRANSFORMERS = [SketchedFeatures, RandomFourierFeatures]


def data(n=300, q=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) * np.linspace(1, 100, q)
    return X, np.sin(3 * X[:, 0])


def pipeline(kind, bandwidth):
    features = kind(bandwidth=bandwidth, size=100, random_state=0)
    return make_pipeline(features, Ridge(alpha=1e-4))


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_learned_scales_find_the_feature_that_matters(kind):
    X, y = data()
    new, truth = data(seed=1)
    learned = pipeline(kind, "auto").fit(X, y)
    median = pipeline(kind, "median").fit(X, y)
    assert learned[0].length_scales_.argmin() == 0
    assert median[0].length_scales_ is None
    assert learned.score(new, truth) > 0.95
    assert median.score(new, truth) < 0.5


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("kind", TRANSFORMERS)
@pytest.mark.parametrize("as_labels", [np.signbit, lambda y: np.where(y > 0, "a", "b")])
def test_labels_teach_scales(kind, as_labels):
    X, y = data()
    features = kind(bandwidth="auto", size=60, random_state=0)
    model = make_pipeline(features, LogisticRegression(C=100.0))
    model.fit(X, as_labels(y))
    new, truth = data(seed=1)
    assert features.length_scales_.argmin() == 0
    assert model.score(new, as_labels(truth)) > 0.9


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_many_features_are_selected_and_the_transformer_is_saved(kind, tmp_path):
    X, y = data(q=120)
    model = kind(bandwidth="auto", size=40, random_state=0).fit(X, y)
    assert model.scaler_ is not None
    assert np.isinf(model.length_scales_).any()
    Z = model.transform(X)
    assert_allclose(kind(**model.get_params()).fit_transform(X, y), Z, atol=1e-8)
    model.save(tmp_path / "model.npz")
    assert_array_equal(nbsketch.load(tmp_path / "model.npz").transform(X), Z)


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_other_bandwidths_ignore_the_targets(kind):
    X, y = data(100)
    one = kind(size=10, random_state=0).fit(X)
    two = kind(size=10, random_state=0).fit(X, y)
    assert_array_equal(one.transform(X), two.transform(X))
    few = kind(bandwidth="auto", size=10, random_state=0).fit(X[:20], y[:20])
    assert few.length_scales_ is None


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_a_summary_names_kernel_scales_and_size(kind):
    X, y = data(100)
    median = kind(size=10, random_state=0).fit(X).summary()
    assert kind.__name__ in median
    assert "GaussianKernel, bandwidth" in median
    learned = kind(bandwidth="auto", size=10, random_state=0).fit(X, y).summary()
    assert "length-scales x0" in learned
    assert "10" in learned


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_errors(kind):
    X, y = data(100)
    model = kind(bandwidth="auto", size=10)
    with pytest.raises(ValueError, match="`y` must be passed for bandwidth='auto'"):
        model.fit(X)
    with pytest.raises(ValueError, match=r"`y` must have shape \(100,\)"):
        model.fit(X, y[:-1])
    with pytest.raises(ValueError, match="`y` must be finite"):
        model.fit(X, np.full(100, np.nan))
    with pytest.raises(ValueError, match="`bandwidth` can be 'auto' for dense X"):
        model.fit(sp.csr_array(X), y)


def test_targets_of_labels_and_of_numbers():
    assert_array_equal(as_targets(["b", "a", "b"], 3), [[0, 1], [1, 0], [0, 1]])
    assert_array_equal(as_targets([2, 5, 5], 3), [[1, 0], [0, 1], [0, 1]])
    assert_array_equal(as_targets(np.arange(30), 30)[:, 0], np.arange(30.0))
    assert as_targets(np.ones((4, 3)), 4).shape == (4, 3)
