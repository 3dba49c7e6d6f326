"""Names of parameters: those of objects, and what is said of names that are none."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nbsketch import (
    GaussianKernel,
    HuberLoss,
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    OutputEmbedding,
    PSparsifiedSketch,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    TabularKernelRegressor,
    load,
)
from nbsketch.conformal import ConformalRegressor


@pytest.mark.parametrize(
    ("estimator", "name", "words"),
    [
        (SketchedKernelRegressor, "gamma", r"bandwidth=\(2 \* gamma\) \*\* -0.5"),
        (SketchedKernelClassifier, "C", r"alpha=1 / \(n \* C\)"),
        (TabularKernelRegressor, "n_jobs", "NUMBA_NUM_THREADS"),
        (TabularKernelRegressor, "gamma", "'gamma': tabular models choose"),
        (TabularKernelRegressor, "alpha", "'alpha': tabular models choose"),
        (TabularKernelRegressor, "max_depth", "'max_depth'$"),
        (SketchedSGDRegressor, "bandwith", "did you mean 'bandwidth'"),
        (SketchedFeatures, "n_components", "pass size"),
        (JointQuantileRegressor, "quantile", "did you mean 'quantiles'"),
        (ConformalRegressor, "estimater", "did you mean 'estimator'"),
    ],
)
def test_a_name_that_is_no_parameter_is_answered(estimator, name, words):
    with pytest.raises(TypeError, match=f"{estimator.__name__} has no .*{words}"):
        estimator(**{name: 1})


def test_constructors_show_their_parameters():
    names = inspect.signature(SketchedKernelRegressor).parameters
    assert list(names)[:2] == ["kernel", "bandwidth"]
    assert set(names) == set(SketchedKernelRegressor().get_params(deep=False))


def test_parameters_of_objects_are_parameters():
    model = SketchedKernelRegressor(
        GaussianKernel(2.0), loss="huber", sketch=PSparsifiedSketch(50, density=0.1)
    )
    params = model.get_params()
    assert params["kernel__bandwidth"] == 2.0
    assert params["loss__kappa"] is None and params["sketch__density"] == 0.1
    assert not [name for name in model.get_params(deep=False) if "__" in name]
    model.set_params(loss__kappa=0.3, sketch__size=20, alpha=0.5)
    assert model.loss == HuberLoss(0.3) and model.alpha == 0.5
    assert model.sketch == PSparsifiedSketch(20, density=0.1)
    assert clone(model).get_params() == model.get_params()


def test_a_loss_and_its_parameter_can_be_set_together():
    model = SketchedKernelRegressor()
    model.set_params(loss__kappa=2.0, loss="huber")
    assert model.loss == HuberLoss(2.0)


@pytest.mark.parametrize("name", ["loss__kapa", "kernel__bandwidth", "los__kappa"])
def test_others_are_refused(name):
    model = SketchedKernelRegressor(loss="huber")
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(**{name: 1.0})
    with pytest.raises(ValueError, match="`kappa` must be in"):
        model.set_params(loss__kappa=-1.0)
    assert model.loss == "huber"


def test_a_search_finds_the_parameter_of_a_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(1, size=200)
    model = SketchedKernelRegressor(loss="huber", size=30, alpha=1e-3, bandwidth=1.0)
    pipeline = make_pipeline(StandardScaler(), model)
    grid = {"sketchedkernelregressor__loss__kappa": [0.1, 1000.0]}
    scoring = "neg_median_absolute_error"
    search = GridSearchCV(pipeline, grid, cv=3, scoring=scoring).fit(X, y)
    assert list(search.best_params_.values()) == [0.1]


def test_constants_of_the_classes_of_objects_are_no_parameters():
    model = SketchedKernelRegressor(loss="huber", sketch=PSparsifiedSketch(50))
    names = {name for name in model.get_params() if "__" in name}
    assert names == {"loss__kappa", "sketch__size", "sketch__density", "sketch__law"}
    with pytest.raises(ValueError, match="Invalid parameter 'loss__is_radial'"):
        model.set_params(loss__is_radial=False)


@pytest.mark.parametrize(
    "model",
    [
        InputOutputKernelRegressor(GaussianKernel(1.0)),
        SketchedFeatures(GaussianKernel(1.0)),
        OutputEmbedding(GaussianKernel(1.0)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_parameters_of_kernels_of_outputs_and_features(model):
    name = "output_kernel" if isinstance(model, OutputEmbedding) else "kernel"
    assert model.get_params()[f"{name}__bandwidth"] == 1.0
    model.set_params(**{f"{name}__bandwidth": 2.0})
    assert getattr(model, name) == GaussianKernel(2.0)


@pytest.mark.parametrize(
    ("model", "change", "method"),
    [
        (SketchedKernelRegressor(), {"loss": "poisson"}, "predict"),
        (SketchedKernelRegressor(loss="poisson"), {"loss": "square"}, "predict"),
        (SketchedKernelClassifier(loss="logistic"), {"loss": "hinge"}, "predict_proba"),
        (SketchedSGDClassifier(loss="logistic"), {"loss": "hinge"}, "predict_proba"),
    ],
)
def test_a_loss_set_after_the_fit_waits_for_the_next_one(
    tmp_path, model, change, method
):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    model.set_params(bandwidth=1.0, random_state=0).fit(X, y)
    expected = getattr(model, method)(X)
    score = model.score(X, y)
    model.set_params(**change).save(tmp_path / "model.npz")
    for changed in (model, load(tmp_path / "model.npz")):
        assert_array_equal(getattr(changed, method)(X), expected)
        assert changed.score(X, y) == score


def test_probabilities_need_the_logistic_loss_in_the_fit():
    X = np.random.default_rng(0).normal(size=(60, 2))
    for model in (SketchedKernelClassifier(), SketchedSGDClassifier()):
        model.set_params(bandwidth=1.0).fit(X, X[:, 0] > 0)
        assert not hasattr(model.set_params(loss="logistic"), "predict_proba")
        assert hasattr(model.fit(X, X[:, 0] > 0), "predict_proba")


def test_quantiles_set_after_the_fit_wait_for_the_next_one():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = JointQuantileRegressor((0.1, 0.5, 0.9), bandwidth=1.0, alpha=1e-2)
    model.set_params(calibration=0.3, random_state=0).fit(X, X[:, 0])
    interval = model.predict_interval(X, 0.8)
    medians = model.predict_quantiles(X, 0.5)
    score = model.score(X, X[:, 0])
    model.set_params(quantiles=(0.05, 0.2, 0.95))
    assert_array_equal(model.predict_interval(X, 0.8), interval)
    assert_array_equal(model.predict_quantiles(X, 0.5), medians)
    assert model.score(X, X[:, 0]) == score


def test_the_models_of_a_path_have_their_loss():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = SketchedKernelRegressor(loss="huber", bandwidth=1.0)
    assert model.fit(X, X[:, 0]).loss_.kappa is not None
    for part in model.fit_path(X, X[:, 0], [1e-1, 1e-2]):
        assert part.loss_ == model.loss_
