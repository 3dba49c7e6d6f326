"""Claims of large fits of least squares, against optima in long double."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from test_certificates import LongDouble

from nbsketch import SketchedKernelRegressor

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="double is longest"
)
STEPS = 25


class LargeProblem:
    """Sketched least squares in long double, refined with factors in double."""

    def __init__(self, model, X, y):
        W = model.sketch_.weights.tocsr().astype(np.longdouble)
        kernel = LongDouble.kernel
        self.model, self.y = model, y.astype(np.longdouble)
        self.Z = np.ascontiguousarray((W @ kernel(model, X).T).T)
        C = W @ (W @ kernel(model, model.landmarks_).T).T
        self.C = C + 1e-20 * np.trace(C) * np.eye(len(C), dtype=np.longdouble)
        self.c = model.coef_.astype(np.longdouble)
        self.factor = scipy.linalg.cho_factor(self.normal_matrix())
        penalty = model.alpha_ / 2 * (self.c @ (self.C @ self.c))
        self.value = np.square(self.y - model.predict(X)).mean() / 2 + penalty

    def normal_matrix(self):
        """Return the normal matrix in double, with a little on its diagonal."""
        Z = self.Z.astype(float)
        Z -= Z.mean(axis=0)
        H = Z.T @ Z / len(Z) + self.model.alpha_ * self.C.astype(float)
        return H + 1e-16 * np.trace(H) * np.eye(len(H))

    def residual(self, c):
        """Return the residual at the best intercept."""
        errors = self.y - self.Z @ c
        return errors - errors.mean()

    def objective(self, c):
        penalty = self.model.alpha_ / 2 * (c @ (self.C @ c))
        return np.square(self.residual(c)).mean() / 2 + penalty

    def product(self, c):
        fitted = self.Z @ c
        slope = (fitted - fitted.mean()) @ self.Z / len(self.y)
        return slope + self.model.alpha_ * (self.C @ c)

    def solve(self, r):
        size = np.abs(r).max()
        solved = scipy.linalg.cho_solve(self.factor, (r / size).astype(float))
        return solved * size

    def distance(self):
        """Return the relative distance to the end of conjugate gradients."""
        c = self.c
        r = self.residual(c) @ self.Z / len(self.y)
        r -= self.model.alpha_ * (self.C @ c)
        direction = z = self.solve(r)
        for _ in range(STEPS):
            product = self.product(direction)
            length = (r @ z) / (direction @ product)
            c = c + length * direction
            before, r = r @ z, r - length * product
            z = self.solve(r)
            direction = z + (r @ z) / before * direction
        best = min(self.objective(c), self.objective(self.c))
        return float((self.value - best) / self.value)


def draw_problem(seed):
    """Return a model and its problem, of 300 to 1500 rows."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(300, 1500))
    X = rng.normal(size=(n, rng.integers(2, 5))).astype(rng.choice(["f4", "f8"]))
    y = np.sin(X.astype(float) @ rng.normal(size=X.shape[1]))
    y += rng.choice([0, 1e-3, 0.1]) * rng.normal(size=n) + rng.choice([0, 1e3, 1e8])
    sizes = (1001, n) if n > 1010 and rng.random() < 0.7 else (20, 300)
    model = SketchedKernelRegressor(
        "laplacian",
        bandwidth=10 ** rng.uniform(-0.5, 1),
        alpha=10 ** rng.uniform(-12, 1),
        sketch=str(rng.choice(["subsampling", "p-sparsified"])),
        size=int(rng.integers(*sizes)),
        random_state=0,
    )
    return model, X, y


# The quick ones of each kind: few and many landmarks.
QUICK = 6, 9, 10
SEEDS = [
    pytest.param(seed, marks=() if seed in QUICK else pytest.mark.full)
    for seed in range(60)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_claims_of_large_fits_bound_the_distance(seed):
    model, X, y = draw_problem(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    problem = LargeProblem(model, X, y)
    unit = 2 * np.spacing(np.abs(y).max())  # the last digits of the targets
    least = 1e-13 + float(unit**2 / problem.value)
    assert problem.distance() <= 2 * model.dual_gap_ + least
