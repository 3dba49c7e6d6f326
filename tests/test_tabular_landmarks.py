"""Landmarks of the base."""

import numpy as np
from tables import training

from nbsketch import TabularKernelRegressor
from nbsketch.gram import evaluate
from nbsketch.tabular import _model
from nbsketch.tabular.fit import fit_machine
from nbsketch.tabular.leaves import fit_leaf
from nbsketch.tabular.ridge import Ridge
from nbsketch.tabular.scales import form_of


def test_left_out_errors_of_leaves_are_too_large_at_landmarks():
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, size=(1200, 2))
    Y = np.sin(3 * Z[:, :1]) * Z[:, 1:]
    rows, new, form = Z[:800], Z[800:], form_of("matern-3/2", np.ones(2))
    landmarks, every = np.arange(80), np.arange(800)
    base, _ = Ridge(np.ones(2), training(rows, Y[:800]), landmarks, every).fit()
    rest = Y - base.predict(Z)
    leaf = fit_leaf(form, training(rows, rest[:800]), 1e-8)
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
    TabularKernelRegressor(random_state=0).fit(X, y)
    machine, left_out = found[0]
    landmarks = {row.tobytes() for row in machine.members[0].landmarks}
    drawn = [machine.rows[i].tobytes() for i in left_out.drawn]
    assert len(landmarks) + len(drawn) == 1510
    assert not landmarks.intersection(drawn)
