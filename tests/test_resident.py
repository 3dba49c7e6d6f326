"""Searches whose vectors stay with blocks of rows: the solutions of the other ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import HuberLoss, PinballLoss, SquaredEpsilonInsensitiveLoss
from nbsketch.losses import as_loss
from nbsketch.solvers._newton.resident import HeldRows
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.newton import solve_scalar

LOSSES = [
    HuberLoss(0.5),
    PinballLoss(0.8),
    "epsilon-insensitive",
    SquaredEpsilonInsensitiveLoss(0.3),
    "hinge",
    "squared-hinge",
    "logistic",
]


class Blocks(Design):
    """Features in blocks that keep vectors, as those of other machines do."""

    keeps_rows = True

    def __init__(self, Z, size=70):
        self.Z, self.size = Z, size
        self.shape, self.dtype = Z.shape, Z.dtype

    def blocks(self):
        for start in range(0, len(self.Z), self.size):
            stop = min(start + self.size, len(self.Z))
            yield start, stop, self.Z[start:stop]

    def gather(self, rows):
        return ArrayDesign(self.Z[rows])

    def mv(self, W):
        raise AssertionError("n numbers have left the blocks")


def problem(loss, n=500, r=6, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r)).astype(dtype)
    f = Z @ rng.normal(size=r) + 0.4 * rng.standard_t(3, size=n) + 0.5
    return Z, np.sign(f) if as_loss(loss).is_classification else f


@pytest.mark.thin
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_solutions_are_those_of_one_block(loss, weighted, fit_intercept):
    Z, y = problem(loss)
    weights = np.random.default_rng(1).integers(0, 3, size=500) if weighted else None
    options = {"fit_intercept": fit_intercept, "tol": 1e-9, "sample_weight": weights}
    expected = solve_scalar(Z, y, loss, 1e-2, **options)
    found = solve_scalar(Blocks(Z), y, loss, 1e-2, **options)
    assert found.converged and found.relative_gap <= 1e-9
    assert found.objective == pytest.approx(expected.objective, rel=2e-9)
    assert_allclose(found.coef, expected.coef, atol=1e-4)
    assert found.intercept == pytest.approx(expected.intercept, abs=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_certificate_is_that_of_its_points(loss):
    Z, y = problem(loss, seed=2)
    found = solve_scalar(Blocks(Z), y, loss, 1e-2, tol=1e-6)
    a = np.concatenate(found.dual.parts)
    assert isinstance(found.dual, HeldRows) and found.dual.shape == (500,)
    assert abs(a.sum()) <= 1e-12 * np.abs(a).sum()
    f, kind = Z @ found.coef + found.intercept, as_loss(loss)
    values = kind.value(y * f) if kind.is_classification else kind.value(y - f)
    primal = values.mean() + 5e-3 * found.coef @ found.coef
    assert found.objective == pytest.approx(primal, rel=1e-12)
    rho = Z.T @ a / 500
    dual = np.mean(products(kind, y, a)) - rho @ rho / (2 * 1e-2)
    assert primal - dual == pytest.approx(found.gap, rel=1e-5, abs=1e-13)


def products(kind, y, a):
    """Return the terms a y - psi*(a) of the dual objective."""
    if kind.elq is None:
        p = y * a
        with np.errstate(invalid="ignore", divide="ignore"):
            return -np.nan_to_num(p * np.log(p)) - np.nan_to_num((1 - p) * np.log1p(-p))
    if kind.is_classification:
        return y * a - kind.elq.conjugate(y * a)
    return a * y - kind.elq.conjugate(a)


@pytest.mark.parametrize("loss", ["huber", "pinball", "logistic"])
def test_warm_starts_and_samples(loss):
    Z, y = problem(loss, n=3000, r=4)
    design = Blocks(Z, size=400)
    first = solve_scalar(design, y, loss, 1e-2, tol=1e-8)
    again = solve_scalar(design, y, loss, 1e-2, tol=1e-8, state=first.state)
    assert again.converged and again.n_iter <= max(2, first.n_iter)
    state = first.state._replace(sigma=None)
    next_one = solve_scalar(design, y, loss, 1e-3, tol=1e-8, state=state)
    expected = solve_scalar(Z, y, loss, 1e-3, tol=1e-8)
    assert next_one.objective == pytest.approx(expected.objective, rel=1e-7)


@pytest.mark.parametrize("alpha", [1e-9, 1e3])
@pytest.mark.parametrize("loss", ["pinball", "epsilon-insensitive", "logistic"])
def test_extreme_penalties_in_single_precision(loss, alpha):
    Z, y = problem(loss, n=400, dtype=np.float32)
    Z = np.hstack([Z, Z[:, :1] + np.float32(1e-6)])
    expected = solve_scalar(Z, y, loss, alpha, tol=1e-5)
    found = solve_scalar(Blocks(Z), y, loss, alpha, tol=1e-5)
    assert found.converged
    assert found.objective == pytest.approx(expected.objective, rel=3e-5)
