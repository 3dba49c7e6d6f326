"""Exact kernel ridge regression by conjugate gradients, and what it certifies."""

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import nbsketch
from nbsketch import GaussianKernel, LaplacianKernel, MaternKernel
from nbsketch.gram import SymmetricGram
from nbsketch.solvers._linear import cholesky
from nbsketch.solvers._linear.cholesky import (
    BlockPreconditioner,
    LowRankPreconditioner,
    partial_cholesky,
    raised_cholesky,
    solve_positive_upper,
)
from nbsketch.solvers._linear.conjugate_gradients import StoredMatrix
from nbsketch.solvers.conjugate import (
    LARGEST_GAP,
    NotConvergedError,
    build_preconditioner,
    conjugate_path,
    solve_conjugate,
    values_dtype,
)
from nbsketch.solvers.exact import solve_exact


def draw_problem(seed, largest=90):
    """Return a kernel, rows, targets, alpha and options: often ill-conditioned."""
    rng = np.random.default_rng(seed)
    n, q, d = rng.integers(5, largest), rng.integers(1, 4), rng.integers(1, 4)
    X = rng.normal(size=(n, q))
    if rng.random() < 0.4:  # duplicates
        X = X[rng.integers(0, n, n)]
    kind = [GaussianKernel, MaternKernel, LaplacianKernel][rng.integers(3)]
    Y = np.sin(X @ rng.normal(size=(q, d))) + rng.choice([0.0, 100.0])
    Y += rng.choice([0.0, 0.1, 3.0]) * rng.normal(size=(n, d))
    options = {"fit_intercept": bool(rng.random() < 0.7)}
    if rng.random() < 0.4:
        weights = rng.exponential(size=n) * (rng.random(n) < 0.8)
        weights[0] = 1.0
        options["sample_weight"] = weights / weights.mean()
    if rng.random() < 0.4:
        root = rng.normal(size=(d, rng.integers(1, d + 1)))
        options["output"] = root @ root.T
    return kind(10 ** rng.uniform(-1, 2)), X, Y, 10 ** rng.uniform(-10, 0), options


def objective(D, Y, alpha, A, b, output=None, sample_weight=None, fit_intercept=True):
    """Return the objective of coefficients in extended precision."""
    D, Y, A, b = (np.asarray(part, dtype=np.longdouble) for part in (D, Y, A, b))
    weights = np.ones(len(Y)) if sample_weight is None else sample_weight
    fitted = D @ A
    inverse = np.eye(Y.shape[1])
    if output is not None:
        inverse = np.linalg.pinv(output, rcond=1e-12, hermitian=True)
    loss = weights @ ((Y - fitted - b) ** 2).sum(axis=1) / len(Y)
    return (loss + alpha * (A * (fitted @ inverse)).sum()) / 2


def excess(D, Y, alpha, solution, options):
    """Return the excess of a solution over the dense one, and what rounding hides."""
    A, b, _ = solve_exact(D, Y, alpha, **options)
    least = objective(D, Y, alpha, A, b, **options)
    found = objective(D, Y, alpha, solution.coef, solution.intercept, **options)
    rounding = np.finfo(np.longdouble).eps * 100 / min(1, alpha)
    size = np.square(Y).mean() + found
    return found - least, float(rounding * size) + 1e-13 * float(found)


def random_preconditioner(K, alpha, rng, options):
    rank, local = int(rng.integers(1, K.shape[0])), bool(rng.random() < 0.3)
    weights, dtype = options.get("sample_weight"), rng.choice(["f4", "f8"])
    shift = K.shape[0] * alpha
    dtype = np.dtype("f8") if local else np.dtype(dtype)
    return build_preconditioner(
        K, shift, rng, rank=rank, weights=weights, dtype=dtype, local=local
    )


@pytest.mark.thin(every=5)
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_the_gap_bounds_the_excess(first, monkeypatch):
    monkeypatch.setattr(cholesky, "_ROWS", 20)
    failed, converged = 0, 0
    for seed in range(first, first + 50):
        kernel, X, Y, alpha, options = draw_problem(seed)
        rng = np.random.default_rng(seed)
        K, D = SymmetricGram(kernel, X, dtype=np.float64), kernel(X)
        options_now = dict(options, tol=10 ** rng.uniform(-8, -2))
        options_now["max_passes"] = int(rng.choice([10, 50, 200]))
        if rng.random() < 0.7:
            pre = random_preconditioner(K, alpha, rng, options)
            options_now["preconditioner"] = pre
        try:
            solution = solve_conjugate(K, Y, alpha, **options_now, random_state=0)
        except NotConvergedError:
            failed += 1
            continue
        converged += solution.converged
        assert solution.relative_gap <= LARGEST_GAP
        assert solution.converged == (solution.relative_gap <= options_now["tol"])
        assert solution.n_iter <= options_now["max_passes"]
        try:
            more, rounding = excess(D, Y, alpha, solution, options)
        except ValueError:  # the dense system is singular in double precision
            continue
        assert more <= solution.gap + rounding
    assert failed <= 15 and converged >= 30


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", range(60))
def test_the_gap_covers_rounding_of_float32_values(seed):
    kernel, X, Y, _, options = draw_problem(seed, largest=400)
    X, n = X.astype(np.float32), len(X)
    alpha = 10 ** np.random.default_rng(seed).uniform(-7, -2)
    K, D = SymmetricGram(kernel, X), kernel(X.astype(np.float64))
    try:
        solution = solve_conjugate(K, Y, alpha, **options, tol=1e-6, random_state=0)
    except NotConvergedError:
        assert values_dtype(n, alpha) == np.float64
        return
    more, rounding = excess(D, Y, alpha, solution, options)
    assert more <= solution.gap + rounding
    if values_dtype(n, alpha) == np.float32 and "sample_weight" not in options:
        assert solution.relative_gap <= 2e-3


@pytest.mark.parametrize("seed", range(20))
def test_coefficients_are_those_of_the_dense_solution(seed):
    kernel, X, Y, _, options = draw_problem(seed)
    rng, D = np.random.default_rng(seed), kernel(X)
    pre = random_preconditioner(StoredMatrix(D), 1e-3, rng, options)
    A, b, least = solve_exact(D, Y, 1e-3, **options)
    solution = solve_conjugate(
        D, Y, 1e-3, **options, preconditioner=pre, tol=1e-18, max_passes=1000
    )
    size = np.abs(A).max() + np.abs(b).max()
    assert_allclose(solution.coef, A, atol=1e-6 * size)
    assert_allclose(solution.intercept, b, atol=1e-6 * size)
    assert_allclose(solution.objective, least, rtol=1e-9)
    dropped = options.get("sample_weight", np.ones(len(X))) == 0
    assert not solution.coef[dropped].any()


@pytest.fixture
def problem(rng):
    X = rng.normal(size=(1200, 3))
    y = np.sin(X @ [1.0, -0.5, 2.0]) + 0.2 * rng.normal(size=1200)
    return SymmetricGram(MaternKernel(1.0, 1.5), X, dtype=np.float64), y


def test_a_path_starts_from_the_solution_before(problem):
    K, y = problem
    alphas = np.logspace(-3, -4.5, 6)
    path = list(conjugate_path(K, y, alphas, tol=1e-4, random_state=0))
    cold = [solve_conjugate(K, y, a, tol=1e-4, random_state=0) for a in alphas]
    assert all(s.converged for s in path)
    assert sum(s.n_iter for s in path) < sum(s.n_iter for s in cold)
    for warm, other in zip(path, cold, strict=True):
        assert_allclose(warm.objective, other.objective, rtol=2e-4)


def test_passes_are_counted_and_reported(problem):
    (K, y), calls = problem, []
    before = K.n_products
    solution = solve_conjugate(
        K, y, 1e-4, callback=lambda *numbers: calls.append(numbers), random_state=0
    )
    assert solution.n_iter == K.n_products - before
    passes, objectives, gaps, seconds = np.array(calls).T
    assert_array_equal(passes, np.arange(1, solution.n_iter))
    assert (np.diff(seconds) >= 0).all()
    assert gaps[-1] <= 1e-3 * objectives[-1]


@pytest.mark.parametrize("budget", [{"max_passes": 4}, {"max_seconds": 0.0}])
def test_coefficients_that_are_no_model_are_an_error(problem, budget):
    K, y = problem
    with pytest.raises(NotConvergedError, match="relative duality gap"):
        solve_conjugate(K, y, 1e-7, **budget, random_state=0)


def test_a_budget_that_ends_the_search_is_declared(problem):
    K, y = problem
    solution = solve_conjugate(K, y, 1e-4, tol=1e-12, max_passes=12, random_state=0)
    assert not solution.converged
    assert 1e-12 < solution.relative_gap <= LARGEST_GAP
    assert "reaching tol=1e-12" in solution.shortfall(1e-12)


def test_precision_of_values_ends_the_search(rng):
    X = rng.normal(size=(500, 2)).astype(np.float32)
    y, K = rng.normal(size=500), SymmetricGram(GaussianKernel(1.0), X)
    solution = solve_conjugate(K, y, 1e-5, tol=1e-14, max_passes=500, random_state=0)
    assert not solution.converged and solution.n_iter < 500


def test_constant_targets_need_no_pass(problem):
    K, y = problem
    solution = solve_conjugate(K, np.full(len(y), 3.0), 1e-4, random_state=0)
    assert solution.converged and solution.n_iter == 0
    assert not solution.coef.any() and solution.objective == 0
    assert_allclose(solution.intercept, 3.0)


def test_null_output_matrix_fits_constants(problem, rng):
    K, _ = problem
    Y = rng.normal(size=(1200, 2))
    solution = solve_conjugate(K, Y, 1e-4, output=np.zeros((2, 2)), random_state=0)
    assert not solution.coef.any() and solution.converged
    assert_allclose(solution.intercept, Y.mean(axis=0))
    assert_allclose(solution.objective, Y.var(axis=0).sum() / 2)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="numba has one thread")
def test_bits_do_not_depend_on_the_number_of_threads(problem):
    K, y = problem
    coefs = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        coefs.append(solve_conjugate(K, y, 1e-4, random_state=0).coef)
    assert_array_equal(*coefs)


def test_arguments_are_checked(problem):
    K, y = problem
    with pytest.raises(ValueError, match="`Y` must have as many rows as K, 1200"):
        solve_conjugate(K, y[:-1], 1e-4)
    with pytest.raises(ValueError, match="`alpha` must be"):
        solve_conjugate(K, y, 0.0)
    with pytest.raises(ValueError, match="`max_passes` must be"):
        solve_conjugate(K, y, 1e-4, max_passes=2)


def test_type_of_values():
    assert values_dtype(16_000, 1e-6) == np.float32
    assert values_dtype(16_000, 1e-8) == np.float64
    assert values_dtype(16_000, 1e-7, tol=1e-3) == np.float32
    assert values_dtype(16_000, 1e-7, tol=1e-6) == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_partial_cholesky(dtype, rng):
    X = rng.normal(size=(300, 2))
    K = SymmetricGram(GaussianKernel(1.0), X, dtype=np.float64)
    matrix = K.rows(np.arange(300))
    F, pivots = partial_cholesky(K, 60, np.random.default_rng(0), dtype=dtype)
    assert F.shape == (60, 300) and F.dtype == dtype and len(set(pivots)) == 60
    residual = matrix - F.T.astype(np.float64) @ F
    assert np.linalg.eigvalsh(residual)[0] >= -100 * np.finfo(dtype).eps
    atol = 64 * np.finfo(dtype).eps
    assert_allclose(residual[pivots][:, pivots], 0, atol=atol * 4)


def test_pivots_are_where_the_residual_is(rng):
    X = np.vstack([0.1 * rng.normal(size=(2000, 2)), 10 * rng.normal(size=(30, 2))])
    K = SymmetricGram(GaussianKernel(1.0), X)
    _, pivots = partial_cholesky(K, 150, rng)
    assert (pivots >= 2000).sum() >= 28  # 2 of 150 uniform ones


def test_partial_cholesky_ends_where_nothing_is_left(rng):
    root = rng.normal(size=(200, 7))
    F, pivots = partial_cholesky(StoredMatrix(root @ root.T), 150, rng, dtype="f8")
    assert 7 <= len(pivots) <= 100
    assert_allclose(F.T @ F, root @ root.T, atol=1e-6)
    identity = StoredMatrix(np.eye(200))
    F, pivots = partial_cholesky(identity, 200, rng, tolerance=120.0)
    assert len(pivots) == 100


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_preconditioner_is_the_inverse(weighted, dtype, rng):
    F = rng.normal(size=(10, 80)).astype(dtype)
    weights = rng.exponential(size=80) if weighted else np.ones(80)
    shifts = np.array([3.0, 0.5, 3.0])
    R = rng.normal(size=(80, 3)) * [1.0, 1e30, 1e-30]
    solved = LowRankPreconditioner(F.copy(), weights if weighted else None)
    assert solved.rank == 10
    solved = solved.solve(R, shifts)
    for c, shift in enumerate(shifts):
        P = F.T.astype(np.float64) @ F + shift * np.diag(1 / weights)
        back = P @ solved[:, c]
        tol = 1e-4 if dtype == np.float32 else 1e-11
        assert_allclose(back, R[:, c], atol=tol * np.abs(R[:, c]).max())


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_of_near_rows_are_exact(weighted, rng, monkeypatch):
    monkeypatch.setattr(cholesky, "_ROWS", 20)
    X = rng.normal(size=(150, 2))
    matrix = MaternKernel(0.3)(X)
    F, _ = partial_cholesky(StoredMatrix(matrix), 10, rng, dtype="f8")
    low = F.T @ F
    weights = rng.exponential(size=150) if weighted else np.ones(150)
    given = weights if weighted else None
    pre = BlockPreconditioner(StoredMatrix(matrix), F.copy(), rng, given)
    parts = [index for index, _ in pre._residuals]
    assert max(map(len, parts)) <= 20 and pre.rank == 10
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(150))
    shifts, R = np.array([0.5, 1e-3]), rng.normal(size=(150, 2))
    solved = pre.solve(R, shifts)
    for c, shift in enumerate(shifts):
        P = low.copy()
        for part in parts:
            some = np.ix_(part, part)
            P[some] = matrix[some] + shift * np.diag(1 / weights[part])
        assert_allclose(P @ solved[:, c], R[:, c], atol=1e-9)
    # Rows of a block are nearer to each other than to others.
    inside = np.mean([matrix[np.ix_(p, p)].mean() for p in parts])
    assert inside > 2 * matrix.mean()


def test_blocks_save_passes_at_small_penalties(rng):
    X = rng.normal(size=(1500, 3))
    y = np.sin(X @ [1.0, -0.5, 2.0]) + 0.01 * rng.normal(size=1500)
    K, alpha, passes = SymmetricGram(MaternKernel(1.0), X, dtype="f8"), 3e-8, []
    for local in (None, False):
        pre = build_preconditioner(
            K, 1500 * alpha, np.random.default_rng(0), local=local
        )
        found = solve_conjugate(K, y, alpha, preconditioner=pre, max_passes=400)
        assert found.converged
        passes.append(found.n_iter)
    assert passes[0] < passes[1] / 2


def test_without_a_factor_the_weights_remain():
    pre = LowRankPreconditioner(np.empty((0, 3), np.float32), np.array([1.0, 0, 2]))
    solved = pre.solve(np.ones((3, 1)), np.array([4.0]))
    assert_allclose(solved[:, 0], [0.25, 0, 0.5])


def test_theta_is_above_rounding(rng):
    F = 100 * rng.normal(size=(50, 400)).astype(np.float32)
    pre = LowRankPreconditioner(F)
    R = rng.normal(size=(400, 1))
    solved = pre.solve(R, np.array([1e-12]))
    assert np.isfinite(solved).all() and (R * solved).sum() > 0


def test_rank_and_type_of_the_preconditioner_by_default(problem):
    (K, _), rng = problem, np.random.default_rng(0)
    assert build_preconditioner(K, 1.0, rng).rank <= 300
    assert build_preconditioner(K, 1e-6, rng).rank == 300
    assert build_preconditioner(K, 1e-6, rng).factor.dtype == np.float64
    assert build_preconditioner(K, 1e-3, rng).factor.dtype == np.float32


def test_the_preconditioner_keeps_to_the_memory_limit(problem):
    (K, _), rng = problem, np.random.default_rng(0)
    n = K.shape[0]
    nbsketch.set_memory_limit(3 * 8 * n * 160)  # of 300 columns
    try:
        limited = build_preconditioner(K, 1e-6, rng)
        per_output = cholesky.default_rank(n, outputs=2)
        nbsketch.set_memory_limit(1)
        least = cholesky.default_rank(n)
    finally:
        nbsketch.set_memory_limit(None)
    assert isinstance(limited, LowRankPreconditioner) and limited.rank == 150
    assert (per_output, least) == (75, 37)
    assert isinstance(build_preconditioner(K, 1e-6, rng), BlockPreconditioner)


# What is added is 3, 12, 48 times the shift, or as much as is asked for.
TRIALS = [(1.0, None, 1.0), (0.1, None, 1.3), (0.0, 0.2, 0.8)]


@pytest.mark.parametrize("shift, more, raised", TRIALS)
def test_a_diagonal_is_raised_until_there_is_a_factor(shift, more, raised, rng):
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    matrix = basis * [-0.5, 0.0, 1.0, 2.0, 3.0, 4.0] @ basis.T
    upper, found = raised_cholesky(matrix, shift, more)
    assert_allclose(found, raised)
    expected = np.linalg.inv(matrix + raised * np.eye(6))
    assert_allclose(solve_positive_upper(upper, np.eye(6)), expected, atol=1e-12)
    assert_allclose(solve_positive_upper(upper, np.ones(6)), expected.sum(axis=1))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_parts_of_a_stored_matrix_have_the_rows_and_columns_of_an_index(dtype, rng):
    matrix = rng.normal(size=(7, 7)).astype(dtype)  # asymmetric: their order counts
    index = np.array([5, 0, 3, 3])
    expected = [[matrix[i, j] for j in index] for i in index]
    stored = StoredMatrix(matrix)
    assert_array_equal(stored.block(index), np.array(expected, "f8"), strict=True)
    assert_array_equal(stored.take(index).rows(np.arange(4)), expected)
