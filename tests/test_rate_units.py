"""The unit of rates, and scales that change no digits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression

from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SpectralFilterRegressor,
    TabularKernelRegressor,
)
from nbsketch.solvers import solve_scalar

ALL_ROWS = {"kernel": "gaussian", "bandwidth": 1.0, "sketch": "identity"}


def counts(n, mean=50.0):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, rng.poisson(mean * np.exp(X[:, 0])).astype(float)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("unit", [1e-140, 1e-18, 1e-14, 1e7, 1e14, 1e100])
@pytest.mark.parametrize("loss", ["poisson", "gamma"])
@pytest.mark.parametrize(("n", "options"), [(60, {}), (600, ALL_ROWS)])
def test_fits_of_means_do_not_depend_on_their_unit(n, options, loss, unit):
    X, y = counts(n)
    y += loss == "gamma"
    power = 1 if loss == "poisson" else 0
    one, other = (
        SketchedKernelRegressor(loss=loss, random_state=0, **options).fit(X, c * y)
        for c in (1.0, unit)
    )
    assert_allclose(other.predict(X), unit * one.predict(X), rtol=1e-8)
    assert_allclose(other.alpha_, unit**power * one.alpha_, rtol=1e-8)
    assert_allclose(other.objective_, unit**power * one.objective_, rtol=1e-8)
    assert other.dual_gap_ < 1e-4


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("scale", [1e7, 1e9, 1e12])
def test_large_counts(scale, fit_intercept):
    X, y = counts(100)
    model = SketchedKernelRegressor(
        "gaussian", bandwidth=1.0, loss="poisson", alpha=1e-6 * scale,
        fit_intercept=fit_intercept, random_state=0, tol=1e-5,
    )  # fmt: skip
    assert model.fit(X, scale * y).score(X, scale * y) > 0.85


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_a_search_starts_at_the_mean(loss):
    y = np.log([1e9, 2e9, 6e9])  # so large that both links are the logarithm
    found = solve_scalar(np.zeros((3, 1)), y, loss, 1.0, max_iter=1)
    assert_allclose(found.intercept, np.log(3e9), rtol=1e-10)
    assert found.converged


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_targets_that_hardly_differ_take_few_steps(loss):
    X, _ = counts(200)
    y = 5 * (1 + 1e-9 * np.sin(3 * X[:, 0]))
    model = SketchedKernelRegressor(
        "gaussian", bandwidth=1.0, loss=loss, random_state=0
    )
    assert model.fit(X, y).n_iter_ <= 60
    assert_allclose(model.predict(X), y, rtol=2e-9)


def test_small_rates_without_an_intercept_are_an_error():
    X, y = counts(50)
    model = SketchedKernelRegressor(loss="poisson", fit_intercept=False)
    with pytest.raises(ValueError, match="`y` must have a mean of at least 1e-06"):
        model.fit(X, 1e-14 * y)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("exponent", [-40, 30])
@pytest.mark.parametrize(
    ("model", "power"),
    [
        (SketchedKernelRegressor(), 1),
        (SketchedKernelRegressor(loss="pinball"), 1),
        (SketchedKernelRegressor(loss="pinball", **ALL_ROWS), 1),
        (SketchedKernelRegressor(loss="poisson"), 1),
        (SketchedKernelRegressor(loss="gamma"), 1),
        (SpectralFilterRegressor(), 1),
        (JointQuantileRegressor((0.2, 0.8), bandwidth=1.0), 1),
    ],
    ids=str,
)
def test_powers_of_two_of_the_targets_change_no_digits(model, power, exponent):
    X, y = counts(501 if "identity" in str(model) else 50)
    y += 1.0
    model.set_params(random_state=0)
    expected = model.fit(X, y).predict(X)
    found = model.fit(X, 2.0**exponent * y).predict(X)
    assert_allclose(found, 2.0**exponent * expected, rtol=1e-6)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", ["square", "huber", "pinball", "poisson", "logistic"])
@pytest.mark.parametrize("exponent", [-40, 30])
def test_powers_of_two_of_the_columns_change_no_digits(loss, exponent):
    X, y = counts(50)
    is_label = loss == "logistic"
    kind = SketchedKernelClassifier if is_label else SketchedKernelRegressor
    model = kind(loss=loss, random_state=0)
    y = y > 50 if is_label else y
    expected = model.fit(X, y)._decision(X)
    found = model.fit(2.0**exponent * X, y)._decision(2.0**exponent * X)
    assert_array_equal(found, expected)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", ["poisson", "gamma"])
@pytest.mark.parametrize("unit", [1e9, 1e-14, 1e-40])
def test_tables_do_not_depend_on_the_unit_of_rates(loss, unit):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 2))
    y = np.exp(0.5 * X[:, 0]) * rng.gamma(2.0, 0.5, 150)
    y = np.floor(3 * y) / 3 if loss == "poisson" else y
    model = TabularKernelRegressor(
        loss=loss, partners=[LinearRegression()], random_state=0
    )
    expected = model.fit(X, y).predict(X), model.predict_interval(X, 0.8)
    assert expected[0].mean() == pytest.approx(y.mean(), rel=0.02)
    error = model.loo_error_
    model.fit(X, y * unit)
    for value, other in zip(
        (model.predict(X), model.predict_interval(X, 0.8)), expected, strict=True
    ):
        assert_allclose(value / unit, other, rtol=1e-6, atol=1e-6)
    power = 1 if loss == "poisson" else 0
    assert model.loo_error_ == pytest.approx(error * unit**power, rel=1e-9)
