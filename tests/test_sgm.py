"""The projected stochastic gradient method: its steps, its rows, where it leads."""

from dataclasses import astuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import sgm_points

from nbsketch.losses import (
    EpsilonInsensitiveLoss,
    HuberLoss,
    Loss,
    PinballLoss,
    SquaredEpsilonInsensitiveLoss,
    SquareLoss,
)
from nbsketch.solvers.design import Design
from nbsketch.solvers.sgm import (
    REGIMES,
    RowStream,
    average_start,
    sgm_iterates,
    sgm_regime,
    solve_sgm,
    stream_sgm,
)

N, R, D = 40, 7, 3
SCALAR = [
    SquareLoss(),
    HuberLoss(0.7),
    EpsilonInsensitiveLoss(0.3),
    SquaredEpsilonInsensitiveLoss(0.3),
    PinballLoss(0.8),
]
RADIAL = [loss for loss in SCALAR if loss.is_radial]


def data(n=N, n_outputs=1, dtype=float):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(n, R)).astype(dtype)
    return Z, Z.astype(float) @ rng.normal(size=(R, n_outputs)) + rng.normal(
        size=(n, n_outputs)
    )


def rows_of(seed, count, n=N, weights=None):
    """Return the rows that a solver with rng=seed draws."""
    return RowStream(np.random.default_rng(seed), weights, n).take(0, count)


def largest_square(Z):
    return np.square(np.asarray(Z, dtype=float)).sum(axis=1).max()


def norm_slope(loss):
    def slope(residual):
        norm = np.linalg.norm(residual)
        return loss.derivative(norm) * residual / norm

    return slope


# steps ------------------------------------------------------------------------------


@pytest.mark.thin
@pytest.mark.parametrize("n_steps", [1, 2, 25])
@pytest.mark.parametrize("batch_size", [1, 5, 60])
@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_steps_are_the_formula(loss, batch_size, n_steps):
    Z, Y = data()
    found = solve_sgm(
        Z, Y[:, 0], loss, step=0.5, batch_size=batch_size, n_steps=n_steps, rng=3
    )
    rates = np.full(n_steps, 0.5 / largest_square(Z))
    order = rows_of(3, n_steps * batch_size)
    coef, _ = sgm_points(Z, Y, order, batch_size, rates, loss.derivative)[-1]
    assert found.coef.shape == (R,)
    assert_allclose(found.coef, coef[:, 0], rtol=0, atol=1e-13)
    assert found.intercept == 0.0
    assert found.n_steps == n_steps


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("loss", RADIAL, ids=repr)
def test_losses_of_several_outputs_are_of_the_norm(loss, batch_size):
    Z, Y = data(n_outputs=D)
    found = solve_sgm(Z, Y, loss, step=0.5, batch_size=batch_size, n_steps=20, rng=3)
    rates = np.full(20, 0.5 / largest_square(Z))
    order = rows_of(3, 20 * batch_size)
    coef, _ = sgm_points(Z, Y, order, batch_size, rates, norm_slope(loss))[-1]
    assert_allclose(found.coef, coef, rtol=0, atol=1e-13)


@pytest.mark.parametrize("loss", [SquareLoss(), HuberLoss(0.7)], ids=repr)
@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_intercept_is_a_constant_feature(loss, batch_size):
    Z, Y = data()
    Y += 5.0
    found = solve_sgm(
        Z, Y[:, 0], loss, step=0.5, batch_size=batch_size, n_steps=20, rng=3,
        fit_intercept=True,
    )  # fmt: skip
    middle = Y.mean() if isinstance(loss, SquareLoss) else np.median(Y)
    square = largest_square(Z)
    order, rates = rows_of(3, 20 * batch_size), np.full(20, 0.5 / (2 * square))
    points = sgm_points(
        Z, Y, order, batch_size, rates, loss.derivative, drift=0.25, start=middle
    )
    assert_allclose(found.coef, points[-1][0][:, 0], rtol=0, atol=1e-13)
    assert_allclose(found.intercept, points[-1][1][0], rtol=1e-13)
    # the same as a column of the size of the largest row, from the middle on
    column = np.full((N, 1), np.sqrt(square))
    padded = solve_sgm(
        np.hstack([Z, column]), Y[:, 0] - middle, loss, step=0.5,
        batch_size=batch_size, n_steps=20, rng=3,
    ).coef  # fmt: skip
    assert_allclose(found.coef, padded[:-1], rtol=0, atol=1e-12)
    assert_allclose(found.intercept - middle, padded[-1] * column[0], atol=1e-12)


def test_outputs_of_the_square_loss_are_separate():
    Z, Y = data(n_outputs=D)
    options = {"step": 1.0, "batch_size": 2, "n_steps": 50, "rng": 0}
    options |= {"fit_intercept": True, "average": True}
    joint = solve_sgm(Z, Y, **options)
    for j in range(D):
        alone = solve_sgm(Z, Y[:, j], **options)
        assert_allclose(joint.coef[:, j], alone.coef, rtol=0, atol=1e-12)
        assert_allclose(joint.intercept[j], alone.intercept, rtol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("weights", [None, np.linspace(0.0, 3.0, R)])
@pytest.mark.parametrize("quantile", [None, 0.5])
def test_steps_of_a_weighted_penalty_and_of_a_bounded_norm(
    batch_size, weights, quantile
):
    Z, Y = data()
    squares = np.square(Z).sum(axis=1)
    bound = squares.max() if quantile is None else np.quantile(squares, quantile)
    penalties = 0.3 * (np.ones(R) if weights is None else weights)
    order, coef = rows_of(0, 15 * batch_size), np.zeros(R)
    for t in range(15):
        rows = order[t * batch_size : (t + 1) * batch_size]
        slopes = Z[rows].T @ (Z[rows] @ coef - Y[rows, 0]) / batch_size
        rate = 0.5 / max(bound, squares[rows].max())
        coef = coef - rate * (slopes + penalties * coef)
    found = solve_sgm(
        Z, Y[:, 0], step=0.5, batch_size=batch_size, n_steps=15, alpha=0.3, rng=0,
        penalty_weights=weights, square_norm=None if quantile is None else bound,
    )  # fmt: skip
    assert_allclose(found.coef, coef, rtol=0, atol=1e-13)


def test_a_flat_or_steep_loss_has_the_same_relative_step():
    class ScaledLoss(Loss):
        @property
        def elq(self):
            return SquareLoss().elq._replace(gam=0.1)  # 5 r^2

    Z, Y = data()
    options = {"step": 0.5, "batch_size": 1, "n_steps": 30, "rng": 0}
    scaled = solve_sgm(Z, Y[:, 0], ScaledLoss(), **options)
    plain = solve_sgm(Z, Y[:, 0], **options)
    assert_allclose(scaled.coef, plain.coef, rtol=1e-12)


def test_the_scale_of_the_features_does_not_matter():
    Z, Y = data()
    options = {"step": 0.5, "batch_size": 1, "n_steps": 30, "fit_intercept": True}
    small = solve_sgm(Z, Y[:, 0], rng=0, **options)
    large = solve_sgm(1e3 * Z, Y[:, 0], rng=0, **options)
    assert_allclose(1e3 * large.coef, small.coef, rtol=1e-10)
    assert_allclose(large.intercept, small.intercept, rtol=1e-10)


def test_the_mean_of_a_step_is_a_step_on_all_rows():
    Z, Y = data()
    rate = 0.5 / largest_square(Z)
    gradient = -Z.T @ Y[:, 0] / N
    steps = np.array(
        [
            solve_sgm(Z, Y[:, 0], step=0.5, batch_size=2, n_steps=1, rng=seed).coef
            for seed in range(2000)
        ]
    )
    error = np.abs(steps.mean(axis=0) + rate * gradient)
    assert (error <= 4 * steps.std(axis=0) / np.sqrt(len(steps))).all()


def test_all_rows_in_a_batch_are_landweber():
    Z, Y = data()
    state, w, rate = None, np.zeros(R), 0.5 / largest_square(Z)
    for _ in range(12):
        coef, _, state = stream_sgm(Z, Y[:, 0], "square", state, step=0.5, batch_size=N)
        w = w - rate * Z.T @ (Z @ w - Y[:, 0]) / N
    assert_allclose(coef, w, rtol=0, atol=1e-13)
    u, V = np.linalg.eigh(Z.T @ Z / N)
    filtered = V @ ((1 - (1 - rate * u) ** 12) / u * (V.T @ Z.T @ Y[:, 0] / N))
    assert_allclose(coef, filtered, rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_without_noise_it_finds_the_solution(batch_size):
    Z, _ = data(200)
    true = np.arange(1.0, R + 1)
    found = solve_sgm(
        Z, Z @ true + 3.0, step=1.0, batch_size=batch_size, n_steps=20_000, rng=0,
        fit_intercept=True,
    )  # fmt: skip
    assert_allclose(found.coef, true, rtol=1e-8)
    assert_allclose(found.intercept, 3.0, rtol=1e-8)


def test_the_average_finds_least_squares_through_noise():
    Z, Y = data(500)
    best = np.linalg.lstsq(Z, Y[:, 0], rcond=None)[0]
    options = {"step": 0.3, "batch_size": 1, "n_steps": 100_000, "rng": 0}
    average = solve_sgm(Z, Y[:, 0], average=True, **options).coef
    last = solve_sgm(Z, Y[:, 0], **options).coef
    assert np.linalg.norm(average - best) < 0.02
    assert np.linalg.norm(average - best) < np.linalg.norm(last - best) / 3


def test_the_pinball_loss_finds_the_quantile():
    rng = np.random.default_rng(0)
    y = rng.normal(size=4000)
    found = solve_sgm(
        np.ones((4000, 1)), y, PinballLoss(0.9), step=0.05, batch_size=1,
        n_steps=100_000, average=True, rng=0,
    )  # fmt: skip
    assert abs(np.mean(y <= found.coef[0]) - 0.9) < 0.01


# averages and iterates --------------------------------------------------------------


def test_where_the_average_starts():
    starts = [average_start(t) for t in (1, 2, 3, 4, 7, 8, 15, 16, 1000)]
    assert starts == [0, 1, 1, 2, 2, 4, 4, 8, 256]
    for t in range(2, 200):
        assert t / 2 <= t - average_start(t) < 3 * t / 4 + 1


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_average_is_that_of_the_later_points(batch_size):
    Z, Y = data()
    stops = [1, 2, 3, 4, 9, 16, 23]
    rates = np.full(23, 0.5 / (2 * largest_square(Z)))
    points = sgm_points(
        Z, Y, rows_of(5, 23 * batch_size), batch_size, rates, drift=0.25,
        start=Y.mean(),
    )  # fmt: skip
    path = solve_sgm(
        Z, Y[:, 0], step=0.5, batch_size=batch_size, n_steps=23, average=True,
        fit_intercept=True, checkpoints=stops, rng=5,
    ).path  # fmt: skip
    assert [iterate.n_steps for iterate in path] == stops
    for t, coef, intercept in path:
        later = points[average_start(t) : t]
        mean = np.mean([point for point, _ in later], axis=0)[:, 0]
        assert_allclose(coef, mean, rtol=0, atol=1e-12)
        mean = np.mean([constant for _, constant in later])
        assert_allclose(intercept, mean, rtol=1e-12)


@pytest.mark.parametrize("average", [False, True])
def test_checkpoints_change_nothing(average):
    Z, Y = data()
    options = {"step": 1.0, "batch_size": 3, "average": average, "rng": 0}
    plain = solve_sgm(Z, Y[:, 0], n_steps=100, **options)
    marked = solve_sgm(Z, Y[:, 0], n_steps=100, checkpoints=(60, 7, 60), **options)
    assert plain.path == ()
    assert [iterate.n_steps for iterate in marked.path] == [7, 60]
    assert_allclose(marked.coef, plain.coef, rtol=0, atol=1e-13)
    alone = solve_sgm(Z, Y[:, 0], n_steps=60, **options)
    assert_allclose(marked.path[1].coef, alone.coef, rtol=0, atol=1e-13)


def test_iterates_are_made_when_they_are_asked_for():
    Z, Y = data()
    endless = sgm_iterates(
        Z, Y[:, 0], step=1.0, batch_size=1, checkpoints=[10, 10**15], rng=0
    )
    assert next(endless).n_steps == 10


def test_many_steps_are_split_without_a_seam(monkeypatch):
    Z, Y = data()
    options = {"step": 1.0, "batch_size": 3, "n_steps": 50, "rng": 0, "average": True}
    whole = solve_sgm(Z, Y[:, 0], **options)
    monkeypatch.setattr("nbsketch.solvers.sgm._ROWS_PER_CALL", 10)
    assert_array_equal(solve_sgm(Z, Y[:, 0], **options).coef, whole.coef)


# rows -------------------------------------------------------------------------------


def test_rows_do_not_depend_on_how_they_are_asked_for():
    stream = RowStream(np.random.default_rng(0), None, 1000)
    whole = stream.take(0, 50)
    assert_array_equal(np.concatenate([stream.take(0, 7), stream.take(7, 43)]), whole)


def test_rows_are_uniform_and_independent():
    n, count = 50, 200_000
    rows = RowStream(np.random.default_rng(0), None, n).take(0, count)
    assert rows.min() == 0
    assert rows.max() == n - 1
    assert_chi_square(np.bincount(rows, minlength=n), np.full(n, count / n))
    pairs = np.bincount(rows[::2] * n + rows[1::2], minlength=n * n)
    assert_chi_square(pairs, np.full(n * n, count / 2 / n**2))


def test_rows_are_as_likely_as_their_weights():
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=60) ** 2
    weights[[0, 10, 11, 59]] = 0.0
    rows = RowStream(rng, weights, 60).take(0, 200_000)
    counts, drawn = np.bincount(rows, minlength=60), weights > 0
    assert not counts[~drawn].any()
    assert_chi_square(counts[drawn], 200_000 * weights[drawn] / weights.sum())


def assert_chi_square(counts, expected):
    statistic = np.sum((counts - expected) ** 2 / expected)
    freedom = len(counts) - 1
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


def test_a_weight_of_two_is_a_row_twice():
    found = solve_sgm(
        np.ones((3, 1)), [1.0, 4.0, 9.0], sample_weight=[2.0, 1.0, 0.0], step=0.2,
        batch_size=1, n_steps=200_000, average=True, rng=0,
    )  # fmt: skip
    assert_allclose(found.coef, (2 * 1 + 4) / 3, atol=0.03)


def test_rows_without_weight_do_not_shorten_the_steps():
    Z, Y = data(10)
    Z[4] *= 1e6
    weights = np.ones(10)
    weights[4] = 0.0
    options = {"step": 1.0, "batch_size": 1, "n_steps": 2000, "rng": 0}
    found = solve_sgm(Z, Y[:, 0], sample_weight=weights, **options).coef
    assert np.linalg.norm(found) > 0.1


@pytest.mark.parametrize("average", [False, True])
def test_the_same_rng_gives_the_same_answer(average):
    Z, Y = data()
    options = {"step": 1.0, "batch_size": 2, "n_steps": 100, "average": average}
    first, second, other = (
        solve_sgm(Z, Y[:, 0], rng=seed, **options).coef for seed in (0, 0, 1)
    )
    assert_array_equal(first, second)
    assert np.abs(first - other).max() > 1e-6


def test_single_precision_features():
    Z, Y = data(dtype=np.float32)
    options = {"step": 1.0, "batch_size": 2, "n_steps": 100, "rng": 0}
    single = solve_sgm(Z, Y[:, 0], **options).coef
    assert single.dtype == np.float64
    double = solve_sgm(Z.astype(float), Y[:, 0], **options).coef
    assert_allclose(single, double, rtol=1e-5)


def test_features_in_blocks():
    class Blocks(Design):
        def __init__(self, Z):
            self.Z, self.shape, self.dtype = Z, Z.shape, Z.dtype

        def blocks(self):
            for start, stop in ((0, 10), (10, 25), (25, N)):
                yield start, stop, self.Z[start:stop]

    Z, Y = data()
    options = {"step": 1.0, "batch_size": 2, "n_steps": 100, "rng": 0}
    found = solve_sgm(Blocks(Z), Y[:, 0], **options).coef
    assert_array_equal(found, solve_sgm(Z, Y[:, 0], **options).coef)


def test_wide_rows():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 1031))
    Y = rng.normal(size=(30, 1))
    found = solve_sgm(Z, Y[:, 0], step=1.0, batch_size=1, n_steps=20, rng=0)
    rates = np.full(20, 1 / largest_square(Z))
    coef, _ = sgm_points(Z, Y, rows_of(0, 20, 30), 1, rates)[-1]
    assert_allclose(found.coef, coef[:, 0], rtol=0, atol=1e-12)


def test_rows_without_features():
    Z, Y = np.zeros((5, 2)), np.arange(5.0)
    found = solve_sgm(
        Z, Y, step=1.0, batch_size=5, n_steps=100, fit_intercept=True, rng=0
    )
    assert_array_equal(found.coef, 0.0)
    assert abs(found.intercept - 2.0) < 1.5


# streams ----------------------------------------------------------------------------


def stream(Z, Y, cuts, weights=None, **options):
    options = {"step": 0.5, "batch_size": 1, "rng": 0} | options
    state = None
    for part in np.split(np.arange(len(Z)), cuts):
        share = None if weights is None else weights[part]
        coef, intercept, state = stream_sgm(
            Z[part], Y[part], "square", state, sample_weight=share, **options
        )
    return coef, intercept, state


def test_a_stream_is_visited_in_order():
    Z, Y = data()
    coef, _, state = stream(Z, Y[:, 0], [], batch_size=3)
    assert state.n_steps == 14  # the last one on a single row
    largest = np.square(Z).sum(axis=1)
    bounds = [largest[: 3 * (t + 1)].max() for t in range(14)]
    points = sgm_points(Z, Y, np.arange(N), 3, 0.5 / np.array(bounds))
    assert_allclose(coef, points[-1][0][:, 0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("average", [False, True])
def test_it_does_not_matter_where_a_stream_is_cut(average):
    Z, Y = data(n_outputs=D)
    whole = stream(Z, Y, [], average=average)
    parts = stream(Z, Y, [1, 3, 17, 18, 30], average=average)
    for found, expected in zip(parts[0], whole[0], strict=True):
        assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert parts[2].n_steps == whole[2].n_steps == N


def test_a_stream_does_not_change_its_state():
    Z, Y = data()
    _, _, state = stream(Z, Y[:, 0], [], average=True)
    before = astuple(state)
    stream_sgm(Z, Y[:, 0], "square", state, step=1.0, batch_size=1, average=True)
    for part, copy in zip(astuple(state), before, strict=True):
        assert_array_equal(part, copy)


def test_weights_of_a_stream_are_visits():
    Z, Y = data()
    y, times = Y[:, 0], np.arange(N) % 3
    weighted = stream(Z, y, [], weights=times)
    repeated = stream(np.repeat(Z, times, axis=0), np.repeat(y, times), [])
    assert_allclose(weighted[0], repeated[0], rtol=0, atol=1e-13)
    assert weighted[2].n_steps == times.sum()


def test_fractions_of_a_weight_are_chances():
    n = 4000
    _, _, state = stream(np.ones((n, 1)), np.zeros(n), [], weights=np.full(n, 2.3))
    assert abs(state.n_steps - 2.3 * n) < 5 * np.sqrt(n * 0.3 * 0.7)


# regimes ----------------------------------------------------------------------------


def test_regimes_are_those_of_the_theory():
    n, inverse = 10_000, 100  # of lambda*, for source 1/2 and capacity 1
    assert sgm_regime("I", n) == (0.01, 1, inverse**2)
    step, batch, n_steps = sgm_regime("II", n)
    assert_allclose(step, 1 / np.log(n))
    assert (batch, n_steps) == (inverse, np.ceil(np.log(n) * inverse))
    assert sgm_regime("III", n) == (1e-4, 1, n * inverse)
    assert sgm_regime("IV", n) == (0.01, 100, 100 * inverse)


@pytest.mark.parametrize("name", REGIMES)
@pytest.mark.parametrize(("source", "capacity"), [(0.5, 1.0), (1.0, 0.5), (0.1, 0.2)])
def test_regimes_go_equally_far(name, source, capacity):
    for n in (100, 5000):
        inverse = n ** (1 / max(2 * source + capacity, 1))
        step, batch, n_steps = sgm_regime(name, n, source=source, capacity=capacity)
        assert inverse <= step * n_steps * (1 + 1e-9) <= inverse + 1.01 * step
        assert step <= 1
        assert 1 <= batch <= n


@pytest.mark.parametrize("name", REGIMES)
def test_regimes_of_few_rows(name):
    step, batch, n_steps = sgm_regime(name, 1)
    assert (step, batch, n_steps) == (1.0, 1, 1)


# arguments --------------------------------------------------------------------------

Z0, Y0 = np.ones((4, 2)), np.arange(4.0)


def test_divergence_is_an_error():
    Z, Y = data()
    with pytest.raises(FloatingPointError, match="`step` must be smaller"):
        solve_sgm(Z, Y[:, 0], step=50.0, batch_size=1, n_steps=10_000, rng=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"step": 0.0}, "`step` must be in"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"n_steps": 0}, "`n_steps` must be at least 1"),
        ({"checkpoints": [11]}, "`checkpoints` must be in \\[1, 10\\]"),
        ({"checkpoints": [0]}, "`checkpoints` must be in \\[1, 10\\]"),
        ({"alpha": -1.0}, "`alpha` must be in"),
        ({"penalty_weights": [-1.0] * R}, "`penalty_weights` must be"),
        ({"square_norm": 0.0}, "`square_norm` must be"),
        ({"loss": "hinge", "Y": [1, 0, 1, 1]}, "`Y` must hold -1 and \\+1 only"),
        ({"loss": "pinball", "Y": np.ones((4, 2))}, "`Y` must have shape \\(4,\\)"),
        ({"Y": np.ones(3)}, "`Y` must have shape"),
        ({"Y": [0, 1, 2, np.nan]}, "`Y` must be finite"),
        ({"Z": np.full((4, 2), np.inf)}, "`Z` must be finite"),
        ({"sample_weight": [1, 1, 1]}, "`sample_weight` must have shape"),
        ({"sample_weight": [1, 1, 1, -1]}, "`sample_weight` must be finite"),
        ({"sample_weight": np.zeros(4)}, "`sample_weight` must be finite"),
    ],
)
def test_errors_name_the_argument(options, words):
    settings = {"Z": Z0, "Y": Y0, "step": 1.0, "batch_size": 1, "n_steps": 10} | options
    with pytest.raises(ValueError, match=words):
        solve_sgm(**settings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "V"}, "`regime` must be one of"),
        ({"n": 0}, "`n` must be at least 1"),
        ({"source": 0.0}, "`source` must be in"),
        ({"capacity": 1.5}, "`capacity` must be in"),
    ],
)
def test_errors_of_regimes(options, words):
    with pytest.raises(ValueError, match=words):
        sgm_regime(**({"name": "I", "n": 100} | options))


def test_a_stream_keeps_its_form():
    _, _, state = stream(Z0, Y0, [])
    options = {"step": 1.0, "batch_size": 1}
    with pytest.raises(ValueError, match="`state` must be of 1 outputs and 3"):
        stream_sgm(np.ones((4, 3)), Y0, "square", state, **options)
    with pytest.raises(ValueError, match="`average` must be False"):
        stream_sgm(Z0, Y0, "square", state, average=True, **options)
