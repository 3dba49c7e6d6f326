"""The classifier for tables and the calibration of its probabilities."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GroupKFold, StratifiedKFold
from tables import small_leaves

import nbsketch
from nbsketch import TabularKernelClassifier
from nbsketch.tabular import classifier
from nbsketch.tabular.calibration import calibrate, two_columns


def some_classes(n=300, count=2, seed=0):
    """Return rows, labels and the true probabilities of the classes."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    logits = 4 * np.column_stack([np.sin(3 * X[:, 0] + 2 * k) for k in range(count)])
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    index = (rng.uniform(size=(n, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    return X, np.array(["a", "b", "c"])[index], chances


def log_loss(chances, index):
    return -np.log(chances[np.arange(len(index)), index]).mean()


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("leaf_rows", [None, 150])
def test_probabilities_are_near_the_true_ones(count, leaf_rows):
    X, y, chances_of_rows = some_classes(300, count)
    context = small_leaves(leaf_rows=leaf_rows) if leaf_rows else nullcontext()
    with context:
        model = TabularKernelClassifier(partners=None, random_state=0).fit(X, y)
    new, labels, true = some_classes(1500, count, seed=1)
    chances = model.predict_proba(new)
    assert_allclose(chances.sum(axis=1), 1)
    assert np.abs(chances - true).mean() < 0.06
    index = np.searchsorted(model.classes_, labels)
    loss, least = log_loss(chances, index), log_loss(true, index)
    assert least - 0.02 < loss < least + 0.05
    at_training_rows = log_loss(chances_of_rows, np.searchsorted(model.classes_, y))
    assert -0.02 < model.loo_log_loss_ - at_training_rows < 0.05
    error = np.mean(model.predict(new) != labels)
    assert_allclose(model.loo_error_, error, atol=0.05)


def test_calibration_undoes_a_distortion(rng):
    chances = rng.uniform(0.02, 0.98, size=4000)
    classes = (rng.uniform(size=4000) < chances).astype(int)
    scores = 0.5 + 0.3 * (chances - 0.5) + 0.1  # too timid, and shifted
    columns = two_columns(scores[:, None])
    found = calibrate(columns, classes, np.ones(len(classes))).probabilities(columns)[
        :, 1
    ]
    assert np.abs(found - chances).mean() < 0.03
    spoiled = np.vstack([columns, [[np.nan, np.nan]]])
    again = calibrate(spoiled, np.append(classes, 0), np.ones(len(classes) + 1))
    assert_allclose(again.probabilities(columns)[:, 1], found, atol=1e-9)


@pytest.mark.parametrize("count", [2, 4])
def test_the_prior_of_the_calibration_counts_as_one_row(count):
    """Free offsets give the classes their smoothed shares, even if scores separate."""
    classes = np.repeat(np.arange(count), 10)[: 10 * count - 5]
    scores = np.eye(count)[classes]
    chances = calibrate(scores, classes, np.ones(len(classes))).probabilities(scores)
    n, counts = len(classes), np.bincount(classes)
    desired = (counts + 1 / count) / (n + 1)
    assert_allclose(chances.mean(axis=0), desired, atol=1e-4)
    assert (chances.argmax(axis=1) == classes).all()


def test_gradient_of_the_calibration(rng):
    """The solution is stationary: moving any parameter raises the log loss."""
    scores = rng.uniform(size=(200, 3))
    scores /= scores.sum(axis=1, keepdims=True)
    classes = np.array([rng.choice(3, p=row) for row in scores])
    found = calibrate(scores, classes, np.ones(len(classes)))

    target = (200 * np.eye(3)[classes] + 1 / 3) / 201  # a row of the prior

    def objective(calibration):
        return -(np.log(calibration.probabilities(scores)) * target).sum() / 200

    least = objective(found)
    for step in (-1e-2, 1e-2):
        for k in range(2):
            slopes = found.slopes + step * np.eye(2)[k]
            if (slopes >= 0).all():
                assert objective(replace(found, slopes=slopes)) >= least - 1e-7
        for k in range(3):
            offsets = found.offsets + step * np.eye(3)[k]
            assert objective(replace(found, offsets=offsets)) >= least - 1e-7


def test_classes_that_are_certain_have_probabilities_below_one():
    X, _, _ = some_classes(200)
    y = X[:, 0] > 0
    model = TabularKernelClassifier(partners=None, random_state=0).fit(X, y)
    chances = model.predict_proba(X)
    assert chances.min() > 0 and chances.max() < 1
    assert np.mean(model.predict(X) == y) > 0.97


def test_balanced_classes_are_weighted_rows():
    X, y, _ = some_classes(200)
    keep = (y == "a") | (np.arange(200) % 3 == 0)
    X, y = X[keep], y[keep]
    counts = {label: np.sum(y == label) for label in "ab"}
    weights = np.array([len(y) / (2 * counts[label]) for label in y])
    model = TabularKernelClassifier(partners=None, random_state=0)
    new = some_classes(300, seed=1)[0]
    expected = model.fit(X, y, weights).predict_proba(new)
    balanced = TabularKernelClassifier(
        partners=None, class_weight="balanced", random_state=0
    )
    assert_allclose(balanced.fit(X, y).predict_proba(new), expected, atol=1e-9)
    plain = model.fit(X, y).predict_proba(new)
    assert plain[:, 1].mean() < expected[:, 1].mean() - 0.02


def test_saved_classifiers_predict_the_same(tmp_path):
    X, y, _ = some_classes(150, 3)
    model = TabularKernelClassifier(partners=None, random_state=0).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_array_equal(again.predict(X), model.predict(X))
    assert "3 classes" in again.summary()


def test_labels_are_checked():
    X = some_classes(20)[0]
    with pytest.raises(ValueError, match="at least two classes"):
        TabularKernelClassifier().fit(X, np.zeros(20, int))
    with pytest.raises(ValueError, match="continuous"):
        TabularKernelClassifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="y"):
        TabularKernelClassifier().fit(X, None)


def test_splitters_get_the_labels(rng):
    X = rng.normal(size=(150, 2))
    y = np.array(list("abc"))[(X[:, 0] > 0) * 1 + (X[:, 1] > 0)]
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    model = TabularKernelClassifier(partners=None, cv=cv, random_state=0).fit(X, y)
    assert model.loo_error_ < 0.2


def test_left_out_groups_do_not_leak_through_target_codes(rng):
    groups, effects = rng.integers(0, 40, 600), rng.normal(size=240)

    def sample(groups):
        X = pd.DataFrame({"x": rng.normal(size=len(groups))})
        X["group"] = [f"g{k}" for k in groups]
        return X, effects[groups] + 0.5 * X["x"].to_numpy() > 0

    X, y = sample(groups)
    new, truth = sample(rng.integers(40, 240, 2000))
    model = TabularKernelClassifier(partners=None, cv=GroupKFold(5), random_state=0)
    model.fit(X, y, groups=groups)
    chances = model.predict_proba(new)[np.arange(2000), truth.astype(int)]
    assert abs(model.loo_log_loss_ + np.log(chances).mean()) < 0.15


def logits(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (1.5 * X[:, 0] + X[:, 1] + rng.logistic(size=n) > 0).astype(int)


@pytest.mark.parametrize("weights", [None, np.full(60, 3.0)])
def test_the_left_out_log_loss_counts_the_parameters_of_the_calibration(
    monkeypatch, weights
):
    # 24 samples of 60 rows: the log loss of new rows is 0.064 (standard error 0.018)
    # above that of the rows left out; three parameters are 0.05
    X, y = logits(60, 0)
    model = TabularKernelClassifier(partners=None, random_state=0)
    counted = model.fit(X, y, sample_weight=weights).loo_log_loss_
    monkeypatch.setattr(classifier, "effective_number", lambda weights: np.inf)
    plain = model.fit(X, y, sample_weight=weights).loo_log_loss_
    assert_allclose(counted - plain, 3 / 60)


def test_errors_left_out_are_means_of_weighted_rows(rng):
    model = TabularKernelClassifier(partners=None, random_state=0).fit(*logits(60, 0))
    scores, weights = rng.uniform(size=(2, 60))
    index = rng.integers(0, 2, 60)
    model._calibrate(scores[:, None], index, weights, [])
    chances = model.calibration_.probabilities(np.column_stack([1 - scores, scores]))
    logs = -np.log(chances[np.arange(60), index])
    correction = 3 * np.square(weights).sum() / weights.sum() ** 2
    expected = np.average(logs, weights=weights) + correction
    assert_allclose(model.loo_log_loss_, expected)
    wrong = chances.argmax(axis=1) != index
    assert_allclose(model.loo_error_, np.average(wrong, weights=weights))


def test_classes_of_few_rows_are_a_warning():
    X, y = logits(40, 0)
    names = np.where(y == 1, "common", "frequent")
    names[:3] = "seldom"
    with pytest.warns(UserWarning, match=r"fewer than 5 samples: seldom \(3\)"):
        TabularKernelClassifier(random_state=0).fit(X, names)
    names[3:5] = "seldom"
    TabularKernelClassifier(random_state=0).fit(X, names)
