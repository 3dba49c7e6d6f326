"""Names and parameters of losses as scikit-learn has them, and scores of means."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import nbsketch
from nbsketch.losses import (
    EpsilonInsensitiveLoss,
    GammaLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    PinballLoss,
    PoissonLoss,
    SquaredEpsilonInsensitiveLoss,
    SquaredHingeLoss,
    SquareLoss,
    as_loss,
)

NAMES = {
    "squared_error": SquareLoss(),
    "absolute_error": EpsilonInsensitiveLoss(0.0),
    "epsilon_insensitive": EpsilonInsensitiveLoss(),
    "squared_epsilon_insensitive": SquaredEpsilonInsensitiveLoss(),
    "quantile": PinballLoss(0.5),
    "huber": HuberLoss(),
    "poisson": PoissonLoss(),
    "gamma": GammaLoss(),
}
MARGINS = {
    "hinge": HingeLoss(),
    "squared_hinge": SquaredHingeLoss(),
    "log_loss": LogisticLoss(),
}


@pytest.mark.parametrize("name", [*NAMES, *MARGINS])
def test_names_of_scikit_learn(name):
    X = np.linspace(0, 1, 20)[:, None]
    is_label = name in MARGINS
    kinds = [nbsketch.SketchedKernelRegressor, nbsketch.SketchedSGDRegressor]
    if is_label:
        kinds = [nbsketch.SketchedKernelClassifier, nbsketch.SketchedSGDClassifier]
    for kind in kinds[: 1 if name in ("poisson", "gamma") else 2]:
        first, second = (
            kind("linear", loss=loss, alpha=0.1, random_state=0)
            for loss in (name, (NAMES | MARGINS)[name])
        )
        y = X[:, 0] > 0.4 if is_label else 1.0 + X[:, 0]
        expected = second.fit(X, y).coef_
        np.testing.assert_array_equal(first.fit(X, y).coef_, expected)


def test_a_name_stands_for_a_new_loss():
    as_loss("absolute_error").set_params(epsilon=1.0)
    assert as_loss("absolute_error") == EpsilonInsensitiveLoss(0.0)


def test_parameters_of_losses_can_be_searched():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 1))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    loss = HuberLoss(2.0)
    model = nbsketch.SketchedKernelRegressor("linear", loss=loss, alpha=1e-3)
    assert model.get_params()["loss__kappa"] == 2.0
    search = GridSearchCV(model, {"loss__kappa": [1e-3, 1.0]}, cv=2).fit(X, y)
    assert search.best_estimator_.loss == HuberLoss(search.best_params_["loss__kappa"])
    assert loss == HuberLoss(2.0)
    assert clone(loss) == loss
    assert clone(loss) is not loss
    assert clone(loss).set_params(kappa=0.5) == HuberLoss(0.5)
    with pytest.raises(ValueError, match="`kappa` must be"):
        clone(loss).set_params(kappa=-1.0)
    with pytest.raises(ValueError, match="a parameter of a loss"):
        clone(loss).set_params(epsilon=1.0)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.0]])
@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_scores_of_equal_targets(loss, weights):
    X, y = (
        np.arange(3.0)[:, None],
        np.array([2.0, 2.0, 2.0 if weights is None else 5.0]),
    )
    options = {"loss": loss, "alpha": 1.0}
    exact = nbsketch.SketchedKernelRegressor("linear", **options)
    assert exact.fit(X, np.full(3, 2.0)).score(X, y, weights) == 1.0
    assert exact.fit(X, np.arange(1.0, 4.0)).score(X, y, weights) == 0.0
