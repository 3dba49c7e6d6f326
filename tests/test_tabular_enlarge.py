"""Members on larger leaves, up to all rows, and their left-out residuals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tables import small_leaves

import nbsketch
from nbsketch import TabularKernelRegressor
from nbsketch.solvers.conjugate import NotConvergedError
from nbsketch.tabular import additions, enlarge, local, scales, whole
from nbsketch.tabular.efforts import EFFORTS
from nbsketch.tabular.enlarge import lacks_rows
from nbsketch.tabular.leaves import fit_leaf
from nbsketch.tabular.limit import TimeLimit
from nbsketch.tabular.members import Training, form_of, predict_member
from nbsketch.tabular.partition import grow
from nbsketch.tabular.problem import Problem
from nbsketch.tabular.scales import Fitted
from nbsketch.tabular.trees import grow_member
from nbsketch.tabular.whole import fit_whole

SCALES = np.array([1.0, 0.5, 0.1])


def smooth_rows(noise=0.01, n=400, outputs=1, weights=None):
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, size=(n, 3))
    f = np.sin(4 * rows[:, :1]) * rows[:, 1:2] * np.arange(1, outputs + 1)
    return Training(rows, f + noise * rng.normal(size=f.shape), weights)


def grown(data, tau, size=100, trees=2):
    effort = EFFORTS["standard"]._replace(trees=trees)
    rng = np.random.default_rng(0)
    problem = Problem(None, data, effort, rng, TimeLimit())
    found, every = Fitted(np.nan, tau, SCALES), np.ones(len(data.Y), dtype=bool)
    return problem, grow_member(problem, "matern-3/2", found, size, every)


def exact(data, tau):
    form = form_of("matern-3/2", SCALES)
    return fit_leaf(form, data.rows, data.Y, tau, data.weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_all_rows_are_one_leaf(weighted, monkeypatch):
    monkeypatch.setattr(whole, "_TOL", 1e-10)
    weights = np.random.default_rng(2).uniform(0.5, 1.5, 400)
    data = smooth_rows(
        outputs=2, weights=weights / weights.mean() if weighted else None
    )
    tau, rng = 1e-2, np.random.default_rng(0)
    known = grown(data, tau)[1]
    tree, residual = fit_whole("matern-3/2", SCALES, data, tau, known.diagonal, rng)
    leaf, member = exact(data, tau), known.member._replace(trees=(tree,))
    assert member.describe_trees() == "all rows"
    fitted = predict_member(member, data.rows, data.rows)
    noise = tau if data.weights is None else tau / data.weights[:, None]
    assert_allclose(fitted, data.Y - noise * leaf.coef, atol=1e-4)
    # Better than from the leaves, of the size of the exact ones.
    sizes = [np.linalg.norm(r - leaf.residual) for r in (residual, known.residual)]
    assert sizes[0] < 0.5 * sizes[1]
    assert np.linalg.norm(residual) == pytest.approx(
        np.linalg.norm(leaf.residual), rel=0.05
    )


def test_the_diagonal_of_leaves_is_a_lower_bound():
    data, tau = smooth_rows(outputs=2), 1e-2
    leaf, known = exact(data, tau), grown(data, tau)[1]
    desired = leaf.coef[:, 0] / leaf.residual[:, 0]
    assert (known.diagonal <= desired * (1 + 1e-4)).all()
    assert known.diagonal.sum() > 0.7 * desired.sum()


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_rows_lack_where_noise_does_not_hide_it(noise):
    data = smooth_rows(noise)
    problem, known = grown(data, 1e-4 if noise == 0 else 1.0)
    tree = grow(data.rows, SCALES, 50, problem.rng)
    sample = [tree.leaf(i) for i in range(4)]
    wanted = np.arange(400) % 2 == 0
    assert lacks_rows(data, known, sample, wanted) == (noise == 0)
    assert not lacks_rows(data, known, sample, np.zeros(400, dtype=bool))


@pytest.mark.parametrize("why", ["memory", "passes", "blocks"])
def test_larger_leaves_where_all_rows_are_not_used(monkeypatch, why):
    def fail(*_, **__):
        raise NotConvergedError("")

    if why == "memory":
        monkeypatch.setattr(enlarge, "keeps_all_pairs", lambda *_, **__: False)
    if why == "passes":
        monkeypatch.setattr(whole, "solve_conjugate", fail)
    monkeypatch.setattr(enlarge, "_LARGER_ROWS", 200)
    data, every = smooth_rows(0.0), np.ones(400, dtype=bool)
    if why == "blocks":
        data = data._replace(labels=np.arange(400) // 4)
    problem, known = grown(data, 1e-4)
    found = enlarge._enlarged(problem, known, every)
    assert [tree.partition.n_leaves for tree in found.member.trees] == [2, 2]
    assert np.square(found.residual).sum() < np.square(known.residual).sum()
    assert found.partition is known.partition


def test_smooth_targets_use_all_rows(monkeypatch, tmp_path):
    for module in (enlarge, additions):
        monkeypatch.setattr(module, "EXACT_ROWS", 400)
    monkeypatch.setattr(scales, "ALONE", 50)
    few = {"landmarks": 60, "search_size": 200, "rounds": 1, "global_below": 0.1}
    effort = EFFORTS["standard"]._replace(**few)
    monkeypatch.setitem(EFFORTS, "standard", effort)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1200, 3))
    y = np.prod(np.sin(np.pi * X) + 0.3, axis=1)
    train, new = slice(0, 600), slice(600, None)
    with small_leaves(leaf_rows=100):
        monkeypatch.setattr(local, "TREE_ROWS", 200)
        model = TabularKernelRegressor(random_state=0).fit(X[train], y[train])
    error = np.sqrt(np.mean((model.predict(X[new]) - y[new]) ** 2))
    assert "all rows, penalty" in model.summary()
    assert error < 0.01 * y.std()
    assert error < model.loo_error_ < 2.5 * error  # estimated from above
    model.save(tmp_path / "model")
    again = nbsketch.load(tmp_path / "model")
    assert_array_equal(again.predict(X[new]), model.predict(X[new]))
