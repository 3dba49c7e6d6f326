"""Poisson and gamma losses: counts and positive targets, of the mean exp(f)."""

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import GammaRegressor, PoissonRegressor
from sklearn.metrics import mean_gamma_deviance, mean_poisson_deviance

from nbsketch import (
    GammaLoss,
    PoissonLoss,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    load,
)
from nbsketch.solvers import solve_dual, solve_generic, solve_scalar
from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import row_loss

BOTH = pytest.mark.parametrize("name", ["poisson", "gamma"])
LOSS = {"poisson": PoissonLoss(), "gamma": GammaLoss()}
LINEAR = {"poisson": PoissonRegressor, "gamma": GammaRegressor}
DEVIANCE = {"poisson": mean_poisson_deviance, "gamma": mean_gamma_deviance}


def make(name, n=200, scale=1.0, seed=0):
    """Rows, targets and weights; counts over exposures for the Poisson loss."""
    rng = np.random.default_rng(seed)
    X, weights = rng.normal(size=(n, 4)), rng.uniform(0.2, 2.0, size=n)
    mean = scale * np.exp(X @ [0.5, -0.3, 0.2, 0.0])
    if name == "gamma":
        return X, rng.gamma(2.0, mean / 2), weights / weights.mean()
    return X, rng.poisson(weights * mean) / weights, weights / weights.mean()


def reference(name, X, y, weights, alpha, **options):
    tol = 1e-11 * max(1.0, y.mean())  # of gradients
    model = LINEAR[name](alpha=alpha, tol=tol, solver="newton-cholesky", **options)
    return model.fit(X, y, sample_weight=weights)


def half_deviance(name, y, mean, weights=None):
    return DEVIANCE[name](y, mean, sample_weight=weights) / 2


@BOTH
def test_the_loss_of_a_row_is_half_the_deviance_of_scikit_learn(name):
    X, y, _ = make(name)
    loss, scores = LOSS[name], X[:, 0]
    expected = [half_deviance(name, y[[i]], np.exp(scores[[i]])) for i in range(len(y))]
    assert_allclose(loss.of_rows(loss.link(y), scores), expected, atol=1e-13)
    rows = row_loss(loss, loss.link(y))
    assert_allclose(rows.values(loss.link(y) - scores), expected, atol=1e-13)


@BOTH
def test_derivatives_are_those_of_finite_differences(name):
    X, y, weights = make(name)
    z, move, h = LOSS[name].link(y), X[:, 1].copy(), 1e-5
    rows, res = row_loss(LOSS[name], z), z - X[:, 0]
    up, here, down = (rows.values(res + t) for t in (h, 0.0, -h))
    point = rows.point(res, weights, res, 0.0)
    assert_allclose(point.a, (up - down) / (2 * h), rtol=1e-6, atol=1e-8)
    assert_allclose(point.curvature, (up - 2 * here + down) / h**2, rtol=1e-3)
    assert point.total == pytest.approx(weights @ point.a)

    def total(t):
        return weights @ rows.values(res - t * move)

    first, second = rows.slopes(0.3, res, move, weights, res, 0.0)
    assert first == pytest.approx((total(0.3 + h) - total(0.3 - h)) / (2 * h))
    more = rows.slopes(0.3 + h, res, move, weights, res, 0.0)[0]
    less = rows.slopes(0.3 - h, res, move, weights, res, 0.0)[0]
    assert second == pytest.approx((more - less) / (2 * h))


@BOTH
def test_fenchel_young_terms_are_those_of_a_conjugate_found_by_search(name):
    X, y, _ = make(name, n=20)
    z = LOSS[name].link(y)
    for i in range(20):
        one = row_loss(LOSS[name], z[[i]])
        a, r = one.clip(X[[i], 0]), X[[i], 1]

        def minus(u, one=one, a=a):
            return float(one.values(np.array([u]))[0] - a[0] * u)

        bounds = {"bounds": (-40.0, 40.0), "method": "bounded"}
        found = scipy.optimize.minimize_scalar(minus, **bounds, options={"xatol": 1e-9})
        term = one.young(r, np.ones(1), a)
        assert term == pytest.approx(one.values(r)[0] - a[0] * r[0] - found.fun, 1e-6)
    assert one.young(r, np.ones(1), one.clip(np.array([-1e9]))) >= 0


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("scale", [0.05, 1.0, 100.0])
@BOTH
def test_linear_features_give_the_coefficients_of_scikit_learn(
    name, scale, fit_intercept
):
    X, y, weights = make(name, scale=scale)
    known = {"fit_intercept": fit_intercept, "sample_weight": weights, "tol": 1e-13}
    found = solve_scalar(X, LOSS[name].link(y), LOSS[name], 1e-2, **known)
    expected = reference(name, X, y, weights, 1e-2, fit_intercept=fit_intercept)
    assert found.converged
    assert_allclose(found.coef, expected.coef_, atol=1e-6)
    assert found.intercept == pytest.approx(expected.intercept_, abs=1e-6)
    mean = np.exp(X @ found.coef + found.intercept)
    value = half_deviance(name, y, mean, weights) + 5e-3 * found.coef @ found.coef
    assert found.objective == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
@BOTH
def test_the_gap_bounds_the_distance_from_the_minimum(name, tol):
    for seed in range(10):
        X, y, weights = make(name, seed=seed)
        problem = X, LOSS[name].link(y), LOSS[name], 1e-3 * 10 ** (seed % 4)
        best = solve_scalar(*problem, sample_weight=weights, tol=1e-12)
        rough = solve_scalar(*problem, sample_weight=weights, tol=tol)
        above = rough.objective - best.objective
        assert -1e-12 <= above <= rough.gap + 1e-12 <= tol * rough.objective + 1e-12


@BOTH
def test_the_dual_on_all_rows_has_the_same_solution(name):
    X, y, weights = make(name)
    problem = LOSS[name].link(y), LOSS[name], 1e-2
    known = {"sample_weight": weights, "tol": 1e-10}
    found = solve_dual(X @ X.T, *problem, random_state=0, **known)
    expected = solve_scalar(X, *problem, **known)
    assert found.converged
    assert found.objective == pytest.approx(expected.objective, rel=1e-9)
    assert_allclose(X.T @ found.coef, expected.coef, atol=1e-4)


class Blocks(Design):
    """Features in blocks of 700 rows."""

    def __init__(self, Z):
        self.Z, self.shape, self.dtype = Z, Z.shape, Z.dtype

    def blocks(self):
        for start in range(0, len(self.Z), 700):
            stop = min(start + 700, len(self.Z))
            yield start, stop, self.Z[start:stop]


@BOTH
def test_blocks_of_rows_have_the_same_solution(name):
    X, y, weights = make(name, n=5000)
    problem = LOSS[name].link(y), LOSS[name], 1e-2
    known = {"sample_weight": weights, "tol": 1e-10}
    found = solve_scalar(Blocks(X), *problem, **known)
    expected = solve_scalar(X, *problem, **known)
    assert found.converged
    assert_allclose(found.coef, expected.coef, atol=1e-5)


@pytest.mark.parametrize("sketch", ["identity", "subsampling"])
@BOTH
def test_a_linear_kernel_gives_the_predictions_of_scikit_learn(name, sketch):
    X, y, weights = make(name, n=800)
    model = SketchedKernelRegressor(
        "linear", loss=name, sketch=sketch, alpha=1e-2, preprocessing=None,
        size=50 if sketch == "subsampling" else None, tol=1e-13, random_state=0,
    ).fit(X, y, weights)  # fmt: skip
    expected = reference(name, X, y, weights, 1e-2)
    assert_allclose(model.predict(X), expected.predict(X), rtol=1e-6)
    score = expected.score(X, y, weights)
    assert model.score(X, y, weights) == pytest.approx(score, abs=1e-6)
    assert 0 <= model.dual_gap_ <= 1e-12


def test_rates_weighted_by_exposure_are_counts_with_an_offset():
    X, rates, exposure = make("poisson")
    found = solve_scalar(
        X, PoissonLoss().link(rates), "poisson", 1e-2, sample_weight=exposure, tol=1e-13
    )
    counts = rates * exposure

    def objective(w):
        scores = X @ w[:4] + w[4] + np.log(exposure)
        return np.mean(np.exp(scores) - counts * scores) + 5e-3 * w[:4] @ w[:4]

    best = scipy.optimize.minimize(objective, np.zeros(5), options={"gtol": 1e-9}).x
    assert_allclose(np.append(found.coef, found.intercept), best, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("gamma", 300),
        ("poisson", 700),
        pytest.param("gamma", 1500, marks=pytest.mark.full),
        pytest.param("poisson", 1500, marks=pytest.mark.full),
        pytest.param("poisson", 300, marks=pytest.mark.full),
    ],
)
def test_everything_is_chosen_and_the_curve_is_found(name, n):
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, size=(n + 1000, 2))
    mean = np.exp(1.0 + np.sin(2 * X[:, 0]))
    y = rng.poisson(mean) if name == "poisson" else rng.gamma(2.0, mean / 2)
    train, test = slice(n), slice(n, None)
    model = SketchedKernelRegressor(loss=name, random_state=0).fit(X[train], y[train])
    found = model.predict(X[test])
    linear = reference(name, X[train], y[train], None, 1e-4).predict(X[test])
    error, rough = (np.abs(np.log(f / mean[test])).mean() for f in (found, linear))
    assert error < 0.3 * rough
    assert model.score(X[test], y[test]) > 0.1


def test_rare_events_are_no_outliers():
    rng = np.random.default_rng(4)
    X = rng.uniform(-3, 3, size=(4000, 1))
    mean = 0.03 * np.exp(np.sin(X[:, 0]))
    model = SketchedKernelRegressor(loss="poisson", size=30, random_state=0)
    found = model.fit(X, rng.poisson(mean)).predict(X)
    assert found.mean() == pytest.approx(mean.mean(), rel=0.15)
    assert np.corrcoef(np.log(found), np.sin(X[:, 0]))[0, 1] > 0.8


@BOTH
def test_paths_and_saved_models_predict_means(name, tmp_path):
    X, y, _ = make(name)
    model = SketchedKernelRegressor(loss=LOSS[name], size=20, random_state=0)
    alone = model.set_params(alpha=1e-2).fit(X, y)
    assert_allclose(model.fit_path(X, y, [1.0, 1e-2])[1].predict(X), alone.predict(X),
                    rtol=1e-3)  # fmt: skip
    alone.save(tmp_path / "model.nbs")
    assert_allclose(load(tmp_path / "model.nbs").predict(X), alone.predict(X))


@BOTH
def test_dask_collections_have_the_model_of_arrays(name):
    da = pytest.importorskip("dask.array")
    data = make(name, n=2000)
    model = SketchedKernelRegressor(
        "gaussian", bandwidth=2.0, loss=name, size=40, alpha=1e-3, random_state=0
    )
    expected, score = model.fit(*data).predict(data[0]), model.score(*data)
    lazy = [da.from_array(part, chunks=(700, *part.shape[1:])) for part in data]
    assert_allclose(model.fit(*lazy).predict(lazy[0]).compute(), expected, rtol=1e-5)
    assert model.score(*lazy) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("poisson", -1.0, "`y` must be nonnegative"),
        ("gamma", 0.0, "`y` must be positive"),
        ("gamma", -2.0, r"got -2\.0"),
    ],
)
def test_targets_out_of_range_are_named(name, wrong, words):
    X, y, _ = make(name)
    y[7] = wrong
    with pytest.raises(ValueError, match=words):
        SketchedKernelRegressor(loss=name).fit(X, y)


def test_counts_that_are_all_zero_are_refused():
    with pytest.raises(ValueError, match="positive sum"):
        SketchedKernelRegressor(loss="poisson").fit(np.eye(20), np.zeros(20))


@pytest.mark.parametrize("weighted", [False, True])
def test_folds_without_events_in_training_are_ignored(weighted, rng):
    """The others choose the penalty: a rate of 0 has an infinite loss."""
    X = rng.uniform(-2, 2, size=(150, 1))
    y = rng.poisson(np.exp(2 * X[:, 0] - 2))
    weights = rng.uniform(0.5, 2, size=150) if weighted else None
    tests = np.arange(50), np.arange(50, 100), np.flatnonzero(y)
    blocks = [(np.delete(np.arange(150), test), test) for test in tests]
    model = SketchedKernelRegressor(
        loss="poisson", bandwidth=1.0, random_state=0, cv=blocks[:2]
    )
    expected = model.fit(X, y, weights)
    model = clone(model).set_params(cv=blocks)
    with pytest.warns(UserWarning, match="in all training samples of 1 of the folds"):
        model.fit(X, y, weights)
    assert model.alpha_ == expected.alpha_
    model = clone(model).set_params(cv=blocks[2:])  # no fold is left: the strongest
    with np.errstate(all="raise", under="ignore"), pytest.warns(UserWarning):
        assert np.isfinite(model.fit(X, y, weights).predict(X)).all()


@BOTH
def test_what_is_not_offered_is_refused(name):
    X, y, _ = make(name)
    with pytest.raises(TypeError, match="stochastic steps"):
        SketchedSGDRegressor(loss=name).fit(X, y)
    with pytest.raises(TypeError, match="stochastic steps"):
        SketchedKernelRegressor(loss=name, solver="adam", alpha=1.0).fit(X, y)
    with pytest.raises(ValueError, match="one column"):
        SketchedKernelRegressor(loss=name).fit(X, np.column_stack([y, y]) + 1)
    with pytest.raises(TypeError, match="targets and scores"):
        solve_generic(X, y, LOSS[name], 1.0)
    with pytest.raises(TypeError, match="targets and scores"):
        LOSS[name].value(y)
