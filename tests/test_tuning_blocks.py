"""The criterion of small blocks, from which length scales are learned."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import gaussian, laplacian, matern
from tables import prepare, training

from nbsketch._jit.tuning import FAMILIES, SIDE, invert
from nbsketch.rows.transform import fit_scaler
from nbsketch.tuning.blocks import BlockCriterion, learn, left_out_error, neighbors
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.rows import Training
from nbsketch.tuning.trees import grow

KERNELS = {
    "gaussian": gaussian,
    "matern-1/2": lambda A, B, widths: matern(A, B, widths, 0.5),
    "matern-3/2": lambda A, B, widths: matern(A, B, widths, 1.5),
    "matern-5/2": lambda A, B, widths: matern(A, B, widths, 2.5),
    "laplacian": laplacian,
}
families = pytest.mark.parametrize("family", KERNELS)
POINT = np.array([-0.3, 0.2, -0.5, -1.5])
BLOCKS = np.arange(50).reshape(2, 25)


def some_data(weighted=False, labelled=False, n=50):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2, n) if weighted else np.ones(n)
    labels = rng.integers(-1, 5, n) if labelled else None
    return Training(rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), weights, labels)


def covariance(data, family, index):
    """Return kernel and constant, and the noise, of some rows at POINT."""
    rows = data.rows[index]
    weights = data.weights
    noise = np.exp(POINT[-1]) / (weights / weights.mean())[index]
    return KERNELS[family](rows, rows, np.exp(-POINT[:-1])) + 1, noise


@families
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_left_out_errors_are_those_of_refits(family, weighted, labelled):
    data = some_data(weighted, labelled)
    criterion = BlockCriterion(data, BLOCKS, FAMILIES[family], share=1.0)
    criterion(POINT)
    weights = data.weights
    labels = np.arange(50) if data.labels is None else data.labels
    total = count = 0.0
    for block in BLOCKS:
        K, noise = covariance(data, family, block)
        for label in np.unique(labels[block][labels[block] >= 0]):
            out = labels[block] == label
            system = K[np.ix_(~out, ~out)] + np.diag(noise[~out])
            dual = np.linalg.solve(system, data.Y[block][~out])
            residual = data.Y[block][out] - K[np.ix_(out, ~out)] @ dual
            w = weights[block][out]
            total += w @ np.square(residual).sum(axis=1)
            count += w.sum()
    assert_allclose(criterion.error, np.log(total / count), rtol=1e-6)


@families
def test_the_rest_is_evidence(family):
    data = some_data()
    parts = [covariance(data, family, block) for block in BLOCKS]
    sigmas = [K + np.diag(noise) for K, noise in parts]
    quadratic = sum(
        float((data.Y[block] * np.linalg.solve(sigma, data.Y[block])).sum())
        for block, sigma in zip(BLOCKS, sigmas, strict=True)
    )
    log_det = sum(np.linalg.slogdet(sigma)[1] for sigma in sigmas)
    value = BlockCriterion(data, BLOCKS, FAMILIES[family], share=0.0)(POINT)[0]
    assert_allclose(value, log_det / 50 + np.log(quadratic / 50), rtol=1e-6)


@families
@pytest.mark.parametrize("labelled", [False, True])
def test_gradients_are_differences(family, labelled):
    criterion = BlockCriterion(some_data(True, labelled), BLOCKS, FAMILIES[family])
    gradient = criterion(POINT)[1]
    steps = 1e-5 * np.eye(4)
    values = [(criterion(POINT + s)[0], criterion(POINT - s)[0]) for s in steps]
    assert_allclose(gradient, [(a - b) / 2e-5 for a, b in values], atol=1e-9)


@pytest.mark.parametrize("labelled", [False, True])
def test_errors_need_no_gradient(labelled):
    criterion = BlockCriterion(some_data(True, labelled), BLOCKS, FAMILIES["gaussian"])
    error = criterion.left_out(POINT)
    criterion.left_out(POINT + 1)
    criterion(POINT)
    assert error == criterion.error != criterion.left_out(POINT + 1)


@pytest.mark.parametrize("count", [1, 7, 8, 17, 64])
def test_matrices_of_any_order_are_inverted(count):
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(3, count, count))
    A = factors @ factors.swapaxes(1, 2)
    A[1] = -10.0 * np.eye(count)
    noise = rng.uniform(0.5, 1, (3, count))
    sums = A + 1 + noise[:, :, None] * np.eye(count)
    width = count + -count % SIDE
    scratch = map(np.zeros, [(width, width), *[(SIDE, width)] * 2])
    log_dets = np.empty(3)
    invert(A, noise, log_dets, *scratch, 0, 3)
    assert_allclose(A[::2], np.linalg.inv(sums[::2]), rtol=1e-9, atol=1e-9)
    assert_allclose(log_dets[::2], np.linalg.slogdet(sums[::2])[1], rtol=1e-9)
    assert not np.isfinite(log_dets[1])


def test_rows_of_hardly_any_weight_do_not_count():
    data = some_data()
    weights = np.repeat([1.0, 1e-12], [40, 10])
    beside = data._replace(weights=weights / weights.mean())
    alone = data.take(np.arange(40))
    found = BlockCriterion(beside, np.arange(50)[None], FAMILIES["matern-3/2"])(POINT)
    # Without the others, the mean weight is smaller, and the noise is
    shift = np.append(np.zeros(3), np.log(weights.mean()))
    criterion = BlockCriterion(alone, np.arange(40)[None], FAMILIES["matern-3/2"])
    desired = criterion(POINT + shift)
    assert_allclose(found[1], desired[1], atol=1e-6)


def test_blocks_are_neighbors():
    rng = np.random.default_rng(0)
    data = training(rng.uniform(size=(6000, 2)), np.zeros((6000, 1)))
    blocks = neighbors(data, np.array([100.0, 0.01]), 64, rng)
    assert blocks.shape == (64, 64) and len(np.unique(blocks)) == 4096
    assert np.median(np.ptp(data.rows[blocks][:, :, 0], axis=1)) < 0.05
    few = training(data.rows[:20], data.Y[:20])
    assert neighbors(few, np.ones(2), 64, rng).shape == (1, 20)


def test_many_rows_are_drawn_from_all_regions():
    rng = np.random.default_rng(0)
    data = training(rng.uniform(size=(40_000, 1)), np.zeros((40_000, 1)))
    blocks = neighbors(data, np.ones(1), 64, rng)
    assert blocks.shape == (64, 64) and len(np.unique(blocks)) == 4096
    centers = data.rows[blocks][:, :, 0].mean(axis=1)
    assert np.median(np.ptp(data.rows[blocks][:, :, 0], axis=1)) < 0.01
    assert np.all(np.histogram(centers, 4, (0, 1))[0] > 4)


def test_random_factors_of_splits_do_not_depend_on_the_scales():
    """Two searches are compared on the same blocks, but for what scales change."""
    rows = np.random.default_rng(0).normal(size=(200, 2))
    rows /= rows.std(axis=0)
    scales = np.array([[1.0, 0.99], [0.99, 1.0]])
    pairs = [
        [grow(rows, one, 100, np.random.default_rng(s)).feature[0] for one in scales]
        for s in range(40)
    ]
    assert sum(a == b for a, b in pairs) > 35 and len({a for a, _ in pairs}) == 2


def test_blocks_of_many_columns_have_fewer_rows(monkeypatch):
    """All of them hold sixteen million numbers at most, those drawn from as many."""
    monkeypatch.setattr("nbsketch.tuning.blocks.CELLS", 700)
    monkeypatch.setattr("nbsketch.tuning.rows.CELLS", 7000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    rows = prepare(X, X, None, fit_scaler(X, "standard"), np.arange(4000))
    data = rows.take(rows.drawn(rng))
    assert len(data.Y) == 3500
    assert neighbors(data, np.ones(2), 64, rng).shape == (5, 64)


def test_blocks_hold_rows_of_several_labels():
    """Rows of a label are neighbors of each other: others are further away."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 400)
    rows = labels[:, None] + 0.7 * rng.normal(size=(2000, 1))
    blocks = neighbors(training(rows, rows, None, labels), np.ones(1), 64, rng)
    assert all(len(np.unique(labels[block])) > 1 for block in blocks)
    few = np.repeat(np.arange(5), 60)  # five times 64 neighbors are all rows
    data = training(few[:, None].astype(float), few[:, None], None, few)
    blocks = neighbors(data, np.ones(1), 64, rng)
    assert all(len(np.unique(few[block])) == 5 for block in blocks)


@families
def test_relevant_columns_are_learned(family):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1.7, 1.7, size=(600, 4))
    y = np.sin(3 * rows[:, :1]) + 0.1 * rng.normal(size=(600, 1))
    start = np.append(np.zeros(4), np.log(0.1))
    data = training(rows, (y - y.mean()) / y.std())
    point = learn(data, FAMILIES[family], start, rng, Budget(1000, np.inf))
    assert point[0] > point[1:4].max() + 2


def steps(seed, n):
    """Return rows in [-1, 1]^5, and targets with steps in three columns."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 5))
    f = (X[:, 0] > 0) + 2.0 * (X[:, 1] > 0.3) * (X[:, 2] < 0) + X[:, 3]
    y = f + 0.1 * rng.normal(size=n)
    return training(X, ((y - y.mean()) / y.std())[:, None])


@pytest.mark.parametrize("seed", [4, 5, 7])
def test_length_scales_of_steps_are_better_than_equal_ones(seed):
    # Neighbors in the length scales of one round are others than those of the next.
    data = steps(seed, 4000)
    family = FAMILIES["matern-3/2"]
    start = np.append(np.zeros(5), np.log(1e-2))
    rng = np.random.default_rng(seed)
    point = learn(data, family, start, rng, Budget(300, np.inf))
    errors = [left_out_error(data, family, p, rng) for p in (start, point)]
    assert errors[1] < errors[0] - 0.3


def test_left_out_errors_hardly_depend_on_the_draw_of_blocks():
    data = steps(0, 16_000)
    point = np.append(np.zeros(5), np.log(1e-2))
    rng = np.random.default_rng(0)
    args = data, FAMILIES["matern-3/2"], point, rng
    assert np.ptp([left_out_error(*args) for _ in range(8)]) < 0.15
