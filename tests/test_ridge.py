"""The closed forms against dense least squares, refits and scikit-learn."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sklearn.kernel_ridge import KernelRidge

from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.exact import solve_exact
from nbsketch.solvers.filters import RidgeFilter
from nbsketch.solvers.left_out import leave_one_out
from nbsketch.solvers.spectrum import RidgePath, ridge_path

N, R, D = 23, 5, 3


class Blocks(Design):
    """A matrix in blocks, to be read once, in order."""

    def __init__(self, Z, cuts):
        self.Z, self.cuts, self.shape, self.dtype = Z, cuts, Z.shape, Z.dtype

    def blocks(self):
        for start, stop in pairwise(self.cuts):
            yield start, stop, np.asfortranarray(self.Z[start:stop])


def root(M):
    """Return T of full row rank with T^T T = M."""
    values, vectors = np.linalg.eigh(M)
    kept = values > 1e-10 * values[-1]
    return np.sqrt(values[kept])[:, None] * vectors[:, kept].T


def dense_ridge(Z, Y, alpha, output=None, sample_weight=None, fit_intercept=True, n=0):
    """Return B and b by least squares on the vectorized problem, with sums over n.

    The unknowns are vec(W) and b, the predictions Z W T + b with T^T T = M.
    """
    n, d = n or len(Z), Y.shape[1]
    T = np.eye(d) if output is None else root(output)
    weights = np.ones(len(Z)) if sample_weight is None else sample_weight
    scale = np.tile(np.sqrt(weights / n), d)[:, None]
    linear = np.kron(T.T, Z)
    constant = np.kron(np.eye(d), np.ones((len(Z), 1)))
    system = np.hstack([linear, constant]) if fit_intercept else linear
    unknowns = linear.shape[1]
    penalty = np.sqrt(alpha) * np.eye(unknowns, system.shape[1])
    sides = np.concatenate([Y.T.ravel() * scale[:, 0], np.zeros(unknowns)])
    solved = np.linalg.lstsq(np.vstack([system * scale, penalty]), sides, rcond=None)[0]
    W = solved[:unknowns].reshape(len(T), Z.shape[1]).T
    return W @ T, solved[unknowns:] if fit_intercept else np.zeros(d)


def dense_objective(Z, Y, alpha, B, b, output=None, sample_weight=None):
    """Evaluate the objective at B = W T and b, for B in the range of T."""
    weights = np.ones(len(Z)) if sample_weight is None else sample_weight
    inverse = np.eye(Y.shape[1]) if output is None else np.linalg.pinv(output)
    loss = weights @ np.square(Y - Z @ B - b).sum(axis=1) / len(Z)
    return 0.5 * loss + 0.5 * alpha * np.trace(B @ inverse @ B.T)


def refitted_errors(Z, Y, alphas, output=None, sample_weight=None, fit_intercept=True):
    """Return the leave-one-out errors by n refits, the total of n rows kept."""
    n = len(Z)
    weights = np.ones(n) if sample_weight is None else sample_weight
    errors = np.zeros(len(alphas))
    for i in range(n):
        rest = np.arange(n) != i
        for k, alpha in enumerate(alphas):
            B, b = dense_ridge(
                Z[rest], Y[rest], alpha, output, weights[rest], fit_intercept, n
            )
            errors[k] += weights[i] * np.square(Y[i] - Z[i] @ B - b).sum() / n
    return errors


def data(n=N, r=R, d=D, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r)) * np.linspace(1, 3, r)
    return Z, Z @ rng.normal(size=(r, d)) + rng.normal(size=(n, d)) + 2.0


def some_weights(n=N):
    weights = np.random.default_rng(1).uniform(size=n) * (np.arange(n) % 4 > 0)
    return weights / weights.mean()


FACTOR = np.random.default_rng(2).normal(size=(D, D))
OUTPUTS = {
    "none": None,
    "full": FACTOR @ FACTOR.T,
    "rank one": np.outer(FACTOR[0], FACTOR[0]),
    "rank two": FACTOR[:, :2] @ FACTOR[:, :2].T,
    "diagonal": np.diag([0.5, 3.0, 3.0]),
    "with a zero": np.diag([0.0, 1.0, 2.0]),
}
WEIGHTS = {"equal": None, "weighted": some_weights()}
cases = pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
weighted = pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
constant = pytest.mark.parametrize("fit_intercept", [True, False])


# the solution -----------------------------------------------------------------------


@pytest.mark.thin
@cases
@weighted
@constant
@pytest.mark.parametrize("alpha", [1e-6, 0.3, 100.0])
def test_solution_is_that_of_dense_least_squares(output, weights, fit_intercept, alpha):
    Z, Y = data()
    problem = {
        "output": output,
        "sample_weight": weights,
        "fit_intercept": fit_intercept,
    }
    path = ridge_path(ArrayDesign(Z), Y, **problem)
    B, b = path.solve(alpha)
    desired_B, desired_b = dense_ridge(Z, Y, alpha, **problem)
    # both square the condition number of Z, which is about ten
    assert_allclose(B, desired_B, rtol=0, atol=1e-11)
    assert_allclose(b, desired_b, rtol=0, atol=1e-11)
    desired = dense_objective(Z, Y, alpha, desired_B, desired_b, output, weights)
    assert_allclose(path.objective(alpha), desired, rtol=1e-12)
    assert 0 <= path.gap(alpha) < 1e-20 * desired / min(alpha, 1)


def test_one_output():
    Z, Y = data(d=1)
    B, b = ridge_path(ArrayDesign(Z), Y).solve(0.1)
    desired_B, desired_b = dense_ridge(Z, Y, 0.1)
    assert B.shape == (R, 1)
    assert b.shape == (1,)
    assert_allclose(B, desired_B, rtol=1e-11)
    assert_allclose(b, desired_b, rtol=1e-11)


def test_scaling_of_the_output_matrix_is_a_scaling_of_alpha():
    Z, Y = data()
    full = OUTPUTS["full"]
    B, b = ridge_path(ArrayDesign(Z), Y, output=100 * full).solve(1.0)
    same_B, same_b = ridge_path(ArrayDesign(Z), Y, output=full).solve(0.01)
    assert_allclose(B, same_B, rtol=1e-10)
    assert_allclose(b, same_b, rtol=1e-10)


def test_penalty_of_a_rank_one_output_shows_in_one_direction_only():
    Z, Y = data()
    direction = FACTOR[0] / np.linalg.norm(FACTOR[0])
    B, _ = ridge_path(ArrayDesign(Z), Y, output=OUTPUTS["rank one"]).solve(0.1)
    across = np.eye(D) - np.outer(direction, direction)
    assert np.abs(B @ across).max() < 1e-13 * np.abs(B).max()
    assert np.abs(B @ direction).max() > 0.1


def test_more_features_than_rows():
    Z, Y = data(n=6, r=11)
    for fit_intercept in (True, False):
        path = ridge_path(ArrayDesign(Z), Y, fit_intercept=fit_intercept)
        B, b = path.solve(0.01)
        desired_B, desired_b = dense_ridge(Z, Y, 0.01, fit_intercept=fit_intercept)
        assert_allclose(B, desired_B, rtol=0, atol=1e-11)
        assert_allclose(b, desired_b, rtol=0, atol=1e-11)
        assert (path.values >= 0).all()


def test_constant_features_do_nothing_under_an_intercept():
    Z, Y = data()
    plain, b = ridge_path(ArrayDesign(Z), Y).solve(0.1)
    more = np.column_stack([np.full(N, 0.1), Z, np.full(N, 7.0)])
    B, same_b = ridge_path(ArrayDesign(more), Y).solve(0.1)
    assert_allclose(B[1:-1], plain, rtol=1e-11)
    assert_allclose(B[[0, -1]], 0, atol=1e-14)
    assert_allclose(same_b, b, rtol=1e-11)


@pytest.mark.parametrize("alpha", [1e-12, 1.0])
def test_only_constant_features_leave_the_mean(alpha):
    _, Y = data()
    design = ArrayDesign(np.full((N, 2), 0.1))
    B, b = ridge_path(design, Y, sample_weight=WEIGHTS["weighted"]).solve(alpha)
    mean = WEIGHTS["weighted"] @ Y / N
    assert_allclose([0.1, 0.1] @ B + b, mean, rtol=1e-12)


def test_no_features_leave_the_mean():
    _, Y = data()
    design = ArrayDesign._trusted(np.empty((N, 0)))
    path = ridge_path(design, Y)
    B, b = path.solve(0.1)
    assert B.shape == (0, D)
    assert_allclose(b, Y.mean(axis=0), rtol=1e-12)
    assert_allclose(path.objective(0.1), Y.var(axis=0).sum() / 2, rtol=1e-12)
    assert path.gap(0.1) == 0
    alphas = path.default_alphas()
    errors = leave_one_out(path, RidgeFilter(), design, Y, alphas)
    others = (Y.sum(axis=0) - Y) / (N - 1)
    assert_allclose(errors, np.square(Y - others).sum(axis=1).mean(), rtol=1e-12)


def test_one_row():
    Z, Y = data(n=1)
    B, b = ridge_path(ArrayDesign(Z), Y).solve(0.1)
    assert_allclose(B, 0, atol=1e-15)
    assert_allclose(b, Y[0], rtol=1e-15)
    B, b = ridge_path(ArrayDesign(Z), Y, fit_intercept=False).solve(0.1)
    assert_allclose(B, np.outer(Z[0], Y[0]) / (Z[0] @ Z[0] + 0.1), rtol=1e-12)
    assert_allclose(b, 0, atol=0)


@weighted
def test_a_large_offset_of_the_features_is_harmless(weights):
    Z, Y = data()
    B, b = ridge_path(ArrayDesign(Z), Y, sample_weight=weights).solve(1e-3)
    moved = Z + 1e6
    path = ridge_path(ArrayDesign(moved), Y, sample_weight=weights)
    moved_B, moved_b = path.solve(1e-3)
    # adding 1e6 rounds Z itself to 1e-10
    assert_allclose(moved_B, B, rtol=0, atol=1e-9)
    assert_allclose(moved @ moved_B + moved_b, Z @ B + b, rtol=0, atol=2e-8)


def test_an_offset_of_the_targets_goes_to_the_intercept():
    Z, Y = data()
    B, b = ridge_path(ArrayDesign(Z), Y).solve(1e-6)
    moved_B, moved_b = ridge_path(ArrayDesign(Z), Y + 1e8).solve(1e-6)
    assert_allclose(moved_B, B, rtol=0, atol=1e-7)  # 1e8 rounds Y itself to 1e-8
    assert_allclose(moved_b - 1e8, b, rtol=0, atol=1e-6)


@cases
@weighted
def test_blocks_are_one_matrix(output, weights, monkeypatch):
    Z, Y = data()
    problem = {"output": output, "sample_weight": weights}
    whole = ridge_path(ArrayDesign(Z), Y, **problem)
    monkeypatch.setattr("nbsketch.solvers.spectrum._CHUNK", 4)
    blocks = Blocks(Z, [0, 1, 7, 20, N])
    path = ridge_path(blocks, Y, **problem)
    for found, desired in zip(path.solve(0.1), whole.solve(0.1), strict=True):
        assert_allclose(found, desired, rtol=0, atol=1e-12)
    alphas = whole.default_alphas()
    desired = leave_one_out(whole, RidgeFilter(), ArrayDesign(Z), Y, alphas, weights)
    assert_allclose(
        leave_one_out(path, RidgeFilter(), blocks, Y, alphas, weights),
        desired,
        rtol=1e-10,
    )


def test_blocks_far_from_the_first_one():
    Z, Y = data()
    Z[4:] += 1e3
    path = ridge_path(Blocks(Z, [0, 4, N]), Y)
    desired_B, desired_b = dense_ridge(Z, Y, 0.1)
    B, b = path.solve(0.1)
    assert_allclose(Z @ B + b, Z @ desired_B + desired_b, rtol=0, atol=1e-8)


def test_single_precision_features_lose_nothing_but_their_own_digits():
    Z, Y = data()
    single = Z.astype(np.float32)
    B, b = ridge_path(ArrayDesign(single), Y).solve(1e-3)
    same_B, same_b = ridge_path(ArrayDesign(single.astype(float)), Y).solve(1e-3)
    assert B.dtype == np.float64
    assert_allclose(B, same_B, rtol=1e-12)
    assert_allclose(b, same_b, rtol=1e-12)


def test_integer_weights_are_repetitions():
    Z, Y = data()
    times = np.arange(N) % 4
    B, b = ridge_path(ArrayDesign(Z), Y, sample_weight=times / times.mean()).solve(0.1)
    rows = np.repeat(np.arange(N), times)
    same_B, same_b = ridge_path(ArrayDesign(Z[rows]), Y[rows]).solve(0.1)
    assert_allclose(B, same_B, rtol=1e-11)
    assert_allclose(b, same_b, rtol=1e-11)


# objective and gap ------------------------------------------------------------------


class Perturbed(RidgePath):
    """Solutions that are a little wrong, with the best intercept for them."""

    def solve(self, alpha):
        B, b = super().solve(alpha)
        noise = 1e-3 * np.random.default_rng(3).normal(size=B.shape)
        # outputs of eigenvalue zero have no coefficients
        noise = (noise * (self.outputs > 0)) @ self.rotation.T
        return B + noise, b - self.z_mean @ noise


@pytest.mark.thin
@cases
@weighted
@constant
def test_gap_bounds_the_distance_to_the_minimum(output, weights, fit_intercept):
    Z, Y = data()
    problem = {
        "output": output,
        "sample_weight": weights,
        "fit_intercept": fit_intercept,
    }
    wrong = Perturbed(*ridge_path(ArrayDesign(Z), Y, **problem))
    B, b = wrong.solve(0.1)
    if not fit_intercept:
        b = np.zeros(D)
    best = dense_objective(
        Z, Y, 0.1, *dense_ridge(Z, Y, 0.1, **problem), output, weights
    )
    above = dense_objective(Z, Y, 0.1, B, b, output, weights) - best
    assert 1e-8 < above <= wrong.gap(0.1)
    # rho^2 / (2 penalty) instead of rho^2 / (2 (curvature + penalty))
    worst = 1 + wrong.values[-1] * wrong.outputs.max() / 0.1
    assert wrong.gap(0.1) <= worst * above


def test_the_gap_of_residuals_is_the_distance_to_the_minimum():
    rng, alpha = np.random.default_rng(0), 1e-2
    Z, Y = rng.normal(size=(N, R)), rng.normal(size=(N, D))
    path = ridge_path(ArrayDesign(Z), Y)
    B = path.solve(alpha)[0] + 0.1 * rng.normal(size=(R, D))
    centered = Z - Z.mean(axis=0)
    errors = (Y - Y.mean(axis=0) - centered @ B) @ path.rotation
    squares, slopes = np.square(errors).mean(axis=0), centered.T @ errors / N
    objective, gap = path._from_residuals(B, alpha, squares, slopes)
    value = (squares.sum() + alpha * np.square(B).sum()) / 2
    assert_allclose(objective, value, rtol=1e-12)
    assert_allclose(gap, value - path.objective(alpha), rtol=1e-6)


def test_objective_of_a_perfect_fit_is_not_negative():
    Z, _ = data()
    path = ridge_path(ArrayDesign(Z), Z[:, :1])
    assert 0 <= path.objective(1e-15) < 1e-12


# alphas -----------------------------------------------------------------------------


@pytest.mark.thin
@cases
@weighted
@constant
def test_leave_one_out_is_n_refits(output, weights, fit_intercept):
    Z, Y = data()
    problem = {
        "output": output,
        "sample_weight": weights,
        "fit_intercept": fit_intercept,
    }
    path = ridge_path(ArrayDesign(Z), Y, **problem)
    alphas = np.array([1e-6, 1e-2, 1.0, 50.0])
    found = leave_one_out(path, RidgeFilter(), ArrayDesign(Z), Y, alphas, weights)
    assert_allclose(found, refitted_errors(Z, Y, alphas, **problem), rtol=1e-8)


@constant
def test_leave_one_out_with_more_features_than_rows(fit_intercept):
    Z, Y = data(n=7, r=12)
    path = ridge_path(ArrayDesign(Z), Y, fit_intercept=fit_intercept)
    alphas = np.array([1e-4, 1e-2, 1.0])
    found = leave_one_out(path, RidgeFilter(), ArrayDesign(Z), Y, alphas)
    desired = refitted_errors(Z, Y, alphas, fit_intercept=fit_intercept)
    assert_allclose(found, desired, rtol=1e-8)


@constant
def test_leave_one_out_does_not_take_interpolation_for_prediction(fit_intercept):
    # every row has a direction of its own, so that one of the others says nothing
    Z, Y = 3 * np.eye(30), data(n=30)[1]
    path = ridge_path(ArrayDesign(Z), Y, fit_intercept=fit_intercept)
    alphas = path.default_alphas()
    found = leave_one_out(path, RidgeFilter(), ArrayDesign(Z), Y, alphas)
    others = (Y.sum(axis=0) - Y) / 29 if fit_intercept else 0
    desired = np.square(Y - others).sum(axis=1).mean()
    # a residual is 1e-12 of Y at the least alpha; rounding may only raise the error
    assert_allclose(found, desired, rtol=2e-2)
    assert (found >= (1 - 1e-4) * desired).all()
    assert_allclose(found[10:], desired, rtol=1e-4)


def test_leave_one_out_for_many_alphas_at_a_time(monkeypatch):
    Z, Y = data()
    path = ridge_path(ArrayDesign(Z), Y, output=OUTPUTS["full"])
    alphas = path.default_alphas()
    several = leave_one_out(path, RidgeFilter(), ArrayDesign(Z), Y, alphas)
    monkeypatch.setattr("nbsketch.solvers.left_out._COLUMNS", 1)
    assert_allclose(
        leave_one_out(path, RidgeFilter(), ArrayDesign(Z), Y, alphas),
        several,
        rtol=1e-12,
    )


def test_default_alphas_go_with_the_scale_of_the_problem():
    Z, Y = data()
    alphas = ridge_path(ArrayDesign(Z), Y).default_alphas()
    top = np.linalg.eigvalsh(np.cov(Z.T, bias=True))[-1]
    assert_allclose(alphas[[0, -1]], [1e-12 * top, 10 * top], rtol=1e-10)
    assert (np.diff(alphas) > 0).all()
    assert len(alphas) == 53
    assert len(ridge_path(ArrayDesign(Z), Y).default_alphas(7)) == 7
    output = OUTPUTS["with a zero"]
    scaled = ridge_path(ArrayDesign(100 * Z), Y, output=output).default_alphas()
    assert_allclose(scaled, 2e4 * alphas, rtol=1e-10)


# the exact machine ------------------------------------------------------------------


def points(n=N, seed=4):
    return np.random.default_rng(seed).uniform(-2, 2, size=(n, 2))


def gaussian(X, bandwidth=0.7):
    return np.exp(-cdist(X, X, "sqeuclidean") / (2 * bandwidth**2))


@pytest.mark.thin
@cases
@weighted
@constant
@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_exact_is_the_primal_solution(output, weights, fit_intercept, alpha):
    K, (_, Y) = gaussian(points()), data()
    Z = np.linalg.cholesky(K + 1e-13 * np.eye(N))
    problem = {
        "output": output,
        "sample_weight": weights,
        "fit_intercept": fit_intercept,
    }
    A, b, objective = solve_exact(K, Y, alpha, **problem)
    desired_B, desired_b = dense_ridge(Z, Y, alpha, **problem)
    assert_allclose(K @ A, Z @ desired_B, rtol=0, atol=1e-9)
    assert_allclose(b, desired_b, rtol=0, atol=1e-9)
    desired = dense_objective(Z, Y, alpha, desired_B, desired_b, output, weights)
    assert_allclose(objective, desired, rtol=1e-9)
    path = ridge_path(ArrayDesign(Z), Y, **problem)
    assert_allclose(path.objective(alpha), objective, rtol=1e-9)


@weighted
def test_exact_is_kernel_ridge_of_scikit_learn(weights):
    K, (_, Y) = gaussian(points()), data()
    A, b, _ = solve_exact(K, Y, 0.02, sample_weight=weights, fit_intercept=False)
    model = KernelRidge(alpha=N * 0.02, kernel="precomputed")
    model.fit(K, Y, sample_weight=weights)
    assert_allclose(A, model.dual_coef_, rtol=0, atol=1e-11)
    assert (b == 0).all()


def test_exact_with_intercept_is_kernel_ridge_on_what_the_intercept_leaves():
    K, (_, Y) = gaussian(points()), data()
    A, b, _ = solve_exact(K, Y, 0.02)
    model = KernelRidge(alpha=N * 0.02, kernel="precomputed").fit(K, Y - b)
    assert_allclose(A, model.dual_coef_, rtol=0, atol=1e-11)
    assert_allclose(A.sum(axis=0), 0, atol=1e-11)  # what makes b optimal


@constant
def test_exact_weights_are_repetitions(fit_intercept):
    X, (_, Y) = points(), data()
    times = np.arange(N) % 4
    rows = np.repeat(np.arange(N), times)
    A, b, objective = solve_exact(
        gaussian(X), Y, 0.1, sample_weight=times / times.mean(),
        fit_intercept=fit_intercept,
    )  # fmt: skip
    other_A, other_b, other = solve_exact(
        gaussian(X[rows]), Y[rows], 0.1, fit_intercept=fit_intercept
    )
    summed = np.zeros_like(A)
    np.add.at(summed, rows, other_A)
    assert_allclose(A, summed, rtol=0, atol=1e-11)
    assert_allclose(b, other_b, rtol=0, atol=1e-11)
    assert_allclose(objective, other, rtol=1e-11)
    assert (A[times == 0] == 0).all()


def test_exact_of_equal_eigenvalues_is_one_problem_for_each_output():
    K, (_, Y) = gaussian(points()), data()
    together = solve_exact(K, Y, 0.1, output=2 * np.eye(D))
    for j in range(D):
        A, b, _ = solve_exact(K, Y[:, [j]], 0.05)
        assert_allclose(together[0][:, [j]], A, rtol=0, atol=1e-12)
        assert_allclose(together[1][[j]], b, rtol=0, atol=1e-12)


def test_exact_keeps_its_digits_when_the_targets_are_far_from_zero():
    K, (_, Y) = gaussian(points(), bandwidth=2.0), data()
    A, b, _ = solve_exact(K, Y, 1e-8)
    moved_A, moved_b, _ = solve_exact(K, Y + 1e6, 1e-8)
    # A is 1e7 large
    assert_allclose(K @ moved_A + moved_b - 1e6, K @ A + b, rtol=0, atol=1e-8)


def test_exact_leaves_its_arguments_alone():
    K, (_, Y) = gaussian(points()), data()
    arguments = (K, Y, OUTPUTS["full"], WEIGHTS["weighted"])
    copies = [a.copy() for a in arguments]
    solve_exact(K, Y, 0.1, output=arguments[2], sample_weight=arguments[3])
    for argument, copy in zip(arguments, copies, strict=True):
        assert (argument == copy).all()


def test_a_kernel_that_is_not_positive_says_so():
    _, Y = data()
    with pytest.raises(ValueError, match=r"`alpha` must be larger .* got 0.001"):
        solve_exact(-np.eye(N), Y, 1e-3, output=OUTPUTS["full"])
