"""The exact kernel machine of many rows: against the dense one, and what it chooses."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import nbsketch
from nbsketch import (
    GaussianKernel,
    HuberLoss,
    PolynomialKernel,
    SketchedKernelRegressor,
)
from nbsketch.fitting import choice, methods, sketched
from nbsketch.fitting import plan as sizes
from nbsketch.fitting.objectives import ScalarObjective
from nbsketch.gram import SymmetricGram
from nbsketch.losses import as_loss
from nbsketch.reproduce.tabular import steps
from nbsketch.solvers._linear.conjugate_gradients import RotatedOutputs
from nbsketch.solvers.conjugate import NotConvergedError, solve_columns, solve_conjugate
from nbsketch.solvers.exact import solve_exact
from nbsketch.solvers.left_out import Fold

N = 700


@pytest.fixture
def few(monkeypatch):
    """Let conjugate gradients start at 500 rows, and fit 250 rows of a sample."""
    monkeypatch.setattr(sizes, "_DENSE_ROWS", 500)
    monkeypatch.setattr(sizes, "_EXACT_ROWS", 100)
    monkeypatch.setattr(choice.SplitSample, "most_rows", 250)
    monkeypatch.setattr(choice, "_VALIDATION", 150)


@pytest.fixture
def data(rng):
    X = rng.uniform(-2, 2, size=(N, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 0] + 0.1 * rng.normal(size=N)
    return X, y


def model(**options):
    known = {"sketch": "identity", "random_state": 0, "preprocessing": None}
    return SketchedKernelRegressor(**known | options)


def test_more_rows_than_the_limit_are_not_dense(rng, monkeypatch):
    monkeypatch.setattr(
        methods.ExactRidge, "_dense", None
    )  # would be called for a dense matrix
    monkeypatch.setattr(sizes, "_DENSE_ROWS", 1500)
    X = rng.uniform(-2, 2, size=(1501, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=len(X))
    found = model(bandwidth=1.0, alpha=1e-5).fit(X, y)
    assert 0 < found.dual_gap_ <= 1e-3 and found.rank_ == len(X)
    assert np.sqrt(np.mean((found.predict(X) - y) ** 2)) < 0.11


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("outputs", [1, 2])
def test_solution_is_the_dense_one(few, data, fit_intercept, outputs, rng):
    X, y = data
    Y = np.column_stack([y, y**2])[:, :outputs]
    weights = rng.exponential(size=N) * (rng.random(N) < 0.9)
    output = np.array([[2.0, 1.0], [1.0, 1.0]])[:outputs, :outputs]
    found = model(
        bandwidth=1.0, alpha=1e-4, output=output, fit_intercept=fit_intercept
    ).fit(X, Y, weights)
    A, b, least = solve_exact(
        GaussianKernel(1.0)(X),
        Y,
        1e-4,
        output=output,
        sample_weight=weights / weights.mean(),
        fit_intercept=fit_intercept,
    )
    assert least <= found.objective_ * (1 + 1e-5)
    assert found.objective_ <= least * (1 + found.dual_gap_ * 1.01)
    desired = GaussianKernel(1.0)(X) @ A + b
    assert_allclose(found.predict(X), desired, atol=0.03 * np.abs(Y).max())


def test_penalty_and_width_are_chosen_on_a_sample(few, data, rng):
    X, y = data
    found = model().fit(X, y)
    assert 1e-8 < found.alpha_ < 1e-1 and found.dual_gap_ <= 1e-3
    X_new = rng.uniform(-2, 2, size=(500, 3))
    truth = np.sin(2 * X_new[:, 0]) + X_new[:, 1] * X_new[:, 0]
    assert np.sqrt(np.mean((found.predict(X_new) - truth) ** 2)) < 0.08
    # Length scales that are published are those of the kernel.
    used = np.isfinite(found.length_scales_)
    spread = X.std(axis=0) if found.scaler_ is None else 1.0
    ratio = np.ravel(found.kernel_.bandwidth) / (found.length_scales_ * spread)[used]
    assert_allclose(ratio, ratio[0], rtol=1e-6)
    again = model().fit(X, y)
    assert again.alpha_ == found.alpha_
    assert_allclose(again.predict(X), found.predict(X), rtol=1e-9)


@pytest.mark.parametrize("best", [1e-6, 0.007, 30.0])
def test_the_best_penalty_of_the_sample_is_taken(few, data, monkeypatch, best):
    X, y = data
    tried = []

    def errors(self, kernel, shifts):
        tried.extend((kernel.bandwidth, shift) for shift in shifts)
        return [choice.Choice(np.log(s / best) ** 2, kernel, s) for s in shifts]

    monkeypatch.setattr(choice.SplitSample, "errors", errors)
    monkeypatch.setattr(choice, "_MOST_STEPS", 20)
    found = model(bandwidth=1.0).fit(X, y)
    assert {b for b, _ in tried} == {1.0}  # a given bandwidth is kept
    # Found to an eighth of a step of the grid, beyond its first points.
    assert abs(np.log(found.alpha_ * N / best) / np.log(4)) <= 1 / 8 + 1e-9


def test_penalties_without_convergence_do_not_count(few, data, monkeypatch):
    X, y = data
    monkeypatch.setattr(choice, "_LARGEST_GAP", -1.0)
    tried, errors = [], choice.SplitSample.errors

    def spy(self, kernel, shifts):
        tried.extend(shifts)
        return errors(self, kernel, shifts)

    monkeypatch.setattr(choice.SplitSample, "errors", spy)
    found = model(bandwidth=1.0).fit(X, y)
    # Without anything known the strongest one is the safest.
    assert_allclose(found.alpha_ * N, max(tried), rtol=1e-6)


@pytest.mark.parametrize("width", [0.5, 0.7, 1.0])
def test_the_best_width_of_learned_length_scales_is_taken(
    few, data, monkeypatch, width
):
    X, y = (values[:400] for values in data)
    learned = []

    def errors(self, kernel, shifts):
        if not learned:  # the first kernel has the learned length scales
            learned.append(np.array(kernel.bandwidth))
        error = abs(kernel.bandwidth[0] / learned[0][0] - width)
        fitted = self.validation.targets + np.sqrt(error)
        return [choice.Choice(error, kernel, s, fitted) for s in shifts]

    monkeypatch.setattr(choice.SplitSample, "errors", errors)
    found = model().fit(X, y)
    assert_allclose(found.kernel_.bandwidth, width * learned[0])
    ratio = found.length_scales_ / found.kernel_.bandwidth  # scales of columns of one
    assert_allclose(ratio, 1 / X.std(axis=0), rtol=0.1)


def test_the_least_error_of_a_grid_is_that_of_its_parabola():
    places = np.arange(4, -3, -1)  # of log lambda, the strongest first
    errors = 2 + 0.3 * np.square(places - 1.25)
    pairs = zip(errors.tolist(), 4.0**places, strict=True)
    grid = [choice.Choice(e, None, s) for e, s in pairs]
    found = choice._interpolated(grid, int(np.argmin(errors)), 1.0)
    assert_allclose([found.error, found.lam], [2.0, 4**1.25])


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("kind", ["sparse", "precomputed", "callable"])
@pytest.mark.parametrize("alpha", [None, 1e-3])
def test_other_rows_and_kernels(few, data, kind, alpha):
    X, y = (values[:520] for values in data)
    dense = model(kernel="gaussian", bandwidth=1.0, alpha=alpha).fit(X, y)
    options = {"kernel": "gaussian", "bandwidth": 1.0}
    rows = X
    if kind == "sparse":
        rows = sp.csr_array(X)
    elif kind == "precomputed":
        options, rows = {"kernel": "precomputed"}, GaussianKernel(1.0)(X)
    else:
        options = {"kernel": GaussianKernel(1.0).__call__}
    found = model(alpha=alpha, **options).fit(rows, y)
    assert found.dual_gap_ <= 1e-3
    assert found.alpha_ == dense.alpha_
    if alpha is not None:
        assert_allclose(found.predict(rows), dense.predict(X), atol=0.05)


def test_a_path(few, data):
    X, y = data
    alphas = [1e-2, 1e-3, 1e-4]
    models = model(bandwidth=1.0, kernel="gaussian").fit_path(X, y, alphas)
    K = GaussianKernel(1.0)(X)
    for found, alpha in zip(models, alphas, strict=True):
        _, _, least = solve_exact(K, y[:, None], alpha)
        assert found.alpha_ == alpha
        assert least * (1 - 1e-6) <= found.objective_ <= least * 1.0011


def test_where_conjugate_gradients_fail_the_dense_solution_is_returned(
    few, data, monkeypatch
):
    X, y = data
    options = {"kernel": "gaussian", "bandwidth": 0.3, "alpha": 1e-7, "max_iter": 5}
    found = model(**options).fit(X, y)
    A, _, least = solve_exact(GaussianKernel(0.3)(X), y[:, None], 1e-7)
    assert_allclose(found.objective_, least)
    assert_allclose(found.coef_, A[:, 0])
    monkeypatch.setattr(methods, "_MOST_DENSE_ROWS", N - 1)
    with pytest.raises(NotConvergedError):
        model(**options).fit(X, y)


def test_a_budget_is_a_warning(few, data):
    X, y = data
    short = model(kernel="gaussian", bandwidth=0.5, alpha=1e-4, max_iter=7)
    with pytest.warns(ConvergenceWarning, match="before reaching tol=0.001"):
        found = short.fit(X, y)
    assert 1e-3 < found.dual_gap_ <= 0.1


def test_a_saved_model_predicts_the_same(few, data, tmp_path):
    X, y = data
    found = model(bandwidth=1.0, alpha=1e-4).fit(X, y)
    found.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(loaded.predict(X), found.predict(X))


def test_columns_of_penalties_are_separate_solutions(data):
    X, y = data
    Y = np.column_stack([y, y**2])
    K = SymmetricGram(GaussianKernel(1.0), X, dtype=np.float64)
    output = np.array([[2.0, 1.0], [1.0, 1.0]])
    alphas = np.array([1e-2, 1e-4])
    outputs, rng = RotatedOutputs(Y, output, None, True), np.random.default_rng(0)
    options = {"rank": 100, "tol": 1e-8, "max_passes": 200, "callback": None}
    found = solve_columns(K, outputs, alphas, rng=rng, **options)
    for alpha, solution in zip(alphas, found, strict=True):
        alone = solve_conjugate(K, Y, alpha, output=output, tol=1e-8, random_state=0)
        assert solution.converged
        assert_allclose(solution.coef, alone.coef, atol=1e-2 * np.abs(alone.coef).max())
        assert_allclose(solution.objective, alone.objective, rtol=1e-7)
        assert_allclose(solution.intercept, alone.intercept, atol=1e-3)


def test_a_scaled_kernel_keeps_its_other_parameters():
    kernel = nbsketch.MaternKernel((1.0, 2.0), 1.5)
    scaled = choice._scaled(kernel, 0.5)
    assert scaled == replace(kernel, bandwidth=(0.5, 1.0))


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "sketch", ["subsampling", "p-sparsified", "countsketch", "srht"]
)
def test_large_sketches(sketch, data, weighted, monkeypatch, rng):
    X, y = data
    weights = rng.exponential(size=N) if weighted else None
    options = {"sketch": sketch, "size": 200, "alpha": 1e-3, "bandwidth": 1.0}
    closed = model(kernel="gaussian", **options).fit(X, y, weights)
    assert closed.n_iter_ == 1
    monkeypatch.setattr(sizes, "_LARGE_SIZE", 199)
    monkeypatch.setattr(sizes, "_LARGE_SEARCH", 199)
    found = model(kernel="gaussian", **options).fit(X, y, weights)
    assert 1e-12 < found.dual_gap_ <= 1e-3 and found.n_iter_ > 1
    assert found.coef_.shape == (200,) and found.rank_ == 200
    assert found.landmarks_.shape == closed.landmarks_.shape
    assert_allclose(found.objective_, closed.objective_, rtol=1.1e-3)
    assert_allclose(found.predict(X), closed.predict(X), atol=0.05)
    folds = model(kernel="gaussian", **options | {"alpha": None}, cv=3)
    assert folds.fit(X, y).n_iter_ == 1
    options |= {"kernel": "gaussian", "bandwidth": 0.3, "alpha": 1e-8, "max_iter": 3}
    fallback = model(**options).fit(X, y)
    assert fallback.n_iter_ == 1 and fallback.dual_gap_ < 1e-6


def test_where_the_closed_form_stays():
    given = {"searched": False, "kept": 1.0}
    assert not sizes.is_large(1000, 16_000, 1000, **given)
    assert sizes.is_large(1001, 16_000, 16_000, **given)
    assert sizes.is_large(1000, 200_000, 1000, **given)  # n s^2 is large
    searched = {"searched": True, "kept": 1.0}
    assert not sizes.is_large(1500, 16_000, 1500, **searched)
    assert sizes.is_large(1501, 16_000, 16_000, **searched)
    # Evaluated again in each pass: many landmarks cost too much.
    anew = {"searched": False, "kept": 0.0}
    assert not sizes.is_large(1001, 40_000, 2500, **anew)
    assert not sizes.is_large(2500, 40_000, 16_000, **anew)
    assert sizes.is_large(2500, 40_000, 2500, **anew)
    assert sizes.is_large(1001, 200_000, 2500, searched=True, kept=0.5)


@pytest.mark.parametrize("outputs", [1, 3, 16])
def test_landmarks_beyond_the_exact_machine_have_no_step(outputs):
    """Their values grow with n up to a budget: time is linear, and no size jumps."""
    rows = np.geomspace(17_300, 3e6, 200).astype(int)
    found = np.array([sizes.landmarks_size(n, outputs) for n in rows])
    assert (np.diff(found) <= 0).all() and found[-1] >= 100
    assert (found[1:] >= 0.95 * found[:-1]).all()
    assert (found >= [sizes.least_squares_size(n) for n in rows]).all()
    assert sizes.landmarks_size(1200, outputs) == 1200


def test_the_default_beyond_the_exact_machine_is_solved_by_passes(monkeypatch, rng):
    monkeypatch.setattr(sizes, "_EXACT_WORK", 1e6)
    monkeypatch.setattr(sizes, "_LARGE_SEARCH", 500)
    monkeypatch.setattr(sizes, "_MOST_VALUES", 1e6)
    monkeypatch.setattr(sizes, "_LANDMARKS", 400)
    monkeypatch.setattr(sizes, "_LEAST_SQUARES_WORK", 3e7)
    X = rng.uniform(-2, 2, size=(2000, 2))
    truth = np.sin(3 * X[:, 0]) * X[:, 1]
    y = truth + 0.05 * rng.normal(size=2000)
    found = SketchedKernelRegressor(bandwidth=1.0, random_state=0).fit(X, y)
    assert found.size_ == 500
    for other in ({"cv": 3}, {"sketch": "p-sparsified"}):
        small = SketchedKernelRegressor(bandwidth=1.0, random_state=0, **other)
        assert small.fit(X, y).size_ == 122


def test_a_chosen_penalty_that_does_not_converge_is_raised(few, data, monkeypatch):
    X, y = data
    monkeypatch.setattr(methods, "_MOST_DENSE_ROWS", 0)
    alphas, solve = [], methods.conjugate_path

    def fail_twice(K, Y, penalties, **options):
        alphas.append(penalties[0])
        if len(alphas) < 3:
            raise NotConvergedError("failed")
        return solve(K, Y, penalties, **options)

    monkeypatch.setattr(methods, "conjugate_path", fail_twice)
    found = model(bandwidth=1.0).fit(X, y)
    assert alphas == [alphas[0], 4 * alphas[0], 16 * alphas[0]]
    assert found.alpha_ == alphas[2]
    with pytest.raises(NotConvergedError):  # a given one is kept
        alphas.clear()
        model(bandwidth=1.0, alpha=1e-4).fit(X, y)


def test_a_chosen_penalty_of_landmarks_is_raised(few, data, monkeypatch):
    X, y = data
    monkeypatch.setattr(sizes, "_LARGE_SEARCH", 199)
    monkeypatch.setattr(methods, "_CLOSED_FORM_WORK", 0.0)
    alphas, solve = [], methods.solve_nystrom

    def fail_once(columns, Y, alpha, **options):
        alphas.append(alpha)
        if len(alphas) < 2:
            raise NotConvergedError("failed")
        return solve(columns, Y, alpha, **options)

    monkeypatch.setattr(methods, "solve_nystrom", fail_once)
    found = model(sketch="subsampling", size=200, bandwidth=1.0).fit(X, y)
    assert found.n_iter_ > 1  # passes, no closed form
    assert alphas == [alphas[0], 4 * alphas[0]] and found.alpha_ == alphas[1]


@pytest.mark.parametrize("sketch", ["subsampling", "p-sparsified"])
def test_the_penalty_of_large_sketches_is_chosen_on_a_sample(
    sketch, few, data, monkeypatch
):
    X, y = data
    options = {"sketch": sketch, "size": 200, "bandwidth": 1.0}
    closed = model(**options).fit(X, y)
    monkeypatch.setattr(sizes, "_LARGE_SEARCH", 199)
    found = model(**options).fit(X, y)
    assert found.n_iter_ > 1 and found.dual_gap_ <= 1e-3
    truth = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 0]
    errors = [np.std(m.predict(X) - truth) for m in (found, closed)]
    assert errors[0] <= 1.15 * errors[1]


@pytest.mark.parametrize("options", [{}, {"sketch": "subsampling", "size": 300}])
def test_times_since_1970_are_as_good_as_times_since_zero(
    options, few, data, monkeypatch
):
    monkeypatch.setattr(sizes, "_LARGE_SIZE", 100)
    X, y = data
    known = {"bandwidth": 1000.0, "alpha": 1e-5, **options}
    near, far = (
        model(**known).fit(1000 * X + offset, y).predict(1000 * X + offset)
        for offset in (0.0, 1.6e9)
    )
    assert_allclose(far, near, atol=0.01)  # both to a relative gap of 1e-3


@pytest.mark.parametrize(
    "errors", [(np.inf, 1, 2), (2, 1, np.inf), (np.inf, 1, np.inf)]
)
def test_nothing_is_interpolated_beside_a_penalty_that_does_not_converge(errors):
    found = [choice.Choice(e, None, 4.0**-k) for k, e in enumerate(errors)]
    assert choice._interpolated(found, 1, 1.0) == found[1]


@pytest.mark.parametrize(
    "loss", ["square", pytest.param("pinball", marks=pytest.mark.full)]
)
def test_constant_rows_have_a_constant(few, loss, rng):
    y = 5 + rng.exponential(size=600)  # the mean is 6, the median 5.7
    model = SketchedKernelRegressor(loss=loss, random_state=0)
    fitted = model.fit(np.ones((600, 2)), y)
    (found,) = fitted.predict(np.ones((1, 2)))
    center = np.mean(y) if loss == "square" else np.median(y)
    assert abs(found - center) < 0.05
    assert abs(np.mean(y) - np.median(y)) > 0.2


def test_the_variance_of_features_is_around_their_mean(rng):
    X, Y = rng.normal(size=(300, 2)), np.zeros((300, 1))
    kernel = PolynomialKernel(degree=2)
    K = kernel(X[:200])  # of the first rows
    for constant, mean in (True, K.mean()), (False, 0.0):
        objective = ScalarObjective(Y, None, constant, HuberLoss())
        sample = choice.SplitSample(X, objective, [], rng)
        assert_allclose(sample.variance(kernel), K.diagonal().mean() - mean)
    equal = replace(sample, rows=np.ones((300, 2)))
    assert_allclose(equal.variance(kernel), kernel(np.ones((1, 2)))[0, 0])


def step_of_error(limit, noise, seeds):
    ratios = [
        steps.fitted("gaussian", "square", noise, seed, limit + 1, {})[0]
        / steps.fitted("gaussian", "square", noise, seed, limit, {})[0]
        for seed in range(seeds)
    ]
    return np.exp(np.mean(np.log(ratios)))


def test_noisy_targets_have_no_step_beyond_the_rows_of_the_closed_form(monkeypatch):
    monkeypatch.setattr(sizes, "_EXACT_ROWS", 200)
    assert step_of_error(200, 0.3, seeds=4) < 1.02


def test_targets_without_noise_have_no_step(monkeypatch):
    monkeypatch.setattr(sizes, "_EXACT_ROWS", 600)
    assert step_of_error(600, 0.0, seeds=1) < 1.3


@pytest.mark.parametrize("loss, limit", [("square", 1.03), ("huber", 1.2)])
def test_hardly_noisy_targets_have_no_step_beyond_sizes_of_the_closed_form(
    loss, limit, monkeypatch
):
    """Passes that do not converge give way to the features, not to a larger penalty."""
    for name in ("_LARGE_SIZE", "_LARGE_SEARCH", "_EXACT_ROWS"):
        monkeypatch.setattr(sizes, name, 600)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1200, 3))
    truth = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + X[:, 2]
    y = truth + 1e-4 * rng.normal(size=1200)
    errors = []
    for size in (600, 601):
        options = {"bandwidth": (1.2, 2.1, 6.4), "loss": loss, "size": size}
        model = SketchedKernelRegressor("gaussian", random_state=0, **options)
        model.fit(X[:700], y[:700])
        errors.append(np.std(model.predict(X[700:]) - truth[700:]))
    assert errors[1] < limit * errors[0] < 2e-4


class FirstOfEachGrid:
    """A sample on which every penalty of a width has the same error."""

    def __init__(self, errors):
        self.asked, self.errors = [], errors

    def search(self, kernel, shift):
        self.asked.append((kernel.bandwidth[0], shift))
        return [choice.Choice(self.errors[kernel.bandwidth[0]], kernel, shift)]

    near = search

    def is_better(self, choices, others):
        return choices[0].error < 0.95 * others[0].error

    def grown(self, choices):
        return [c._replace(lam=2 * c.lam) for c in choices]

    def best(self, grid):
        return min(grid, key=choice._order)

    chosen = best


def test_penalties_of_other_widths_follow_the_decay_of_eigenvalues():
    sample = FirstOfEachGrid({1.4: 0.9, 2.0: 1.0, 1.0: 0.5})
    best = choice._choose_width(sample, GaussianKernel((2.0,)), 8.0)
    expected = [(2.0, 8.0), (1.4, 8 / 0.7**3), (1.0, 8 / 0.5**3)]
    assert_allclose(sample.asked, expected, rtol=1e-12)
    # The penalty of the best width is searched for further.
    assert best.kernel.bandwidth == (1.0,)
    assert_allclose(best.lam, 2 * 8 / 0.5**3)


def test_shorter_widths_are_not_tried_where_longer_ones_are_about_as_good():
    sample = FirstOfEachGrid({1.4: 0.96, 2.0: 1.0, 1.0: 0.5})
    best = choice._choose_width(sample, GaussianKernel((2.0,)), 8.0)
    assert best.kernel.bandwidth == (2.0,)
    assert_allclose([width for width, _ in sample.asked], [2.0, 1.4])


def test_a_mean_loss_is_lower_beyond_its_standard_error_and_the_gap_of_the_fits(rng):
    others = 2.0 + rng.normal(size=400)
    noise = rng.normal(size=400)
    noise = (noise - noise.mean()) / noise.std()  # standard error 0.05 of the mean
    mean = others.mean()
    for gain, gap, expected in [
        (0.051, 0.0, True),
        (0.049, 0.0, False),
        (0.051, 0.052 / mean, False),
        (0.053, 0.052 / mean, True),
        (-0.2, 0.0, False),
    ]:
        losses = others - gain - noise
        assert choice.is_lower(losses, others, None, gap) is expected
    # A row of weight four counts as four rows, whose differences are one.
    weights = np.r_[np.full(100, 4.0), np.zeros(300)]
    gains = np.where(weights > 0, 0.0 + noise, 9.0)
    mean, spread = gains[:100].mean(), gains[:100].std()
    for gain, expected in [(1.01 * spread / 10, True), (0.99 * spread / 10, False)]:
        losses = others - (gains - mean + gain)
        assert choice.is_lower(losses, others, weights, 0.0) is expected


@pytest.mark.parametrize("loss", ["huber", "pinball"])
def test_outliers_do_not_choose_the_width(rng, loss):
    truth = rng.normal(size=(200, 1))
    targets = truth + 0.1 * rng.normal(size=(200, 1))
    targets[:8] += 1000.0
    objective = ScalarObjective(targets, None, True, as_loss(loss))
    splits = [(np.arange(0), np.arange(200))]
    sample = choice.DualSample(None, objective, splits, rng)
    error = np.where(np.arange(200)[:, None] < 8, 0.0, 0.2 * rng.normal(size=(200, 1)))
    learned = [choice.Choice(0.0, None, 1.0, truth + error)]
    shorter = [choice.Choice(0.0, None, 1.0, truth + error / 9)]
    assert sample.is_better(shorter, learned)
    assert not sample.is_better(learned, shorter)
    unsolved = [shorter[0]._replace(gap=0.9)]
    assert not sample.is_better(unsolved, learned)
    failed = [shorter[0]._replace(error=np.inf)]
    assert sample.is_better(learned, failed)
    assert not sample.is_better(failed, learned)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["huber", "square"])
def test_rows_in_single_precision_choose_as_those_in_double(few, rng, loss):
    # Weak penalties have large coefficients, whose products cancel.
    Z = rng.uniform(-2, 2, size=(600, 2))
    X = (Z * [1e6, 1e-6] + [1e7, 0]).astype(np.float32)
    y = np.sin(Z[:, 0]) + Z[:, 1] + 1e-3 * rng.normal(size=600)
    fits = [
        model(kernel="gaussian", loss=loss).fit(X[:500].astype(dtype), y[:500])
        for dtype in (np.float32, np.float64)
    ]
    assert_allclose(fits[0].alpha_, fits[1].alpha_, rtol=1e-3)
    first, second = (found.predict(X[500:]) for found in fits)
    assert_allclose(first, second, atol=1e-3 * y.std())


def drawn(kind, n, folds=None):
    objective = ScalarObjective(np.arange(n)[:, None], None, True, as_loss("huber"))
    inputs = sketched.Inputs(np.arange(n)[:, None], None, None)
    sketch_map = SimpleNamespace(kernel=GaussianKernel(1.0))
    rng = np.random.default_rng(0)
    data = sketched.SketchedData(inputs, None, sketch_map, rng)
    return kind.draw(data, replace(objective, folds=folds))


@pytest.mark.parametrize("kind", [choice.SplitSample, choice.DualSample])
@pytest.mark.parametrize("n, splits", [(90, 5), (501, 3), (3000, 2), (4800, 1)])
def test_splits_of_few_rows_validate_on_as_many_rows_as_one_of_many(kind, n, splits):
    sample = drawn(kind, n)
    count = min(1600, n // max(3, splits))
    assert len(sample.splits) == splits
    for fitted, left_out in sample.splits:
        assert len(left_out) == count
        assert len(fitted) == min(n - count, kind.most_rows)
        assert not np.intersect1d(fitted, left_out).size
    every = np.concatenate([left_out for _, left_out in sample.splits])
    assert len(np.unique(every)) == splits * count  # each row validates once
    assert_allclose(sample.validation.targets, sample.rows[every])


def test_fits_of_the_sample_start_from_the_solution_of_the_nearest_penalty(monkeypatch):
    sample = drawn(choice.DualSample, 90)
    solve = ScalarObjective.dual_path
    starts = []

    def recorded(*args, state, **options):
        starts.append(state)
        return solve(*args, state=state, **options)

    monkeypatch.setattr(ScalarObjective, "dual_path", recorded)
    kernel = GaussianKernel(1.0)
    strong, weak = sample.errors(kernel, np.array([4.0, 1.0]))
    for other, shift, expected in [
        (kernel, 0.25, weak.states),
        (kernel, 8.0, strong.states),
        (GaussianKernel(2.0), 1.0, [None] * 5),
    ]:
        starts.clear()
        sample.errors(other, np.array([shift]))
        assert all(a is b for a, b in zip(starts, expected, strict=True))


def test_the_dual_tries_one_stronger_penalty_at_a_time(monkeypatch):
    tried = []

    def errors(self, kernel, shifts):
        tried.append(len(shifts))
        return [choice.Choice(1 + abs(np.log(s / 64)), kernel, s) for s in shifts]

    monkeypatch.setattr(choice.DualSample, "errors", errors)
    monkeypatch.setattr(choice.DualSample, "scored", lambda self, choices: choices)
    grid = drawn(choice.DualSample, 90).search(GaussianKernel(1.0), 1.0)
    assert tried == [2, 1, 1, 1] and grid[1].lam == 64.0


def test_values_of_few_rows_are_stored_in_double_precision():
    rows = np.linspace(0, 3, 60, dtype=np.float32)[:, None]
    kernel = GaussianKernel(1.0)
    K = choice.gram(kernel, rows)
    assert isinstance(K, np.ndarray) and K.dtype == np.float64
    assert_allclose(K, kernel(rows.astype(np.float64)), rtol=1e-14)
    nbsketch.set_memory_limit(3 * K.nbytes - 1)
    try:
        assert isinstance(choice.gram(kernel, rows), SymmetricGram)
    finally:
        nbsketch.set_memory_limit(None)


def test_one_matrix_serves_all_splits_and_penalties(monkeypatch):
    sample = drawn(choice.DualSample, 90)
    kernel = GaussianKernel(1.0)
    expected = sample.errors(kernel, np.array([1.0]))
    calls = []
    made = choice.gram
    monkeypatch.setattr(choice, "gram", lambda *args: calls.append(args) or made(*args))
    again = replace(sample, matrices=[], solved=[])
    again.errors(kernel, np.array([4.0, 1.0]))
    again.errors(kernel, np.array([0.5]))
    assert len(calls) == 1
    again.errors(GaussianKernel(2.0), np.array([1.0]))
    assert len(calls) == 2 and len(again.matrices) == 1
    # Without room for it, values are evaluated for each split.
    monkeypatch.setattr(choice, "_STORED_ROWS", 10)
    other = replace(sample, matrices=[], solved=[])
    found = other.errors(kernel, np.array([1.0]))
    assert_allclose(found[0].fitted, expected[0].fitted, rtol=1e-6)


def test_with_folds_rows_of_the_last_one_validate():
    test = np.arange(40, 60)
    folds = (Fold(np.arange(20), np.arange(20)), Fold(test, np.arange(30, 60)))
    ((fitted, left_out),) = drawn(choice.SplitSample, 90, folds).splits
    sample = drawn(choice.SplitSample, 90, folds)
    assert_allclose(np.sort(sample.rows[left_out, 0]), test)
    kept = np.delete(np.arange(90), np.arange(30, 60))
    assert_allclose(np.sort(sample.rows[fitted, 0]), kept)


def test_weak_penalties_are_tried_while_the_error_falls_down_to_a_limit():
    sample = replace(drawn(choice.SplitSample, 90), weakest=4.0**-12)
    targets = sample.validation.targets
    falls = 0.5

    def errors(kernel, shifts):
        steps = -np.log(shifts) / np.log(4)
        return [
            choice.Choice(falls**step, kernel, s, targets)
            for step, s in zip(steps, shifts, strict=True)
        ]

    object.__setattr__(sample, "errors", errors)
    assert_allclose(sample.search(None, 1.0)[-1].lam, 4.0**-12)
    falls = 0.9  # not worth more than a few steps
    assert_allclose(sample.search(None, 1.0)[-1].lam, 4.0**-6)
    falls = 1.0  # of equal errors the strongest
    assert_allclose(sample.search(None, 1.0)[0].lam, 4.0**4)


def test_weaker_penalties_are_tried_while_fits_are_constants():
    sample = replace(drawn(choice.DualSample, 90), weakest=4.0**-18)
    targets = sample.validation.targets

    def errors(kernel, shifts):
        steps = -np.log(shifts) / np.log(4)
        falls = [
            1 - 1e-3 * min(step, 9) - 0.1 * max(0, min(step - 9, 6)) for step in steps
        ]
        return [
            choice.Choice(error, kernel, s, targets * (step >= 9))
            for error, step, s in zip(falls, steps, shifts, strict=True)
        ]

    object.__setattr__(sample, "errors", errors)
    object.__setattr__(sample, "scored", lambda choices: choices)
    grid = sample.search(None, 1.0)
    assert_allclose(min(grid, key=choice._order).lam, 4.0**-15)


@pytest.mark.parametrize("seed", [1, 5])
def test_a_rare_flag_of_exact_targets_is_learned_by_a_robust_loss(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 4))
    X[:, 3] = 0.0
    X[rng.choice(2000, 3, replace=False), 3] = 1.0
    model = SketchedKernelRegressor(loss="huber", random_state=0).fit(X, 50 * X[:, 3])
    assert_allclose(model.predict(X[X[:, 3] > 0]), 50.0, atol=1.0)


def test_of_equal_errors_the_strongest_penalty_is_chosen():
    kernel = GaussianKernel(1.0)
    grid = [choice.Choice(1.0, kernel, shift) for shift in (0.1, 0.4, 1.6)]
    assert min(grid, key=choice._order).lam == 1.6


def test_a_step_comes_with_its_standard_error(monkeypatch):
    """Draws are paired: what both fits of a draw share is no error of the step."""

    def fitted(kernel, loss, noise, seed, n, parameters):
        change = (1.0 + 0.02 * (seed % 2)) if n == 501 else 1.0
        return (seed + 1.0) * change, 1.0

    monkeypatch.setattr(steps, "fitted", fitted)
    threshold = steps.Threshold("rows", 500)
    (row,) = steps.measure(threshold, "gaussian", "square", 0.3, 10)
    assert row["step"] == pytest.approx(1.02**0.5)
    assert row["standard_error"] == pytest.approx(np.log(1.02) / 2 / 3)
