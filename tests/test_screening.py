"""Selection of features against closed forms, and designs whose answer is known."""

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal
from tables import prepare

import nbsketch
from nbsketch import SketchedKernelClassifier, SketchedKernelRegressor
from nbsketch.rows.transform import fit_scaler
from nbsketch.tuning import screening, tune, tuner
from nbsketch.tuning import screening as tests_of_features
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.screening import evidence, rank_basis

FUNCTIONS = {
    "sine and product": lambda X: np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2],
    "steps": lambda X: 2.0 * (X[:, 0] > 0.3) + np.abs(X[:, 1]) - 0.5 * X[:, 2],
    "additive": lambda X: X[:, 0] + X[:, 1] ** 2 / 2 + np.cos(2 * X[:, 2]),
    "product of three": lambda X: X[:, 0] * X[:, 1] * X[:, 2],
}
pytestmark = pytest.mark.usefixtures("short_searches")
functions = pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)


def draw(f, n=500, q=55, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q))
    return X, f(X) + noise * rng.normal(size=n)


def kept_by(tuned):
    return np.flatnonzero(tuned.relevance > 0).tolist()


# functions of ranks -----------------------------------------------------------------


def test_basis_is_orthonormal(rng):
    basis = rank_basis(rng.normal(size=(300, 20)), 6).astype(float)
    assert_allclose(basis.mean(axis=2), 0, rtol=0, atol=1e-5)
    for k in range(20):
        inner = basis[:, k] @ basis[:, k].T / 300
        assert_allclose(inner, np.eye(6), rtol=0, atol=1e-4)
    assert_array_equal(rank_basis(np.zeros((9, 1)), 2), 0)


def test_first_function_is_the_cosine_of_the_ranks():
    x = np.array([3.0, -1.0, 10.0, 10.0])
    desired = np.cos(np.pi * np.array([1.5, 0.5, 3.0, 3.0]) / 4)
    desired -= desired.mean()
    actual = rank_basis(x[:, None], 1)[0, 0]
    assert_allclose(actual, desired / desired.std(), rtol=1e-5)


def test_basis_does_not_change_with_a_monotone_function(rng):
    X = rng.normal(size=(100, 3))
    assert_array_equal(rank_basis(np.exp(3 * X), 4), rank_basis(X, 4))


def test_features_of_few_values_have_few_functions(rng):
    X = np.column_stack([rng.integers(0, k, 200) for k in (2, 3)])
    alive = rank_basis(X.astype(float), 6).any(axis=2)
    assert_array_equal(alive.sum(axis=0), [1, 2])


# evidence ---------------------------------------------------------------------------


def test_evidence_is_that_of_the_tests_one_by_one(rng):
    X, R = rng.normal(size=(80, 4)), rng.normal(size=(80, 2))
    X[:, 3] = X[:, 3] > 0  # one function
    basis = rank_basis(X, 6)
    n_functions = basis.any(axis=2).sum(axis=0)
    actual = evidence(basis, R, np.ones(len(R)))
    single, pair = np.zeros(4), np.zeros(4)
    for r in R.T:
        r = np.clip((r - r.mean()) / r.std(), -5, 5)
        v = np.minimum(r**2, 9)
        for k in range(4):
            for score, count in ((r, 6), (v, 3)):
                z = (score - score.mean()) / score.std()
                square = sum((f @ z) ** 2 / 80 for f in basis[:count, k])
                p = 8 * scipy.stats.chi2.sf(square, min(count, n_functions[k]))
                single[k] = max(single[k], -np.log(p))
            for j in set(range(4)) - {k}:
                for f in basis[:3, k]:
                    for g in basis[:3, j]:
                        z = abs((r * f) @ g) / r.std() / np.sqrt(80)
                        p = (3 * 4) ** 2 / 2 * 2 * 2 * scipy.stats.norm.sf(z)
                        pair[k] = max(pair[k], -np.log(p))
    assert_allclose(actual.single, single, rtol=1e-4, atol=1e-4)
    assert_allclose(actual.pair, pair, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("freedom", range(1, 7))
def test_tails_do_not_underflow(freedom):
    x = np.array([0.1, 3.0, 50.0, 1300.0, 5000.0])
    actual = tests_of_features._log_tail(x, np.full(5, freedom))
    assert_allclose(actual[:3], -scipy.stats.chi2.logsf(x[:3], freedom), rtol=1e-8)
    # the expansion, where the probability is not a float any more
    assert (np.diff(actual) > 0).all()
    ahead = x[4] / 2 - (freedom / 2 - 1) * np.log(x[4] / 2)
    assert_allclose(actual[4], ahead, rtol=1e-3)


def test_the_size_of_weights_does_not_matter(rng):
    basis, R = rank_basis(rng.normal(size=(90, 5)), 6), rng.normal(size=(90, 1))
    weights = rng.uniform(1, 2, size=90)
    for first, second in [(np.ones(90), np.full(90, 3.0)), (weights, 5 * weights)]:
        one, other = evidence(basis, R, first), evidence(basis, R, second)
        assert_allclose(other.single, one.single, rtol=1e-4, atol=1e-4)
        assert_allclose(other.pair, one.pair, rtol=1e-4, atol=1e-4)
    assert np.abs(evidence(basis, R, weights).single - one.single).max() < 1e-3
    assert np.abs(evidence(basis, R, np.ones(90)).single - one.single).max() > 1e-3


def test_heavy_tails_of_residuals_are_clipped(rng):
    x = rng.normal(size=(500, 3))
    R = x[:, :1] + 0.5 * rng.standard_cauchy((500, 1))
    found = evidence(rank_basis(x, 6), R, np.ones(len(R))).best
    assert found[0] > 4
    assert found[1:].max() < 4


def test_pairs_of_very_many_features_are_those_of_the_best(rng, monkeypatch):
    X = rng.normal(size=(400, 30))
    R = X[:, :1] + X[:, 1:2] + 2 * X[:, :1] * X[:, 1:2]
    basis = rank_basis(X, 6)
    full = evidence(basis, R, np.ones(len(R)))
    monkeypatch.setattr(tests_of_features, "_PAIR_WORK", 2 * 400 * 10**2)
    some = evidence(basis, R, np.ones(len(R)))
    assert set(full.partner[:2]) == set(some.partner[:2]) == {0, 1}
    # fewer products are tested, so each counts for more
    assert (some.pair[:2] > full.pair[:2]).all()
    assert (some.pair > 0).sum() <= 10


# the selection ----------------------------------------------------------------------


@pytest.mark.thin(every=2)
@functions
def test_features_that_matter_are_found(f):
    X, y = draw(f, n=500)
    tuned = tune(X, y[:, None], rng=0)
    kept = kept_by(tuned)
    # One in ten draws keeps another feature, of little relevance.
    assert kept[:3] == [0, 1, 2] and len(kept) <= 4
    assert tuned.relevance[3:].max() < 0.3 * tuned.relevance[:3].min()
    assert np.unique(tuned.scaler.features).tolist() == kept
    assert tuned.scaler.transform(X).shape[1] == len(tuned.kernel.bandwidth)
    assert np.isfinite(tuned.length_scales).sum() == len(kept)


def test_noise_has_no_features():
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, Y = rng.normal(size=(300, 100)), rng.normal(size=(300, 1))
        rows = prepare(X, Y, None, fit_scaler(X, "standard"), np.arange(300))
        found.append(screening.screen(rows, rng, Budget(300, np.inf)) is not None)
    assert sum(found) <= 1 and not found[-1]
    assert len(kept_by(tune(X, Y, rng=0))) == 100


def test_copies_of_a_feature_are_not_added_with_it():
    rng = np.random.default_rng(3)
    X, y = draw(FUNCTIONS["additive"], q=5)
    others = 0.8 * X[:, np.tile([0, 1, 2], 20)] + 0.6 * rng.normal(size=(500, 60))
    tuned = tune(np.hstack([X, others]), y[:, None], max_iter=40, rng=0)
    assert kept_by(tuned)[:3] == [0, 1, 2]
    assert len(kept_by(tuned)) <= 6


def test_many_outputs_share_the_features():
    X, y = draw(FUNCTIONS["sine and product"])
    rng = np.random.default_rng(1)
    mixed = np.outer(y, rng.normal(size=6)) + np.outer(X[:, 5], rng.normal(size=6))
    tuned = tune(X, mixed + 0.1 * rng.normal(size=mixed.shape), max_iter=40, rng=0)
    assert kept_by(tuned) == [0, 1, 2, 5]


def test_where_most_features_matter_all_of_them_are_searched():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 60))
    y = X @ rng.choice([-1.0, 1.0], 60) + 0.1 * rng.normal(size=300)
    tuned = tune(X, y[:, None], rng=0)
    assert len(kept_by(tuned)) == 60
    assert tuned.error < 0.1


def test_few_features_are_not_tested(monkeypatch):
    calls = []
    monkeypatch.setattr(tuner, "screen", lambda *a: calls.append(1))
    X, y = draw(FUNCTIONS["steps"], n=200, q=51)
    tune(X[:, :50], y[:, None], rng=0)
    assert calls == []
    tune(X, y[:, None], rng=0)
    assert calls == [1]


def test_more_features_than_rows():
    X, y = draw(lambda X: 2 * X[:, 0] + X[:, 1], n=60, q=300)
    tuned = tune(X, y[:, None], rng=0)
    assert {0, 1} <= set(kept_by(tuned))
    assert len(kept_by(tuned)) <= screening._FEW


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("preprocessing", ["standard", "rank", "both"])
def test_scaler_has_the_kept_features(preprocessing):
    X, y = draw(FUNCTIONS["steps"])
    X[:, 1] = np.sign(X[:, 1]) * X[:, 1] ** 4
    tuned = tune(X, y[:, None], preprocessing=preprocessing, max_iter=40, rng=0)
    scaler = tuned.scaler
    count = {"standard": (3, 0), "rank": (0, 3)}.get(preprocessing)
    if count is None:
        assert len(scaler.plain) == 3
        assert 1 in scaler.ranked
    else:
        assert (len(scaler.plain), len(scaler.ranked)) == count
    assert scaler.n_features == 55


def test_a_new_scaler_keeps_the_relevance(rng):
    X = np.column_stack([rng.uniform(size=500), rng.standard_cauchy(500)])
    X = np.hstack([X, rng.normal(size=(500, 1))])
    plain = fit_scaler(X, "standard").select([0, 1])
    both = fit_scaler(X, "both").select([0, 1])
    assert both.features.tolist() == [0, 1, 1]
    before = screening.Selection(plain, np.array([0.3, -0.7, -2.0]))
    after = before.rescaled(both)
    assert_allclose(after.point, [0.3, *[-0.7 - np.log(2) / 2] * 2, -2.0])
    assert_allclose(after.rescaled(plain).point, before.point)


# rows -------------------------------------------------------------------------------


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("q", [4, 60])
def test_a_row_of_weight_zero_is_not_there(q, robust):
    X, y = draw(FUNCTIONS["additive"], n=300, q=q)
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.5, 1.5, size=300) * (np.arange(300) % 3 > 0)
    there = weights > 0
    options = {"rng": 0, "robust": robust, "max_iter": 20}
    known = tune(X[there], y[there, None], sample_weight=weights[there], **options)
    X[~there], y[~there] = 1e3, -1e3
    found = tune(X, y[:, None], sample_weight=weights, **options)
    assert found.kernel == known.kernel
    assert (found.alpha, found.error) == (known.alpha, known.error)
    assert_array_equal(found.relevance, known.relevance)
    for name in ("features", "center", "width", "quantiles"):
        if known.scaler is not None:
            first, second = known.scaler, found.scaler
            assert_array_equal(getattr(second, name), getattr(first, name))


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("q", [4, 60])
def test_single_precision_is_tuned_in_double(q, robust):
    X, y = draw(FUNCTIONS["additive"], n=250, q=q)
    X, Y = X.astype(np.float32), y.astype(np.float32)[:, None]
    options = {"rng": 0, "robust": robust, "max_iter": 20}
    single = tune(X, Y, **options)
    double = tune(X.astype(float), Y.astype(float), **options)
    assert single.kernel == double.kernel
    assert (single.alpha, single.error) == (double.alpha, double.error)


def test_heavier_rows_choose():
    X, y = draw(FUNCTIONS["sine and product"])
    other = np.sin(2 * X[:, 7]) + X[:, 8]
    weights = np.where(np.arange(500) < 250, 1.0, 1e-3)
    Y = np.where(np.arange(500) < 250, y, other)[:, None]
    for w, expected in ((weights, [0, 1, 2]), (weights[::-1], [7, 8])):
        assert kept_by(tune(X, Y, sample_weight=w, max_iter=40, rng=0)) == expected


# the estimators ---------------------------------------------------------------------


def rmse(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


@pytest.mark.thin(every=4)
@functions
def test_useless_features_cost_next_to_nothing(f):
    X, y = draw(f)
    X_new, target = draw(f, n=1000, seed=1, noise=0)
    model = SketchedKernelRegressor(random_state=0).fit(X, y)
    oracle = SketchedKernelRegressor(random_state=0).fit(X[:, :3], y)
    desired = rmse(oracle, X_new[:, :3], target)
    assert rmse(model, X_new, target) < 1.3 * desired
    assert desired < 0.3 * target.std()


@pytest.mark.full
def test_classes_and_robust_losses():
    X, y = draw(FUNCTIONS["sine and product"], n=900)
    X_new, target = draw(FUNCTIONS["sine and product"], n=2000, seed=1, noise=0)
    classifier = SketchedKernelClassifier(random_state=0).fit(X, y > 0)
    assert classifier.score(X_new, target > 0) > 0.95
    y[::40] += 50.0
    for seed in range(2):  # of the 55 columns those that matter, and hardly any other
        model = SketchedKernelRegressor(loss="huber", random_state=seed).fit(X, y)
        kept = np.flatnonzero(np.isfinite(model.length_scales_)).tolist()
        assert kept[:3] == [0, 1, 2] and len(kept) <= 5
        assert rmse(model, X_new, target) < 0.2


def test_summary_names_the_kept_features_and_files_keep_them(tmp_path):
    X, y = draw(FUNCTIONS["additive"], n=300)
    model = SketchedKernelRegressor(random_state=0).fit(X, y)
    assert "features kept 3 of 55: x0, x1, x2\n" in model.summary()
    assert model.landmarks_.shape[1] == len(model.scaler_.features)
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.summary() == model.summary()
