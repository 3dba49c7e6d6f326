"""Which machine a model has if neither its sketch nor its size is given."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import nbsketch
from nbsketch import (
    DependentRowsWarning,
    GaussianKernel,
    HuberLoss,
    SketchedKernelRegressor,
)
from nbsketch.fitting import choice, penalty, steps
from nbsketch.fitting import plan as sizes
from nbsketch.fitting.plan import takes_all_rows
from nbsketch.fitting.steps import select_method
from nbsketch.model_selection import cross_validate
from nbsketch.solvers.exact import solve_exact

N = 300


@pytest.fixture
def low(monkeypatch):
    """Let the closed form end at 100 rows, Cholesky factorizations at 200."""
    monkeypatch.setattr(sizes, "_EXACT_ROWS", 100)
    monkeypatch.setattr(sizes, "_LEAST_SQUARES_SIZE", 50)
    monkeypatch.setattr(sizes, "_DENSE_ROWS", 200)


def model(**options):
    return SketchedKernelRegressor(**{"random_state": 0, "bandwidth": 1.0} | options)


@pytest.mark.parametrize(
    ("loss", "n", "n_features", "n_outputs", "all_rows"),
    [
        ("square", 1501, 8, 1, True),
        ("square", 17_300, 8, 1, True),
        ("square", 17_400, 8, 1, False),  # the memory of the kernel values
        ("square", 15_000, 100, 1, True),
        ("square", 16_000, 100, 1, False),  # the time of the kernel values
        ("square", 8900, 8, 8, True),
        ("square", 9000, 8, 8, False),  # the time of the passes
        ("smooth", 8100, 8, 1, True),
        ("smooth", 8200, 8, 1, False),
        ("kinked", 5100, 8, 1, True),
        ("kinked", 5200, 8, 1, False),
        ("kinked", 5100, 100, 1, False),
        ("kinked", 2900, 8, 3, True),
        ("kinked", 3000, 8, 3, False),
        ("smooth", 4700, 8, 3, True),
        ("smooth", 4800, 8, 3, False),
        ("smooth", 600, 8, 4, True),
        ("smooth", 600, 8, 5, False),
        (None, 600, 8, 1, False),
    ],
)
def test_rule(loss, n, n_features, n_outputs, all_rows):
    assert takes_all_rows(loss, n, n_features, n_outputs) == all_rows


@pytest.mark.parametrize("dense_rows", [200, 400])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_default_is_the_exact_machine(
    low, surface, monkeypatch, dense_rows, outputs
):
    monkeypatch.setattr(sizes, "_DENSE_ROWS", dense_rows)
    X, y = surface
    Y = np.column_stack([y, y**2])[:, :outputs]
    found = model(kernel="gaussian").fit(X, Y)
    assert found.sketch_.is_identity and found.size_ == N
    K = GaussianKernel(1.0)(X)
    A, b, least = solve_exact(K, Y, found.alpha_)
    assert_allclose(found.objective_, least, rtol=1.01e-3)
    assert_allclose(found.predict(X), K @ A + b, atol=0.05)


def test_the_penalty_of_the_exact_machine_is_near_the_best(low, surface, rng):
    X, y = surface
    X_new = rng.uniform(-2, 2, size=(500, 3))
    truth = np.sin(2 * X_new[:, 0]) + X_new[:, 1] * X_new[:, 0]

    def error(alpha):
        found = model(alpha=alpha).fit(X, y)
        return np.sqrt(np.mean((found.predict(X_new) - truth) ** 2))

    best = min(error(alpha) for alpha in 10.0 ** np.arange(-8, 0))
    assert error(None) <= 1.15 * best


@pytest.mark.parametrize(
    "options",
    [
        {"size": 60},
        {"sketch": "p-sparsified"},
        {"cv": 3},
        {"kernel": "linear", "bandwidth": None},
        {"kernel": GaussianKernel(1.0).__call__, "bandwidth": None},
    ],
    ids=["size", "sketch", "cv", "linear", "callable"],
)
def test_other_models_have_a_sketch(low, surface, options):
    X, y = surface
    assert model(**options).fit(X, y).size_ < N


def test_sparse_rows_have_a_sketch(low, surface):
    X, y = surface
    assert model().fit(sp.csr_array(X), y).size_ == 50


def test_alpha_is_kept(low, surface, monkeypatch):
    X, y = surface
    monkeypatch.setattr(choice.SplitSample, "first", None)
    assert model(alpha=1e-3).fit(X, y).alpha_ == 1e-3


def test_paths_and_folds_of_the_exact_machine(low, surface):
    X, y = surface
    alphas = [1e-2, 1e-3]
    K = GaussianKernel(1.0)(X)
    for found, alpha in zip(
        model(kernel="gaussian").fit_path(X, y, alphas), alphas, strict=True
    ):
        assert_allclose(
            found.objective_, solve_exact(K, y[:, None], alpha)[2], rtol=1.1e-3
        )
    exact = model(kernel="gaussian", sketch="identity")
    found = cross_validate(exact, X, y, [1.0], alphas, cv=3)
    folds, errors = np.array_split(np.arange(N), 3), []
    for alpha in alphas:
        squares = []
        for out in folds:
            kept = np.setdiff1d(np.arange(N), out)
            A, b, _ = solve_exact(K[np.ix_(kept, kept)], y[kept, None], alpha)
            squares.append((K[np.ix_(out, kept)] @ A + b - y[out, None]) ** 2)
        errors.append(np.concatenate(squares).mean())
    assert_allclose(found.errors[0, :, 0], errors, rtol=0.02)


def test_dependent_rows_are_a_warning(low, rng):
    X = rng.normal(size=(60, 5)).repeat(5, axis=0)
    y = rng.normal(size=60).repeat(5) + 1e-3 * rng.normal(size=300)  # no copies
    with pytest.warns(DependentRowsWarning):
        model().fit(X, y)


def test_sizes_of_other_losses_follow_the_work():
    assert sizes.iterative_size(300) == 300
    assert sizes.iterative_size(200_000) == 500
    assert sizes.iterative_size(2_000_000) == 158
    assert sizes.iterative_size(200_000, 10) == 158
    assert sizes.iterative_size(3000, 1000) == 129
    assert sizes.newton_size("smooth", 10_000, 1) == 1250
    assert sizes.newton_size("smooth", 30_000, 1) == 1000
    assert sizes.newton_size("kinked", 15_000, 1) == 1000
    assert sizes.newton_size("kinked", 15_000, 4) == 500
    assert sizes.newton_size("smooth", 10_000, 5) == 500
    assert sizes.newton_size("smooth", 2_000_000, 1) == 158
    assert sizes.joint_size(200_000, 3) == 300
    assert sizes.joint_size(16_000, 3) == 1000
    assert sizes.joint_size(2000, 3) == 500


@pytest.mark.parametrize(("limit", "size"), [("8MB", 133), ("1GB", 750)])
def test_a_memory_limit_reduces_the_size_for_several_levels(limit, size):
    nbsketch.set_memory_limit(limit)
    try:
        assert sizes.joint_size(3000, 3) == size  # at least 375 / 3
    finally:
        nbsketch.set_memory_limit(None)


def test_the_penalty_of_many_rows_is_that_of_a_smaller_problem(monkeypatch):
    """Corrected: without a tail Huber's loss has the penalty of least squares.

    In the mean over seeds. That of the smaller problem is six times as large.
    """
    monkeypatch.setattr(penalty, "_SMALL_PATH", 0.0)
    monkeypatch.setattr(penalty, "_ROWS", 1000)
    monkeypatch.setattr(penalty, "_ROWS_WORK", 0.0)
    paths, path = [], penalty.LeftOutErrors.path

    def spy(part, *arguments):
        paths.append((part.design.shape[0], path(part, *arguments)))
        return paths[-1][1]

    monkeypatch.setattr(penalty.LeftOutErrors, "path", spy)
    ratios = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(3000, 3))
        y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 0] + 0.3 * rng.normal(size=len(X))
        found = model(loss=HuberLoss(1e3), size=150).fit(X, y).alpha_
        rows, uncorrected = paths.pop()
        least_squares = model(size=150).fit(X, y).alpha_
        assert rows == 1000
        ratios.append(np.log([found, uncorrected.interpolated]) - np.log(least_squares))
    corrected, before = np.exp(np.mean(ratios, axis=0))
    assert 0.5 < corrected < 3 < before


@pytest.mark.parametrize(
    ("noise", "more", "gain"),
    [(0.0, "more landmarks would lower", (0.3, 0.9)), (1.0, "noise limits", (0.97, 2))],
)
def test_summary_says_what_limits_the_fit(noise, more, gain):
    rng = np.random.default_rng(0)
    X = rng.uniform(-np.pi / 2, np.pi / 2, size=(3500, 3))
    f = np.hypot(np.cos(X.cumsum(axis=1)).sum(axis=1), np.sin(X[:, 0]))
    y = f + noise * f.std() * rng.normal(size=len(X))
    errors = []
    for size in (200, 100):
        model = SketchedKernelRegressor(size=size, bandwidth=1.5, random_state=0)
        fitted = model.fit(X[:2500], y[:2500]).predict(X[2500:])
        errors.append(np.sqrt(np.mean((fitted - y[2500:]) ** 2)))
    assert gain[0] < errors[0] / errors[1] < gain[1]
    (found,) = [s for s in model.summary().splitlines() if s.startswith("  more")]
    assert more in found


@pytest.mark.parametrize(
    ("options", "method", "more"),
    [
        ({}, "exact, .* passes of .*, the default for 300", "all samples"),
        ({"size": 60}, "sketch, closed form, as given", "size='auto'"),
        ({"max_seconds": 60.0}, "exact, .*, the largest for max_se.*60", "all samples"),
        ({"size": "auto"}, "sketch, closed form, as given", "from size .* to .* %"),
        ({"loss": "huber", "size": 50}, "sketch, .* iterations, as given", "larger"),
    ],
)
def test_summary_names_the_method(low, surface, options, method, more):
    X, y = surface
    lines = model(**options).fit(X, y).summary().splitlines()
    (found,) = [line for line in lines if line.startswith("  method")]
    (buys,) = [line for line in lines if line.startswith("  more")]
    assert re.search(method, found) and re.search(more, buys)


def test_summary_names_the_memory_limit(surface, monkeypatch):
    X, y = surface
    monkeypatch.setenv("NBSKETCH_MEMORY_LIMIT", "8MB")
    summary = SketchedKernelRegressor(random_state=0).fit(X, y).summary()
    assert f"the default for {len(X)} samples within a memory limit of 8 MB" in summary


@pytest.mark.parametrize(
    ("options", "n", "method", "size", "penalty"),
    [
        ({}, 300, "ClosedForm", 300, "leave-one-out"),
        ({"alpha": 1e-3}, 300, "ExactRidge", 300, "given"),
        ({}, 1600, "ExactRidge", 1600, "validation on a sample of the rows"),
        ({"size": 50}, 300, "ClosedForm", 50, "leave-one-out"),
        ({"bandwidth": None, "size": 50}, 300, "ClosedForm", 50, "leave-one-out"),
        ({"size": 1600}, 2000, "Nystrom", 1600, "validation on a sample of the rows"),
        ({"loss": "huber"}, 300, "Newton", 300, "validation on held-out rows"),
        ({"loss": "huber"}, 600, "Dual", 600, "validation on a sample of the rows"),
        ({"loss": "huber", "cv": 3}, 300, "Newton", 300, "the folds of `cv`"),
        ({"loss": "pinball", "sketch": "countsketch", "size": 40}, 300, "Newton", 40,
         "validation on held-out rows"),
        ({"loss": "pinball", "solver": "adam", "alpha": 1.0}, 90, "Stochastic", 90,
         "given"),
    ],
)  # fmt: skip
def test_the_plan_is_what_fit_does(options, n, method, size, penalty, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
    planned = model(**options).plan(X, y)
    assert planned[:1] + planned[2:] == (method, size, n, penalty)
    used = []

    def selected(*args):
        used.append(type(select_method(*args)).__name__)
        return select_method(*args)

    monkeypatch.setattr(steps, "select_method", selected)
    fitted = model(**options).fit(X, y)
    assert (used[0], fitted.size_) == (planned.method, planned.size)


@pytest.mark.parametrize(
    ("loss", "n", "method"),
    [("square", 20_000, "Nystrom"), ("huber", 9000, "Passes"),
     ("pinball", 6000, "Passes"), ("pinball", 5000, "Dual")],
)  # fmt: skip
def test_the_plan_of_many_rows_is_known_at_once(loss, n, method):
    X = np.random.default_rng(0).uniform(size=(n, 8))
    planned = SketchedKernelRegressor(loss=loss, random_state=0).plan(X, X[:, 0])
    assert (planned.method, planned.n_rows) == (method, n)
    assert (planned.size == n) == (method == "Dual")
