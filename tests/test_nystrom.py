"""Sketched least squares by conjugate gradients against dense normal equations."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from reference import dense_sketch

import nbsketch
from nbsketch import (
    AccumulationSketch,
    CountSketch,
    GaussianKernel,
    GaussianSketch,
    LaplacianKernel,
    LeverageSketch,
    MaternKernel,
    PrecomputedKernel,
    PSparsifiedSketch,
    SparseJLSketch,
    SRHTSketch,
    SubsamplingSketch,
)
from nbsketch.gram import SketchedColumns, columns
from nbsketch.solvers._linear.systems import FalkonPreconditioner, SamplePreconditioner
from nbsketch.solvers.conjugate import LARGEST_GAP, NotConvergedError, solve_nystrom

RECIPES = [
    SubsamplingSketch,
    PSparsifiedSketch,
    lambda size: PSparsifiedSketch(size, density=0.02),
    lambda size: AccumulationSketch(size, 4),
    CountSketch,
    SparseJLSketch,
    SRHTSketch,
    GaussianSketch,
    lambda size: SubsamplingSketch(size, replace=True),
]


def draw_problem(seed):
    rng = np.random.default_rng(seed)
    n, q, d = rng.integers(20, 200), rng.integers(1, 4), rng.integers(1, 3)
    X = rng.normal(size=(n, q))
    if rng.random() < 0.3:  # duplicates
        X = X[rng.integers(0, n, n)]
    kind = [GaussianKernel, MaternKernel, LaplacianKernel][rng.integers(3)]
    kernel = kind(10 ** rng.uniform(-1, 2.5))
    Y = np.sin(X @ rng.normal(size=(q, d))) + rng.choice([0.0, 10.0])
    Y += rng.choice([0.0, 0.1, 3.0]) * rng.normal(size=(n, d))
    options = {"fit_intercept": bool(rng.random() < 0.7)}
    if rng.random() < 0.3:
        weights = rng.exponential(size=n)
        options["sample_weight"] = weights / weights.mean()
    if rng.random() < 0.3:
        root = rng.normal(size=(d, d))
        options["output"] = root @ root.T
    size = int(rng.integers(3, n // 2))
    S = RECIPES[seed % len(RECIPES)](size).draw(n, seed)
    return kernel, X, Y, S, 10 ** rng.uniform(-10, 0), options


class Dense:
    """The problem in dense matrices, for one set of options."""

    def __init__(self, kernel, X, Y, S, alpha, options):
        S = dense_sketch(S)
        self.A, self.Y, self.alpha = kernel(X) @ S.T, Y, alpha
        C = S @ self.A
        self.C = (C + C.T) / 2 + 1e-13 * np.trace(C) / len(C) * np.eye(len(C))
        n, d = Y.shape
        self.weights = options.get("sample_weight", np.ones(n))
        self.M = options.get("output", np.eye(d))
        self.fit_intercept = options["fit_intercept"]

    def objective(self, G, b):
        errors = self.Y - self.A @ G - b
        loss = self.weights @ np.square(errors).sum(axis=1) / len(self.Y)
        penalty = np.trace(G.T @ self.C @ G @ np.linalg.inv(self.M))
        return (loss + self.alpha * penalty) / 2

    def least(self):
        n, s = self.A.shape
        values, V = np.linalg.eigh(self.M)
        root = np.sqrt(self.weights)[:, None]
        ones = np.ones((n, int(self.fit_intercept)))
        total = 0.0
        for value, y in zip(values, (self.Y @ V).T, strict=True):
            shift = n * self.alpha / value
            penalty = np.zeros((s, s + ones.shape[1]))
            penalty[:, :s] = shift**0.5 * np.linalg.cholesky(self.C).T
            system = np.vstack([root * np.hstack([self.A, ones]), penalty])
            right = np.r_[root[:, 0] * y, np.zeros(s)]
            solved = np.linalg.lstsq(system, right, rcond=None)[0]
            total += np.square(system @ solved - right).sum() / (2 * n)
        return total


@pytest.mark.thin(every=12)
@pytest.mark.parametrize("first", range(0, 540, 45))
def test_the_gap_bounds_the_excess(first):
    failed, converged = 0, 0
    for seed in range(first, first + 45):
        kernel, X, Y, S, alpha, options = draw_problem(seed)
        Z = SketchedColumns(kernel, X, S, dtype=np.float64)
        tol = 10 ** np.random.default_rng(seed).uniform(-6, -2)
        try:
            found = solve_nystrom(Z, Y, alpha, **options, tol=tol)
        except NotConvergedError:
            failed += 1
            continue
        converged += found.converged
        assert found.relative_gap <= LARGEST_GAP
        assert found.converged == (found.relative_gap <= tol)
        # Residuals that a certificate needs take passes beside those of the search.
        assert found.n_iter <= min(Z.n_passes, 200)
        dense = Dense(kernel, X, Y, S, alpha, options)
        least, value = dense.least(), dense.objective(found.coef, found.intercept)
        rounding = 1e-6 * value + 1e-12 * np.square(Y).mean()
        assert value - least <= found.gap + rounding
        assert_allclose(found.objective, value, rtol=1e-3)
    assert failed <= 3 and converged >= 36


@pytest.mark.parametrize("rows", [True, False])
def test_float32_values_reach_the_solution(rows, rng):
    X = rng.normal(size=(1500, 3))
    y = np.sin(X @ [1.0, -0.5, 2.0]) + 0.2 * rng.normal(size=1500)
    kernel, recipe = MaternKernel(1.0), SubsamplingSketch if rows else PSparsifiedSketch
    S = recipe(200).draw(1500, 0)
    Z = SketchedColumns(kernel, X, S)
    found = solve_nystrom(Z, y, 1e-4)
    dense = Dense(kernel, X, y[:, None], S, 1e-4, {"fit_intercept": True})
    value, least = dense.objective(found.coef, found.intercept), dense.least()
    assert found.converged and value - least <= 1e-3 * least
    assert found.n_iter <= 25


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_sketch_is_certified_in_few_passes(recipe, rng):
    X = rng.normal(size=(1000, 3))
    y = np.sin(X @ [1.0, -0.5, 2.0]) + 0.2 * rng.normal(size=1000)
    Z = SketchedColumns(MaternKernel(1.0), X, recipe(100).draw(1000, 0))
    found = solve_nystrom(Z, y, 1e-5)
    assert found.converged and found.n_iter <= 30


def test_a_state_saves_passes(rng):
    X, y = rng.normal(size=(1000, 2)), rng.normal(size=1000)
    S = SubsamplingSketch(100).draw(1000, 0)
    Z = SketchedColumns(GaussianKernel(1.0), X, S, dtype=np.float64)
    # The gap of smaller penalties has the cost of the nugget, above these tolerances.
    cold = solve_nystrom(Z, y, 1e-2, tol=1e-5)
    again = solve_nystrom(Z, y, 1e-2, tol=1e-3, state=cold.state)
    assert again.converged and again.n_iter <= 2 < cold.n_iter


def test_budget(rng):
    X, y = rng.normal(size=(1000, 2)), rng.normal(size=1000)
    S, calls = SubsamplingSketch(100).draw(1000, 0), []
    Z = SketchedColumns(GaussianKernel(1.0), X, S)
    with pytest.raises(NotConvergedError, match="relative duality gap"):
        solve_nystrom(Z, 1 + X[:, 0], 1e-9, fit_intercept=False, max_seconds=0)
    found = solve_nystrom(
        Z,
        y,
        1e-2,
        tol=1e-15,
        max_passes=6,
        callback=lambda *numbers: calls.append(numbers),
    )
    assert not found.converged and found.n_iter == 6
    assert [c[0] for c in calls] == [1, 2, 3, 4, 5]


def test_arguments_are_checked(rng):
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    S = SubsamplingSketch(5).draw(50, 0)
    Z = SketchedColumns(GaussianKernel(1.0), X, S)
    with pytest.raises(ValueError, match="`Y` must have as many rows as K, 50"):
        solve_nystrom(Z, y[:-1], 1e-4)


def operator(kernel, X, S, kept, dtype):
    return SketchedColumns(kernel, X, S, dtype=dtype, memory=1e9 * kept)


@pytest.mark.thin
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", ["dense", "sparse", "precomputed"])
@pytest.mark.parametrize("recipe", [PSparsifiedSketch(9), LeverageSketch(9)])
def test_columns(kept, kind, recipe, rng, dtype, tol, monkeypatch):
    monkeypatch.setattr(columns, "_BLOCK_BYTES", 4096)
    X, kernel = rng.normal(size=(333, 4)), GaussianKernel(2.0)
    S = recipe.draw(333, 0, X=X, kernel=kernel)
    dense = dense_sketch(S)
    A = kernel(X) @ dense.T
    if kind == "sparse":
        X = sp.csr_array(X)
    elif kind == "precomputed":
        X, kernel = kernel(X), PrecomputedKernel()
    Z = operator(kernel, X, S, kept, dtype)
    V, U, w = rng.normal(size=(9, 3)), rng.normal(size=(333, 2)), rng.random(333)
    size = np.abs(A).max() ** 2 * 333
    desired = A.T @ (w[:, None] * A) @ V
    assert_allclose(Z.normal(V, w), desired, atol=30 * tol * size)
    assert_allclose(Z.adjoint(U), A.T @ U, atol=30 * tol * size)
    assert_allclose(Z.core(), dense @ A, atol=30 * tol * size)
    assert Z.n_passes == 2 and Z.shape == (333, 9)


@pytest.mark.parametrize("recipe", [SubsamplingSketch(20), PSparsifiedSketch(20)])
def test_as_many_values_are_kept_as_fit(recipe, rng, monkeypatch):
    monkeypatch.setattr(columns, "_BLOCK_BYTES", 4096)
    X, S = rng.normal(size=(400, 3)), recipe.draw(400, 0)
    V, n_bytes, products = rng.normal(size=(20, 2)), 4 * 400 * 20, []
    for share in (1.0, 0.8, 0.3, 0.1):
        Z = SketchedColumns(GaussianKernel(1.0), X, S, memory=share * n_bytes)
        first, again = Z.normal(V, np.ones(400)), Z.normal(V, np.ones(400))
        kept = sum(block.nbytes for block in Z._kept) / n_bytes
        assert share - 0.38 < kept <= share
        assert_array_equal(first, again)
        products.append(first)
    for other in products[1:]:
        assert_array_equal(other, products[0])
    nbsketch.set_memory_limit(0.65 * n_bytes)
    assert columns.kept_share(400, 20) == 0.6
    nbsketch.set_memory_limit(None)


@pytest.mark.thin(times=1)
@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="numba has one thread")
@pytest.mark.parametrize("kept", [True, False])
def test_bits_do_not_depend_on_the_number_of_threads(kept, rng, dtype):
    X = rng.normal(size=(5000, 3))
    S, V = SubsamplingSketch(400).draw(5000, 0), rng.normal(size=(400, 2))
    products = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        Z = operator(GaussianKernel(1.0), X, S, kept, dtype)
        products.append(Z.normal(V, np.ones(5000)))
    assert_array_equal(*products)


@pytest.mark.parametrize("centered", [True, False])
def test_preconditioner_is_the_inverse(centered, rng):
    X = rng.normal(size=(60, 2))
    C, n = LaplacianKernel(1.0)(X), 500
    alphas = np.array([1e-2, 1.0, 1e-2])
    R = rng.normal(size=(60, 3)) * [1.0, 1e20, 1e-20]
    unit = rng.normal(size=60)
    unit *= centered / np.linalg.norm(unit)
    pre = FalkonPreconditioner(C, n, 1e-9, unit)
    solved = pre.solve(R, alphas)
    J = np.eye(60) - np.outer(unit, unit)
    for c, alpha in enumerate(alphas):
        back = (C @ J @ C / n + alpha * C) @ solved[:, c]
        assert_allclose(back, R[:, c], atol=1e-6 * np.abs(R[:, c]).max())
    solved = pre.core_solve(R)
    assert_allclose(C @ solved, R, atol=1e-6 * np.abs(R).max())
    inverse = np.einsum("ij,ij->j", R, solved)
    assert_allclose(np.square(pre.half(R)).sum(axis=0), inverse, rtol=1e-6)


@pytest.mark.parametrize("centered", [True, False])
def test_a_sample_of_the_rows_preconditions(centered, rng):
    """P is the scatter of the sample; H is at least the share of its rows times P."""
    X, w = rng.normal(size=(400, 2)), rng.exponential(size=400)
    S, kernel = SubsamplingSketch(30).draw(400, 0), LaplacianKernel(1.0)
    columns = SketchedColumns(kernel, X, S, dtype=np.float64)
    rows = np.sort(rng.choice(400, 120, replace=False))
    Z, C = kernel(X) @ dense_sketch(S).T, columns.core()

    def scatter(part):
        center = w[part] @ Z[part] / w[part].sum() * centered
        return ((Z[part] - center).T * w[part]) @ (Z[part] - center)

    share = 120 / 400
    pre = SamplePreconditioner(C, 1e-9, columns.take(rows), w[rows], share, centered)
    R, alphas = rng.normal(size=(30, 2)) * [1.0, 1e20], np.array([1e-2, 1e-5])
    solved, size = pre.solve(R, alphas), np.abs(R).max(axis=0)
    for c, alpha in enumerate(alphas):
        P = scatter(rows) / 120 + alpha * C
        assert_allclose(P @ solved[:, c], R[:, c], atol=1e-6 * size[c])
        H = scatter(np.arange(400)) / 400 + alpha * C
        assert np.linalg.eigvalsh(H - share * P).min() > -1e-12 * np.abs(H).max()
    assert_allclose(pre.scatter(R), scatter(rows) @ R / 120, atol=1e-9 * size.max())


@pytest.mark.parametrize("alpha", [1e-5, 1e-8, 1e-11])
def test_passes_do_not_grow_as_the_penalty_falls(alpha, rng):
    """With the sketch for a sample they were 15, 18 and 21."""
    X = rng.uniform(-1, 1, size=(20_000, 6))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(size=20_000)
    S = SubsamplingSketch(300).draw(20_000, 0)
    assert (
        solve_nystrom(SketchedColumns(MaternKernel(1.0), X, S), y, alpha).n_iter <= 10
    )


def test_passes_are_few_at_a_penalty_that_float32_could_factor(rng):
    """Its factors need so large a diagonal that there were 31 passes."""
    X = rng.normal(size=(4000, 3)) ** 3
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    Z = SketchedColumns(MaternKernel(20.0), X, SubsamplingSketch(1000).draw(4000, 0))
    assert solve_nystrom(Z, y, 1e-6).n_iter <= 24


def test_factors_of_singular_matrices(rng):
    X = rng.normal(size=(5, 2))[rng.integers(0, 5, 80)]  # duplicates
    C = GaussianKernel(100.0)(X)
    for alpha in (1e-2, 1e-12):
        pre = FalkonPreconditioner(C, 1000, 1e-6, np.full(80, 80**-0.5))
        R = rng.normal(size=(80, 1))
        solved = pre.solve(R, np.array([alpha]))
        assert np.isfinite(solved).all() and (R * solved).sum() > 0


def test_stored_values_move_when_they_are_rounded(rng):
    """A sketch of most rows has stored values from the start: there are not two."""
    X = rng.normal(size=(300, 2))
    S = SubsamplingSketch(200).draw(300, 0)
    Z = SketchedColumns(MaternKernel(1.0), X, S)
    exact = Z.times(np.eye(200))
    single = Z.rounded()
    assert Z._kept == [] and single.dtype == np.float32 and single.rounded() is single
    assert_array_equal(single.times(np.eye(200)), exact.astype(np.float32))
    assert_array_equal(Z.times(np.eye(200)), exact)  # evaluated again
