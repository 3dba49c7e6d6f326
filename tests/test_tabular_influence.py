"""Left-out residuals of leaves that correct a base, and the coverage of intervals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch.gram import evaluate
from nbsketch.tabular import base as base_module
from nbsketch.tabular.base import Ridge
from nbsketch.tabular.influence import mean_share, shares
from nbsketch.tabular.leaves import fit_leaf
from nbsketch.tabular.members import Training, form_of

N = 150
SCALES = np.array([1.5, 0.4, 0.8])


@pytest.fixture
def table(monkeypatch):
    """Return rows, targets, weights, and a base with a single penalty."""
    monkeypatch.setattr(base_module, "_TAUS", np.array([0.1]))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, 3))
    Y = np.sin(2 * rows[:, :1]) + rows[:, 1:2] + 0.1 * rng.normal(size=(N, 1))
    w = rng.uniform(0.2, 2, N)
    return rows, Y, w / w.mean()


def base_without(rows, Y, w, landmarks, kept):
    ridge = Ridge(
        form_of("matern-3/2", SCALES),
        rows[kept],
        w[kept],
        landmarks,
        np.random.default_rng(0),
    )
    return ridge, *ridge.fit(Y[kept])


@pytest.mark.parametrize("tau", [1e-4, 0.1, 10.0])
def test_left_out_residuals_of_leaves_on_a_base_are_those_of_refits(table, tau):
    rows, Y, w = table
    landmarks, every = rows[:40], np.arange(N)
    smooth, rough = form_of("matern-3/2", SCALES), form_of("laplacian", SCALES)
    ridge, base, base_residual = base_without(rows, Y, w, landmarks, every)
    rest = Y - base.predict(smooth, rows)
    leaf = np.arange(60, 120)
    some = np.array([0, 7, 31])
    rho = shares(rough, rows[leaf], tau, w[leaf], some, ridge.influence)
    known = fit_leaf(rough, rows[leaf], rest[leaf], tau, w[leaf]).residual
    change = (base_residual - rest)[leaf]
    for k, place in enumerate(some):
        kept = every != leaf[place]
        others = leaf[leaf != leaf[place]]
        _, refit, _ = base_without(rows, Y, w, landmarks, kept)
        rest_without = Y - refit.predict(smooth, rows)
        part = fit_leaf(rough, rows[others], rest_without[others], tau, w[others])
        row = rows[leaf[place]][None]
        fitted = evaluate(rough, row, rows[others]) @ part.coef + part.intercept
        desired = rest_without[leaf[place]] - fitted[0]
        got = known[place] + rho[k] * change[place]
        assert_allclose(got, desired, rtol=0, atol=2e-6)


def test_leaves_that_interpolate_replace_what_the_base_has_lost(table):
    rows, Y, w = table
    rows = rows * np.array([1.0, 1e-2, 1e-2])  # near a line
    form, every = form_of("matern-3/2", SCALES), np.arange(N)
    ridge, base, residual = base_without(rows, Y, w, rows[:40], every)
    change = residual - (Y - base.predict(form, rows))
    data, hat = Training(rows, Y, w), ridge.influence
    leaves = [np.arange(75), np.arange(75, N)]

    def share(tau):
        return mean_share(form, tau, data, leaves, every, change, hat)

    assert 0 <= share(1e-6) < 0.5 < 0.9 < share(100.0) <= 1
    assert mean_share(form, 1.0, data, [], every, change, hat) == 1
