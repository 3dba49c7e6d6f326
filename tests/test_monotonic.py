"""Predictions that are monotone in some columns."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import nbsketch
from nbsketch import JointQuantileRegressor, SketchedKernelRegressor
from nbsketch.conformal import ConformalRegressor
from nbsketch.estimators import _monotonic
from nbsketch.kernels import GaussianKernel
from nbsketch.outputs import QuantileOutput
from nbsketch.rows.transform import LazyRows
from nbsketch.sketches import LandmarkSketch

FIXED = {"kernel": "gaussian", "bandwidth": 0.7, "alpha": 1e-3, "random_state": 0}


def make_data(n, seed=0):
    """Rise in the first column, fall in the second, neither in the third."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    f = np.tanh(3 * X[:, 0]) - np.exp(X[:, 1]) + np.sin(3 * X[:, 2])
    return X, f + 0.6 * rng.normal(size=n), f


def falls(model, X, signs, knots=30):
    """Return the largest fall of predictions along lines through the rows of X."""
    found = []
    for k in np.flatnonzero(signs):
        rows = np.repeat(X, knots, axis=0)
        rows[:, k] = np.tile(np.linspace(X[:, k].min(), X[:, k].max(), knots), len(X))
        values = model.predict(rows).reshape(len(X), knots, -1)
        found.append(-(signs[k] * np.diff(values, axis=1)).min())
    return max(found)


def cone(X, signs):
    """Return a root of the kernel matrix, and what must be nonnegative."""
    n = len(X)
    kernel = GaussianKernel(0.7)
    root = np.linalg.cholesky(kernel(X, X) + 1e-12 * np.eye(n))
    steps = []
    for k in np.flatnonzero(signs):
        knots = np.quantile(X[:, k], np.linspace(0, 1, _monotonic._KNOTS))
        even = np.linspace(*knots[[0, -1]], _monotonic._KNOTS)
        knots = np.unique(np.append(knots, even))
        rows = np.repeat(X, len(knots), axis=0)
        rows[:, k] = np.tile(knots, n)
        values = np.linalg.solve(root, kernel(X, rows)).T.reshape(n, len(knots), n)
        steps.append(signs[k] * np.diff(values, axis=1).reshape(-1, n))
    return root, np.vstack(steps)


def solved(objective, constraints):
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12)
    return problem.value


def optimum(X, y, weights, signs, fit_intercept):
    """Return predictions of X and the objective of cvxpy's solution on all rows."""
    root, steps = cone(X, signs)
    a, b = cp.Variable(len(X)), cp.Variable()
    fitted = root @ a + b
    constraints = [steps @ a >= 0] + ([] if fit_intercept else [b == 0])
    losses = cp.sum(cp.multiply(weights, cp.square(y - fitted))) / (2 * len(X))
    value = solved(losses + FIXED["alpha"] / 2 * cp.sum_squares(a), constraints)
    return fitted.value, value


def joint_optimum(X, y, weights, signs, levels, gamma, fit_intercept):
    """Return the same of joint quantiles."""
    root, steps = cone(X, signs)
    T, n = QuantileOutput(levels, gamma).factor(len(levels)), len(X)
    A, b = cp.Variable((n, len(T))), cp.Variable((1, len(levels)))
    fitted = root @ A @ T + np.ones((n, 1)) @ b
    r, tau = y[:, None] - fitted, np.array(levels)
    constraints = [steps @ A @ T >= 0] + ([] if fit_intercept else [b == 0])
    losses = sum(
        cp.maximum(tau[j] * r[:, j], (tau[j] - 1) * r[:, j]) for j in range(len(tau))
    )
    penalty = FIXED["alpha"] / 2 * cp.sum_squares(A)
    value = solved(weights @ losses / n + penalty, constraints)
    return fitted.value, value


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_solution_is_that_of_cvxpy(fit_intercept):
    X, y, _ = make_data(50)
    weights = np.random.default_rng(1).uniform(0.5, 2, size=50)
    weights /= weights.mean()
    options = FIXED | {"fit_intercept": fit_intercept, "monotonic_cst": [1, -1, 0]}
    model = SketchedKernelRegressor(**options).fit(X, y, weights)
    fitted, objective = optimum(X, y, weights, [1, -1, 0], fit_intercept)
    free = SketchedKernelRegressor(**options | {"monotonic_cst": None})
    assert abs(free.fit(X, y, weights).predict(X) - fitted).max() > 0.05
    assert_allclose(model.predict(X), fitted, atol=2e-5)
    assert_allclose(model.objective_, objective, rtol=1e-7)
    assert 0 <= model.dual_gap_ < 1e-10


@pytest.mark.parametrize(
    ("gamma", "fit_intercept"),
    [(1, True), (0, False), pytest.param(1, False, marks=pytest.mark.full)],
)
@pytest.mark.filterwarnings("ignore:predictions move by up to")
def test_the_solution_of_joint_quantiles_is_that_of_cvxpy(
    gamma, fit_intercept, monkeypatch
):
    monkeypatch.setattr(_monotonic, "_KNOTS", 4)  # cvxpy takes long for more
    X, y, _ = make_data(30)
    weights = np.random.default_rng(1).uniform(0.5, 2, size=30)
    weights /= weights.mean()
    known = (0.2, 0.5, 0.9), gamma, fit_intercept
    fitted, objective = joint_optimum(X, y, weights, [1, -1, 0], *known)
    names = ("quantiles", "gamma", "fit_intercept")
    options = dict(zip(names, known, strict=True)) | {"non_crossing": None} | FIXED
    free = JointQuantileRegressor(**options).fit(X, y, weights)
    assert abs(free.predict(X) - fitted).max() > 0.05
    model = JointQuantileRegressor(monotonic_cst=[1, -1, 0], **options)
    model.fit(X, y, weights)
    assert_allclose(model.predict(X), fitted, atol=1e-3)
    assert_allclose(model.objective_, objective, rtol=1e-7)
    assert 0 <= model.dual_gap_ < 1e-8


def test_every_quantile_is_monotone_calibrated_and_saved(tmp_path):
    X, y, _ = make_data(300)
    options = {"size": 60, "calibration": 0.3, "quantiles": (0.1, 0.5, 0.9)} | FIXED
    free = JointQuantileRegressor(**options).fit(X, y)
    model = JointQuantileRegressor(monotonic_cst=[1, -1, 0], **options).fit(X, y)
    assert falls(model, X, [1, -1, 0]) < 0.3 * falls(free, X, [1, -1, 0])
    # measured on the fitted rows, of which a third are not
    assert falls(model, X, [1, -1, 0]) <= 3 * model.monotonic_violation_ < 0.1
    assert f"within {model.monotonic_violation_:.3g}" in model.summary()
    new_X, new_y, _ = make_data(1000, 1)
    low, high = model.predict_interval(new_X, 0.8).T
    assert 0.7 < np.mean((low <= new_y) & (new_y <= high)) < 0.9
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.summary() == model.summary()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"non_crossing": "constraint"}, "`non_crossing` must be 'sort' or None"),
        ({"solver": "adam"}, "`solver` must be 'auto'"),
        ({"monotonic_cst": [1, 0]}, "has shape"),
    ],
)
def test_what_joint_quantiles_do_not_offer_is_refused_by_name(options, message):
    X, y, _ = make_data(40)
    options = FIXED | {"monotonic_cst": [1, 0, 0]} | options
    with pytest.raises(ValueError, match=message):
        JointQuantileRegressor(**options).fit(X, y)


def test_constraints_hold_and_lower_the_error():
    errors, signs = np.zeros((5, 2)), [1, -1, 0]
    for seed in range(5):
        X, y, _ = make_data(200, seed)
        new_X, _, f = make_data(300, 100 + seed)
        free = SketchedKernelRegressor(**FIXED, size=100).fit(X, y)
        model = SketchedKernelRegressor(**FIXED, size=100, monotonic_cst=signs)
        model.fit(X, y)
        assert falls(model, new_X, signs) < 0.3 * falls(free, new_X, signs)
        assert falls(model, X, signs) <= 1.2 * model.monotonic_violation_ < 0.1
        assert f"within {model.monotonic_violation_:.3g}" in model.summary()
        misses = [np.square(m.predict(new_X) - f).mean() for m in (free, model)]
        errors[seed] = np.sqrt(misses)
    assert errors[:, 1].mean() < errors[:, 0].mean()


def test_names_and_signs_are_those_of_scikit_learn():
    X, y, _ = make_data(80)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    by_name = SketchedKernelRegressor(monotonic_cst={"b": -1}, **FIXED).fit(frame, y)
    plain = SketchedKernelRegressor(monotonic_cst=np.array([0, -1, 0]), **FIXED)
    assert_array_equal(plain.fit(X, y).predict(X), by_name.predict(frame))
    mirrored = SketchedKernelRegressor(monotonic_cst=[0, 1, 0], **FIXED).fit(X, -y)
    assert_allclose(mirrored.predict(X), -plain.predict(X), atol=1e-8)


def test_a_constraint_that_holds_changes_nothing():
    X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
    X[:, 1] = 1.0  # a constant has no lines
    options = FIXED | {"kernel": "linear", "bandwidth": None}
    free = SketchedKernelRegressor(**options).fit(X, 2 * X[:, 0])
    model = SketchedKernelRegressor(monotonic_cst=[1, 1], **options)
    model.fit(X, 2 * X[:, 0])
    assert_array_equal(model.coef_, free.coef_)
    assert model.monotonic_violation_ == 0
    model.set_params(monotonic_cst=None).fit(X, X[:, 0])
    assert not hasattr(model, "monotonic_violation_")


@pytest.mark.parametrize(
    "options",
    [
        {"sketch": "gaussian", "size": 40},
        {"sketch": LandmarkSketch(np.random.default_rng(3).uniform(-1, 1, (40, 3)))},
        {"preprocessing": "rank", "bandwidth": 1.0},
        {"kernel": "laplacian"},
    ],
)
@pytest.mark.filterwarnings("ignore:predictions move by up to")
def test_every_sketch_and_kernel_of_rows_has_constraints(options):
    X, y, _ = make_data(150)
    X = X.astype(np.float32)
    free = SketchedKernelRegressor(**FIXED | options).fit(X, y)
    model = SketchedKernelRegressor(**FIXED | options, monotonic_cst=[1, -1, 0])
    model.fit(X, y)
    signs = np.array([1, -1, 0])
    assert falls(model, X, signs) < 0.3 * falls(free, X, signs)
    assert model.objective_ > free.objective_


def test_paths_files_and_the_default_sketch(tmp_path, monkeypatch):
    X, y, _ = make_data(120)
    model = SketchedKernelRegressor(monotonic_cst=[1, -1, 0], **FIXED)
    path = model.fit_path(X, y, [1e-2, 1e-3])
    assert_allclose(path[1].predict(X), model.fit(X, y).predict(X), atol=1e-9)
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.summary() == model.summary()
    monkeypatch.setattr(_monotonic, "_LINES", 50)
    X, y, _ = make_data(1600)
    options = FIXED | {"bandwidth": 1.0, "alpha": 1.0}
    model = SketchedKernelRegressor(monotonic_cst=[1, 0, 0], **options).fit(X, y)
    assert model.size_ == 1000 and "(default)" in model.summary()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "huber"}, "`loss` must be the square loss for `monotonic_cst`, got"),
        ({"output": np.eye(1)}, "`output` must be None"),
        ({"solver": "adam"}, "`solver` must be 'auto'"),
        ({"monotonic_cst": [1, 0]}, "has shape"),
        ({"monotonic_cst": [1, 0, 2]}, "-1, 0 or 1"),
        ({"monotonic_cst": {"a": 1}}, "feature names"),
        ({"monotonic_cst": 1}, "`monotonic_cst` must be a sequence of -1, 0 and 1"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(options, message):
    X, y, _ = make_data(40)
    options = FIXED | {"monotonic_cst": [1, 0, 0]} | options
    with pytest.raises(ValueError, match=message):
        SketchedKernelRegressor(**options).fit(X, y)


def test_data_and_methods_without_constraints_are_refused():
    X, y, _ = make_data(40)
    model = SketchedKernelRegressor(monotonic_cst=[1, 0, 0], **FIXED)
    with pytest.raises(ValueError, match="`X` must be dense"):
        model.fit(sp.csr_array(X), y)
    with pytest.raises(ValueError, match="`y` must be a single target"):
        model.fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="`kernel` must be a kernel of samples"):
        kernel = {"kernel": "precomputed", "bandwidth": None, "monotonic_cst": [1] * 40}
        SketchedKernelRegressor(**FIXED | kernel).fit(X @ X.T, y)
    with pytest.raises(ValueError, match="`monotonic_cst` must be None"):
        model.fit(X, y).fit_posterior(X, y)
    with pytest.raises(ValueError, match="`monotonic_cst` must be None"):
        ConformalRegressor(model, method="jackknife+").fit(X, y)


def test_lazy_rows_have_the_lines_of_others():
    X = make_data(90)[0]
    lazy, index = LazyRows(X, chosen=np.arange(60)), np.arange(5)
    pairs = (_monotonic._lines(rows, [1, -1, 0], index, 4) for rows in (lazy, X[:60]))
    for found, expected in zip(*pairs, strict=True):
        assert_array_equal(found.rows, expected.rows)


def test_rows_of_weight_zero_and_mapped_rows_count_as_others(tmp_path):
    X, y, _ = make_data(90)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    weights = np.repeat([1.0, 0.0], [60, 30])
    model = SketchedKernelRegressor(monotonic_cst=[1, -1, 0], **FIXED)
    expected = model.fit(X[:60], y[:60]).predict(X)
    for rows in (X, mapped):
        assert_allclose(model.fit(rows, y, weights).predict(X), expected, atol=1e-9)


@pytest.mark.filterwarnings("ignore:predictions move by up to")
def test_wrong_signs_and_a_tiny_penalty_do_not_take_long(monkeypatch):
    """Constraints come in rounds; all at once, this problem takes minutes."""
    X, y, _ = make_data(150)
    options = FIXED | {"bandwidth": 3.0, "monotonic_cst": [-1, 1, 1]}
    model = SketchedKernelRegressor(**options | {"alpha": 1e-6}).fit(X, y)
    assert falls(model, X, [-1, 1, 1]) < 0.1 * y.std()
    model.set_params(alpha=1e-12)
    monkeypatch.setattr(_monotonic, "_ROUNDS", 2)
    with pytest.warns(ConvergenceWarning, match="are violated after 2 rounds"):
        model.fit(X, y)
    assert model.monotonic_violation_ > 1


@pytest.mark.filterwarnings("ignore:rounding limits the accuracy")
@pytest.mark.filterwarnings("ignore:predictions move by up to")
def test_quantiles_that_cannot_be_solved_say_so(monkeypatch):
    X, y, _ = make_data(60)
    options = FIXED | {"bandwidth": 3.0, "monotonic_cst": [-1, 1, 1]}
    model = JointQuantileRegressor((0.2, 0.8), **options | {"alpha": 1e-13})
    with monkeypatch.context() as patched:
        patched.setattr(_monotonic, "_ROUNDS", 2)
        with pytest.warns(ConvergenceWarning, match="violated after 2 rounds"):
            model.fit(X, y)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.dual_gap_)
    monkeypatch.setattr(_monotonic, "_TOL", 1e-6)
    with pytest.warns(ConvergenceWarning, match="`monotonic_cst` the relative gap is"):
        model.set_params(alpha=1e-3, tol=1e-12).fit(X, y)


def test_rows_of_weight_zero_are_no_rows_of_quantiles():
    X, y, _ = make_data(60)
    weights = np.repeat([1.0, 0.0], 30)
    options = FIXED | {"quantiles": (0.2, 0.8), "monotonic_cst": [1, -1, 0]}
    model = JointQuantileRegressor(**options).fit(X, y, weights)
    expected = JointQuantileRegressor(**options).fit(X[:30], y[:30]).predict(X)
    assert_allclose(model.predict(X), expected, atol=1e-4)


@pytest.mark.parametrize("bandwidth", [None, 1.0])
def test_predictions_are_monotone_in_the_tails_of_a_column(bandwidth):
    """Few quantiles are in the tails: 0.2 to 0.3 of the range were left."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    X[0, 0] = 12 if bandwidth is None else X[0, 0]
    y = X.clip(-3, 3).sum(axis=1) + 0.1 * rng.normal(size=200)
    options = {"bandwidth": bandwidth, "monotonic_cst": [1, 0], "random_state": 0}
    model = SketchedKernelRegressor(**options).fit(X, y)
    largest = 0.01 * np.ptp(model.predict(X))
    assert model.monotonic_violation_ < largest and falls(model, X, [1, 0]) < largest


def test_data_that_contradict_the_signs_between_constraints_are_told(monkeypatch):
    """An oscillation has room between few knots."""
    monkeypatch.setattr(_monotonic, "_KNOTS", 4)
    X = np.random.default_rng(0).normal(size=(600, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=600)
    model = SketchedKernelRegressor(monotonic_cst=[1, 0], random_state=0)
    with pytest.warns(ConvergenceWarning, match="move by up to .* larger `alpha`"):
        model.fit(X, y)
    assert model.monotonic_violation_ > 0.1
    X[:, 0] = np.abs(X[:, 0]) % (np.pi / 4)  # where it increases
    model.fit(X, np.sin(2 * X[:, 0]))


@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(**FIXED, monotonic_cst=[1, -1, 0]),
        JointQuantileRegressor((0.3, 0.7), **FIXED, monotonic_cst=[1, -1, 0]),
    ],
    ids=["square", "quantiles"],
)
def test_constraints_hold_for_targets_far_from_zero(model):
    """A fall is small relative to the range of predictions, not to their offset."""
    X, y, _ = make_data(120)
    expected = model.fit(X, y).predict(X)
    violation = model.monotonic_violation_
    moved = model.fit(X, y + 1e9).predict(X)
    assert_allclose(moved - 1e9, expected, atol=2e-3)
    assert_allclose(model.monotonic_violation_, violation, atol=2e-3)
