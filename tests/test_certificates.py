"""Certificates of fitted models, and fits in which rounding decides."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from nbsketch import (
    GaussianKernel,
    HuberLoss,
    InputOutputKernelRegressor,
    LandmarkSketch,
    QuantileOutput,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SpectralFilterRegressor,
)
from nbsketch.fitting import plan as sizes
from nbsketch.fitting.certificate import FittedCertificate
from nbsketch.fitting.objective import FeatureSolution
from nbsketch.fitting.objectives import JointQuantileObjective, regression_objective
from nbsketch.fitting.plan import SolveOptions
from nbsketch.solvers._linear.conjugate_gradients import ColumnGaps, centered
from nbsketch.solvers.design import ArrayDesign


def scaled_columns(scales, n=300, noise=0.01, seed=0):
    """Return columns of given scales and targets to which each adds one unit."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(scales)))
    y = X.sum(axis=1) + noise * rng.normal(size=n)
    return X * scales, y


@pytest.mark.parametrize("scales", [[1, 1e6, 1], [1e-6, 1, 1e3], [1, 1e9, 1]])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sketch": "identity"},
        {"size": 50},
        {"size": "auto"},
        {"sketch": "p-sparsified", "size": 50, "cv": 5},
        {"alpha": 1e-16},
        {"max_seconds": 60},
    ],
    ids=str,
)
def test_a_linear_kernel_keeps_columns_of_any_scale(scales, options):
    X, y = scaled_columns(scales)
    model = SketchedKernelRegressor("linear", random_state=0, **options).fit(X, y)
    assert model.score(X, y) > 0.9999
    assert model.rank_ == 3
    assert_allclose(model.coef_ * scales, 1, rtol=0.01)


def test_filters_features_and_structured_outputs_keep_columns_of_any_scale():
    X, y = scaled_columns([1, 1e6, 1])
    model = SpectralFilterRegressor("linear", random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9999
    Z = SketchedFeatures("linear", random_state=0).fit_transform(X)
    assert_allclose(Z, X)
    Y = np.column_stack([y, 2 * y])
    structured = InputOutputKernelRegressor("linear", "linear", alpha=1e-9)
    assert_allclose(structured.fit(X, Y).predict(X), Y, atol=0.2)


@pytest.mark.parametrize("alpha", [1e-8, 1e-12, 1e-14])
@pytest.mark.parametrize("sketch", [None, "identity"])
def test_a_linear_kernel_keeps_its_digits_for_a_given_penalty(sketch, alpha):
    rng = np.random.default_rng(0)
    X = np.column_stack([100 * rng.normal(size=(400, 4)), 1.7e9 + np.arange(400) * 1e4])
    y = X[:, :4] @ np.arange(1.0, 5.0) + (X[:, 4] - 1.7e9) / 1e6
    options = {"sketch": sketch, "alpha": alpha}
    model = SketchedKernelRegressor("linear", **options).fit(X, y)
    assert_allclose(model.predict(X), y, atol=1e-6)


def test_a_linear_kernel_with_more_columns_than_rows_is_sketched():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 60))
    model = SketchedKernelRegressor("linear", alpha=1e-3, sketch="identity")
    model.fit(X, X[:, 0])
    assert model.sketch_.is_identity
    assert len(model.landmarks_) == 40


def test_the_summary_names_the_columns_of_a_linear_kernel():
    X, y = scaled_columns([1, 1e6, 1])
    text = SketchedKernelRegressor("linear", random_state=0).fit(X, y).summary()
    assert "the columns of X" in text
    assert "exact, closed form" in text


def wave(n, noise, seed=0):
    """Return rows in a cube and a smooth function of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + X[:, 2]
    return X, y + noise * rng.normal(size=n)


def least_of_sketch(model, X, y):
    """Return the least objective over the sketch of a model, without a nugget."""
    W, C = model.sketch_.weights, model.kernel_(model.landmarks_)
    values, U = np.linalg.eigh(W @ C @ W.T)
    kept = values > 1e-15 * values[-1]
    Z = model.kernel_(X, model.landmarks_) @ W.T @ (U[:, kept] / np.sqrt(values[kept]))
    system = np.vstack(
        [
            (Z - Z.mean(axis=0)) / np.sqrt(len(y)),
            np.sqrt(model.alpha_) * np.eye(Z.shape[1]),
        ]
    )
    right = np.append((y - y.mean()) / np.sqrt(len(y)), np.zeros(Z.shape[1]))
    solved = np.linalg.lstsq(system, right, rcond=None)[0]
    return np.square(system @ solved - right).sum() / 2


def objective_of(model, X, y):
    """Return the objective of least squares of a model as it predicts."""
    c = model.sketch_.weights.T @ model.coef_
    penalty = c @ model.kernel_(model.landmarks_) @ c
    return (np.square(y - model.predict(X)).mean() + model.alpha_ * penalty) / 2


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("alpha", [1e-10, 1e-8, 1e-6])
def test_large_sketches_certify_the_model_that_predicts(alpha, monkeypatch):
    monkeypatch.setattr(sizes, "_LARGE_SIZE", 500)
    X, y = wave(800, 1e-3)
    options = {"kernel": GaussianKernel(1.5), "alpha": alpha, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SketchedKernelRegressor(**options, size=501).fit(X, y)
    value, least = objective_of(model, X, y), least_of_sketch(model, X, y)
    assert value - least <= 2 * model.dual_gap_ * value + 1e-7 * value
    assert value <= 1.01 * least
    assert_allclose(model.objective_, value, rtol=1e-3)


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [700, 900])
def test_rows_far_apart_in_bandwidths_are_not_rounded(dtype, count, monkeypatch):
    monkeypatch.setattr(sizes, "_DENSE_ROWS", 500)
    monkeypatch.setattr(sizes, "_EXACT_ROWS", 100)
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 60 * 86400, count // 2)).astype(dtype)
    X = np.concatenate([t, t + dtype(0.25)]).astype(dtype)[:, None]
    y = np.sin(X[:, 0].astype(float)) + 0.1 * rng.normal(size=len(X))
    options = {"sketch": "identity", "alpha": 1e-5, "random_state": 0}
    model = SketchedKernelRegressor(GaussianKernel(1.0), **options).fit(X, y)
    value, n = objective_of(model, X.astype(float), y), len(y)
    shifted = model.kernel_(X.astype(float)) + n * 1e-5 * np.eye(n)
    solved = np.linalg.solve(shifted, np.column_stack([y, np.ones(n)]))
    c = solved[:, 0] - solved[:, 1] * solved[:, 0].sum() / solved[:, 1].sum()
    least = 1e-5 / 2 * (c @ shifted @ c)
    assert value - least <= 2 * model.dual_gap_ * value


@pytest.mark.parametrize("offset", [0.0, 1e7, -1e8])
def test_targets_far_from_zero_keep_their_digits(offset):
    x = np.linspace(0, 6, 60)[:, None]
    options = {"loss": "huber", "alpha": 1e-6, "sketch": "identity", "bandwidth": 1.0}
    model = SketchedKernelRegressor("gaussian", **options)
    near = model.fit(x, np.sin(x[:, 0])).predict(x)
    far = model.fit(x, offset + np.sin(x[:, 0])).predict(x)
    assert_allclose(far - offset, near, atol=1e-7)


def test_a_gap_above_the_tolerance_is_a_warning():
    x = np.linspace(0, 6, 60)[:, None]
    y = 1e7 + np.sin(x[:, 0])
    options = {"loss": "pinball", "alpha": 1e-8, "sketch": "identity"}
    model = SketchedKernelRegressor("gaussian", bandwidth=1.0, **options)
    with pytest.warns(ConvergenceWarning, match="relative distance"):
        model.fit(x, y)
    assert model.dual_gap_ > 1e-3


def test_a_chosen_penalty_warns_of_a_gap_that_counts_for_a_constant():
    X, y = wave(220, noise=0.0)
    Y = np.column_stack([y, y**2])
    model = SketchedKernelRegressor(loss="huber", tol=1e-13, random_state=0)
    assert 1e-13 < model.fit(X, Y).dual_gap_ < 0.1  # without noise, without a word
    noise = 0.1 * np.random.default_rng(0).normal(size=Y.shape)
    with pytest.warns(ConvergenceWarning, match="relative distance"):
        model.set_params(tol=1e-18).fit(X, Y + noise)


@pytest.mark.parametrize("scale", [1.0, 1e8])
@pytest.mark.parametrize("alpha", [1e-10, 1e-14])
def test_a_tiny_penalty_of_a_linear_kernel_is_certified(alpha, scale):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X @ [1.0, 2.0, 3.0]
    model = SketchedKernelRegressor("linear", alpha=alpha).fit(X * [1, 1, scale], y)
    assert model.dual_gap_ <= 1e-9


def test_a_sketch_of_one_row_predicts_several_outputs():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(50, 2)), rng.normal(size=(50, 3))
    options = {"bandwidth": 1.0, "sketch": "gaussian", "size": 1, "random_state": 0}
    model = SketchedKernelRegressor("gaussian", **options).fit(X, Y)
    k = model.kernel_(X, model.landmarks_) @ model.sketch_.weights.T
    assert_allclose(model.predict(X), k @ model.coef_ + model.intercept_)


def test_noise_counts_in_the_gap_of_columns():
    gaps = ColumnGaps(np.array([2.0, 4.0]), np.array([0.5, 0.0]), np.array([0.5, 1.0]))
    assert_allclose(gaps.relative_gap, [0.5, 0.25])


def test_weights_of_some_rows_have_mean_one():
    Y, weights = np.arange(4.0)[:, None], np.array([1.0, 1.0, 2.0, 0.0])
    objective = regression_objective(Y, weights, True, "square")
    assert_allclose(objective.take(np.array([0, 2])).weights, [2 / 3, 4 / 3])


class RoundedMap:
    """A sketch map whose predictions are those of other features."""

    is_columns = True

    def times(self, rows, coef):
        return rows @ coef


@pytest.mark.parametrize("weighted", [False, True])
def test_rounded_features_count_by_the_square_of_their_effect(weighted, rng):
    """Residuals r fit the dual point r + d only up to d^2 / 2 for least squares."""
    Z = rng.normal(size=(40, 3))
    exact = Z + 1e-3 * rng.normal(size=Z.shape)
    w = rng.exponential(size=40) if weighted else np.ones(40)
    weights = w / w.mean() if weighted else None
    objective = regression_objective(rng.normal(size=(40, 1)), weights, True, "square")
    coef = rng.normal(size=(3, 1))
    solution = FeatureSolution(coef, np.zeros(1), 0.1, 1.0, 0.0)
    data = SimpleNamespace(rows=exact, sketch_map=RoundedMap())
    certificate = FittedCertificate(data, objective, 1e-3, False)
    found = certificate._lost_to_features(
        solution, certificate._values(solution), ArrayDesign(Z)
    )
    expected = np.average(np.square((exact - Z) @ coef)[:, 0], weights=weights) / 2
    assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="double is longest")
@pytest.mark.parametrize("offset", [1e5, 1e6])
def test_predictions_of_columns_far_from_zero_are_rounded(offset, rng):
    """The product of column and slope cancels the intercept."""
    x = rng.normal(size=30) + offset
    y = x - offset + 0.1 * rng.normal(size=30)
    model = SketchedKernelRegressor("linear", alpha=1e-3, random_state=0)
    model.fit(x[:, None], y)
    X, Y = x.astype(np.longdouble), y.astype(np.longdouble)
    X, Y = X - X.mean(), Y - Y.mean()
    best = (Y @ Y - (X @ Y) ** 2 / (X @ X + 30e-3)) / 60
    columns = model.sketch_.weights @ model.landmarks_
    slope = (model.coef_.astype(np.longdouble) * columns.ravel()).sum()
    value = np.square(y - model.predict(x[:, None])).mean() / 2 + 1e-3 / 2 * slope**2
    distance = abs(float((value - best) / value))  # predictions round either way
    assert 1e-13 < distance <= 2 * model.dual_gap_


class LongDouble:
    """Sketched problems in long double: the model as it predicts, and a better one."""

    def __init__(self, model, X, y, weights, loss):
        self.y, self.loss = y.astype(np.longdouble), loss
        self.w = np.ones(len(y)) if weights is None else weights / weights.mean()
        self.alpha, sketch = (
            np.longdouble(model.alpha_),
            model.sketch_.weights.toarray(),
        )
        core = sketch @ self.kernel(model, model.landmarks_) @ sketch.T
        rank = 1e-18 * np.trace(core) * np.eye(len(core), dtype=np.longdouble)
        self.factor = long_cholesky(core + rank)
        self.Z = forward(self.factor, sketch @ self.kernel(model, X).T).T
        penalty = self.alpha / 2 * (model.coef_ @ (core @ model.coef_))
        self.value = self.mean_loss(predicted(model, X)) + penalty
        self.start = np.append(self.factor.T @ model.coef_, model.intercept_)

    @staticmethod
    def kernel(model, X):
        """Return kernel values of rows and landmarks."""
        landmarks = model.landmarks_.astype(np.longdouble)
        differences = X.astype(np.longdouble)[:, None] - landmarks
        width = np.longdouble(model.kernel_.bandwidth)
        if isinstance(model.kernel_, GaussianKernel):
            return np.exp(-np.square(differences).sum(axis=2) / (2 * width**2))
        return np.exp(-np.abs(differences).sum(axis=2) / width)

    def mean_loss(self, fitted):
        return self.w @ long_loss(self.loss, self.y, fitted)[0] / len(self.y)

    def objective(self, theta):
        """Return the objective of coefficients of features and the intercept."""
        penalty = self.alpha / 2 * (theta[:-1] @ theta[:-1])
        return self.mean_loss(self.Z @ theta[:-1] + theta[-1]) + penalty

    def distance(self):
        """Return the relative distance to a better model, by damped Newton steps."""
        columns = np.column_stack([self.Z, np.ones(len(self.Z))])
        theta, best = self.start, min(self.value, self.objective(self.start))
        penalty = np.append(np.full(len(theta) - 1, self.alpha), 1e-18)
        for _ in range(6):
            _, slopes, bends = long_loss(self.loss, self.y, columns @ theta)
            gradient = columns.T @ (self.w * slopes) / len(self.y)
            gradient[:-1] += self.alpha * theta[:-1]
            H = columns.T @ ((self.w * bends / len(self.y))[:, None] * columns)
            factor = long_cholesky(H + np.diag(penalty))
            step = backward(factor, forward(factor, gradient))
            trials = [theta - step / 4**k for k in range(4)]
            values = [self.objective(trial) for trial in trials]
            theta = trials[int(np.argmin(values))]
            best = min(best, *values)
        return float((self.value - best) / self.value)


def predicted(model, X):
    classifies = isinstance(model, SketchedKernelClassifier)
    return model.decision_function(X) if classifies else model.predict(X)


def long_loss(loss, y, fitted):
    """Return values of a loss, slopes and curvatures."""
    r = fitted - y
    if loss == "square":
        return r * r / 2, r, np.ones_like(r)
    if isinstance(loss, HuberLoss):
        k = loss.kappa
        near = np.abs(r) <= k
        values = np.where(near, r * r / 2, k * (np.abs(r) - k / 2))
        return values, np.clip(r, -k, k), 1.0 * near
    chance = 1 / (1 + np.exp(np.clip(y * fitted, -9999, 9999)))
    return np.logaddexp(0, -y * fitted), -y * chance, chance * (1 - chance)


def long_cholesky(A):
    A = A.copy()
    for j in range(len(A)):
        A[j, j] = np.sqrt(A[j, j] - A[j, :j] @ A[j, :j])
        A[j + 1 :, j] = (A[j + 1 :, j] - A[j + 1 :, :j] @ A[j, :j]) / A[j, j]
    return np.tril(A)


def forward(factor, B):
    B = B.astype(np.longdouble)
    for j in range(len(factor)):
        B[j] = (B[j] - factor[j, :j] @ B[:j]) / factor[j, j]
    return B


def backward(factor, B):
    return forward(factor.T[::-1, ::-1], B[::-1])[::-1]


def long_problem(seed):
    """Return a model of an exact or sketched machine, its problem and the loss."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(10, 60))
    X = rng.normal(size=(n, rng.integers(1, 4))).astype(rng.choice(["f4", "f8"]))
    loss = str(rng.choice(["square", "square", "huber", "logistic"]))
    y = np.sin(X.astype(float) @ rng.normal(size=X.shape[1]))
    y += rng.choice([0, 0.1]) * rng.normal(size=n)
    y = y + rng.choice([0, 0, 1e3, 1e8]) if loss != "logistic" else np.sign(y)
    weights = None if rng.random() < 0.6 else rng.exponential(size=n)
    Model = SketchedKernelClassifier if loss == "logistic" else SketchedKernelRegressor
    sketch = str(rng.choice(["identity", "subsampling", "p-sparsified"]))
    model = Model(
        str(rng.choice(["gaussian", "laplacian"])),
        bandwidth=10 ** rng.uniform(-0.5, 1),
        alpha=10 ** rng.uniform(-14, 1),
        loss=loss,
        sketch=sketch,
        size=None if sketch == "identity" else int(rng.integers(3, n)),
        random_state=0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=weights)
    loss = model.loss_ if loss == "huber" else loss
    return model, X, y, weights, loss, bool(caught)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="double is longest")
@pytest.mark.thin(every=2)
@pytest.mark.parametrize("part", range(4))
def test_claims_bound_the_distance_in_long_double(part):
    for seed in range(30 * part, 30 * part + 30):
        model, X, y, weights, loss, is_warned = long_problem(seed)
        truth = LongDouble(model, X, y, weights, loss)
        unit = 2 * np.spacing(np.abs(y).max())  # the last digits of the targets
        least = 1e-15 + float(unit**2 / truth.value)
        assert truth.distance() <= 2 * model.dual_gap_ + least, seed
        tol = 1e-3 if loss == "square" else 1e-6
        # What is cut of a sketch counts in the gap, and is told where it is much.
        is_cut = not model.sketch_.is_identity and model.rank_ < len(model.coef_)
        least = 0.2 if is_cut else tol
        if is_warned or model.dual_gap_ > least:
            assert is_warned and model.dual_gap_ > tol, seed


def small_sketch(landmarks, **options):
    """Return a model of few landmarks of one column under a wide Gaussian kernel."""
    options = {"bandwidth": 1.0, "sketch": LandmarkSketch(landmarks)} | options
    return SketchedKernelRegressor("gaussian", **options)


@pytest.mark.parametrize("loss", ["square", "huber", "pinball"])
def test_dependent_landmarks_are_no_warning_of_a_sketch(loss):
    X = np.random.default_rng(0).normal(size=(60, 1))
    y = np.sin(2 * X[:, 0])
    model = small_sketch(X[:30], loss=loss, alpha=1e-3).fit(X, y)
    assert model.rank_ < 20
    assert 1e-6 < model.dual_gap_ < 0.1


def test_what_dependent_landmarks_lose_counts_the_output_matrix():
    """The matrix 4 I and four times the penalty are the problem of I."""
    X = np.random.default_rng(0).normal(size=(60, 1))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 0] ** 2])
    one, four = (
        small_sketch(X[:30], loss="huber", alpha=c * 1e-3, output=c * np.eye(2))
        for c in (1.0, 4.0)
    )
    gap = one.fit(X, Y).dual_gap_
    assert 1e-6 < gap < 0.1
    assert_allclose(four.fit(X, Y).dual_gap_, gap, rtol=1e-2)


def test_dual_points_of_levels_that_must_not_cross_give_the_coefficients(rng):
    Z = rng.normal(size=(40, 12))
    T = QuantileOutput((0.2, 0.5, 0.8)).factor(3)
    y = rng.normal(size=(40, 1))
    args = y, None, True, (0.2, 0.5, 0.8), T
    objective = JointQuantileObjective(*args, non_crossing=True)
    solution = objective.solve(ArrayDesign(Z), 1e-3, SolveOptions(tol=1e-10))
    (state,) = solution.states
    assert np.abs(state.dual[:, 3:]).max() > 1e-3  # gaps of zero
    certificate = FittedCertificate(None, objective, 1e-6, False)
    dual = certificate._dual(solution, Z @ solution.coef + solution.intercept)
    expected = Z.T @ dual @ T.T @ T / (40 * 1e-3)
    assert_allclose(solution.coef, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("loss", ["square", "squared-epsilon-insensitive"])
def test_every_sample_counts_where_a_sketch_is_cut(loss):
    """Most of what is cut may be at one sample, far from the landmarks."""
    x = np.linspace(0, 1, 400)
    y = np.sin(6 * x)
    model = small_sketch(x[::8, None], alpha=1e-6, loss=loss)
    gaps = []
    for place in (0, 1):  # of two samples, one has been looked at
        X = np.insert(x, place, 3.0)[:, None]
        gaps.append(model.fit(X, np.insert(y, place, 2.0)).dual_gap_)
    assert gaps[0] > 1e-4
    assert_allclose(gaps[1], gaps[0], rtol=0.1)


def test_dual_points_of_rates_are_in_the_units_of_the_targets(rng):
    Z = rng.normal(size=(40, 5))
    y = 1000 * rng.gamma(2.0, size=(40, 1))
    objective = regression_objective(y, None, True, "poisson")
    solution = objective.solve(ArrayDesign(Z), 1.0, SolveOptions(tol=1e-12))
    certificate = FittedCertificate(None, objective, 1e-6, False)
    dual = certificate._dual(solution, Z @ solution.coef + solution.intercept)
    assert_allclose(solution.coef, Z.T @ dual / 40, rtol=1e-4)


def test_dependent_landmarks_that_lose_much_are_a_warning():
    X = np.linspace(0, 6, 80)[:, None]
    y = np.sin(X[:, 0])
    model = small_sketch(X[:20], alpha=1e-9)
    with pytest.warns(ConvergenceWarning, match="another sketch"):
        model.fit(X, y)
    assert model.dual_gap_ > 0.1


def test_the_mean_of_targets_far_from_zero_is_that_of_their_digits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2))
    y = np.round(np.sin(X[:, 0]) * 2**20) / 2**20
    far = 2.0**26
    mean, rest = centered(y[:, None], np.ones(5000), True)
    far_mean, far_rest = centered(y[:, None] + far, np.ones(5000), True)
    assert abs(far_mean - far - mean) <= np.spacing(far) / 2
    assert_allclose(far_rest, rest, atol=1e-15)
    assert centered(y[:, None], np.ones(5000), False)[0] == 0


def test_large_sketches_of_targets_far_from_zero_are_solved_as_others(monkeypatch):
    monkeypatch.setattr(sizes, "_LARGE_SIZE", 500)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 1))
    y = np.round(np.sin(3 * X[:, 0]) * 2**20) / 2**20  # exact beside the offset
    options = {"alpha": 1e-8, "sketch": "p-sparsified", "size": 501, "random_state": 0}
    model = SketchedKernelRegressor("laplacian", bandwidth=2.0, **options)
    near = model.fit(X, y).objective_
    assert_allclose(model.fit(X, y + 2.0**26).objective_, near, rtol=1e-4)
