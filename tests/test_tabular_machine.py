"""Partitions, leaves, base, stack and noise of the predictor for tables."""

from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from numpy.testing import assert_allclose, assert_array_equal
from reference import laplacian, matern
from tables import prepare, small_leaves, training

from nbsketch._machine import blas
from nbsketch.rows.transform import fit_scaler
from nbsketch.tabular import fit, scales
from nbsketch.tabular.fit import fit_machine
from nbsketch.tabular.leaves import fit_leaf
from nbsketch.tabular.machine import stack_weights
from nbsketch.tabular.members import fit_on_tree
from nbsketch.tabular.noise import fit_noise
from nbsketch.tabular.ridge import Ridge
from nbsketch.tabular.scales import Scales, best_penalty, form_of, left_out_error
from nbsketch.tabular.suspects import few_gross_errors
from nbsketch.tuning import descent
from nbsketch.tuning.trees import grow

FAMILIES = {
    "matern-3/2": lambda A, B, widths: matern(A, B, widths, 1.5),
    "laplacian": laplacian,
}
families = pytest.mark.parametrize("family", FAMILIES)
SCALES = np.array([1.5, 0.4, 0.8])


def some_rows(n=60, d=2, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 3))
    Y = np.column_stack([np.sin((k + 2) * rows[:, 0]) for k in range(d)])
    return rows, Y + 0.1 * rng.normal(size=(n, d))


def exact_fit(family, rows, Y, tau, weights=None):
    """Return the function that minimizes the objective of a leaf, by dense solves."""
    w = np.ones(len(Y)) if weights is None else weights
    K = FAMILIES[family](rows, rows, 1 / SCALES)
    system = np.block(
        [[K + tau * np.diag(1 / w), np.ones((len(K), 1))], [np.ones(len(K)), 0.0]]
    )
    solved = np.linalg.solve(system, np.vstack([Y, np.zeros(Y.shape[1])]))
    return lambda X: FAMILIES[family](X, rows, 1 / SCALES) @ solved[:-1] + solved[-1]


# factorizations ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factorizations_are_those_of_scipy(dtype, rng):
    A = rng.normal(size=(20, 20))
    A = np.asfortranarray(A @ A.T + np.eye(20), dtype=dtype)
    L, b = A.copy(order="F"), np.asfortranarray(rng.normal(size=(20, 2)), dtype=dtype)
    blas.factor(L)
    tolerance = 1e-4 if dtype is np.float32 else 1e-11
    expected = scipy.linalg.cholesky(A.astype(float), lower=True)
    assert_allclose(np.tril(L), expected, rtol=0, atol=tolerance)
    assert_array_equal(np.triu(L, 1), np.triu(A, 1))
    x = b.copy(order="F")
    blas.solve_factored(L, x)
    assert_allclose(x, np.linalg.solve(A, b), rtol=0, atol=tolerance)
    blas.invert_factor(L)
    assert_allclose(np.tril(L), np.linalg.inv(expected), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_symmetric_products_read_one_triangle(dtype, rng):
    A = np.asfortranarray(rng.normal(size=(20, 20)), dtype=dtype)
    B = np.asfortranarray(rng.normal(size=(20, 3)), dtype=dtype)
    symmetric = np.tril(A) + np.tril(A, -1).T
    product = blas.symmetric_product(A, B)
    assert product.dtype == dtype
    assert_allclose(product, symmetric @ B, rtol=0, atol=np.finfo(dtype).eps * 100)
    with pytest.raises(ValueError, match="Fortran order"):
        blas.symmetric_product(A.T, B)


@pytest.mark.parametrize("n", [1, 65, 150, 300])
def test_large_triangles_are_inverted_by_halves(n, rng):
    A = rng.normal(size=(n, n))
    L = np.linalg.cholesky(A @ A.T + n * np.eye(n))
    mixed = np.asfortranarray(np.tril(L) + np.triu(A, 1))
    blas.invert_factor(mixed)
    assert_allclose(np.tril(mixed), np.linalg.inv(L), rtol=0, atol=1e-13)
    assert_array_equal(np.triu(mixed, 1), np.triu(A, 1))


def test_matrices_that_are_not_positive_definite_are_errors():
    with pytest.raises(np.linalg.LinAlgError, match="positive definite, potrf"):
        blas.factor(np.asfortranarray(-np.eye(3)))
    with pytest.raises(ValueError, match="Fortran order"):
        blas.factor(np.ones((3, 2)))


# partitions --------------------------------------------------------------------------


def test_leaves_hold_all_rows_and_few_each(rng):
    rows = rng.normal(size=(1000, 4))
    tree = grow(rows, np.ones(4), 100, rng)
    assert_array_equal(np.sort(tree.order), np.arange(1000))
    assert np.diff(tree.starts).max() <= 100
    leaf = tree.route(rows)
    for i in range(tree.n_leaves):
        assert (leaf[tree.leaf(i)] == i).all()
    # Medians halve: leaves of 1000 / 16 rows
    assert tree.n_leaves == 16 and np.diff(tree.starts).min() >= 62


def test_splits_follow_the_scaled_variance(rng):
    rows = rng.normal(size=(500, 3))
    tree = grow(rows, np.array([0.01, 1.0, 0.01]), 100, rng)
    assert set(tree.feature) == {-1, 1}
    many = [grow(rows, np.ones(3), 300, np.random.default_rng(k)) for k in range(30)]
    assert {int(tree.feature[0]) for tree in many} == {0, 1, 2}


def test_rare_values_are_not_split_off(rng):
    rows = np.zeros((500, 2))
    rows[:30, 0] = 100.0
    rows[:, 1] = rng.normal(size=500)
    for sign in (1, -1):
        tree = grow(sign * rows, np.ones(2), 200, rng)
        assert set(tree.feature) == {-1, 1}
    # The median of a skewed column of few values leaves nothing on one side: the mean
    column = np.repeat([0.0, 1.0, 9.0], [300, 100, 100])[:, None]
    tree = grow(column, np.ones(1), 450, rng)
    assert_allclose(tree.threshold[0], 0.0)
    column = np.repeat([0.0, 1.0], [300, 150])[:, None][::-1].copy() * -1
    tree = grow(column, np.ones(1), 400, rng)
    assert_allclose(tree.threshold[0], column.mean())


def test_equal_rows_stay_together(rng):
    tree = grow(np.ones((50, 2)), np.ones(2), 10, rng)
    assert tree.n_leaves == 1
    assert_array_equal(tree.leaf(0), np.arange(50))


# leaves ------------------------------------------------------------------------------


@families
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tau", [1e-4, 0.1])
def test_leaf_is_the_exact_solution_with_refits(family, weighted, tau):
    rows, Y = some_rows()
    weights = np.random.default_rng(1).uniform(0.2, 3, len(Y)) if weighted else None
    leaf = fit_leaf(form_of(family, SCALES), training(rows, Y, weights), tau)
    fit = exact_fit(family, rows, Y, tau, weights)
    K = FAMILIES[family](rows, rows, 1 / SCALES)
    # Single precision with refinement at the larger penalty
    tolerance = 1e-7 if tau < 1e-3 else 1e-4
    actual = K @ leaf.coef + leaf.intercept
    assert_allclose(actual, fit(rows), rtol=0, atol=tolerance)
    for i in (0, 7, 31):
        rest = np.arange(len(Y)) != i
        w = None if weights is None else weights[rest]
        without = exact_fit(family, rows[rest], Y[rest], tau, w)
        desired = Y[i] - without(rows[i : i + 1])[0]
        assert_allclose(leaf.residual[i], desired, rtol=0, atol=10 * tolerance)
    data = training(rows, Y, weights)
    fast = fit_leaf(form_of(family, SCALES), data, tau, left_out=False)
    assert np.isnan(fast.residual).all()
    assert_array_equal(fast.coef, leaf.coef)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tau", [1e-4, 0.1])
def test_left_out_residuals_of_some_rows_are_those_of_all(weighted, tau):
    rows, Y = some_rows()
    weights = np.random.default_rng(1).uniform(0.2, 3, len(Y)) if weighted else None
    form, wanted = form_of("laplacian", SCALES), np.arange(len(Y)) % 3 == 1
    data = training(rows, Y, weights)
    every = fit_leaf(form, data, tau)
    some = fit_leaf(form, data, tau, left_out=wanted)
    assert_allclose(some.coef, every.coef, rtol=1e-4, atol=1e-4)
    assert_allclose(some.residual[wanted], every.residual[wanted], rtol=0, atol=1e-4)
    assert np.isnan(some.residual[~wanted]).all()


def test_blocks_are_left_out_together():
    rows, Y = some_rows()
    labels = np.arange(len(Y)) % 7 - 1
    family, tau = "matern-3/2", 1e-3
    data = training(rows, Y, labels=labels)
    leaf = fit_leaf(form_of(family, SCALES), data, tau)
    assert np.isnan(leaf.residual[labels < 0]).all()
    for label in range(6):
        out = labels == label
        desired = Y[out] - exact_fit(family, rows[~out], Y[~out], tau)(rows[out])
        assert_allclose(leaf.residual[out], desired, rtol=0, atol=1e-6)


def test_a_block_of_all_rows_has_no_residual():
    rows, Y = some_rows(20)
    form = form_of("laplacian", SCALES)
    data = training(rows, Y, labels=np.zeros(20, int))
    assert np.isnan(fit_leaf(form, data, 0.1).residual).all()
    kernel = Scales("laplacian", SCALES, 0.1)
    assert left_out_error(data, kernel, [np.arange(20)])(0.1) == np.inf


def test_the_error_of_leaves_is_the_weighted_mean_over_their_rows(rng):
    rows, Y = some_rows(60)
    w = rng.exponential(size=60)
    kernel, squares = Scales("laplacian", SCALES, 0.1), []
    data = training(rows, Y, w)
    parts = [np.arange(40), np.arange(40, 60)]
    for part in parts:
        leaf = fit_leaf(kernel.form, data.take(part), 0.1)
        squares.append(np.square(leaf.residual).sum(axis=1))
    expected = np.average(np.concatenate(squares), weights=w)
    assert_allclose(left_out_error(data, kernel, parts)(0.1), expected, rtol=1e-6)


@families
@pytest.mark.parametrize("tau", [1e-4, 1e-2, 1.0])
def test_penalty_of_least_error(family, tau):
    rows, Y = some_rows(200, 1)
    data, scales = training(rows, Y), Scales(family, SCALES, tau)
    halves = [np.arange(100), np.arange(100, 200)]
    ladder = best_penalty(data, scales, halves)
    error = left_out_error(data, scales, halves)
    assert error(ladder.tau) <= min(map(error, np.logspace(-6, 1, 15))) * 1.01


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("bad", [[0, 2, 4, 5], [], [3, 4], [0, 1, 3, 4], [2], [1, 2]])
def test_large_tables_take_the_best_of_some_searches(bad, monkeypatch):
    """Two on a part of the rows, one of all rows; three for the rough kernel."""
    monkeypatch.setattr(scales, "LARGE", 500)
    monkeypatch.setattr(scales, "_SAMPLE", 200)
    calls, points = [], []

    def learn(data, family, *options):
        point = scales_learn(data, family, *options)
        points.append(point + 4 * (len(points) in bad))  # widths of a fiftieth
        calls.append((len(data.Y), family))
        return points[-1]

    scales_learn = scales.learn
    monkeypatch.setattr(scales, "learn", learn)
    monkeypatch.setattr("nbsketch.tuning.tuner._RESTARTS", {})
    rows, Y = some_rows(510)
    rng = np.random.default_rng(0)
    scaler = fit_scaler(rows, "both", rng)
    tuned = prepare(rows, Y, None, scaler, np.arange(len(Y)))
    budget = descent.Budget(1000, np.inf, None)
    *_, found = scales.learn_scales(tuned, rng, budget)
    smooth, rough = (scales.FAMILIES[name] for name in (scales.SMOOTH, scales.ROUGH))
    assert calls == [(200, smooth)] * 2 + [(510, smooth)] + [(510, rough)] * 3
    for name, best in zip((scales.SMOOTH, scales.ROUGH), found, strict=False):
        widths = [scales.Scales.at(name, point).inverse for point in points]
        (taken,) = [i for i in range(6) if np.array_equal(widths[i], best.inverse)]
        assert taken not in bad and calls[taken][1] == scales.FAMILIES[name]


@families
def test_predictions_are_those_of_the_leaf(family):
    rows, Y = some_rows(300)
    new = some_rows(40, seed=3)[0]
    rng, tau = np.random.default_rng(0), 1e-4
    member, _ = fit_on_tree(training(rows, Y), Scales(family, SCALES, tau), 100, rng)
    actual, part = member.predict(new, rows), member.tree.partition
    for i in range(part.n_leaves):
        mine, index = part.route(new) == i, part.leaf(i)
        desired = exact_fit(family, rows[index], Y[index], tau)(new[mine])
        assert_allclose(actual[mine], desired, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("noise", "seconds", "leaves"), [(0.01, 1.0, 1), (2.0, 1.0, 4), (0.01, 0.5, 4)]
)
def test_leaves_are_larger_where_rows_lower_the_error(
    noise, seconds, leaves, monkeypatch
):
    """Of 600 rows in less than 0.6 s leaves stay small, for lack of time."""
    monkeypatch.setattr(fit, "seconds_left", lambda: seconds)
    monkeypatch.setattr(fit, "_affordable", lambda data, *args: np.arange(len(data.Y)))
    # The search does not end after half of these seconds, however slow the machine.
    monkeypatch.setattr(descent, "time", SimpleNamespace(monotonic=lambda: 0.0))
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, size=(600, 3))
    Y = np.sin(4 * rows).sum(axis=1, keepdims=True)
    Y += noise * rng.normal(size=Y.shape)
    fitted = mock.Mock(wraps=fit.fit_on_tree)
    monkeypatch.setattr(fit, "fit_on_tree", fitted)
    with small_leaves(leaf_rows=150), mock.patch.object(fit, "LARGER_ROWS", 600):
        fit_machine(training(rows, Y), rng)
    # Members without effect are left out of the machine, but all are fitted.
    assert fitted.call_args_list[0].args[2] == 600 // leaves


def test_a_singular_leaf_gets_a_larger_penalty():
    rows = np.zeros((30, 3))
    Y = np.arange(30.0)[:, None]
    singular = Scales("laplacian", SCALES, 1e-30)
    rng = np.random.default_rng(0)
    member, residual = fit_on_tree(training(rows, Y), singular, 30, rng)
    assert_allclose(member.predict(rows[:1], rows), Y.mean(), rtol=1e-4)
    assert_allclose(residual[:, 0], (Y[:, 0] - Y.mean()) * 30 / 29, rtol=1e-2)


# the base ----------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_base_is_the_ridge_on_landmarks(weighted):
    rows, Y = some_rows(400)
    w = np.random.default_rng(1).uniform(0.2, 2, 400) if weighted else np.ones(400)
    w /= w.mean()
    data = training(rows, Y, w)
    every = np.arange(400)
    base, residual = Ridge(SCALES, data, every[:390:13], every).fit()
    kernel = FAMILIES["matern-3/2"]
    B = kernel(rows, base.landmarks, 1 / SCALES)
    C = kernel(base.landmarks, base.landmarks, 1 / SCALES)

    def fit(keep, tau):
        D = np.column_stack([B, np.ones(400)])[keep]
        penalty = scipy.linalg.block_diag(C + 1e-8 * np.sqrt(30) * np.eye(30), 0.0)
        normal = D.T @ (w[keep, None] * D) + tau * penalty
        return np.linalg.solve(normal, D.T @ (w[keep, None] * Y[keep]))

    def values(theta, some):
        return B[some] @ theta[:-1] + theta[-1]

    taus = np.logspace(-5, 3, 17)
    predicted = base.predict(rows)
    errors = [np.abs(values(fit(every, tau), every) - predicted).max() for tau in taus]
    tau = taus[int(np.argmin(errors))]
    assert min(errors) < 1e-6
    for i in (3, 77):
        desired = Y[i] - values(fit(every != i, tau), i)
        # The mean of the kernel columns stays that of all rows
        assert_allclose(residual[i], desired, rtol=0, atol=1e-6)


def test_base_leaves_blocks_out_by_refits():
    rows, Y = some_rows(300)
    labels = np.arange(300) // 50 - 1
    data = training(rows, Y, labels=labels)
    every = np.arange(300)
    base, residual = Ridge(SCALES, data, every[::10], every).fit()
    assert np.isnan(residual[labels < 0]).all()
    out = labels == 2
    B = FAMILIES["matern-3/2"](rows, base.landmarks, 1 / SCALES)
    C = FAMILIES["matern-3/2"](base.landmarks, base.landmarks, 1 / SCALES)
    D = np.column_stack([B, np.ones(300)])
    penalty = scipy.linalg.block_diag(C + 1e-8 * np.sqrt(30) * np.eye(30), 0.0)
    differences = []
    for tau in np.logspace(-5, 3, 17):
        normal = D[~out].T @ D[~out] + tau * penalty
        theta = np.linalg.solve(normal, D[~out].T @ Y[~out])
        differences.append(np.abs(Y[out] - D[out] @ theta - residual[out]).max())
    assert min(differences) < 1e-7


def test_preprocessing_and_limits_are_those_of_weighted_rows(rng):
    rows, Y = some_rows(60)
    weights = np.r_[np.full(59, 60 / 59), 1e-12]
    rows[59] = Y[59] = 50.0
    weights /= weights.mean()
    machine, _ = fit_machine(training(rows, Y, weights), rng)
    center = np.average(rows, axis=0, weights=weights)
    assert_allclose(machine.scaler.center[:3], center)
    low, high = Y[:59].min(axis=0), Y[:59].max(axis=0)
    assert_allclose(machine.y_low, low - 0.1 * (high - low))
    assert_allclose(machine.y_high, high + 0.1 * (high - low))


# the stack ---------------------------------------------------------------------------


def test_stack_minimizes_its_objective(rng):
    R = rng.normal(size=(4, 50, 2)) + rng.normal(size=(1, 50, 2))
    weights = rng.uniform(size=50)
    actual = stack_weights(R, weights)
    E = np.einsum("n,ind,jnd->ij", weights, R, R) / 50

    def objective(w):
        return w @ E @ w + 0.05 * E.diagonal().min() * w @ w

    found = scipy.optimize.minimize(
        objective,
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        tol=1e-12,
    )
    assert_allclose(actual.sum(), 1)
    assert_allclose(objective(actual), found.fun, rtol=1e-6)


def test_stack_ignores_rows_without_residuals(rng):
    R = rng.normal(size=(3, 40, 1))
    spoiled = np.concatenate([R, np.full((3, 5, 1), np.nan)], axis=1)
    assert_array_equal(stack_weights(R), stack_weights(spoiled))
    assert_array_equal(stack_weights(np.zeros((2, 5, 1))), [1, 0])


def test_members_that_hardly_lower_the_error_have_no_weight(rng):
    """The error of the stack is that of brute force over the subsets that remain."""
    noise = rng.normal(size=(5, 400, 1))
    R = rng.normal(size=(400, 1)) + 0.3 * noise
    R[1] = R[0] + 1e-6 * noise[1]  # says the same
    R[4] *= 5  # hopeless

    def error(weights):
        return np.square(np.einsum("k,knd->nd", weights, R)).mean() ** 0.5

    every, few = stack_weights(R), stack_weights(R, tolerance=1e-3)
    assert (every[:4] > 0).all()
    assert np.count_nonzero(few) < np.count_nonzero(every)
    assert min(few[:2]) == few[4] == 0
    assert_allclose(few.sum(), 1)
    assert error(few) <= 1.001 * error(every)
    # One less, whichever it is, would raise the error by more
    used = np.flatnonzero(few)
    for k in used:
        rest = np.setdiff1d(used, k)
        weights = np.zeros(5)
        weights[rest] = stack_weights(R[rest])
        assert error(weights) > 1.001 * error(every)


# the noise ---------------------------------------------------------------------------


def test_noise_follows_the_local_scale(rng):
    rows = rng.uniform(-1, 1, size=(2000, 1))
    sigma = np.exp(rows)
    residual = sigma * rng.normal(size=(2000, 1))
    noise = fit_noise(np.ones(1), training(rows, residual), rng)
    ratio = noise.sigma(np.array([[0.8], [-0.8]]))[:, 0]
    assert_allclose(ratio[0] / ratio[1], np.exp(1.6), rtol=0.15)
    low, high = noise.limits(0.8)
    spread = noise.sigma(rows)
    inside = (residual >= low * spread) & (residual <= high * spread)
    assert_allclose(inside.mean(), 0.8, atol=0.02)
    middle = noise.quantiles(np.array([0.1, 0.5, 0.9]))
    assert (np.diff(middle, axis=0) > 0).all() and abs(middle[1, 0]) < 0.1


def test_local_scales_are_within_the_sizes_that_were_seen(rng):
    """Among outlying rows a regression of logarithms may be off by any factor."""
    rows, residual = rng.normal(size=(300, 1)), rng.normal(size=(300, 1))
    noise = fit_noise(np.ones(1), training(rows, residual), rng)
    for step, expected in ((100.0, np.abs(residual).max()), (-100.0, 0.05)):
        size = replace(noise.size, intercept=noise.size.intercept + step)
        sigma = replace(noise, size=size).sigma(rows)
        typical = 1.0 if step > 0 else np.median(np.abs(residual))
        assert_allclose(sigma, expected * typical)


@pytest.mark.parametrize("law", ["normal", "local", "heavy"])
def test_limits_cover_new_rows_in_the_mean_over_draws(law):
    """With noise of one size, of a size that varies with x, and with heavy tails."""
    shares = []
    for draw in range(30):
        rng = np.random.default_rng(draw)
        rows = rng.uniform(-1, 1, size=(600, 2))
        heavy = rng.standard_t(3, size=(600, 1))
        z = heavy if law == "heavy" else rng.normal(size=(600, 1))
        residual = z * np.exp(2 * rows[:, :1]) if law == "local" else z
        noise = fit_noise(np.ones(2), training(rows[:100], residual[:100]), rng)
        low, high = noise.limits(0.8)
        scores = residual[100:] / noise.sigma(rows[100:])
        shares.append(np.mean((low <= scores) & (scores <= high)))
    error = np.std(shares) / 30**0.5
    assert error < 0.014
    assert abs(np.mean(shares) - 0.8) < 3 * error


def test_scores_of_errors_have_the_weights_of_their_rows(rng):
    rows, residual = rng.normal(size=(100, 1)), rng.normal(size=(100, 1))
    weights = np.where(residual[:, 0] > 0, 3.0, 1.0)
    noise = fit_noise(np.ones(1), training(rows, residual, weights), rng)
    expected = np.where(noise.scores > 0, 3.0, 1.0) / weights.mean()
    assert_allclose(noise.shares, expected)


def test_few_scores_give_infinite_limits(rng):
    rows, residual = rng.normal(size=(30, 1)), rng.normal(size=(30, 1))
    noise = fit_noise(np.ones(1), training(rows, residual), rng)
    assert_array_equal(noise.limits(0.99), [[-np.inf], [np.inf]])
    assert np.isfinite(noise.limits(0.8)).all()


def test_limits_are_order_statistics(rng):
    """One of m + 1 exchangeable scores is outside with the nominal probability."""
    rows, residual = rng.normal(size=(99, 1)), rng.normal(size=(99, 1))
    noise = fit_noise(np.ones(1), training(rows, residual), rng)
    low, high = noise.limits(0.9)
    assert_allclose(low, noise.scores[4])
    assert_allclose(high, noise.scores[94])
    doubled = replace_shares(noise, 2.0)
    assert_allclose(doubled.limits(0.9), [low, high])


def test_levels_are_the_shares_of_scores_up_to_a_value(rng):
    errors = training(rng.normal(size=(30, 1)), np.ones((30, 1)))
    noise = fit_noise(np.ones(1), errors, rng)
    scores = np.array([[-1.0], [0.0], [2.0], [2.0]])
    noise = replace(noise, scores=scores, shares=np.full((4, 1), 1.0))
    at = np.array([-2.0, -1.0, -0.5, 0.0, 1.0, 2.0, 3.0])
    found = noise.levels(at.reshape(1, 1, -1))[0, 0]
    assert_allclose(found, [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8, 1, 1])  # a jump, to 1


def replace_shares(noise, factor):
    shares = noise.shares * factor
    return replace(noise, shares=shares / factor)


# gross errors ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_errors_that_agree_with_the_model_by_chance_are_left_out(count):
    """Errors that are added to targets of a known sign are explained a little."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 2))
    y = X[:, 0] + 0.05 * rng.normal(size=400)
    bad = np.flatnonzero(X[:, 0] > 0.5)[:count]
    y[bad] += 30
    rows = prepare(X, y[:, None], None, fit_scaler(X, "both", rng), np.arange(400))
    suspects = few_gross_errors(rows, rng)
    assert_array_equal(suspects.rows, bad)
    assert not suspects.reason


def test_rare_targets_that_the_features_explain_are_kept():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 2))
    y = 0.05 * rng.normal(size=400)
    y[X[:, 0] > 0.95] += 10
    rows = prepare(X, y[:, None], None, fit_scaler(X, "both", rng), np.arange(400))
    assert not len(few_gross_errors(rows, rng).rows)


# A law of the features, targets, and the noise relative to their spread.
_CLEAN = {
    "additive": ("normal", lambda X: np.sin(2 * X[:, 0]) + X[:, 1]),
    "quadratic": ("standard_t", lambda X: X[:, 0] * X[:, 1] + X[:, 2] ** 2),
    "exponential": ("normal", lambda X: np.exp(X[:, 0] + X[:, 1] / 2)),
    "steep": ("uniform", lambda X: np.tanh(10 * X[:, 0]) + X[:, 1]),
}


def clean_table(name, noise, n=700):
    """Rows, targets and noise; "local": its size grows with a feature."""
    rng = np.random.default_rng(0)
    law, function = _CLEAN[name]
    args = {"normal": (0, 1), "uniform": (-1, 1), "standard_t": (3,)}[law]
    X = getattr(rng, law)(*args, size=(n, 4))
    size = 0.1 * np.exp(X[:, 2].clip(-3, 3)) if noise == "local" else noise
    y = function(X)
    spread = np.diff(np.quantile(y, [0.16, 0.84])) / 2
    return X, y + size * spread * rng.normal(size=n), rng


def suspects_of(X, y, rng=None, weights=None):
    """Return the rows that look like gross errors, and why they are used."""
    rng = np.random.default_rng(0) if rng is None else rng
    Y, every = y.reshape(len(y), -1), np.arange(len(y))
    rows = prepare(X, Y, weights, fit_scaler(X, "both", rng), every)
    return few_gross_errors(replace(rows, Y=Y), rng)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.5, "local"])
@pytest.mark.parametrize("name", _CLEAN)
def test_clean_extreme_rows_are_no_gross_errors(name, noise):
    """A small model is wrong at the border; rows there are not left out."""
    X, y, rng = clean_table(name, noise)
    assert not len(suspects_of(X, y, rng).rows)


@pytest.mark.parametrize("name", _CLEAN)
def test_gross_errors_are_found_where_noise_is_local(name):
    X, y, rng = clean_table(name, "local")
    bad = np.sort(rng.choice(700, 7, replace=False))
    y[bad] += 30 * np.std(y) * rng.choice([-1, 1], 7)
    suspects = suspects_of(X, y, rng)
    assert_array_equal(suspects.rows, bad)
    assert not suspects.reason


def test_searches_of_a_large_table_end_with_the_time(monkeypatch):
    """One search for each kernel, and the penalty of one leaf."""
    monkeypatch.setattr(scales, "LARGE", 1500)
    monkeypatch.setattr(scales, "_SAMPLE", 500)
    calls = []
    learn, best_penalty = scales.learn, scales.best_penalty
    monkeypatch.setattr(
        scales, "learn", lambda *a: [calls.append("search"), learn(*a)][1]
    )
    monkeypatch.setattr(
        scales,
        "best_penalty",
        lambda *a: [calls.append(len(a[2])), best_penalty(*a)][1],
    )
    rows, Y = some_rows(1600)
    rng = np.random.default_rng(0)
    scaler = fit_scaler(rows, "both", rng)
    tuned = prepare(rows, Y, None, scaler, np.arange(len(Y)))
    scales.learn_scales(tuned, rng, descent.Budget(1000, 0.0, None))
    assert calls.count("search") <= 2 and [c for c in calls if c != "search"] == [1, 1]
