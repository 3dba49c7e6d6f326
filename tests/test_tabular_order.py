"""Tables whose rows depend on their neighbors: the warning and its check."""

from unittest import mock

import numpy as np
import pytest
from tables import small_leaves, training

from nbsketch import (
    DependentRowsWarning,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch.tabular import fit
from nbsketch.tabular.ridge import table_order


def series(n, seed=0):
    """Return (X, y) whose neighboring rows nearly repeat each other."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(n, 6))
    for t in range(1, n):
        steps[t] = 0.99 * steps[t - 1] + np.sqrt(1 - 0.99**2) * steps[t]
    return steps[:, :5], np.sin(steps[:, 0]) + steps[:, 5]


def order_of(X, y):
    scales = np.full(X.shape[1], 0.5)
    return table_order(scales, training(X, (y - y.mean())[:, None] / y.std()))


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("alone", [300, 50], ids=["one leaf", "leaves"])
def test_a_series_is_warned_of_once_and_shuffled_rows_are_not(alone):
    X, y = series(300)
    model = TabularKernelRegressor(random_state=0)
    order = np.random.default_rng(0).permutation(300)
    with small_leaves(alone):
        with pytest.warns(DependentRowsWarning, match="Pass cv=5") as caught:
            model.fit(X, y)
        model.fit(X[order], y[order])
    assert len(caught) == 1 and caught[0].filename == __file__


def test_classes_of_a_series_are_warned_of():
    X, y = series(1000)
    model = TabularKernelClassifier(partners=None, random_state=0)
    with pytest.warns(DependentRowsWarning):
        model.fit(X, y > 0)


def test_no_warning_where_blocks_are_left_out():
    X, y = series(250)
    TabularKernelRegressor(cv=5, random_state=0).fit(X, y)


def test_the_check_has_no_part_in_the_model():
    X, y = series(300)
    shuffled = np.random.default_rng(0).permutation(300)
    model = TabularKernelRegressor(random_state=0)
    known = model.fit(X[shuffled], y[shuffled]).predict(X)
    nothing = mock.Mock(return_value=mock.Mock(is_contradicted=False))
    with mock.patch.object(fit, "table_order", nothing):
        found = model.fit(X[shuffled], y[shuffled]).predict(X)
    assert nothing.called
    np.testing.assert_array_equal(found, known)


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("noise", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("tails", [1.5, 30.0])
def test_independent_rows_do_not_contradict(noise, tails):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n, q = int(np.exp(rng.uniform(np.log(50), np.log(3000)))), rng.integers(1, 8)
        X = rng.standard_t(2, size=(n, q))
        y = np.sin(X[:, 0]) + X.sum(axis=1) + noise * rng.standard_t(tails, size=n)
        assert not order_of(X, y).is_contradicted


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", range(3))
def test_long_series_contradict_by_two_thousand_rows(seed):
    X, y = series(2500, seed)
    outside = np.arange(2500) % 125 >= 100
    found = order_of(X, y)
    assert found.is_contradicted
    # 20 blocks of 100 rows, evenly spaced; the scale of the targets is that of all rows
    other = np.where(outside[:, None], 5.0, X)
    scales = np.full(5, 0.5)
    Y = (y - y.mean())[:, None] / y.std()
    assert table_order(scales, training(other, Y)) == found


def test_weights_are_relative():
    X, y = series(300)
    scales, Y = np.full(5, 0.5), y[:, None]
    plain = table_order(scales, training(X, Y))
    weighted = table_order(scales, training(X, Y, np.full(300, 3.0)))
    np.testing.assert_allclose(weighted, plain, rtol=1e-6)
