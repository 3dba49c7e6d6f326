"""Losses given by code, and what the solvers do with losses that they cannot solve."""

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

from nbsketch import MaternKernel, SketchedKernelRegressor
from nbsketch.losses import (
    ELQ,
    HuberLoss,
    LogisticLoss,
    Loss,
    SquaredHingeLoss,
    SquareLoss,
)
from nbsketch.solvers import solve_generic, solve_radial, solve_scalar, solve_sgm

STEPS = {"step": 1.0, "batch_size": 1, "n_steps": 2}


class ByDerivative(Loss):
    """A built-in smooth loss of which a solver has value and derivative only."""

    def __init__(self, loss):
        self.loss, self.is_classification = loss, loss.is_classification

    def value(self, x):
        return self.loss.value(x)

    def derivative(self, x):
        return self.loss.derivative(x)


class LogCosh(Loss):
    def value(self, x):
        x = np.abs(np.asarray(x, dtype=float))
        return x + np.log1p(np.exp(-2 * x)) - np.log(2)

    def derivative(self, x):
        return np.tanh(x)


class Expectile(Loss):
    """Square loss of unequal sides."""

    def value(self, x):
        return np.where(np.asarray(x) > 0, 0.9, 0.1) * np.square(x)

    def derivative(self, x):
        return 2 * np.where(np.asarray(x) > 0, 0.9, 0.1) * np.asarray(x)


SMOOTH = [HuberLoss(0.5), SquareLoss(), SquaredHingeLoss(), LogisticLoss()]
WRAPPED = [ByDerivative(loss) for loss in SMOOTH]
both_intercepts = pytest.mark.parametrize("fit_intercept", [False, True])
each_wrapped = pytest.mark.parametrize("loss", WRAPPED, ids=lambda x: repr(x.loss))


def make(n=120, r=6, loss=None, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r)) * 0.7 ** np.arange(r)
    y = Z @ rng.normal(size=r) + 0.5 * rng.standard_t(3, size=n) + 0.4
    labels = loss is not None and loss.is_classification
    return Z, np.where(y > 0, 1.0, -1.0) if labels else y


def objective(Z, y, loss, alpha, w, b, s=1.0):
    f = Z @ w + b
    x = y * f if loss.is_classification else y - f
    return np.mean(s * loss.value(x)) + alpha / 2 * w @ w


@each_wrapped
@both_intercepts
@pytest.mark.parametrize("alpha", [1e-3, 1e-1])
def test_a_built_in_loss_written_by_hand(loss, fit_intercept, alpha):
    Z, y = make(loss=loss)
    s = np.random.default_rng(1).exponential(size=len(y))
    s[::6] = 0.0
    options = {"sample_weight": s / s.mean(), "fit_intercept": fit_intercept}
    found = solve_scalar(Z, y, loss, alpha, max_iter=5000, **options)
    best = solve_scalar(Z, y, loss.loss, alpha, tol=1e-12, **options)
    assert found.converged and found.relative_gap <= 1e-6
    point = found.coef, found.intercept, s / s.mean()
    assert_allclose(found.objective, objective(Z, y, loss, alpha, *point), rtol=1e-12)
    above = found.objective - best.objective
    assert -1e-12 <= above <= found.gap + best.gap
    assert_allclose(found.coef, best.coef, atol=0.02)


@pytest.mark.parametrize("loss", [LogCosh(), Expectile()])
@both_intercepts
def test_a_smooth_loss_against_bfgs(loss, fit_intercept):
    Z, y = make(n=300)

    def function(v):
        b = v[-1] if fit_intercept else 0.0
        return objective(Z, y, loss, 1e-2, v[:-1], b)

    best = scipy.optimize.minimize(function, np.zeros(7), options={"gtol": 1e-7})
    found = solve_generic(Z, y, loss, 1e-2, fit_intercept=fit_intercept, tol=1e-9)
    assert found.converged
    assert_allclose(found.objective, best.fun, rtol=1e-8)
    assert found.objective <= best.fun + found.gap


@each_wrapped
def test_the_gap_is_a_bound_wherever_the_search_stops(loss):
    rng = np.random.default_rng(3)
    for trial in range(12):
        n, r = int(rng.integers(3, 80)), int(rng.integers(1, 12))
        Z, y = make(n, r, loss, seed=trial)
        if not loss.is_classification:
            y = y + 10.0 ** rng.integers(0, 5)
        alpha, fit = 10.0 ** rng.integers(-7, 2), bool(trial % 2)
        best = solve_scalar(Z, y, loss.loss, alpha, fit_intercept=fit, tol=1e-10)
        for max_iter in (1, 2, 5, 21, 300):
            found = solve_generic(
                Z, y, loss, alpha, fit_intercept=fit, max_iter=max_iter, tol=1e-9
            )
            noise = 1e-14 * (np.abs(y).mean() + best.objective)
            assert found.gap >= found.objective - best.objective - best.gap - noise
            assert found.n_iter <= max_iter
            assert found.converged == (found.relative_gap <= 1e-9)


def test_an_optimum_at_infinity():
    Z, y = make(n=30)
    found = solve_generic(Z, np.ones(30), ByDerivative(LogisticLoss()), 1.0)
    assert found.objective <= max(found.gap, 1e-12)  # the infimum is zero

    class Linear(Loss):
        def value(self, x):
            return np.array(x)

        def derivative(self, x):
            return np.ones_like(x)

    found = solve_generic(Z, y, Linear(), 1.0, max_iter=5)
    assert not found.converged and np.isinf(found.gap)


def test_a_state_saves_iterations():
    Z, y = make(n=500)
    first = solve_generic(Z, y, LogCosh(), 1e-2)
    again = solve_generic(Z, y, LogCosh(), 1e-2, state=first.state)
    assert again.converged
    assert again.n_iter < first.n_iter / 2
    with pytest.raises(ValueError, match=r"`state\.coef` must have shape"):
        solve_generic(Z[:, :3], y, LogCosh(), 1e-2, state=first.state)


def test_a_callback_receives_each_certificate():
    Z, y = make()
    reports = []
    found = solve_generic(Z, y, LogCosh(), 1e-2, callback=lambda *x: reports.append(x))
    assert reports[0][0] == 0 and reports[-1][0] == found.n_iter
    assert reports[-1][2] == found.gap < reports[0][2]


@pytest.mark.parametrize("loss", [LogCosh(), Expectile()])
def test_an_estimator_takes_the_loss(loss):
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    model = SketchedKernelRegressor(
        loss=loss, alpha=1e-2, size=20, bandwidth=1.0, max_iter=10_000, random_state=0
    )
    assert model.fit(X, y).dual_gap_ <= 1e-6


# losses that are refused -------------------------------------------------------------


class Nothing(Loss):
    pass


class ValueOnly(Loss):
    def value(self, x):
        return np.square(x)


class ByProx(ValueOnly):
    def prox(self, x, step):
        return np.asarray(x) / (1 + 2 * step)


class WrongSlope(LogCosh):
    def derivative(self, x):
        return 2 * np.tanh(x)


class Concave(Loss):
    def value(self, x):
        return np.log1p(np.square(x))

    def derivative(self, x):
        return 2 * np.asarray(x) / (1 + np.square(x))


class NotHuber(HuberLoss):
    def value(self, x):
        return np.abs(x)


class Lopsided(Loss):
    is_radial = True

    @property
    def elq(self):
        return ELQ(0.5, 0.0, -1.0, 2.0)


class Falling(Loss):
    is_radial = True

    def value(self, x):
        return -np.abs(x)


class OtherLogistic(LogisticLoss):
    def value(self, x):
        return 2 * super().value(x)

    def derivative(self, x):
        return 2 * super().derivative(x)


Z0, Y0 = make(n=40)


@pytest.mark.parametrize("solve", [solve_scalar, solve_generic])
@pytest.mark.parametrize("loss", [Nothing(), ValueOnly(), ByProx()])
def test_a_loss_that_says_too_little(solve, loss):
    with pytest.raises(TypeError, match="`loss` must override `elq`, or `value` and"):
        solve(Z0, Y0, loss, 1e-2)


@pytest.mark.parametrize("loss", [WrongSlope(), Concave(), NotHuber()])
def test_a_loss_that_contradicts_itself(loss):
    with pytest.raises(ValueError, match="`loss` must"):
        solve_scalar(Z0, Y0, loss, 1e-2)


def test_a_subclass_of_the_logistic_loss_is_solved_for_what_it_is():
    y = np.where(Y0 > 0, 1.0, -1.0)
    found = solve_scalar(Z0, y, OtherLogistic(), 2e-2, tol=1e-10)
    half = solve_scalar(Z0, y, LogisticLoss(), 1e-2, tol=1e-10)
    assert_allclose(found.objective, 2 * half.objective, rtol=1e-9)
    with pytest.raises(TypeError, match="`loss` must be logistic or give `elq`"):
        solve_sgm(Z0, y, OtherLogistic(), **STEPS)


@pytest.mark.parametrize("loss", [LogCosh(), Nothing()])
def test_the_stochastic_solvers_ask_for_numbers(loss):
    with pytest.raises(TypeError, match="`loss` must be logistic or give `elq`"):
        solve_sgm(Z0, Y0, loss, **STEPS)


def test_a_loss_of_norms_must_be_one():
    Y = np.column_stack([Y0, Y0])
    for solve in (solve_radial, lambda *x: solve_sgm(x[0], x[1], x[2], **STEPS)):
        with pytest.raises(ValueError, match="`loss` must be even and nondecreasing"):
            solve(Z0, Y, Lopsided(), np.eye(2), 1.0)
    with pytest.raises(ValueError, match="`loss` must be even and nondecreasing"):
        Falling().check_radial()
    smooth = type("Radial", (LogCosh,), {"is_radial": True})()
    with pytest.raises(TypeError, match="`loss` must be linear-quadratic for this"):
        solve_radial(Z0, Y, smooth, np.eye(2), 1.0)


class Absolute(Loss):
    def value(self, x):
        return np.abs(x)

    def derivative(self, x):
        return np.sign(x)


@pytest.mark.parametrize("seed", range(2))
def test_losses_with_kinks_come_close_to_their_minimum(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    Z = np.linalg.cholesky(MaternKernel(2.0)(X) + 1e-10 * np.eye(200))

    def objective(solution):
        fitted = Z @ solution.coef + solution.intercept
        return np.abs(y - fitted).mean() + 5e-6 * solution.coef @ solution.coef

    found = solve_generic(Z, y, Absolute(), 1e-5)
    best = solve_scalar(Z, y, "absolute_error", 1e-5)
    assert objective(found) <= 1.1 * objective(best)
