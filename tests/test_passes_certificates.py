"""Claims of fits by passes, against the same objectives in long double and cvxpy."""

import warnings

import numpy as np
import pytest
from reference import dense_sketch
from test_certificates import LongDouble, backward, forward, long_cholesky

from nbsketch import (
    EpsilonInsensitiveLoss,
    GammaLoss,
    GaussianKernel,
    HuberLoss,
    LogisticLoss,
    MaternKernel,
    PinballLoss,
    PoissonLoss,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SquaredEpsilonInsensitiveLoss,
    SubsamplingSketch,
)
from nbsketch.fitting import methods, steps
from nbsketch.gram import SketchedColumns
from nbsketch.losses import as_loss
from nbsketch.solvers.newton import solve_scalar
from nbsketch.solvers.passes import LandmarkDesign

LOSSES = [
    HuberLoss(1.0),
    HuberLoss(0.05),
    SquaredEpsilonInsensitiveLoss(0.1),
    EpsilonInsensitiveLoss(0.1),
    EpsilonInsensitiveLoss(0.0),
    PinballLoss(0.5),
    PinballLoss(0.9),
    PoissonLoss(),
    GammaLoss(),
    "logistic",
    "squared-hinge",
    "hinge",
]
STEPS = 6


def draw(seed):
    """Return a model on a small sketch, rows, targets and weights."""
    rng = np.random.default_rng(seed)
    loss = as_loss(LOSSES[seed % len(LOSSES)])
    n = int(rng.integers(20, 120))
    X = rng.normal(size=(n, rng.integers(1, 4))).astype(rng.choice(["f4", "f8"]))
    y = np.sin(X.astype(float) @ rng.normal(size=X.shape[1]))
    y += rng.choice([0, 0.1, 1.0]) * rng.standard_t(2, size=n)
    if loss.is_classification:
        y = np.where(y > 0, 1.0, -1.0)
    elif isinstance(loss, PoissonLoss | GammaLoss):
        y = rng.poisson(np.exp(y.clip(-3, 3))) + 0.5 * isinstance(loss, GammaLoss)
    else:
        y += rng.choice([0, 0, 1e3, 1e8])
    weights = None if rng.random() < 0.6 else rng.exponential(size=n)
    labels = loss.is_classification
    Model = SketchedKernelClassifier if labels else SketchedKernelRegressor
    model = Model(
        str(rng.choice(["gaussian", "laplacian"])),
        bandwidth=10 ** rng.uniform(-0.5, 1),
        alpha=10 ** rng.uniform(-10, 0),
        loss=loss,
        fit_intercept=bool(rng.random() < 0.8),
        sketch=str(rng.choice(["subsampling", "p-sparsified", "countsketch"])),
        size=int(rng.integers(3, n // 2)),
        random_state=0,
    )
    return model, X, y, weights


class Truth:
    """The problem of a model in long double: as it predicts, and a better one."""

    def __init__(self, model, X, y, weights):
        self.loss = as_loss(model.loss)
        self.model = model
        self.y = y.astype(np.longdouble)
        self.w = np.ones(len(y)) if weights is None else weights / weights.mean()
        self.alpha = np.longdouble(model.alpha_)
        S = model.sketch_.weights.toarray()
        core = S @ LongDouble.kernel(model, model.landmarks_) @ S.T
        least = 1e-18 * np.trace(core) * np.eye(len(core), dtype=np.longdouble)
        factor = long_cholesky(core + least)
        self.Z = forward(factor, S @ LongDouble.kernel(model, X).T).T
        self.fitted = model._decision(X)
        penalty = self.alpha / 2 * (model.coef_ @ (core @ model.coef_))
        self.value = self.mean_loss(self.fitted) + penalty

    def losses(self, f):
        """Return values of the losses of predictions, their slopes and curvatures."""
        y, loss = self.y, self.loss
        f = np.asarray(f, dtype=np.longdouble)
        if isinstance(loss, PoissonLoss):
            mean = np.exp(f)
            logs = np.log(np.where(y > 0, y, 1)) - f
            return y * logs - y + mean, mean - y, mean
        if isinstance(loss, GammaLoss):
            ratio = y * np.exp(-f)
            return ratio - 1 - np.log(ratio), 1 - ratio, ratio
        if isinstance(loss, LogisticLoss):
            chance = 1 / (1 + np.exp(y * f))
            return np.logaddexp(0, -y * f), -y * chance, chance * (1 - chance)
        sign = -y if loss.is_classification else -np.ones_like(y)
        r = 1 - y * f if loss.is_classification else y - f
        gam, eps, lo, hi = loss.elq
        excess = np.sign(r) * np.maximum(np.abs(r) - eps, 0)
        kinked = np.where(excess > 0, hi, np.where(excess < 0, lo, 0))
        a = np.clip(excess / gam, lo, hi) if gam else kinked
        inside = (a > lo) & (a < hi) & (excess != 0)
        values = a * (r - gam / 2 * a) - eps * np.abs(a)
        return values, sign * a, inside / (gam or np.inf)

    def mean_loss(self, fitted):
        return self.w @ self.losses(fitted)[0] / len(self.y)

    def objective(self, theta):
        """Return the objective of coefficients of features and the intercept."""
        penalty = self.alpha / 2 * (theta[:-1] @ theta[:-1])
        return self.mean_loss(self.Z @ theta[:-1] + theta[-1]) + penalty

    def start(self):
        """Return the solution on stored features in double precision."""
        model, options = self.model, {"sample_weight": self.w, "tol": 1e-9}
        center = np.median(self.y) if self.loss.elq and self.is_centered else 0.0
        y = self.loss.link(self.y.astype(float)) - float(center)
        fit = {"fit_intercept": model.fit_intercept, "max_iter": 300}
        Z = self.Z.astype(float)
        found = solve_scalar(Z, y, self.loss, model.alpha_, **options, **fit)
        return np.append(found.coef, found.intercept + center).astype(np.longdouble)

    @property
    def is_centered(self):
        return self.model.fit_intercept and not self.loss.is_classification

    def least(self):
        """Return the objective after damped Newton steps."""
        theta = self.start()
        best = min(self.value, self.objective(theta))
        free = self.model.fit_intercept
        columns = np.column_stack([self.Z, np.full(len(self.Z), 1.0 * free)])
        penalty = np.append(np.full(len(theta) - 1, self.alpha), 1e-18 if free else 1)
        for _ in range(STEPS if self.loss.is_smooth else 0):
            _, slopes, bends = self.losses(columns @ theta)
            gradient = columns.T @ (self.w * slopes) / len(self.y)
            gradient[:-1] += self.alpha * theta[:-1]
            H = columns.T @ ((self.w * bends / len(self.y))[:, None] * columns)
            factor = long_cholesky(H + np.diag(penalty))
            step = backward(factor, forward(factor, gradient))
            trials = [theta - step / 4**k for k in range(4)]
            values = [self.objective(trial) for trial in trials]
            theta = trials[int(np.argmin(values))]
            best = min(best, *values)
        return best

    def distance(self):
        """Return the relative distance to a better model."""
        return float((self.value - self.least()) / self.value) if self.value else 0.0


@pytest.fixture(autouse=True)
def by_passes(monkeypatch):
    """Solve every problem by passes."""
    monkeypatch.setattr(steps, "_kind", lambda *problem: methods.Passes)


def claims(seed):
    """Return the distance of a fit, its gap and what the digits of targets are."""
    model, X, y, weights = draw(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sample_weight=weights)
    truth = Truth(model, X, y, weights)
    unit = 2 * np.spacing(np.abs(y).max())
    least = unit**2 / max(truth.value, unit**2)
    return truth.distance(), model.dual_gap_, least, truth


def by_cvxpy(truth):
    """Return the least objective that another package finds, with an interior point."""
    cp = pytest.importorskip("cvxpy")
    Z, y = truth.Z.astype(float), truth.y.astype(float)
    loss = truth.loss
    w, b = cp.Variable(Z.shape[1]), cp.Variable()
    center = np.median(y) if loss.elq and truth.is_centered else 0.0
    f = Z @ w + b * truth.model.fit_intercept + center
    if isinstance(loss, PoissonLoss):
        fixed = y * np.log(np.where(y > 0, y, 1)) - y
        losses = cp.exp(f) - cp.multiply(y, f) + fixed
    elif isinstance(loss, GammaLoss):
        losses = cp.multiply(y, cp.exp(-f)) - 1 - np.log(y) + f
    elif isinstance(loss, LogisticLoss):
        losses = cp.logistic(-cp.multiply(y, f))
    else:
        r = 1 - cp.multiply(y, f) if loss.is_classification else y - f
        losses = linear_quadratic(cp, r, *loss.elq)
    alpha = float(truth.alpha)
    objective = truth.w @ losses / len(y) + alpha / 2 * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL")


def linear_quadratic(cp, r, gam, eps, lo, hi):
    """Return the losses of residuals: square, then lines, each beyond a flat part."""
    excess = cp.pos(cp.abs(r) - eps) if lo < 0 else cp.pos(r)
    if gam == 0:
        return cp.maximum(hi * r, lo * r) if eps == 0 else excess
    return cp.huber(excess, hi) / 2 if np.isfinite(hi) else cp.square(excess) / 2


def few(count, quick):
    """Return numbers of problems, all but the first ones marked as long."""
    full = [pytest.param(k, marks=pytest.mark.full) for k in range(quick, count)]
    return [*range(quick), *full]


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="double is longest")
@pytest.mark.parametrize("part", few(84, 2))
def test_claims_bound_the_distance_in_long_double(part):
    for seed in range(6 * part, 6 * part + 6):
        distance, gap, least, _ = claims(seed)
        assert distance <= 2 * gap + 1e-13 + least, seed


@pytest.mark.parametrize("seed", few(60, 6))
def test_claims_bound_the_distance_from_the_minimum_of_cvxpy(seed):
    _, gap, least, truth = claims(seed)
    if least > 1e-6:
        pytest.skip("targets of other packages have no such digits")
    apart = float(truth.value) - by_cvxpy(truth)
    assert apart <= (2 * gap + 1e-5) * float(truth.value)


def test_what_the_nugget_hides_is_that_of_an_inverse():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    columns = SketchedColumns(GaussianKernel(2.0), X, SubsamplingSketch(8).draw(60, 0))
    design = LandmarkDesign(columns, 1e-6)
    C, delta = columns.core(), design.nugget
    W = design.rmv(rng.normal(size=60))[:, None]
    g = design.of_columns(W)[:, 0]
    hidden = delta * (C @ g + delta * g) @ np.linalg.solve(C, g)
    found = design.lost_to_nugget(W)
    assert 2 * delta * g @ g < found
    assert found == pytest.approx(hidden, rel=1e-2)


@pytest.mark.parametrize(
    ("kernel", "alpha", "dtype"),
    [
        (MaternKernel(1.0, nu=0.5), 1e-7, np.float32),
        (MaternKernel(2.0), 1e-7, np.float32),
        (GaussianKernel(3.0), 1e-11, np.float64),
    ],
)
def test_values_are_rounded_where_it_costs_little(kernel, alpha, dtype):
    """The cost of rounded columns, by dense matrices, is below a quarter of `tol`."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=1500)
    S = SubsamplingSketch(200).draw(1500, 0)
    design = LandmarkDesign(SketchedColumns(kernel, X, S), alpha, 1e-3)
    assert design.columns.dtype == dtype
    Z, C = kernel(X) @ dense_sketch(S).T, SketchedColumns(kernel, X, S).core()
    C = C + design.nugget * np.eye(200)

    def objective(Z_fit):
        g = np.linalg.solve(Z_fit.T @ Z_fit / 1500 + alpha * C, Z_fit.T @ y / 1500)
        return np.square(y - Z @ g).mean() / 2 + alpha / 2 * g @ C @ g

    lost = objective(Z.astype(np.float32).astype(float)) / objective(Z) - 1
    assert (lost < 1e-3 / 4) == (dtype == np.float32)
    values = SketchedColumns(kernel, X, S, dtype=np.float64)
    assert LandmarkDesign(values, 1e-2, 1.0).columns is values
