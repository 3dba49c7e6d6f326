"""Importances of the columns of tables, and their length scales as a plot."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.inspection import permutation_importance

from nbsketch import TabularKernelClassifier, TabularKernelRegressor
from nbsketch.plots import plot_length_scales


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    X = pd.DataFrame(
        {
            "noise": rng.normal(size=n),
            "strong": a,
            "kind": rng.choice(["u", "v", "w"], n),
            "copy": a + 0.5 * rng.normal(size=n),
            "weak": rng.normal(size=n),
            "same": 1.0,
        }
    )
    y = 2 * np.sin(a) + 1.2 * (X["kind"] == "u") + 0.4 * X["weak"]
    return X, y.to_numpy() + 0.1 * rng.normal(size=n)


def test_importances_rank_as_those_of_permuted_test_rows():
    X, y = table()
    model = TabularKernelRegressor(random_state=0).fit(X[:300], y[:300])
    shares = model.feature_importances_
    assert shares.shape == (6,)
    assert abs(shares.sum() - 1) < 1e-12
    order = X.columns[np.argsort(-shares)].tolist()
    assert order[:3] == ["strong", "kind", "weak"]
    assert shares[5] == 0
    frame = X[300:]
    permuted = permutation_importance(
        model, frame, y[300:], n_repeats=3, random_state=0
    )
    expected = permuted.importances_mean / permuted.importances_mean.sum()
    assert np.abs(shares - expected).max() < 0.1


def test_classes_have_importances_and_models_must_be_fitted():
    X, y = table(200)
    model = TabularKernelClassifier(random_state=0)
    assert not hasattr(model, "feature_importances_")
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, y > 0.5)
    assert model.feature_importances_.argmax() == 1


def test_columns_are_selected_without_an_argument():
    X, y = table(200)
    numbers = X.drop(columns="kind")
    model = TabularKernelRegressor(random_state=0)
    assert SelectFromModel(model).fit(numbers, y).get_support()[1]
    chosen = RFE(model, n_features_to_select=2, step=2).fit(numbers, y)
    assert chosen.support_[1]
    assert not chosen.support_[[0, 4]].any()


def test_length_scales_of_tables_are_drawn():
    X, y = table(200)
    model = TabularKernelRegressor(random_state=0).fit(X, y)
    ax = plot_length_scales(model)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert sorted(labels) == sorted(model.columns_.feature_names)
    lengths = [bar.get_width() for bar in ax.patches]
    assert lengths == sorted(model.feature_relevance_, reverse=True)
