"""Metrics against closed forms, loops and scikit-learn."""

import doctest

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.metrics import f1_score, mean_pinball_loss

import nbsketch.metrics
from nbsketch.metrics import (
    arrmse,
    crossing_loss,
    crps,
    example_f1,
    pinball_loss,
    rrmse,
    top_k_accuracy,
)

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_examples_run():
    results = doctest.testmod(nbsketch.metrics)
    assert results.attempted and not results.failed


def test_pinball_is_the_loop_of_the_definition(rng):
    y, Q = rng.standard_normal(30), rng.standard_normal((30, 5))
    total = 0.0
    for i in range(30):
        for j, level in enumerate(LEVELS):
            r = y[i] - Q[i, j]
            total += level * r if r >= 0 else (level - 1) * r
    assert_allclose(pinball_loss(y, Q, LEVELS), total / 30, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_pinball_is_the_sum_of_sklearns(rng, weighted):
    y, Q = rng.standard_normal(30), rng.standard_normal((30, 5))
    weight = rng.random(30) if weighted else None
    ours = pinball_loss(y, Q, LEVELS, sample_weight=weight)
    theirs = sum(
        mean_pinball_loss(y, q, alpha=level, sample_weight=weight)
        for q, level in zip(Q.T, LEVELS, strict=True)
    )
    assert_allclose(ours, theirs, rtol=1e-12)


def test_pinball_at_the_median_is_half_the_absolute_error(rng):
    y, q = rng.standard_normal((2, 30))
    half = np.abs(y - q).mean() / 2
    assert_allclose(pinball_loss(y, q, 0.5), half, rtol=1e-12)
    assert_allclose(pinball_loss(y, q[:, None], [0.5]), half, rtol=1e-12)


def test_pinball_is_least_at_the_empirical_quantile(rng):
    y = rng.standard_normal(101)
    losses = [pinball_loss(y, np.full(101, q), 0.3) for q in np.sort(y)]
    assert np.argmin(losses) == 30


def test_pinball_weight_means_repetition(rng):
    y, Q = rng.standard_normal(4), rng.standard_normal((4, 5))
    counts = [1, 0, 3, 2]
    repeated = pinball_loss(np.repeat(y, counts), np.repeat(Q, counts, axis=0), LEVELS)
    assert_allclose(pinball_loss(y, Q, LEVELS, counts), repeated, rtol=1e-12)


def test_crossing_is_the_loop_of_the_definition(rng):
    Q = rng.standard_normal((30, 5))
    total = sum(max(q[j] - q[j + 1], 0.0) for q in Q for j in range(4))
    assert_allclose(crossing_loss(Q), total / 30, rtol=1e-12)


def test_crossing_is_zero_for_sorted_quantiles_only(rng):
    Q = np.sort(rng.standard_normal((30, 5)), axis=1)
    assert crossing_loss(Q) == 0
    assert_allclose(crossing_loss(Q[:, ::-1]), (Q[:, -1] - Q[:, 0]).mean(), rtol=1e-12)
    assert crossing_loss(Q[:, :1]) == 0


def test_rrmse_is_the_loop_of_the_definition(rng):
    Y, F, mean = rng.random((20, 3)), rng.random((20, 3)), rng.random(3)
    expected = [
        np.sqrt(np.mean((Y[:, j] - F[:, j]) ** 2) / np.mean((Y[:, j] - mean[j]) ** 2))
        for j in range(3)
    ]
    assert_allclose(rrmse(Y, F, mean), expected, rtol=1e-12)
    assert_allclose(arrmse(Y, F, mean), np.mean(expected), rtol=1e-12)
    assert_allclose(rrmse(Y[:, 0], F[:, 0], mean[0]), expected[:1], rtol=1e-12)


def test_rrmse_of_truth_and_of_the_mean(rng):
    Y, mean = rng.random((20, 3)), rng.random(3)
    assert_allclose(rrmse(Y, Y, mean), 0, atol=0)
    assert_allclose(rrmse(Y, np.tile(mean, (20, 1)), mean), 1, rtol=1e-12)


def test_f1_is_the_loop_of_the_definition_and_sklearns(rng):
    T, P = (rng.random((2, 40, 6)) < 0.2).astype(int)
    assert ((T.sum(axis=1) + P.sum(axis=1)) == 0).any()
    scores = []
    for t, p in zip(T, P, strict=True):
        true, guess = set(np.flatnonzero(t)), set(np.flatnonzero(p))
        both = len(true) + len(guess)
        scores.append(2 * len(true & guess) / both if both else 1.0)
    assert_allclose(example_f1(T, P), np.mean(scores), rtol=1e-12)
    theirs = f1_score(T, P, average="samples", zero_division=1)
    assert_allclose(example_f1(T, P), theirs, rtol=1e-12)
    assert example_f1(T, T) == 1


def test_sparse_labels_are_dense_labels(rng):
    T, P = (rng.random((2, 40, 6)) < 0.2).astype(np.int8)
    expected = example_f1(T, P)
    for truth, guess in [(sp.csr_array, sp.csc_matrix), (sp.coo_array, np.asarray)]:
        assert_allclose(example_f1(truth(T), guess(P)), expected, rtol=1e-12)
        assert_allclose(example_f1(guess(T), truth(P)), expected, rtol=1e-12)


def test_stored_zeros_and_repeated_entries_are_no_labels():
    zeros = sp.csr_array(([1, 0], ([0, 0], [0, 1])), shape=(1, 2))
    assert example_f1(zeros, zeros) == example_f1(zeros, [[1, 0]]) == 1
    halves = sp.coo_array(([0.5, 0.5], ([0, 0], [0, 0])), shape=(1, 2))
    assert example_f1(halves, [[1, 0]]) == 1


def test_top_k_accuracy_is_counting(rng):
    best = np.array([rng.permutation(9)[:4] for _ in range(50)])
    truth = rng.integers(-1, 9, size=50)
    for k in (1, 3, 4, None):
        hits = [t in row[:k] for t, row in zip(truth, best.tolist(), strict=True)]
        assert_allclose(top_k_accuracy(truth, best, k), np.mean(hits))
    # the end of a short set of candidates is no hit for what is not among them
    assert top_k_accuracy([-1, 0], [[2, -1], [0, -1]]) == 0.5


def test_float32_and_boolean_input(rng):
    y, Q = rng.standard_normal(9), rng.standard_normal((9, 5))
    single = pinball_loss(y.astype(np.float32), Q.astype(np.float32), LEVELS)
    assert_allclose(single, pinball_loss(y, Q, LEVELS), rtol=1e-6)
    assert example_f1(Q > 0, Q > 0) == 1


ONES = np.ones((4, 2))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: pinball_loss(ONES, ONES, (0.1, 0.2)), "y_true"),
        (lambda: pinball_loss(np.ones(4), ONES, 0.1), "y_pred"),
        (lambda: pinball_loss(np.ones(3), ONES, (0.1, 0.2)), "y_pred"),
        (lambda: pinball_loss(np.ones(4), ONES * np.nan, (0.1, 0.2)), "y_pred"),
        (lambda: pinball_loss(np.ones(4), ONES, (0.1, 1.0)), "quantiles"),
        (lambda: pinball_loss(np.ones(4), ONES, (0.1, 0.2), [1]), "sample_weight"),
        (lambda: pinball_loss([1], [1], 0.1, [0]), "sample_weight"),
        (lambda: pinball_loss([1, 1], [1, 1], 0.1, [2, -1]), "sample_weight"),
        (lambda: crossing_loss(np.ones(3)), "y_pred"),
        (lambda: rrmse(ONES, ONES[:3], [0, 0]), "Y_pred"),
        (lambda: rrmse(ONES, ONES, [0, 0, 0]), "Y_train_mean"),
        (lambda: rrmse(ONES, ONES, [0, 1]), "Y_true"),
        (lambda: top_k_accuracy([0], [[0, 1]], 3), "k"),
    ],
)
def test_errors_name_the_argument(call, argument):
    with pytest.raises(ValueError, match=f"`{argument}` must"):
        call()


@pytest.mark.parametrize(
    ("truth", "guess"),
    [
        ([1, 0], [1, 0]),
        (np.arange(8).reshape(4, 2), ONES),
        (ONES, ONES / 2),
        (ONES, ONES[:, :1]),
    ],
)
def test_only_label_sets_have_an_f1_score(truth, guess):
    with pytest.raises(ValueError):
        example_f1(truth, guess)


def test_text_is_refused_by_name():
    with pytest.raises(TypeError, match="`y_pred` must hold real numbers"):
        crossing_loss([["a", "b"]])


@pytest.mark.parametrize("best", [[[0], [1]], [0], np.zeros((1, 0), int)])
def test_ranked_indices_must_fit(best):
    with pytest.raises(ValueError, match="`top_index` must have shapes"):
        top_k_accuracy([0], best)


def test_ranked_indices_must_be_integers():
    with pytest.raises(TypeError, match="`top_index` must hold integers"):
        top_k_accuracy([0], [[0.5]])


def test_crps_is_the_integral_of_its_definition(rng):
    levels = np.array([0.1, 0.25, 0.6, 0.9])
    q, y = np.sort(rng.normal(size=(20, 4)), axis=1), 2 * rng.normal(size=20)
    q[3, 1] = q[3, 2]  # a jump
    weight = rng.uniform(size=20)
    z = np.linspace(-8, 8, 400_001)
    scores = []
    for row, target in zip(q, y, strict=True):
        F = np.interp(z, row, levels, left=0, right=1)
        scores.append(np.trapezoid(np.square(F - (z >= target)), z))
    expected = np.average(scores, weights=weight)
    assert_allclose(crps(y, q, levels, sample_weight=weight), expected, atol=2e-4)


def test_crps_is_twice_the_mean_pinball_loss_of_many_levels(rng):
    levels = (np.arange(2000) + 0.5) / 2000
    y, q = rng.normal(size=30), np.tile(norm.ppf(levels), (30, 1))
    pinball = 2 * pinball_loss(y, q, levels) / len(levels)
    z = np.abs(y)
    closed = z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)
    assert_allclose(crps(y, q, levels), closed.mean(), rtol=1e-3)
    assert_allclose(pinball, closed.mean(), rtol=1e-3)


def test_crps_refuses_quantiles_that_descend():
    with pytest.raises(ValueError, match="`y_pred` must ascend"):
        crps([0.0], [[1.0, 0.0]], [0.2, 0.8])
    with pytest.raises(ValueError, match="`quantiles` must ascend"):
        crps([0.0], [[0.0, 1.0]], [0.8, 0.2])
