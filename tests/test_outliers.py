"""Gross errors: one rule, by a scale that is not rounding, and what it leaves out."""

import warnings
from functools import cache, partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tables import prepare

import nbsketch
from nbsketch import HuberLoss, OutlierWarning, PinballLoss, TabularKernelRegressor
from nbsketch.fitting.objectives import ScalarObjective
from nbsketch.fitting.penalty import held_out_errors, without_tails
from nbsketch.fitting.plan import SolveOptions
from nbsketch.rows.outliers import (
    RobustPath,
    _beyond_gap,
    _is_population,
    _limit,
    _power,
    deviations,
    drawn_rows,
    inliers,
    noise_scale,
    robust_residuals,
    suspect_targets,
)
from nbsketch.rows.transform import fit_scaler
from nbsketch.solvers.design import ArrayDesign
from nbsketch.tabular.fit import least
from nbsketch.tabular.suspects import few_gross_errors
from nbsketch.tuning import tune, tuner
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.tuner import trim

N = 400
FEW = 200  # for tables, whose fits take longer


def rare(rng, n=N):
    """Amounts in few of the rows, else zero."""
    return np.where(rng.random(n) < 0.03, rng.gamma(2.0, 500.0, n), 0.0)


def smooth(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n), rng


# the scale ---------------------------------------------------------------------------


def test_a_scale_of_noise_is_that_of_the_middle_residuals(rng):
    residuals, targets = rng.normal(size=(2, 20_000, 1))
    assert noise_scale(residuals, targets)[0] == pytest.approx(1.0, rel=0.03)
    weights = np.where(np.arange(20_000) < 5000, 1.0, 1e-6)
    residuals[5000:] *= 100
    scale = noise_scale(residuals, targets, weights)
    assert_allclose(scale, noise_scale(residuals[:5000], targets[:5000]), rtol=1e-3)


def test_weights_repeat_rows(rng):
    residuals, targets = rng.standard_t(2, size=(2, 300, 2))
    weights = rng.integers(1, 4, 300)
    rows = np.repeat(np.arange(300), weights)
    repeated = deviations(residuals[rows], targets[rows])
    weighted = deviations(residuals, targets, weights=weights.astype(float))
    assert_allclose(weighted[rows], repeated, rtol=1e-12)


def test_rows_of_hardly_any_weight_are_no_scale_and_no_share(rng):
    residuals, targets = rng.uniform(-1, 1, size=(2, N, 1))
    weights = np.where(np.arange(N) < N // 2, 1.0, 1e-9)
    residuals[N // 2 :] += 50
    kept = inliers(residuals, targets, 4.0, weights=weights)
    assert_array_equal(kept, weights == 1)


def test_equal_targets_residuals_and_rounding_are_no_scale(rng):
    X, _, _ = smooth()
    noise, events = rng.normal(size=N), rare(rng)
    level = np.where(X[:, 0] > 0, 1.0, 3.0)
    laws = {
        "more than half of the targets are equal": (events, events - X[:, 0]),
        "more than half of the residuals are": (level + events, events),
        "rounding": (level + events, events + 1e-13 * noise),
        "jitter": (20 + 1e-9 * noise + events, 1e-9 * noise + events),
    }
    for name, (targets, residuals) in laws.items():
        sizes = deviations(residuals[:, None], targets[:, None])
        assert not sizes.any(), name
        assert inliers(residuals[:, None], targets[:, None], 4.0).all()


def test_sentinels_do_not_make_noise_rounding(rng):
    X, y, _ = smooth()
    wrong = np.where(np.arange(N) % 50 == 0, 1e9, 0.0)
    truth = np.sin(2 * X[:, 0]) + X[:, 1]
    y = y + wrong
    kept = inliers((y - truth)[:, None], y[:, None], 4.5)
    assert_array_equal(kept, wrong == 0)


def test_an_output_without_a_scale_leaves_the_others_theirs(rng):
    events, noise = rare(rng), rng.normal(size=N)
    noise[7] = 40.0
    Y = np.column_stack([events, noise])
    sizes = deviations(Y, Y)
    assert_allclose(sizes, deviations(Y[:, 1:], Y[:, 1:]))
    assert sizes[7] > 30


# tables ------------------------------------------------------------------------------

_RARE = {
    "claims": lambda rng, X: rare(rng, FEW),
    "counts": lambda rng, X: rng.poisson(0.04, FEW),
    "rain": lambda rng, X: np.where(rng.random(FEW) < 0.6, 0, rng.gamma(0.5, 9.0, FEW)),
    "sensor": lambda rng, X: 20 + 0.01 * rare(rng, FEW),
    "jitter": lambda rng, X: 20 + 0.01 * rare(rng, FEW) + 1e-9 * rng.normal(size=FEW),
    "levels": lambda rng, X: 2.0 * (X[:, 0] > 0) + 0.01 * rare(rng, FEW),
    "second output": lambda rng, X: np.column_stack([X[:, 0], rare(rng, FEW)]),
}


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("cv", [None, 5])
@pytest.mark.parametrize("name", _RARE)
def test_rare_targets_are_no_gross_errors(name, cv):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(FEW, 2))
    y = _RARE[name](rng, X)
    model = TabularKernelRegressor(cv=cv, random_state=0).fit(X, y)
    assert model.n_outliers_ == 0 and not len(model.suspects_)
    events = np.mean(y - np.median(y, axis=0), axis=0)
    predicted = np.mean(model.predict(X) - np.median(y, axis=0), axis=0)
    assert_allclose(predicted, events, rtol=0.1, atol=0.02)
    error = np.sqrt(np.mean((y - y.mean(axis=0)) ** 2, axis=0))
    assert (
        np.ravel(model.loo_error_)[-1] > 0.5 * np.ravel(error)[-1] or name == "levels"
    )


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", [1, 3, 5])
def test_amounts_beside_nearly_half_zeros_are_no_gross_errors(seed):
    """They are far from the middle, but too many for errors: another population."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(FEW, 2))
    y = np.where(rng.random(FEW) < 0.48, 0, rng.gamma(0.5, 10.0, FEW))
    model = TabularKernelRegressor(random_state=0).fit(X, y)
    assert model.n_outliers_ == 0 and not len(model.suspects_)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("law", ["lognormal", "pareto", "student"])
@pytest.mark.parametrize("seed", range(3))
def test_heavy_tails_are_no_gross_errors(law, seed):
    """There is no gap between the largest targets and the others."""
    rng = np.random.default_rng(seed)
    draw = {
        "lognormal": lambda: rng.lognormal(0, 1.5, FEW),
        "pareto": lambda: 1 + rng.pareto(1.5, FEW),
        "student": lambda: rng.standard_t(1.5, FEW),
    }[law]
    X, y = rng.normal(size=(FEW, 2)), draw()
    assert TabularKernelRegressor(random_state=0).fit(X, y).n_outliers_ == 0


@cache
def clean_table():
    X, y, _ = smooth()
    return TabularKernelRegressor(random_state=0).fit(X, y)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("wrong", [-99.0, -999.0, 1e9, 1e20])
def test_rows_that_are_left_out_are_told(wrong, tmp_path):
    X, y, _ = smooth()
    clean = clean_table()
    assert clean.outliers_.tolist() == clean.suspects_.tolist() == []
    bad, unused = np.arange(5, N, 50), np.arange(0, N, 40)
    weights = np.ones(N)
    weights[unused] = 0
    y[bad] = wrong
    with pytest.warns(OutlierWarning, match="8 of 390 targets") as caught:
        model = TabularKernelRegressor(random_state=0).fit(X, y, weights)
    assert caught[0].filename == __file__
    assert_array_equal(model.outliers_, bad)
    assert model.n_outliers_ == 8
    assert "without 8 outliers" in model.summary()
    assert np.abs(model.predict(X) - clean.predict(X)).mean() < 0.03
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(loaded.outliers_, bad)
    assert loaded.summary() == model.summary()


def test_an_error_far_beyond_the_tail_of_a_small_model_is_left_out():
    """Without noise, the errors of a small model have a tail."""
    X = np.linspace(0, 1, 200)[:, None]
    y = np.sin(6 * X[:, 0])
    y[70] = 1e3
    with pytest.warns(OutlierWarning, match="1 of 200"):
        model = TabularKernelRegressor(random_state=0).fit(X, y)
    assert model.outliers_.tolist() == [70]


def test_copies_of_a_row_that_is_left_out_are_left_out():
    X, y, _ = smooth(120)
    y[7] = 99.0
    rows = np.r_[np.arange(120), np.arange(120)]
    with pytest.warns(OutlierWarning, match="2 of 240 targets"):
        model = TabularKernelRegressor(random_state=0).fit(X[rows], y[rows])
    assert model.outliers_.tolist() == [7, 127]


@pytest.mark.parametrize("share", [0.08, 0.15])
def test_more_gross_errors_than_are_left_out_are_told(share, tmp_path):
    X, y, rng = smooth(FEW)
    bad = np.sort(rng.choice(FEW, int(share * FEW), replace=False))
    y[bad] += 30 * rng.choice([-1, 1], len(bad))
    told = "of 200 targets look like gross errors.*at most 5 % are.*robust loss"
    with pytest.warns(OutlierWarning, match=told):
        model = TabularKernelRegressor(random_state=0).fit(X, y)
    assert model.n_outliers_ == 0
    assert np.isin(model.suspects_, bad).all()
    assert len(model.suspects_) > 0.8 * len(bad)
    told = f"{len(model.suspects_)} targets look like gross errors, all are used"
    assert told in model.summary()
    model.save(tmp_path / "model.npz")
    assert nbsketch.load(tmp_path / "model.npz").summary() == model.summary()


# errors of any share, beside a gap or not ---------------------------------------------

fixed_scales = partial(nbsketch.SketchedKernelRegressor, "gaussian", bandwidth=1.0)
MODELS = [TabularKernelRegressor, fixed_scales]
each_kind = pytest.mark.parametrize("model", MODELS, ids=["table", "sketch"])


def told_by(model, X, y, weights=None):
    """Return the suspect rows of a fit, and its warnings of gross errors."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OutlierWarning)
        model.fit(X, y, weights)
    texts = [str(w.message) for w in caught if w.category is OutlierWarning]
    return model.suspects_, texts


def spoiled(kind, share, seed=0, n=FEW):
    """Return rows, targets of which a share is wrong, and the wrong rows."""
    X, y, rng = smooth(n, seed)
    bad = np.sort(rng.choice(n, int(share * n), replace=False))
    wrong = {"ten": 10 * y, "constant": np.full(n, 999.0), "shift": y + 5 * y.std()}
    y[bad] = wrong[kind][bad]
    return X, y, bad


@pytest.mark.thin(times=1)
@each_kind
@pytest.mark.parametrize(
    ("kind", "share"),
    [("ten", 0.08), ("ten", 0.15), ("constant", 0.3), ("shift", 0.15)],
)
def test_errors_without_a_gap_are_told(model, kind, share):
    """Some of them are near zero: a fit that they have not pulled tells the others."""
    X, y, bad = spoiled(kind, share)
    suspects, texts = told_by(model(random_state=0), X, y)
    assert len(texts) == 1 and f"{len(suspects)} of 200 targets" in texts[0]
    assert np.isin(suspects, bad).all()
    assert len(suspects) > 0.6 * len(bad)


@each_kind
def test_errors_of_one_output_are_told(model):
    X, y, bad = spoiled("ten", 0.15)
    Y = np.column_stack([X[:, 0], y])
    suspects, texts = told_by(model(random_state=0), X, Y)
    assert texts and np.isin(suspects, bad).all()


@each_kind
def test_wrong_rows_of_hardly_any_weight_are_no_suspects(model):
    X, y, bad = spoiled("constant", 0.15)
    weights = np.ones(FEW)
    weights[bad] = 1e-9
    suspects, _ = told_by(model(random_state=0), X, y, weights)
    assert not len(suspects)
    weights[bad] = 1.0
    weights[:9] = 0.0
    suspects, _ = told_by(model(random_state=0), X, y, weights)
    assert_array_equal(suspects, bad[bad >= 9])


_HONEST = {
    "t": lambda rng, f, e: f + 0.3 * rng.standard_t(3, len(f)),
    "lognormal": lambda rng, f, e: f + 0.3 * np.exp(e),
    "exponential": lambda rng, f, e: f + rng.exponential(size=len(f)),
    "counts": lambda rng, f, e: rng.poisson(np.exp(f / 2)),
    "amounts": lambda rng, f, e: np.exp(e) * (rng.random(len(f)) < 0.6),
    "two modes": lambda rng, f, e: f + rng.choice([-1, 1], len(f)) + 0.1 * e,
    "growing": lambda rng, f, e: np.exp(1.5 * f + 0.5 * e),
    "step": lambda rng, f, e: np.where(f > 1.5, 9.0, 0.0) + 0.05 * e,
    "exact": lambda rng, f, e: np.exp(1.5 * f),
}


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("law", _HONEST)
def test_honest_targets_are_not_accused(law):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(250, 3))
        e = rng.normal(size=250)
        y = _HONEST[law](rng, np.sin(X[:, 0]) + X[:, 1], e).astype(float)
        assert told_by(fixed_scales(random_state=0), X, y)[1] == []


def test_targets_that_the_model_has_learned_are_not_suspect():
    """Without a left-out residual of the model they are part of its function."""
    X, y, bad = spoiled("constant", 0.15)
    kernel = nbsketch.GaussianKernel(1.0)
    learned, _ = suspect_targets(kernel, X, y[:, None], lambda: np.zeros((FEW, 1)))
    assert not learned.any()
    told, _ = suspect_targets(kernel, X, y[:, None], lambda: y[:, None])
    assert_array_equal(np.flatnonzero(told), bad)


def test_a_heap_of_targets_at_one_end_is_a_population():
    """As zeros are beside amounts, a third of which are far away."""
    X, y, bad = spoiled("constant", 0.3)
    kernel = nbsketch.GaussianKernel(1.0)
    for share, count in ((0.15, len(bad)), (0.3, 0)):
        heaped = y.copy()
        right = np.setdiff1d(np.arange(FEW), bad)
        heaped[right[: int(share * FEW)]] = y.min()
        told, _ = suspect_targets(kernel, X, heaped[:, None], lambda: y[:, None])
        assert np.count_nonzero(told[bad]) == count


def test_suspects_are_stored(tmp_path):
    X, y, _ = spoiled("ten", 0.15)
    model = nbsketch.SketchedKernelRegressor("linear", random_state=0)
    suspects, _ = told_by(model, X, y)
    model.save(tmp_path / "model.npz")
    assert_array_equal(nbsketch.load(tmp_path / "model.npz").suspects_, suspects)
    robust = fixed_scales(loss=HuberLoss(1.0), random_state=0)
    assert told_by(robust, X, y)[1] == []


def test_rows_are_drawn_by_their_weights():
    assert_array_equal(np.sort(drawn_rows(np.ones(300))), np.arange(300))
    assert_array_equal(drawn_rows(np.ones(300)), drawn_rows(np.full(300, 2.0)))
    assert not len(drawn_rows(np.ones(49)))
    drawn = drawn_rows(np.repeat([1.0, 3.0], 5000))
    assert len(np.unique(drawn)) == len(drawn) == 1000
    assert np.mean(drawn >= 5000) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("n", [200, 20_000])
def test_residuals_of_robust_regression_leave_rows_out(n, rng):
    """Without errors they are near those of least squares, and a row moves its own."""
    Z = rng.normal(size=(n, 5))
    y = Z @ np.arange(5.0)[:, None] + 0.1 * rng.normal(size=(n, 1))
    y[: n // 7] += 100
    order = rng.permutation(n)
    path = RobustPath.of(nbsketch.LinearKernel(), Z[order], n)
    residuals = robust_residuals(path, y[order])
    is_wrong = order < n // 7
    assert_allclose(residuals[is_wrong], 100, atol=0.6)
    assert np.std(residuals[~is_wrong]) == pytest.approx(0.1, rel=0.15)
    assert abs(path.residuals(y[order])[~is_wrong].mean()) > 5


@each_kind
@pytest.mark.parametrize("wrong", [1e6, -999.0])
def test_a_single_error_is_told(model, wrong):
    X, y, _ = smooth(FEW)
    y[7] = wrong
    model = model(random_state=0)
    suspects, texts = told_by(model, X, y)
    assert [*suspects, *getattr(model, "outliers_", [])] == [7]
    assert len(texts) == 1


def test_rare_errors_among_many_rows_are_left_out():
    """Not in the rows that the regression is fitted to, but in the others."""
    X, y, rng = smooth(3000)
    bad = np.sort(rng.choice(3000, 20, replace=False))
    y[bad] += 100
    rows = prepare(X, y[:, None], None, fit_scaler(X, "both", rng), np.arange(3000))
    found = few_gross_errors(rows, rng)
    assert_array_equal(found.rows, bad)
    assert not found.reason


def test_events_beside_noise_are_told_and_used(rng):
    """Where nothing but events differs from noise, leaving them out leaves nothing."""
    X, events = rng.normal(size=(FEW, 2)), 5.0 * (rng.random(FEW) < 0.03)
    y = 20 + 1e-3 * rng.normal(size=FEW) + events
    with pytest.warns(OutlierWarning, match="cannot be predicted"):
        model = TabularKernelRegressor(random_state=0).fit(X, y)
    assert model.predict(X).mean() == pytest.approx(y.mean(), abs=0.02)


def test_classes_have_no_gross_errors(rng):
    X = rng.normal(size=(100, 2))
    model = nbsketch.TabularKernelClassifier(random_state=0).fit(X, np.arange(100) < 6)
    assert model.n_outliers_ == 0 and not len(model.outliers_)


def test_targets_of_hardly_any_weight_set_no_limits(rng):
    Y, weights = rng.normal(size=(200, 2)), np.ones(200)
    low = least(Y, weights)
    assert_array_equal(low, Y.min(axis=0))
    more = np.vstack([Y, [[-1e6, -1e6]]])
    assert_array_equal(least(more, np.append(weights, 1e-12)), low)
    # Rows that are many count, whatever their weight.
    many = np.vstack([Y, np.full((200, 2), -9.0)])
    assert_array_equal(least(many, np.repeat([1.0, 1e-6], 200)), [-9.0, -9.0])


def test_predictions_stay_within_targets_of_weight(rng):
    X, y, _ = smooth(40)  # too few rows to tell gross errors
    far = np.vstack([X, [[1.9, 1.9]]])
    model = TabularKernelRegressor(random_state=0)
    model.fit(far, np.append(y, 1e4), np.append(np.ones(40), 1e-9))
    assert model.machine_.y_high[0] < 1.3 * y.max()


# robust losses -----------------------------------------------------------------------


def test_length_scales_of_robust_losses_are_those_of_rare_targets():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(250, 4))
    y = np.where(X[:, 0] > 0.93, 10.0 + X[:, 0], 0.0)[:, None]
    relevance = tune(X, y, robust=True, rng=0).relevance
    assert relevance[0] > 2 * relevance[1:].max()


def test_a_huber_loss_predicts_events_that_the_features_explain():
    """Of the size of the events, its threshold makes it nearly the square loss."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(800, 3))
    is_often = X[:, 0] > 0.8
    y = np.where(rng.random(800) < np.where(is_often, 0.3, 0.005), 1000.0, 0.0)
    model = nbsketch.SketchedKernelRegressor(loss=HuberLoss(3000), random_state=0)
    predicted = model.fit(X, y).predict(X)
    assert predicted[is_often].mean() > 5 * predicted[~is_often].mean() + 50


def test_penalties_of_robust_losses_are_judged_by_rare_targets():
    events = np.where(np.arange(200) % 40 == 0, 50.0, 0.0)[:, None]
    objective = ScalarObjective(events, None, True, HuberLoss(kappa=1.0))
    assert objective.is_robust
    assert_array_equal(without_tails(objective), events)
    errors = held_out_errors(objective, [np.zeros_like(events), events])
    assert errors[0] > 1.0 and errors[1] == 0.0


@pytest.mark.parametrize("loss", ["huber", "pinball"])
def test_sentinels_do_not_change_the_scale_of_penalties(loss):
    X, y, _ = smooth()
    models = []
    for wrong in (1e3, 1e9):
        y[::50] = wrong
        model = nbsketch.SketchedKernelRegressor(loss=loss, random_state=0)
        models.append(model.fit(X, y))
    truth = np.sin(2 * X[:, 0]) + X[:, 1]
    errors = [np.abs(model.predict(X) - truth).mean() for model in models]
    assert errors[1] < 1.1 * errors[0] < 0.1
    # At most two of the quarter steps that penalties of a sample are rounded to.
    assert 0.4 < models[1].alpha_ / models[0].alpha_ < 2.5


def test_gross_errors_do_not_loosen_the_tolerance():
    """Next to their loss, that of the other targets would be within it."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 20))
    Y = (np.sin(2 * Z[:, 0]) + 0.1 * rng.normal(size=300))[:, None]
    Y[:6] = 1e9  # the first target: no center is taken from it
    objective = ScalarObjective(Y, None, True, PinballLoss())
    assert objective._center() == np.median(Y)
    constant = np.full_like(Y, np.median(Y))
    assert objective.constant_loss() == objective.mean_loss(constant)
    solve = partial(objective.solve, ArrayDesign(Z), 1e-2)
    found = [solve(SolveOptions(tol=tol)).coef for tol in (1e-2, 1e-13)]
    assert_allclose(*found, atol=5e-3)


def test_targets_beside_which_the_others_lose_their_digits_are_told():
    X, y, _ = smooth()
    y[::50] = 1e16
    model = nbsketch.SketchedKernelRegressor("gaussian", loss="huber", bandwidth=1.0)
    with pytest.warns(UserWarning, match="8 of 400 targets are so far"):
        model.set_params(alpha=1e-3).fit(X, y)
    weights = (y < 1e16).astype(float)
    model.fit(X, y, sample_weight=weights)  # without a warning


def test_gross_errors_count_only_if_they_are_learned():
    """One-sided errors reward a bias; a peak is learned by other penalties."""
    y = np.append(np.linspace(-1, 1, 190), np.full(10, 1e3))[:, None]
    objective = ScalarObjective(y, None, True, HuberLoss(kappa=1.0))
    near = np.where(y > 1, 0.0, 0.9 * y)
    errors = held_out_errors(objective, [near, near + 0.02])
    assert_allclose(errors[0], np.square(0.1 * y[:190]).sum() / 2 / 190)
    assert errors[1] > errors[0]
    errors = held_out_errors(objective, [near, np.where(y > 1, 300.0, near)])
    assert_allclose(errors[0] - errors[1], 10 * 300 / 200)


def trimmed(X, y, rng):
    """Return the mask of the rows that are left out of a search."""
    every = np.arange(len(X))
    rows = prepare(X, y[:, None], None, fit_scaler(X, "standard", rng, every), every)
    kept, *_ = trim(rows, rng, Budget(300, np.inf))
    return ~np.isin(every, kept)


@pytest.mark.parametrize("wrong, count", [(0, 1), (5, 2)])
def test_a_second_start_is_sought_only_without_outliers_of_the_first(
    wrong, count, rng, monkeypatch
):
    X, y, _ = smooth()
    y[:wrong] += 100.0
    start = tuner.isotropic_start
    calls = []
    monkeypatch.setattr(
        tuner, "isotropic_start", lambda *a: calls.append(a) or start(*a)
    )
    assert trimmed(X, y, rng).sum() == wrong
    assert len(calls) == count


@pytest.mark.parametrize("value, is_far", [(1.0, False), (100.0, True)])
def test_usual_targets_with_rare_values_are_trimmed_only_far_outside(value, is_far):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 800)
    amount = np.where(rng.random(800) < 0.05, rng.gamma(2, 1, 800), 0)
    y = np.sin(2 * x) + amount + 0.01 * rng.normal(size=800)
    rows = np.flatnonzero(amount == 0)[:3]
    amount[rows] = value
    assert (trimmed(np.c_[x, amount], y, rng)[rows] == is_far).all()


def test_a_narrow_peak_is_not_trimmed(rng):
    X = rng.uniform(-1, 1, size=(800, 2))
    peak = np.exp(-30 * np.square(X).sum(axis=1))
    assert not trimmed(X, peak + 0.02 * rng.normal(size=800), rng)[peak > 0.3].any()


def test_gross_errors_of_any_share_are_trimmed(rng):
    X = rng.uniform(-1, 1, size=(800, 2))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=800)
    are_wrong = rng.random(800) < 0.08
    assert_array_equal(trimmed(X, y + 20 * are_wrong, rng), are_wrong)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize(("seed", "columns"), [(0, 3), (3, 2), (4, 1)])
def test_rows_far_from_others_are_no_errors_without_noise(seed, columns):
    X = np.random.default_rng(seed).normal(size=(300, columns))
    y = np.sin(X[:, 0])
    model = nbsketch.SketchedKernelRegressor(random_state=0)
    model.fit(X, y)  # a warning is an error
    assert not len(model.suspects_)
    y[7] = -999.0
    with pytest.warns(OutlierWarning, match="1 of 300"):
        model.fit(X, y)
    assert model.suspects_.tolist() == [7]


# parts of the rule ------------------------------------------------------------------


def test_the_tail_of_sizes_falls_with_hill_s_power_less_its_standard_error():
    # 400 sizes of twice the lower end: mean logarithm log 2, error 1 / sqrt(400)
    assert_allclose(_power(np.full(400, 3.0), 4.0), 0.95 / np.log(2))
    # sizes beyond the end count as the end
    sizes = np.repeat([2.0, 9.0], [10_000, 1000])
    total = 10_000 * np.log(2 / 1.5) + 1000 * np.log(4 / 1.5)
    assert_allclose(_power(sizes, 4.0), (10_000 - 100) / total)
    assert _power(np.full(9, 3.0), 4.0) == 1.3  # too few to tell more


def test_errors_are_beyond_twice_the_lower_end_of_the_widest_gap():
    sizes = np.concatenate([np.linspace(0.1, 2.9, 290), np.full(10, 100.0)])
    assert_allclose(_limit(sizes), 6.0)  # a gap from 3 on
    sizes[280:290] = 4.0
    assert_allclose(_limit(sizes), 12 / np.sqrt(2))  # from 3 sqrt(2) on
    assert _limit(sizes[:290]) == np.inf


def test_left_out_residuals_of_the_exact_machine_are_those_of_refits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = 100.0 + np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    model = nbsketch.SketchedKernelRegressor(alpha=1e-3, bandwidth=1.0).fit(X, y)
    K = model.kernel_(X, X)
    expected = []
    for i in range(40):
        kept = np.arange(40) != i
        system = K[np.ix_(kept, kept)] + 40 * 1e-3 * np.eye(39)
        dual = np.linalg.solve(system, y[kept] - model.intercept_)
        expected.append(y[i] - model.intercept_ - K[i, kept] @ dual)
    assert_allclose(model._left_out(X, y[:, None], 40)[:, 0], expected, rtol=1e-9)


def test_targets_within_the_gap_need_no_fit_to_all_rows():
    def refused():
        raise AssertionError("no residual is beyond a gap")

    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.random.default_rng(1).standard_t(3, size=(300, 1))  # beyond the first limit
    suspects, _ = suspect_targets(nbsketch.GaussianKernel(1.0), X, y, refused)
    assert not suspects.any()


@pytest.mark.parametrize("share", [0.3, 0.4])
def test_more_than_a_third_far_away_is_a_population(share):
    residuals = np.random.default_rng(0).normal(size=1000)
    count = round(1000 * share)
    residuals[:count] += np.where(np.arange(count) % 2, 500.0, -500.0)
    beyond = _beyond_gap(np.abs(residuals))
    assert np.count_nonzero(beyond) == count
    is_population = _is_population(beyond, residuals, residuals, residuals)
    assert is_population == (share == 0.4)
