"""Vector-valued problems most of whose residuals start at zero."""

import numpy as np
import pytest

from nbsketch.losses import EpsilonInsensitiveLoss, HuberLoss
from nbsketch.solvers.newton import solve_joint_pinball
from nbsketch.solvers.radial import solve_radial


def mostly_zero(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 60))
    Y = rng.normal(size=(n, 2)) * (rng.random(n) < 0.3)[:, None]
    return rng.normal(size=(n, 3)), Y


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_joint_quantiles(seed, fit_intercept):
    Z, Y = mostly_zero(seed)
    solution = solve_joint_pinball(
        Z, Y[:, 0], [0.25, 0.75], np.eye(2), 0.1, fit_intercept=fit_intercept
    )
    assert solution.converged
    assert solution.n_iter < 100


@pytest.mark.parametrize("loss", [EpsilonInsensitiveLoss(0.0), HuberLoss(0.5)])
@pytest.mark.parametrize("seed", range(8))
def test_losses_of_the_norm(seed, loss):
    Z, Y = mostly_zero(seed)
    solution = solve_radial(Z, Y, loss, np.eye(2), 0.1, fit_intercept=False)
    assert solution.converged
    assert solution.n_iter < 100


def test_targets_of_zero_only():
    Z, Y = mostly_zero(0)
    solution = solve_radial(Z, 0 * Y, EpsilonInsensitiveLoss(0.0), np.eye(2), 0.1)
    assert solution.converged
    assert solution.objective < 1e-12
