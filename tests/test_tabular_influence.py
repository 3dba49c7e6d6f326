"""Left-out residuals on a base, and the global ridge."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import TabularKernelRegressor
from nbsketch.gram import evaluate
from nbsketch.tabular import _model, metric
from nbsketch.tabular.base import Ridge
from nbsketch.tabular.fit import fit_machine
from nbsketch.tabular.leaves import fit_leaf
from nbsketch.tabular.machine import Machine
from nbsketch.tabular.members import Training, form_of
from nbsketch.tabular.metric import fit_global, lacks_landmarks

# the global ridge --------------------------------------------------------------------


def smooth_rows(noise, n=400):
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, size=(n, 3))
    Y = np.sin(4 * rows[:, :1]) * rows[:, 1:2] + noise * rng.normal(size=(n, 1))
    return Training(rows, Y), rng


def test_the_global_ridge_takes_all_rows(monkeypatch):
    """As one leaf with all rows, and a penalty of least left-out error of a sample."""
    monkeypatch.setattr(metric, "_LANDMARKS", 50)
    data, rng = smooth_rows(0.3, 150)
    inverse, some = np.array([1.0, 0.5, 0.1]), np.arange(0, 150, 2)
    found = fit_global("matern-3/2", data, inverse, some, rng, only_rotated=False)
    member, residual = found
    assert len(member.base.landmarks) == 150 and not member.is_rotated
    form = form_of("matern-3/2", inverse)
    taus = 1e-3 * 10.0 ** np.arange(-2, 6, 0.5)
    leaves = [fit_leaf(form, data.rows, data.Y, tau) for tau in taus]
    best = min(leaves, key=lambda leaf: np.square(leaf.residual).sum())
    assert_allclose(residual, best.residual[some], rtol=1e-4, atol=1e-5)
    new = rng.uniform(-1, 1, size=(9, 3))
    expected = evaluate(form, new, data.rows) @ best.coef + best.intercept
    assert_allclose(member.predict("matern-3/2", new), expected, atol=1e-5)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_landmarks_lack_where_noise_does_not_hide_it(noise):
    data, rng = smooth_rows(noise)
    form, every = form_of("matern-3/2", np.ones(3)), np.arange(400)
    ridge = Ridge(form, data.rows, None, 60, rng, None, every)
    base, residual = ridge.fit(data.Y)
    found = lacks_landmarks(form, data, base, residual, every, rng)
    assert found == (noise == 0)


def test_smooth_functions_of_rotated_columns_take_all_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.7, 1.7, size=(2400, 6))
    Z = X @ rng.normal(size=(6, 2)) * 0.6
    y = np.sin(2 * Z[:, 0]) + Z[:, 0] * Z[:, 1]
    train = slice(0, 1600)
    model = TabularKernelRegressor("fast", random_state=0).fit(X[train], y[train])
    member = Machine.of(model.machine_).ridge
    assert len(member.base.landmarks) == 1600 and member.weight > 0.5
    assert "global ridge" in model.summary() or "rotated ridge" in model.summary()
    error = np.sqrt(np.mean((model.predict(X[1600:]) - y[1600:]) ** 2))
    assert error < 0.1 * y.std()
    low, high = model.predict_interval(X[1600:], coverage=0.8).T
    assert 0.75 < np.mean((low <= y[1600:]) & (y[1600:] <= high)) < 0.85


def test_left_out_errors_of_leaves_are_too_large_at_landmarks():
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, size=(1200, 2))
    Y = np.sin(3 * Z[:, :1]) * Z[:, 1:]
    rows, new, form = Z[:800], Z[800:], form_of("matern-3/2", np.ones(2))
    base, _ = Ridge(form, rows, None, rows[:80], rng).fit(Y[:800])
    rest = Y - base.predict(form, Z)
    leaf = fit_leaf(form, rows, rest[:800], 1e-8)
    error = rest[800:] - evaluate(form, new, rows) @ leaf.coef - leaf.intercept
    at_landmarks, at_others, at_new = (
        np.median(np.abs(part))
        for part in (leaf.residual[:80], leaf.residual[80:], error)
    )
    assert at_landmarks > 1.5 * max(at_new, at_others)


def test_rows_whose_residuals_are_left_out_are_no_landmarks(monkeypatch):
    found = []

    def kept(*args, **options):
        found.append(fit_machine(*args, **options))
        return found[-1]

    monkeypatch.setattr(_model, "fit_machine", kept)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1510, 2))
    y = X[:, 0] + rng.normal(size=1510)
    TabularKernelRegressor("fast", random_state=0).fit(X, y)
    machine, left_out = found[0]
    landmarks = {row.tobytes() for row in machine.base.landmarks}
    drawn = [machine.rows[i].tobytes() for i in left_out.drawn]
    assert len(landmarks) + len(drawn) == 1510
    assert not landmarks.intersection(drawn)
