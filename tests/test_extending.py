"""Parts defined outside the package: losses, sketch, kernel, output, solver.

They use what the guide to extensions uses: public names, and no registration.
"""

import re
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from conftest import ROOT
from numpy.testing import assert_allclose
from reference import dense_sketch

from nbsketch import (
    GaussianKernel,
    HuberLoss,
    MatrixOutput,
    SizedRecipe,
    SketchedFeatures,
    SketchedKernelRegressor,
)
from nbsketch.gram import CompiledForm
from nbsketch.kernels import Kernel
from nbsketch.losses import ELQ, Loss
from nbsketch.outputs import Output
from nbsketch.sketches import Sketch, SketchRecipe
from nbsketch.solvers import ArrayDesign, Design, Solution, State, solve_scalar

PACKAGE_NAMES = re.compile(r"^(?:>>> )?from (nbsketch[\w.]*) import ([^(\n]+)$", re.M)


# losses -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SmoothPinballLoss(Loss):
    """Pinball loss, quadratic between its two slopes: four numbers."""

    quantile: float = 0.7
    width: float = 0.2

    @property
    def elq(self):
        return ELQ(gam=self.width, eps=0.0, lo=self.quantile - 1, hi=self.quantile)


@dataclass(frozen=True)
class PseudoHuberLoss(Loss):
    """Smooth: value and derivative."""

    delta: float = 0.5

    def value(self, x):
        return self.delta**2 * (np.sqrt(1 + (np.asarray(x) / self.delta) ** 2) - 1)

    def derivative(self, x):
        x = np.asarray(x, dtype=float)
        return x / np.sqrt(1 + (x / self.delta) ** 2)


LOSSES = [SmoothPinballLoss(), PseudoHuberLoss()]
EACH_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=lambda s: type(s).__name__)


@pytest.fixture
def features(rng):
    Z = rng.normal(size=(80, 4))
    return Z, Z @ [1.0, -2.0, 0.5, 0.0] + 0.7 + rng.standard_t(2, size=80)


def least_objective(loss, Z, y, alpha):
    """Return the minimum by an independent library."""

    def objective(point):
        residual = y - Z @ point[:-1] - point[-1]
        return loss.value(residual).mean() + alpha / 2 * point[:-1] @ point[:-1]

    start = np.zeros(Z.shape[1] + 1)
    found = scipy.optimize.minimize(objective, start, options={"gtol": 1e-9})
    return found.fun


@EACH_LOSS
def test_a_loss_is_minimized_to_a_certified_gap(loss, features):
    Z, y = features
    solution = solve_scalar(Z, y, loss, 1e-2, tol=1e-6)
    assert solution.converged
    least = least_objective(loss, Z, y, 1e-2)
    assert solution.objective == pytest.approx(least, rel=2e-6)
    assert solution.objective - least <= solution.gap + 1e-8


@EACH_LOSS
def test_an_estimator_takes_the_loss(loss, problem):
    X, y = problem
    options = {"bandwidth": 1.0, "size": 20, "random_state": 0}
    model = SketchedKernelRegressor(loss=loss, **options).fit(X, y)
    assert model.dual_gap_ <= 1e-6 and model.alpha_ > 0
    fitted = loss.value(y - model.predict(X)).mean()
    assert fitted < 0.5 * loss.value(y - np.median(y)).mean()


def test_a_loss_without_description_is_refused(features):
    class NoLoss(Loss):
        pass

    with pytest.raises(TypeError, match="`loss` must override `elq`"):
        solve_scalar(*features, NoLoss(), 1e-2)


# sketches ---------------------------------------------------------------------------


@dataclass(frozen=True)
class PairSketch(SizedRecipe):
    """Each row is the difference of two random rows of the data."""

    def draw_matrix(self, n, seed):
        rows = [np.random.default_rng([seed, i]) for i in range(self.size)]
        pairs = np.sort([rng.choice(n, 2, replace=False) for rng in rows])
        values = np.tile([1.0, -1.0], self.size) * np.sqrt(n / (2 * self.size))
        pointers = 2 * np.arange(self.size + 1)
        return sp.csr_array((values, pairs.ravel(), pointers), shape=(self.size, n))


@dataclass(frozen=True)
class FarthestSketch(SketchRecipe):
    """Sub-sampling of rows that are far from each other, chosen greedily."""

    size: int

    def draw(self, n, rng=None, *, X=None, kernel=None):
        chosen = [int(np.random.default_rng(rng).integers(n))]
        for _ in range(self.size - 1):
            chosen.append(int(kernel(X, X[chosen]).max(axis=1).argmin()))
        values = np.full(self.size, np.sqrt(n / self.size))
        pointers = np.arange(self.size + 1)
        matrix = (values, np.sort(chosen), pointers)
        return Sketch(sp.csr_array(matrix, shape=(self.size, n)))


def test_the_law_of_the_sketch():
    n, draws = 6, 600
    drawn = [dense_sketch(PairSketch(2).draw(n, rng=seed)) for seed in range(draws)]
    products = np.array([S.T @ S for S in drawn])
    # E[S^T S] = I + (I - J) / (n - 1): differences carry no constants.
    expected = (n * np.eye(n) - np.ones((n, n))) / (n - 1)
    error = products.std(axis=0) / np.sqrt(draws)
    assert (np.abs(products.mean(axis=0) - expected) <= 5 * error).all()
    assert error.max() < 0.05


def test_the_sketch_grows():
    larger = PairSketch(4).draw(50, rng=3).extend(3)
    again = PairSketch(7).draw(50, rng=3)
    assert_allclose(dense_sketch(larger), dense_sketch(again), rtol=1e-14)


@pytest.mark.parametrize("recipe", [PairSketch(15), FarthestSketch(15)], ids=repr)
def test_an_estimator_takes_the_sketch(recipe, problem):
    X, y = problem
    model = SketchedKernelRegressor(
        GaussianKernel(1.0),
        sketch=recipe,
        alpha=1e-3,
        fit_intercept=False,
        random_state=0,
    ).fit(X, y)
    K, S = GaussianKernel(1.0)(X), dense_sketch(model.sketch_)
    left = S @ K @ K @ S.T + len(y) * 1e-3 * S @ K @ S.T
    expected = np.linalg.solve(left, S @ K @ y)
    assert_allclose(model.predict(X), K @ S.T @ expected, atol=1e-8)


# kernels and outputs ----------------------------------------------------------------


@dataclass(frozen=True)
class PeriodicKernel(Kernel):
    """A kernel by values alone."""

    period: float = 1.0

    def __call__(self, X, Y=None):
        X = np.asarray(X, dtype=float)
        Y = X if Y is None else np.asarray(Y, dtype=float)
        waves = np.sin(np.pi * (X[:, None, :] - Y[None, :, :]) / self.period)
        return np.exp(-2 * np.square(waves).sum(axis=2))

    def compiled_form(self, n_features):
        return None

    def diag(self, X):
        return np.ones(len(X))


@dataclass(frozen=True)
class PrecisionKernel(Kernel):
    """A kernel that compiled code knows."""

    precision: float = 1.0

    def compiled_form(self, n_features):
        scale = np.full(n_features, np.sqrt(self.precision / np.log(2)))
        return CompiledForm("squared", "exponential", scale)

    def diag(self, X):
        return np.ones(len(X))


@pytest.mark.parametrize("kernel", [PeriodicKernel(2.5), PrecisionKernel(0.5)])
def test_an_estimator_takes_the_kernel(kernel, problem):
    X, y = problem
    model = SketchedKernelRegressor(
        kernel, sketch="identity", alpha=1e-3, fit_intercept=False
    ).fit(X, y)
    K = kernel(X)
    dual = np.linalg.solve(K + len(y) * 1e-3 * np.eye(len(y)), y)
    assert_allclose(model.predict(X[:9]), K[:9] @ dual, atol=1e-9)


def test_a_compiled_form_is_the_kernel_of_its_formula(problem):
    X, _ = problem
    assert_allclose(PrecisionKernel(0.5)(X), GaussianKernel(1.0)(X), rtol=1e-13)


@dataclass(frozen=True)
class EqualOutput(Output):
    """Correlation rho between any two outputs."""

    rho: float = 0.5

    @property
    def size(self):
        return None

    def _matrix(self, n_outputs):
        unit = np.eye(n_outputs)
        return np.full((n_outputs, n_outputs), self.rho) + (1 - self.rho) * unit


def test_an_estimator_takes_the_output(problem):
    X, y = problem
    Y = np.column_stack([y, y**2, -y])
    options = {"bandwidth": 1.0, "alpha": 1e-2, "size": 20, "random_state": 0}
    options["loss"] = HuberLoss(0.3)
    ours = SketchedKernelRegressor(output=EqualOutput(0.3), **options).fit(X, Y)
    given = MatrixOutput(EqualOutput(0.3).matrix(3))
    again = SketchedKernelRegressor(output=given, **options).fit(X, Y)
    assert_allclose(ours.predict(X), again.predict(X), atol=1e-12)


# a solver ---------------------------------------------------------------------------


def solve_by_conjugate_gradients(design, y, alpha, *, tol=1e-9, max_iter=1000):
    """Minimize ``|y - Z w|^2 / (2 n) + alpha |w|^2 / 2`` with products by Z alone."""
    began = perf_counter()
    design = design if isinstance(design, Design) else ArrayDesign(design)
    n, rank = design.shape

    def image(w):
        return design.rmv(design.mv(w)) / n + alpha * w

    normal = scipy.sparse.linalg.LinearOperator((rank, rank), matvec=image)
    steps = []
    w, failed = scipy.sparse.linalg.cg(
        normal, design.rmv(y) / n, rtol=tol, maxiter=max_iter, callback=steps.append
    )
    residual = y - design.mv(w)
    objective = residual @ residual / (2 * n) + alpha / 2 * w @ w
    rest = alpha * w - design.rmv(residual) / n
    gap = rest @ rest / (2 * alpha)
    return Solution(
        coef=w,
        intercept=0.0,
        dual=residual,
        objective=objective,
        gap=gap,
        relative_gap=gap / objective,
        n_iter=len(steps),
        seconds=perf_counter() - began,
        converged=not failed,
        state=State(w, 0.0, residual),
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_solver_needs_nothing_but_products(problem, dtype):
    X, y = problem
    features = SketchedFeatures(bandwidth=1.0, size=20, random_state=0)
    Z = features.fit_transform(X.astype(dtype))
    ours = solve_by_conjugate_gradients(Z, y, 1e-3)
    known = solve_scalar(Z, y, "square", 1e-3, fit_intercept=False, tol=1e-12)
    assert ours.converged and ours.relative_gap < 1e-10 and ours.n_iter > 1
    assert_allclose(ours.coef, known.coef, atol=1e-5)
    again = solve_scalar(
        Z, y, "square", 1e-3, fit_intercept=False, state=ours.state, tol=1e-8
    )
    assert again.converged and again.n_iter <= known.n_iter


# the guide --------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["docs/extending.rst", "tests/test_extending.py"])
def test_extensions_use_public_names_only(path):
    text = (ROOT / path).read_text("utf-8")
    api = {line.strip() for line in (ROOT / "docs/api.rst").read_text().splitlines()}
    for module, names in PACKAGE_NAMES.findall(text):
        for name in names.split(", "):
            full = f"{module}.{name}".removeprefix("nbsketch.")
            assert {name, full} & api, f"{path} uses {full}"


FILE = re.compile(r"``([\w/]+\.py)``(?: \(([^)]*)\))?")


@pytest.mark.parametrize("page", ["extending", "contributing"])
def test_files_and_names_of_the_guides_exist(page):
    text = (ROOT / f"docs/{page}.rst").read_text("utf-8")
    found = FILE.findall(text)
    assert found
    for name, mentioned in found:
        paths = [ROOT / name, ROOT / "nbsketch" / name]
        path = next((p for p in paths if p.exists()), None)
        assert path, f"{page} names {name}, which does not exist"
        source = path.read_text("utf-8")
        for word in re.findall(r"``([\w.]+)``", mentioned):
            assert word.split(".")[-1] in source, f"{page}: no {word} in {name}"


def test_hooks_of_the_guide_exist():
    from nbsketch.estimators._base import SketchedModel

    text = (ROOT / "docs/contributing.rst").read_text("utf-8")
    sentence = text[text.index("has three hooks") : text.index(", which `predict`")]
    hooks = re.findall(r"``([a-z_]+)``", sentence)
    assert len(hooks) == 3
    assert all(hasattr(SketchedModel, hook) for hook in hooks)
