"""The contract of scikit-learn, by its own checks."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import BaggingRegressor
from sklearn.model_selection import learning_curve
from sklearn.utils.estimator_checks import parametrize_with_checks

from nbsketch import (
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch.tuning import blocks, search


def no_repetition(reason):
    """Return the checks that a weight is a repetition, and why they fail."""
    kinds = "dense_data", "sparse_data"
    return {f"check_sample_weight_equivalence_on_{kind}": reason for kind in kinds}


DRAWN = no_repetition("rows are drawn: held-out rows, steps, or those of a sketch")
ORDER = no_repetition(
    "decision_function has a column for each output, in the order of the rows, which "
    "the check shuffles"
)

LEVELS = dict.fromkeys(
    (
        "check_regressors_train",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
    ),
    "predictions have one column for each level",
)

# An estimator of each class with the checks that it cannot pass, and why; two of them
# take weights as repetitions: without a sketch, with a given or median bandwidth. The
# gives folds to choose alpha by.
ESTIMATORS = [
    (SketchedKernelRegressor(), {}),
    (SketchedKernelRegressor(sketch="identity", bandwidth=1.0, alpha=0.1), {}),
    (
        SketchedKernelClassifier(
            class_weight="balanced", bandwidth="median", alpha=1e-3, tol=1e-9
        ),
        {},
    ),
    # repeated and weighted rows give predictions that agree up to the tolerance
    (
        JointQuantileRegressor(
            quantiles=(0.25, 0.75), bandwidth="median", alpha=1e-3, tol=1e-6
        ),
        LEVELS,
    ),
    (SketchedSGDRegressor(), DRAWN),
    (SketchedSGDClassifier(n_epochs=5), DRAWN),
    (SpectralFilterRegressor(), {}),
    (InputOutputKernelRegressor(), ORDER),
    (TabularKernelRegressor(random_state=0), DRAWN),
    (TabularKernelClassifier(partners=None, random_state=0), DRAWN),
    (SketchedFeatures(), {}),
    (RandomFourierFeatures(), {}),
]
OTHERS = [
    (JointQuantileRegressor(quantiles=(0.25, 0.75), alpha=1e-3, tol=1e-6), LEVELS),
    (SketchedKernelRegressor(sketch="identity"), {}),
    (SketchedKernelRegressor("precomputed", fit_intercept=False), {}),
    (SketchedKernelRegressor(loss="huber", bandwidth="median", tol=1e-9), {}),
    (SketchedKernelClassifier(alpha=1e-3), {}),
    (SketchedKernelClassifier(loss="logistic", bandwidth="median"), DRAWN),
    (SketchedSGDRegressor("gaussian", bandwidth="median"), DRAWN),
    (SketchedSGDClassifier(bandwidth=1.0, loss="logistic"), DRAWN),
    (SpectralFilterRegressor(filter="landweber", bandwidth="median"), {}),
    (
        SpectralFilterRegressor(
            filter="iterated-ridge", sketch="identity", bandwidth=1.0, alpha=0.1
        ),
        {},
    ),
    (
        InputOutputKernelRegressor(
            output_kernel="linear", sketch="subsampling", output_sketch="p-sparsified"
        ),
        DRAWN,
    ),
    (SketchedFeatures("precomputed", sketch="identity"), {}),
    (RandomFourierFeatures("laplacian", bandwidth=1.0), {}),
]


def expected_failures(estimator):
    return next(
        failures
        for other, failures in ESTIMATORS + OTHERS
        if repr(other) == repr(estimator)
    )


# Checks of scikit-learn have targets of noise, and classes of few rows.
pytestmark = [
    pytest.mark.filterwarnings("ignore:no penalty from:UserWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*have fewer than 5 samples:UserWarning"),
]


@pytest.fixture(autouse=True)
def brief_searches(monkeypatch):
    """Let searches for length scales end early: no check asks for the best."""
    monkeypatch.setattr(blocks, "_ROUNDS", 1)
    monkeypatch.setattr(blocks, "_STEPS", 3)
    monkeypatch.setattr(search, "_WIDE", (np.zeros(1), np.linspace(-9, 9, 5)))
    for name in ("_EVIDENCE", "_FURTHER", "SHORT"):
        stage = getattr(search, name)
        monkeypatch.setattr(search, name, stage._replace(iterations=3))


@pytest.mark.thin
@parametrize_with_checks(
    [estimator for estimator, _ in ESTIMATORS], expected_failed_checks=expected_failures
)
def test_contract(estimator, check):
    check(estimator)


@pytest.mark.full
@parametrize_with_checks(
    [estimator for estimator, _ in OTHERS], expected_failed_checks=expected_failures
)
def test_contract_of_other_parameters(estimator, check):
    check(estimator)


@pytest.mark.parametrize("loss", ["square", "huber"])
def test_searches_on_few_rows_take_all_of_them(loss, rng):
    X = rng.normal(size=(60, 2))
    y, model = (
        X[:, 0],
        SketchedKernelRegressor(
            loss=loss, size=40, bandwidth=1.0, alpha=1e-2, random_state=0
        ),
    )
    with pytest.warns(UserWarning, match="`size` exceeds the number of samples"):
        curve = learning_curve(model, X, y, train_sizes=[10, 40], cv=3)
        bags = BaggingRegressor(model, n_estimators=2, max_samples=0.3).fit(X, y)
    assert np.isfinite(curve[1]).all() and np.isfinite(bags.predict(X)).all()


@pytest.mark.parametrize("estimator", [case for case, _ in ESTIMATORS], ids=repr)
def test_notebooks_display_estimators_before_and_after_a_fit(estimator, rng):
    X = rng.normal(size=(30, 2))
    y = (X[:, :1] > 0).astype(int)
    model = clone(estimator)
    for name in {"loss", "quantiles"} & set(model.get_params(deep=False)):
        assert dir(clone(estimator).set_params(**{name: object()}))  # of a mistake
    assert dir(model)
    is_structured = isinstance(model, InputOutputKernelRegressor)
    model.fit(X, y if is_structured else y[:, 0])
    assert type(model).__name__ in model._repr_html_()
