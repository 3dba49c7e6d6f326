"""Joint quantile regression: optimality, crossing, intervals, calibration."""

import os

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import (
    GaussianKernel,
    JointQuantileRegressor,
    QuantileOutput,
    SketchedKernelRegressor,
    TabularKernelRegressor,
    _quantiles,
    datasets,
    load,
)
from nbsketch.losses import PinballLoss
from nbsketch.metrics import crossing_loss, pinball_loss

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
KERNEL = GaussianKernel(bandwidth=0.5)


def make_data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 2, size=(n, 1))
    y = np.sin(3 * X[:, 0]) + (0.1 + 0.3 * X[:, 0]) * rng.normal(size=n)
    return X, y


def make_model(**options):
    known = {"kernel": KERNEL, "size": 15, "alpha": 1e-3, "tol": 1e-6}
    return JointQuantileRegressor(**known | {"random_state": 0} | options)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_objective_is_the_minimum_of_a_conic_solver(fit_intercept):
    X, y = make_data(60)
    model = make_model(gamma=2.0, fit_intercept=fit_intercept).fit(X, y)
    S = model.sketch_.to_csr().toarray()
    K, d = KERNEL(X), len(LEVELS)
    values, vectors = np.linalg.eigh(S @ K @ S.T)
    kept = values > 1e-12 * values[-1]
    Z = K @ S.T @ (vectors[:, kept] / np.sqrt(values[kept]))
    T = QuantileOutput(LEVELS, 2.0).factor(d)
    W, b = cp.Variable((Z.shape[1], len(T))), cp.Variable((1, d))
    residual = y[:, None] - Z @ W @ T - (np.ones((60, 1)) @ b if fit_intercept else 0)
    tau = np.array(LEVELS)[None]
    loss = cp.sum(
        cp.maximum(cp.multiply(tau, residual), cp.multiply(tau - 1, residual))
    )
    problem = cp.Problem(cp.Minimize(loss / 60 + 5e-4 * cp.sum_squares(W)))
    assert_allclose(model.objective_, problem.solve(solver="CLARABEL"), rtol=3e-6)
    assert model.dual_gap_ <= 1e-6


@pytest.mark.parametrize("alpha", [1e-6, 1e-3])
def test_the_default_tolerance_is_enough_for_prediction(alpha):
    X, y = make_data()
    new_X, new_y = make_data(2000, seed=1)
    losses = []
    for options in ({"tol": 1e-8}, {}):
        model = JointQuantileRegressor(
            LEVELS, kernel=KERNEL, size=100, alpha=alpha, random_state=0, **options
        ).fit(X, y)
        losses.append(model.score(new_X, new_y))
    assert 1e-8 < model.dual_gap_ <= 1e-3
    assert losses[1] == pytest.approx(losses[0], rel=2e-3)


def test_independent_levels_are_separate_regressions():
    X, y = make_data(150)
    joint = make_model(gamma=1e6, tol=1e-9).fit(X, y).predict(X)
    for j, level in enumerate(LEVELS):
        single = SketchedKernelRegressor(
            KERNEL,
            loss=PinballLoss(level),
            size=15,
            alpha=1e-3,
            random_state=0,
            tol=1e-9,
        ).fit(X, y)
        assert_allclose(joint[:, j], single.predict(X), atol=5e-3)


def test_levels_hold_their_share_of_rows():
    X, y = make_data(1000)
    below = (y[:, None] < make_model().fit(X, y).predict(X)).mean(axis=0)
    # Rows that the curves pass through count either way.
    assert_allclose(below, LEVELS, atol=0.02)


def test_coupling_at_zero_gives_parallel_curves():
    X, y = make_data()
    curves = make_model(gamma=0.0).fit(X, y).predict(X)
    assert_allclose(np.ptp(curves - curves[:, :1], axis=0), 0, atol=1e-6)
    assert crossing_loss(curves) == 0


def test_sorting_ends_crossing_and_never_raises_the_loss():
    X, y = make_data(60)
    options = {"gamma": 1e6, "alpha": 1e-8, "size": 40}
    raw = make_model(**options, non_crossing=None).fit(X, y).predict(X)
    tidy = make_model(**options).fit(X, y).predict(X)
    assert crossing_loss(raw) > 0
    assert crossing_loss(tidy) == 0
    assert pinball_loss(y, tidy, LEVELS) <= pinball_loss(y, raw, LEVELS)


def test_constrained_quantiles_ascend_at_the_training_rows_by_themselves():
    X, y = make_data(60)
    options = {"gamma": 1e6, "alpha": 1e-7, "size": 40, "non_crossing": "constraint"}
    model = make_model(**options).fit(X, y)

    def unsorted(X):
        features = KERNEL(X, model.landmarks_) @ model.sketch_.weights.T
        return features @ model.coef_ + model.intercept_

    raw = unsorted(X)
    free = make_model(**options | {"non_crossing": None}).fit(X, y)
    assert crossing_loss(free.predict(X)) > 1e-3
    assert np.diff(raw, axis=1).min() > -1e-6
    assert_allclose(model.predict(X), raw, atol=1e-6)
    assert model.dual_gap_ <= 1e-6
    X_new = make_data(500, seed=1)[0]
    assert crossing_loss(model.predict(X_new)) == 0
    assert np.diff(unsorted(X_new), axis=1).min() < 0  # other rows need the sorting


def test_the_penalty_is_chosen_without_the_constraint():
    X, y = make_data(150)
    models = (
        make_model(alpha=None, gamma=1e6, non_crossing=kind).fit(X, y)
        for kind in ("sort", "constraint")
    )
    first, second = models
    assert first.alpha_ == second.alpha_
    assert second.objective_ >= first.objective_ * (1 - 1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_calibrated_intervals_cover_even_a_model_that_does_not():
    X, y = make_data(1500)
    X_new, y_new = make_data(4000, seed=1)
    # Almost no penalty on few rows: quantiles that are far too narrow.
    options = {"quantiles": (0.05, 0.5, 0.95), "alpha": 1e-9, "size": 60}
    plain = make_model(**options).fit(X[:100], y[:100])
    calibrated = make_model(**options, calibration=1400 / 1500).fit(X, y)

    def coverage(model):
        low, high = model.predict_interval(X_new, 0.9).T
        return ((low <= y_new) & (y_new <= high)).mean()

    assert coverage(plain) < 0.85
    error = np.sqrt(0.9 * 0.1 * (1 / 1400 + 1 / 4000))
    assert abs(coverage(calibrated) - 0.9) < 3 * error


def test_levels_between_the_fitted_ones_are_interpolated():
    X, y = make_data()
    model = make_model().fit(X, y)
    quantiles = np.sort(model.predict(X), axis=1)
    assert_allclose(model.predict_interval(X, 0.8), quantiles[:, [0, 4]])
    middle = (quantiles[:, [0, 4]] + quantiles[:, [1, 3]]) / 2
    assert_allclose(model.predict_interval(X, 0.6), middle)


@pytest.mark.parametrize("coverage", [0.9, 0.0, 1.0, "wide"])
def test_coverage_out_of_reach_is_refused(coverage):
    X, y = make_data(50)
    with pytest.raises((ValueError, TypeError), match="`coverage` must"):
        make_model().fit(X, y).predict_interval(X, coverage)


def test_too_few_calibration_rows_give_infinite_intervals():
    X, y = make_data(20)
    model = make_model(calibration=0.1, size=5).fit(X, y)  # two rows
    assert np.isinf(model.predict_interval(X, 0.8)).all()


def test_quantiles_of_any_level_are_between_the_fitted_ones():
    X, y = make_data()
    model = make_model().fit(X, y)
    q = model.predict(X)
    found = model.predict_quantiles(X, (0.05, 0.1, 0.2, 0.5, 0.95))
    assert_allclose(found[:, [1, 3]], q[:, [0, 2]])
    assert_allclose(found[:, 2], (q[:, 0] + q[:, 1]) / 2)
    # exponential tails of the slope between the two outermost levels
    low = 0.1 * (q[:, 1] - q[:, 0]) / 0.2
    assert_allclose(found[:, 0], q[:, 0] + low * np.log(0.5))
    high = 0.1 * (q[:, 4] - q[:, 3]) / 0.2
    assert_allclose(found[:, 4], q[:, 4] - high * np.log(0.5))
    assert (np.diff(found, axis=1) >= 0).all()


def test_the_distribution_function_is_the_inverse_of_the_quantiles():
    X, y = make_data()
    model = make_model().fit(X, y)
    levels = np.linspace(0.02, 0.98, 25)
    values = model.predict_quantiles(X[:20], levels)
    assert_allclose(model.predict_cdf(X[:20], values), np.tile(levels, (20, 1)))
    grid = model.predict_cdf(X[:20], [-50.0, 0.0, 50.0])
    assert grid.shape == (20, 3) and (np.diff(grid, axis=1) > 0).all()
    assert_allclose(grid[:, [0, 2]], [[0.0, 1.0]] * 20, atol=1e-9)
    with pytest.raises(ValueError, match="`y` must be a number or have shape"):
        model.predict_cdf(X[:20], values[:3])


def test_calibrated_quantiles_have_their_levels_for_a_model_that_does_not():
    """The penalty is far too strong: the fitted quantiles are nearly constant."""
    levels, shares, plain = np.array([0.05, 0.1, 0.5, 0.9, 0.97]), [], []
    for seed in range(40):
        X, y = make_data(300, seed)
        new_X, new_y = make_data(400, 1000 + seed)
        options = {"fit_intercept": False, "alpha": 1.0, "tol": 1e-3}
        model = make_model(calibration=0.4, random_state=seed, **options).fit(X, y)
        found = model.predict_quantiles(new_X, levels)
        shares.append((new_y[:, None] <= found).mean(axis=0))
        plain.append((new_y[:, None] <= np.sort(model.predict(new_X))).mean(axis=0))
    assert_allclose(np.mean(shares, axis=0)[1:4], levels[1:4], atol=0.02)
    assert_allclose(np.mean(shares, axis=0)[[0, 4]], levels[[0, 4]], atol=0.04)
    assert abs(np.mean(plain, axis=0) - LEVELS).max() > 0.1


def test_alpha_is_chosen_and_the_score_is_minus_the_pinball_loss():
    X, y = make_data(200)
    model = make_model(alpha=None).fit(X, y)
    assert 1e-10 < model.alpha_ < 10
    assert model.score(X, y) == -pinball_loss(y, model.predict(X), LEVELS)


def test_a_path_and_a_file(tmp_path):
    X, y = make_data(100)
    first, last = make_model(alpha=None).fit_path(X, y, [1.0, 1e-4])
    assert first.score(X, y) < last.score(X, y)
    model = make_model(calibration=0.2).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert (again.predict_interval(X, 0.5) == model.predict_interval(X, 0.5)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantiles": (0.9, 0.1)}, "`quantiles` must be strictly ascending"),
        ({"quantiles": (0.0, 0.5)}, "`quantiles` must be strictly ascending"),
        ({"gamma": -1.0}, "`gamma` must be in"),
        ({"non_crossing": "never"}, "`non_crossing` must be one of"),
        (
            {"non_crossing": "constraint", "fit_intercept": False},
            "`fit_intercept` must be True for non_crossing='constraint', got False",
        ),
        (
            {"non_crossing": "constraint", "solver": "adam"},
            "`solver` must be 'auto' for non_crossing='constraint', got 'adam'",
        ),
        ({"calibration": 1.0}, "`calibration` must be in"),
        ({"calibration": 0.999}, "`calibration` must leave samples to fit on"),
    ],
)
def test_bad_options_are_refused(options, message):
    X, y = make_data(50)
    with pytest.raises(ValueError, match=message):
        make_model(**options).fit(X, y)


@pytest.mark.skipif("NBSKETCH_DATA" not in os.environ, reason="needs the data sets")
@pytest.mark.thin(every=3)
@pytest.mark.parametrize("name", ["concrete", "airfoil", "powerplant"])
def test_calibrated_intervals_cover_on_real_data(name):
    data = getattr(datasets, f"load_{name}")(download=False)
    (X, y), (X_new, y_new) = data.random_split(0, fractions=(0.7, 0.3))
    scale = X.std(axis=0)
    options = {"bandwidth": "median", "size": 60, "tol": 1e-4, "random_state": 0}
    model = JointQuantileRegressor((0.1, 0.5, 0.9), calibration=0.4, **options)
    model.fit(X / scale, y)
    low, high = model.predict_interval(X_new / scale, coverage=0.8).T
    covered = ((low <= y_new) & (y_new <= high)).mean()
    # Both the calibration rows and the new ones are a sample.
    error = np.sqrt(0.8 * 0.2 * (1 / len(model.calibration_) + 1 / len(y_new)))
    assert abs(covered - 0.8) <= 2 * error


def test_one_level_says_nothing_of_others():
    X = np.linspace(0, 1, 40)[:, None]
    model = JointQuantileRegressor((0.9,), kernel="linear", alpha=1e-3)
    model.fit(X, X[:, 0])
    assert np.array_equal(model.predict_quantiles(X, 0.9), model.predict(X))
    with pytest.raises(ValueError, match="`quantiles` must have two or more levels"):
        model.predict_quantiles(X, [0.1, 0.9])
    with pytest.raises(ValueError, match="two or more levels for predict_cdf"):
        model.predict_cdf(X, 0.5)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("c", [0.0, 0.1, 3.0, 1e6])
@pytest.mark.parametrize("model", [JointQuantileRegressor(), TabularKernelRegressor()])
def test_the_distribution_of_a_constant_target_is_a_jump(model, c):
    X = np.random.default_rng(0).normal(size=(50, 2))
    model.set_params(random_state=0).fit(X, np.full(50, c))
    values = [c - 1, np.nextafter(c, -np.inf), c, c + 1]
    assert model.predict_cdf(X[:1], values).tolist() == [[0.0, 0.0, 1.0, 1.0]]


def test_calibrated_intervals_of_an_interpolating_model_keep_their_order():
    rng = np.random.default_rng(0)
    X = np.repeat(np.linspace(0, 1, 40), 5)[:, None]
    model = JointQuantileRegressor(
        (0.05, 0.95), bandwidth=1.0, alpha=1e-3, calibration=0.5, random_state=0
    )
    y = np.where(rng.random(200) < 0.1, 3.0, 0.0) * rng.normal(size=200)
    low, high = model.fit(X, y).predict_interval(X, 0.5).T
    assert (low <= high).all()


def test_crossed_ends_are_their_middle():
    ends = np.array([[2.0, 1.0], [-np.inf, np.inf], [0.0, 1.0]])
    expected = [[1.5, 1.5], [-np.inf, np.inf], [0.0, 1.0]]
    assert _quantiles.uncrossed(ends).tolist() == expected
    assert _quantiles.uncrossed(ends[:, None]).tolist() == [[e] for e in expected]


def test_moves_of_calibrated_quantiles_are_rounded_away_from_the_median():
    model = JointQuantileRegressor((0.2, 0.9), kernel="linear", alpha=1.0)
    X = np.linspace(0, 1, 20)[:, None]
    model.fit(X, np.zeros(20))
    y = np.arange(1.0, 10.0)  # nine residuals: ranks are tenths
    model.calibration_ = np.column_stack([np.zeros((9, 2)), y])
    model.calibration_weights_ = None
    found = model.predict_quantiles(X[:1], [0.2, 0.9])
    assert_allclose(found, [[2.0, 9.0]], atol=1e-6)
    model.calibration_ = np.column_stack([np.zeros((8, 2)), y[:8]])
    found = model.predict_quantiles(X[:1], [0.2, 0.9])  # ranks 1.8 and 8.1 of nine
    assert_allclose(found, [[1.0, 8.0]], atol=1e-6)


@pytest.mark.parametrize("calibration", [0.0, 0.3])
@pytest.mark.parametrize("constant", [0.1, 1 / 3, 1e6 + 0.1, -0.7])
def test_quantiles_of_constants_ascend_despite_rounding(constant, calibration):
    X, y = make_data(100)
    model = JointQuantileRegressor(
        size=30, bandwidth=1.0, calibration=calibration, random_state=0
    )
    levels = np.linspace(0.01, 0.99, 77)
    quantiles = model.fit(X, 0 * y + constant).predict_quantiles(X, levels)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    assert_allclose(quantiles, constant, rtol=1e-9)


@pytest.mark.parametrize("levels", [(0.1, 0.5, 0.9), np.float32([0.1, 0.5, 0.9])])
@pytest.mark.parametrize("coverage", [0.8, np.float32(0.8)])
def test_levels_and_coverage_in_single_precision_are_those_in_double(levels, coverage):
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = JointQuantileRegressor(levels, size=20, bandwidth=1.0, random_state=0)
    ends = model.fit(X, X[:, 0]).predict_interval(X, coverage)
    assert_allclose(ends, model.predict(X)[:, [0, 2]], atol=1e-6)
