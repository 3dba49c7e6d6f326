"""Spectral filters against matrix functions, iterations and refits."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

from nbsketch import (
    CutoffFilter,
    IteratedRidgeFilter,
    LandweberFilter,
    LaplacianKernel,
    RidgeFilter,
)
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.exact import leave_one_out_residuals
from nbsketch.solvers.filters import Filter, as_filter
from nbsketch.solvers.left_out import (
    generalized_cross_validation,
    held_out_error,
    leave_one_out,
)
from nbsketch.solvers.spectrum import decompose, moments

N, R, D = 30, 5, 3
STEP = 0.05
FILTERS = {
    "ridge": RidgeFilter(),
    "iterated ridge 1": IteratedRidgeFilter(1),
    "iterated ridge 4": IteratedRidgeFilter(4),
    "cutoff": CutoffFilter(),
    "landweber": LandweberFilter(STEP),
}
each_filter = pytest.mark.parametrize("filter", FILTERS.values(), ids=FILTERS)
constant = pytest.mark.parametrize("fit_intercept", [True, False])
ALPHAS = np.array([30.0, 1.0, 0.1, 1e-3])


@dataclass(frozen=True)
class ShowalterFilter(Filter):
    """A filter of a user: gradient flow."""

    @property
    def qualification(self):
        return math.inf

    def values(self, u, a):
        u, a = np.broadcast_arrays(np.asarray(u, dtype=float), a)
        return -np.expm1(-u / a) / u


def data(n=N, r=R, d=D, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r)) * np.linspace(0.5, 3, r) + 1.0
    return Z, Z @ rng.normal(size=(r, d)) + rng.normal(size=(n, d)) + 2.0


def some_weights(n=N):
    weights = np.random.default_rng(1).uniform(size=n) * (np.arange(n) % 4 > 0)
    return weights / weights.mean()


def centerd(Z, Y, weights=None, fit_intercept=True):
    """Return what a fit without intercept needs, rows scaled by root weights."""
    weights = np.ones(len(Z)) if weights is None else weights
    z_mean, y_mean = (weights @ A / len(A) * fit_intercept for A in (Z, Y))
    root = np.sqrt(weights / len(Z))[:, None]
    return (Z - z_mean) * root, (Y - y_mean) * root, z_mean, y_mean


def matrix_function(filter, A, alpha):
    """Return G_alpha(A) for a symmetric matrix by inverses and sums of powers."""
    eye = np.eye(len(A))
    match filter:
        case RidgeFilter():
            return np.linalg.inv(A + alpha * eye)
        case IteratedRidgeFilter():
            inverse = np.linalg.inv(A + alpha * eye)
            powers = [np.linalg.matrix_power(inverse, k) for k in range(1, 9)]
            return sum(alpha**k * powers[k] for k in range(filter.order))
        case CutoffFilter():
            values, vectors = np.linalg.eigh(A)
            kept = vectors[:, values > alpha]
            return kept @ np.linalg.pinv(kept.T @ A @ kept) @ kept.T
        case LandweberFilter():
            return landweber(A, filter.n_iter(alpha))
    raise NotImplementedError


def landweber(A, steps):
    """Return eta times the sum of the powers 0 ... T - 1 of I - eta A, by doubling."""
    once = np.eye(len(A)) - STEP * A
    total, power = np.zeros_like(A), np.eye(len(A))
    for bit in f"{steps:b}":
        total, power = total + power @ total, power @ power
        if bit == "1":
            total, power = STEP * np.eye(len(A)) + once @ total, power @ once
    return total


def solution(filter, Z, Y, alpha, weights=None, fit_intercept=True):
    """Return B and b by the explicit matrix function."""
    X, T, z_mean, y_mean = centerd(Z, Y, weights, fit_intercept)
    B = matrix_function(filter, X.T @ X, alpha) @ X.T @ T
    return B, y_mean - z_mean @ B


def test_reference_of_landweber_is_a_sum_of_powers():
    A = np.diag([0.5, 3.0]) + 0.1
    powers = [np.linalg.matrix_power(np.eye(2) - STEP * A, k) for k in range(13)]
    assert_allclose(landweber(A, 13), STEP * sum(powers), rtol=1e-14)


# values -----------------------------------------------------------------------------


@each_filter
def test_values_are_a_matrix_function(filter):
    A = np.diag([0.0, 1e-14, 0.03, 1.0, 19.0])
    for alpha in ALPHAS:
        desired = np.diag(matrix_function(filter, A, alpha))
        assert_allclose(filter.values(np.diag(A), alpha), desired, rtol=1e-10)


@each_filter
def test_values_broadcast(filter):
    u, a = np.array([0.0, 0.5, 2.0])[:, None], ALPHAS[:3]
    values = filter.values(u, a)
    assert values.shape == (3, 3)
    for j, alpha in enumerate(a):
        assert_array_equal(values[:, j], filter.values(u[:, 0], alpha))
    assert filter.values(0.5, 0.1).shape == ()


@each_filter
def test_values_are_accurate_near_zero(filter):
    tiny = np.array([0.0, 1e-300, 1e-30, 1e-18])
    values = filter.values(tiny, 1e-3)
    assert_allclose(values, values[0], rtol=1e-12)
    assert np.isfinite(values).all()


def test_limits_at_zero():
    assert RidgeFilter().values(0.0, 0.5) == 2
    assert IteratedRidgeFilter(3).values(0.0, 0.5) == 6
    assert CutoffFilter().values(0.0, 0.5) == 0
    assert LandweberFilter(0.25).values(0.0, 1 / 2) == 0.25 * 8


@each_filter
def test_a_vanishing_parameter_inverts(filter):
    u = np.array([0.3, 2.0, 20.0])
    assert_allclose(filter.values(u, 1e-13), 1 / u, rtol=1e-11)


@each_filter
def test_definition_of_a_filter(filter):
    # u G(u) in [0, 1], and a G(u) bounded: by the order of an iterated ridge
    u, a = np.linspace(0, 1 / STEP, 200)[:, None], np.logspace(-6, 1, 50)
    values = filter.values(u, a)
    assert (values >= 0).all()
    assert (u * values <= 1 + 1e-14).all()
    assert (a * values <= max(getattr(filter, "order", 1), 1.5) + 1e-12).all()


@pytest.mark.parametrize(
    "filter",
    [RidgeFilter(), IteratedRidgeFilter(2), CutoffFilter(), LandweberFilter(0.5)],
    ids=repr,
)
@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_qualification(filter, power):
    """The sup of (1 - u G) u^q is of the order a^q up to q = qualification, no more."""
    u = np.logspace(-8, 0, 4000)[:, None]
    a = np.logspace(-3.5, -2, 5)
    rest = ((1 - u * filter.values(u, a)) * u**power).max(axis=0)
    slope = np.polyfit(np.log(a), np.log(rest), 1)[0]
    assert_allclose(slope, min(power, filter.qualification), atol=0.06)


def test_one_step_with_the_largest_step_inverts_the_top():
    values = LandweberFilter(0.5).values([2.0, 1.0], 2.0)
    assert_allclose(values, [0.5, 0.5], rtol=1e-15)


def test_landweber_for_a_trillion_steps():
    filter = LandweberFilter(1.0)
    alpha = filter.alpha(10**12)
    assert filter.n_iter(alpha) == 10**12
    assert_allclose(filter.values([1e-12, 1.0], alpha), [(1 - 1 / math.e) * 1e12, 1.0])


def test_landweber_counts_in_whole_steps():
    filter = LandweberFilter(0.1)
    counts = [1, 2, 3, 7, 999, 123456789]
    assert [filter.n_iter(filter.alpha(t)) for t in counts] == counts
    assert filter.n_iter(1e6) == 1


def test_landweber_takes_the_nearest_number_of_steps():
    filter = LandweberFilter(step=0.5)
    assert_array_equal(filter.n_iter(2 / 3.4), 3)
    assert_array_equal(filter.n_iter(2 / 3.6), 4)


def test_number_of_iterations():
    assert RidgeFilter().n_iter(0.1) == CutoffFilter().n_iter(0.1) == 1
    assert IteratedRidgeFilter(3).n_iter(0.1) == 3


# parameters -------------------------------------------------------------------------


@each_filter
def test_path_of_parameters(filter):
    alphas = filter.alphas(7.0)
    assert (np.diff(alphas) < 0).all()
    assert 45 <= len(alphas) <= 53
    assert len(filter.alphas(7.0, count=10)) <= 10
    if isinstance(filter, LandweberFilter):
        steps = [filter.n_iter(a) for a in alphas]
        assert steps[:4] == [1, 2, 3, 5] and steps[-1] == 10**12
    else:
        assert_allclose(alphas[[0, -1]], [70, 7e-12])


def test_step_is_set_by_the_spectrum():
    assert LandweberFilter().resolve(4.0) == LandweberFilter(0.25)
    assert LandweberFilter(0.1).resolve(4.0) == LandweberFilter(0.1)
    assert LandweberFilter(1 / 3).resolve(3.0) == LandweberFilter(1 / 3)
    assert RidgeFilter().resolve(4.0) == RidgeFilter()


def test_a_step_that_would_diverge_is_refused():
    with pytest.raises(
        ValueError, match=r"`step` must be at most 1 over .* 0\.25, got"
    ):
        LandweberFilter(0.26).resolve(4.0)


def test_a_step_must_be_known_before_values():
    with pytest.raises(ValueError, match="`step` must be a number before"):
        LandweberFilter().values([1.0], 0.1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: IteratedRidgeFilter(0), ValueError, "`order` must be at least 1"),
        (lambda: IteratedRidgeFilter(1.5), TypeError, "`order` must be an integer"),
        (lambda: LandweberFilter(0.0), ValueError, "`step` must be in"),
        (lambda: LandweberFilter("1"), TypeError, "`step` must be a number"),
        (lambda: as_filter("tikhonov"), ValueError, "`filter` must be one of"),
        (lambda: as_filter(RidgeFilter), TypeError, "`filter` must be an object or a"),
        (lambda: as_filter("ridge", order=2), ValueError, "`order` must be None"),
        (
            lambda: as_filter("iterated-ridge", step=2.0),
            ValueError,
            "`step` must be None",
        ),
        (
            lambda: as_filter(IteratedRidgeFilter(2), order=2),
            ValueError,
            "`order` requires the name",
        ),
    ],
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_filters_by_name():
    assert as_filter("ridge", order=None) == RidgeFilter()
    assert as_filter("iterated-ridge", order=3) == IteratedRidgeFilter(3)
    assert as_filter("iterated-ridge") == IteratedRidgeFilter(2)
    assert as_filter("cutoff") == CutoffFilter()
    assert as_filter("landweber", step=0.5) == LandweberFilter(0.5)
    assert as_filter(CutoffFilter()) == CutoffFilter()


# solutions --------------------------------------------------------------------------


@each_filter
@constant
@pytest.mark.parametrize("weights", [None, some_weights()], ids=["equal", "weighted"])
def test_solution_is_the_explicit_matrix_function(filter, fit_intercept, weights):
    Z, Y = data()
    spectrum = decompose(
        ArrayDesign(Z), Y, sample_weight=weights, fit_intercept=fit_intercept
    )
    for alpha in ALPHAS:
        B, b = spectrum.coefficients(filter, alpha)
        desired_B, desired_b = solution(filter, Z, Y, alpha, weights, fit_intercept)
        assert_allclose(B, desired_B, rtol=0, atol=1e-10)
        assert_allclose(b, desired_b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("steps", [1, 2, 7, 300])
def test_landweber_is_gradient_descent(steps):
    Z, Y = data()
    X, T, *_ = centerd(Z, Y)
    B = np.zeros((R, D))
    for _ in range(steps):
        B -= STEP * X.T @ (X @ B - T)
    filter = LandweberFilter(STEP)
    found, _ = decompose(ArrayDesign(Z), Y).coefficients(filter, filter.alpha(steps))
    assert_allclose(found, B, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_iterated_ridge_is_ridge_of_residuals(order):
    Z, Y = data()
    X, residual, *_ = centerd(Z, Y)
    B = np.zeros((R, D))
    for _ in range(order):
        more = np.linalg.solve(X.T @ X + 0.3 * np.eye(R), X.T @ residual)
        B, residual = B + more, residual - X @ more
    spectrum = decompose(ArrayDesign(Z), Y)
    found, _ = spectrum.coefficients(IteratedRidgeFilter(order), 0.3)
    assert_allclose(found, B, rtol=0, atol=1e-12)


@pytest.mark.parametrize("components", range(1, R))
def test_cutoff_is_principal_component_regression(components):
    Z, Y = data()
    pca = PCA().fit(Z)
    variances = pca.explained_variance_ * (N - 1) / N
    threshold = variances[components - 1 : components + 1].mean()
    scores = pca.transform(Z)[:, :components]
    desired = LinearRegression().fit(scores, Y).predict(scores)
    B, b = decompose(ArrayDesign(Z), Y).coefficients(CutoffFilter(), threshold)
    assert_allclose(Z @ B + b, desired, rtol=0, atol=1e-10)


@each_filter
def test_outputs_are_separate_problems(filter):
    Z, Y = data()
    B, b = decompose(ArrayDesign(Z), Y).coefficients(filter, 0.2)
    for j in range(D):
        one = decompose(ArrayDesign(Z), Y[:, [j]]).coefficients(filter, 0.2)
        assert_allclose(B[:, [j]], one[0], rtol=0, atol=1e-13)
        assert_allclose(b[[j]], one[1], rtol=0, atol=1e-13)


@each_filter
def test_output_matrix_filters_the_product_of_both_operators(filter):
    Z, Y = data()
    factor = np.random.default_rng(2).normal(size=(D, 2))
    M = factor @ factor.T / 6  # singular
    X, T, *_ = centerd(Z, Y)
    # B = W M^{1/2}, and the filter acts on the operator that maps W to W
    root = scipy.linalg.sqrtm(M).real
    A = np.kron(X.T @ X, M)
    if isinstance(filter, LandweberFilter):
        assert np.linalg.eigvalsh(A)[-1] < 1 / STEP
    right = (X.T @ T @ root).ravel()
    desired = (matrix_function(filter, A, 0.2) @ right).reshape(R, D) @ root
    B, b = decompose(ArrayDesign(Z), Y, output=M).coefficients(filter, 0.2)
    assert_allclose(B, desired, rtol=0, atol=1e-9)
    assert_allclose(b, Y.mean(axis=0) - Z.mean(axis=0) @ desired, rtol=0, atol=1e-9)


def test_a_filter_of_a_user():
    Z, Y = data()
    X, T, *_ = centerd(Z, Y)
    A = X.T @ X
    flow = np.linalg.solve(A, np.eye(R) - scipy.linalg.expm(-A / 0.1))
    B, _ = decompose(ArrayDesign(Z), Y).coefficients(ShowalterFilter(), 0.1)
    assert_allclose(B, flow @ X.T @ T, rtol=0, atol=1e-11)


# errors -----------------------------------------------------------------------------


def smoother(filter, Z, alpha, fit_intercept=True, weights=None):
    """Return H with fitted values H Y, column by column."""
    columns = [
        Z @ B + b
        for B, b in (
            solution(filter, Z, np.eye(len(Z))[:, [i]], alpha, weights, fit_intercept)
            for i in range(len(Z))
        )
    ]
    return np.hstack(columns)


@each_filter
@constant
@pytest.mark.parametrize("weights", [None, some_weights()], ids=["equal", "weighted"])
def test_leave_one_out_replaces_a_target_by_its_prediction(
    filter, fit_intercept, weights
):
    Z, Y = data()
    spectrum = decompose(
        ArrayDesign(Z), Y, sample_weight=weights, fit_intercept=fit_intercept
    )
    found = leave_one_out(spectrum, filter, ArrayDesign(Z), Y, ALPHAS, weights)
    for k, alpha in enumerate(ALPHAS):
        H = smoother(filter, Z, alpha, fit_intercept, weights)
        error = 0.0
        for i in range(N):
            others = np.arange(N) != i
            own = H[i, others] @ Y[others] / (1 - H[i, i])  # f = H_i. Y with y_i = f
            replaced = np.where(others[:, None], Y, own)
            assert_allclose(H[i] @ replaced, own, rtol=1e-9)
            weight = 1 if weights is None else weights[i]
            error += weight * np.square(Y[i] - own).sum() / N
        assert_allclose(found[k], error, rtol=1e-9)


@each_filter
@constant
def test_leave_one_out_over_some_rows_is_their_share(filter, fit_intercept):
    Z, Y = data()
    weights = some_weights()
    spectrum = decompose(
        ArrayDesign(Z), Y, sample_weight=weights, fit_intercept=fit_intercept
    )
    known = spectrum, filter, ArrayDesign(Z), Y, ALPHAS, weights
    parts = np.arange(0, N, 3), np.setdiff1d(np.arange(N), np.arange(0, N, 3))
    total = sum(weights[p].sum() * leave_one_out(*known, p) for p in parts)
    assert_allclose(total / weights.sum(), leave_one_out(*known), rtol=1e-10)


def test_the_mean_predicts_rows_that_no_other_row_predicts():
    Z = ArrayDesign(np.eye(N))
    Y = data()[1]
    spectrum = decompose(Z, Y, fit_intercept=False)
    error = leave_one_out(spectrum, RidgeFilter(), Z, Y, np.array([1e-20]))
    assert_allclose(error, np.square(Y).sum() / N)


def test_columns_that_vary_by_rounding_have_no_moments():
    Z, Y = data()
    Z[:, 0] = np.where(np.arange(N) % 3, 3.3, np.nextafter(3.3, 4))
    G, C, mean = moments(ArrayDesign(Z), Y, None, centered=True)
    assert (G[0] == 0).all() and (G[:, 0] == 0).all() and (C[0] == 0).all()
    assert_allclose(G[1:, 1:], np.cov(Z[:, 1:].T, bias=True))
    assert_allclose(mean, Z.mean(axis=0))


@pytest.mark.parametrize("filter", [RidgeFilter(), IteratedRidgeFilter(1)])
@constant
def test_leave_one_out_of_ridge_is_that_of_refits(filter, fit_intercept):
    Z, Y = data()
    spectrum = decompose(ArrayDesign(Z), Y, fit_intercept=fit_intercept)
    found = leave_one_out(spectrum, filter, ArrayDesign(Z), Y, ALPHAS)
    assert_allclose(found, refitted(filter, Z, Y, ALPHAS, fit_intercept), rtol=1e-9)


@each_filter
def test_leave_one_out_is_near_that_of_refits(filter):
    Z, Y = data(n=200)
    found = leave_one_out(
        decompose(ArrayDesign(Z), Y), filter, ArrayDesign(Z), Y, ALPHAS
    )
    assert_allclose(found, refitted(filter, Z, Y, ALPHAS), rtol=0.02)


def refitted(filter, Z, Y, alphas, fit_intercept=True):
    """Return the leave-one-out errors by n refits, sums still divided by n."""
    n, errors = len(Z), np.zeros(len(alphas))
    for i in range(n):
        rest = np.arange(n) != i
        scale = 1 - 1 / n  # of a mean over the others to a sum over n
        for k, alpha in enumerate(alphas):
            if isinstance(filter, CutoffFilter | LandweberFilter):
                B, b = solution(filter, Z[rest], Y[rest], alpha)
            else:
                B, b = solution(
                    filter, Z[rest], Y[rest], alpha / scale, None, fit_intercept
                )
            errors[k] += np.square(Y[i] - Z[i] @ B - b).sum() / n
    return errors


@each_filter
@constant
@pytest.mark.parametrize("weights", [None, some_weights()], ids=["equal", "weighted"])
def test_generalized_cross_validation(filter, fit_intercept, weights):
    Z, Y = data()
    spectrum = decompose(
        ArrayDesign(Z), Y, sample_weight=weights, fit_intercept=fit_intercept
    )
    found = generalized_cross_validation(spectrum, filter, ALPHAS)
    for k, alpha in enumerate(ALPHAS):
        H = smoother(filter, Z, alpha, fit_intercept, weights)
        squares = np.square(Y - H @ Y).sum(axis=1)
        error = np.average(squares, weights=weights)
        assert_allclose(found[k], error / (1 - np.trace(H) / N) ** 2, rtol=1e-10)
        assert_allclose(spectrum.mean_squares(filter, alpha), error, rtol=1e-10)


def test_generalized_cross_validation_counts_rows_by_their_weights():
    (Z, Y), weights = data(), some_weights()
    spectrum = decompose(ArrayDesign(Z), Y, sample_weight=weights)
    alphas = spectrum.top * np.array([0.3, 3.0])
    found = generalized_cross_validation(spectrum, RidgeFilter(), alphas, weights)
    n = weights.sum() ** 2 / np.square(weights).sum()
    for value, alpha in zip(found, alphas, strict=True):
        H = smoother(RidgeFilter(), Z, alpha, True, weights)
        error = np.average(np.square(Y - H @ Y).sum(axis=1), weights=weights)
        assert 1 - np.trace(H) / n > 0.1
        assert_allclose(value, error / (1 - np.trace(H) / n) ** 2, rtol=1e-10)


def test_generalized_cross_validation_where_every_filter_interpolates():
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(8, 8)), np.zeros((8, 1))
    spectrum = decompose(ArrayDesign(Z), Y, fit_intercept=False)
    assert_array_equal(generalized_cross_validation(spectrum, RidgeFilter(), ALPHAS), 0)
    Y = Z[:, :1]
    spectrum = decompose(ArrayDesign(Z), Y, fit_intercept=False)
    alphas = RidgeFilter().alphas(spectrum.top)
    errors = generalized_cross_validation(spectrum, RidgeFilter(), alphas)
    assert np.isfinite(errors).all() and (errors > 0).all()


@each_filter
def test_held_out_error(filter):
    Z, Y = data()
    others, targets = data(n=11, seed=3)
    spectrum = decompose(ArrayDesign(Z), Y)
    found = held_out_error(spectrum, filter, ArrayDesign(others), targets, ALPHAS)
    for k, alpha in enumerate(ALPHAS):
        B, b = spectrum.coefficients(filter, alpha)
        desired = np.square(targets - others @ B - b).sum() / 11
        assert_allclose(found[k], desired, rtol=1e-11)


def test_errors_of_many_parameters_at_a_time(monkeypatch):
    Z, Y = data()
    spectrum, filter = decompose(ArrayDesign(Z), Y), RidgeFilter()
    alphas = filter.alphas(spectrum.top)
    arguments = (spectrum, filter, ArrayDesign(Z), Y, alphas)
    together = held_out_error(*arguments), leave_one_out(*arguments)
    monkeypatch.setattr("nbsketch.solvers.left_out._COLUMNS", 1)
    monkeypatch.setattr("nbsketch.solvers.spectrum._CHUNK", 7)
    assert_allclose(held_out_error(*arguments), together[0], rtol=1e-12)
    assert_allclose(leave_one_out(*arguments), together[1], rtol=1e-10)


def test_constant_features_and_one_row():
    Y = data()[1]
    for Z, targets in ((np.ones((N, 2)), Y), (np.ones((1, 2)), Y[:1])):
        spectrum = decompose(ArrayDesign(Z), targets)
        for filter in FILTERS.values():
            filter = (
                as_filter("landweber") if filter is FILTERS["landweber"] else filter
            )
            filter = filter.resolve(spectrum.top)
            alphas = filter.alphas(spectrum.top)
            assert np.isfinite(
                generalized_cross_validation(spectrum, filter, alphas)
            ).all()
            B, b = spectrum.coefficients(filter, float(alphas[0]))
            assert_allclose(Z @ B + b, np.tile(targets.mean(axis=0), (len(Z), 1)))


@each_filter
def test_the_fit_gets_closer_along_the_path(filter):
    Z, Y = data()
    spectrum = decompose(ArrayDesign(Z), Y)
    errors = spectrum.mean_squares(filter, filter.alphas(spectrum.top))
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(errors))


def test_rounding_does_not_lower_leave_one_out_errors(rng):
    X = rng.uniform(size=(80, 2))
    Y = rng.normal(size=(80, 1))
    K = LaplacianKernel(0.05)(X)  # so narrow that small penalties are all alike
    Z = ArrayDesign(np.linalg.cholesky(K))
    limit = leave_one_out_residuals(K, Y[:, 0], 1e-11).mean_square
    alphas = np.logspace(-12, -15.5, 8)
    found = leave_one_out(decompose(Z, Y), RidgeFilter(), Z, Y, alphas)
    assert_allclose(found[0], limit, rtol=1e-3)
    assert (found >= (1 - 1e-6) * limit).all()
