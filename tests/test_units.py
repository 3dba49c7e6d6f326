"""Units of columns: constant ones do not count, rare flags do not put rows far away."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from tables import Sample

import nbsketch
from nbsketch import (
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch._jit.tuning import FAMILIES
from nbsketch._report.validation import varying_features
from nbsketch.fitting.choice import is_lower
from nbsketch.fitting.objectives import loss_at, regression_objective
from nbsketch.fitting.penalty import LeftOutErrors
from nbsketch.gram import SymmetricGram
from nbsketch.kernels import GaussianKernel, LaplacianKernel
from nbsketch.losses import HuberLoss
from nbsketch.solvers.design import ArrayDesign
from nbsketch.tuning import fit_scaler, tune
from nbsketch.tuning.descent import Budget, Descent
from nbsketch.tuning.search import least_log_tau

ROWS = np.random.default_rng(0)
X = ROWS.uniform(-2, 2, (160, 1))
Y = np.sin(2 * X[:, 0]) + 0.1 * ROWS.normal(size=160)
NEW = np.linspace(-2, 2, 50)[:, None]
YEAR = 2023.0
REGRESSORS = [
    SketchedKernelRegressor(random_state=0),
    SketchedKernelRegressor(loss="huber", random_state=0),
    SketchedKernelRegressor("laplacian", loss="pinball", random_state=0),
    SketchedKernelRegressor("gaussian", bandwidth="median", random_state=0),
    JointQuantileRegressor(quantiles=(0.2, 0.8), random_state=0),
    SpectralFilterRegressor(random_state=0),
    SketchedSGDRegressor(random_state=0),
    TabularKernelRegressor(random_state=0),
]
CLASSIFIERS = [
    SketchedKernelClassifier(random_state=0),
    SketchedSGDClassifier(random_state=0),
    TabularKernelClassifier(random_state=0),
]


def beside(rows, value):
    return np.c_[rows, np.full(len(rows), value)]


def predictions_of(model, rows):
    scores = getattr(model, "decision_function", model.predict)
    return np.asarray(scores(rows), dtype=float).ravel()


def errors_with(column, rare, seed, model, rows=400):
    """Return mean squared errors where a flag without effect is 0, and where 1."""
    rng = np.random.default_rng(seed)
    X, T = rng.uniform(-2, 2, (rows, column)), rng.uniform(-2, 2, (300, column))
    flag = np.isin(np.arange(rows), rng.choice(rows, rare, replace=False))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=rows)
    model.fit(np.c_[X, flag], y)
    truth = np.sin(2 * T[:, 0])
    return [np.mean((model.predict(beside(T, v)) - truth) ** 2) for v in (0.0, 1.0)]


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=str)
def test_a_constant_column_that_changes_does_not_change_predictions(model):
    y = (Y > 0).astype(int) if model in CLASSIFIERS else Y
    model.fit(beside(X[:60], YEAR), y[:60])
    expected = predictions_of(model, beside(NEW, YEAR))
    for year in (2024.0, 0.0, 1e6):
        np.testing.assert_array_equal(
            predictions_of(model, beside(NEW, year)), expected
        )


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("kernel", ["auto", "gaussian", "laplacian", "matern"])
@pytest.mark.parametrize("preprocessing", [None, "auto", "standard", "rank", "both"])
def test_a_constant_column_is_none_for_any_kernel_and_preprocessing(
    kernel, preprocessing
):
    model = SketchedKernelRegressor(kernel, preprocessing=preprocessing, random_state=0)
    alone = model.fit(X[:80], Y[:80]).predict(NEW)
    model.fit(beside(X[:80], YEAR), Y[:80])
    assert np.isinf(model.length_scales_).tolist() == [False, True]
    predicted = model.predict(beside(NEW, YEAR + 1))
    np.testing.assert_allclose(predicted, alone, atol=1e-4)


@pytest.mark.parametrize("preprocessing", ["standard", "rank", "both"])
def test_a_constant_column_is_none_for_a_given_bandwidth(preprocessing):
    model = SketchedKernelRegressor(
        "gaussian", bandwidth=0.5, preprocessing=preprocessing, random_state=0
    )
    model.fit(beside(X, YEAR), Y)
    first, second = (model.predict(beside(NEW, year)) for year in (YEAR, 1e5))
    np.testing.assert_array_equal(first, second)


def test_a_column_is_constant_but_for_rounding():
    rng = np.random.default_rng(0)
    for dtype, error in ((np.float64, 1e-12), (np.float64, 1e-9), (np.float32, 2e-4)):
        noisy = (YEAR + error * rng.normal(size=160))[:, None]
        rows = np.hstack([X, noisy]).astype(dtype)
        assert len(np.unique(rows[:, 1])) > 2
        assert varying_features(rows).tolist() == [True, False]
        model = SketchedKernelRegressor(random_state=0)
        with pytest.warns(UserWarning, match="varies in column 1 by hardly more"):
            model.fit(rows, Y)
        first, second = (model.predict(beside(NEW, y).astype(dtype)) for y in (YEAR, 0))
        np.testing.assert_array_equal(first, second)
    assert varying_features(np.array([[1e9], [1e9 + 0.02]])).all()


def test_few_rows_and_sparse_rows_have_no_constant_columns():
    few = SketchedKernelRegressor(random_state=0).fit(beside(X[:20], YEAR), Y[:20])
    rows, new = sp.csr_array(beside(X, YEAR)), [beside(NEW, v) for v in (YEAR, 7.0)]
    sparse = SketchedKernelRegressor(random_state=0).fit(rows, Y)
    unseen = SketchedKernelRegressor(random_state=0).fit(sp.csr_array(beside(X, 0)), Y)
    for model in (few, sparse, unseen):
        first, second = (model.predict(sp.csr_array(part)) for part in new)
        np.testing.assert_array_equal(first, second)


def test_features_and_structured_outputs_have_no_constant_columns():
    for Features in (SketchedFeatures, RandomFourierFeatures):
        for bandwidth in ("auto", "median"):
            model = Features("gaussian", bandwidth=bandwidth, random_state=0)
            model.fit(beside(X, YEAR), Y)
            first, second = (model.transform(beside(NEW, v)) for v in (YEAR, 1.0))
            np.testing.assert_array_equal(first, second)
    model = InputOutputKernelRegressor(random_state=0)
    model.fit(beside(X, YEAR), Y[:, None])
    first, second = (model.predict(beside(NEW, v)) for v in (YEAR, 1.0))
    np.testing.assert_array_equal(first, second)


def test_rows_of_constants_have_the_mean_target():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SketchedKernelRegressor(random_state=0).fit(
            np.full((60, 2), 3.0), Y[:60]
        )
    predicted = model.predict([[3.0, 3.0], [4.0, -1.0]])
    np.testing.assert_allclose(predicted, Y[:60].mean())


def test_files_keep_infinite_bandwidths(tmp_path):
    for preprocessing in (None, "rank"):
        model = SketchedKernelRegressor(preprocessing=preprocessing, random_state=0)
        model.fit(beside(X, YEAR), Y).save(tmp_path / "model.npz")
        loaded = nbsketch.load(tmp_path / "model.npz")
        new = beside(NEW, YEAR + 1)
        np.testing.assert_array_equal(loaded.predict(new), model.predict(new))


def test_a_feature_of_infinite_bandwidth_does_not_count():
    for Kernel in (GaussianKernel, LaplacianKernel):
        given = Kernel((0.5, np.inf))(beside(X, 1.0), beside(NEW, 5.0))
        np.testing.assert_allclose(given, Kernel(0.5)(X, NEW))
    with pytest.raises(ValueError, match="`bandwidth` must be in"):
        GaussianKernel(np.inf)
    kernel = GaussianKernel().resolve(beside(X, YEAR))
    assert kernel.bandwidth == (GaussianKernel().resolve(X).bandwidth, np.inf)


@pytest.mark.parametrize("rare", [1, 40, 100])
def test_the_width_of_a_flag_does_not_fall_with_its_share(rare):
    flag = (np.arange(200) < rare).astype(float)[:, None]
    for unit in (1.0, 1000.0):
        width = fit_scaler(unit * flag, "standard").width[0]
        assert np.isclose(width, unit * (1 - rare / 200), rtol=1e-12)


def test_the_width_of_a_flag_is_that_of_copied_rows():
    rng = np.random.default_rng(0)
    rows = np.c_[rng.random(60) < 0.1, rng.normal(size=60), np.ones(60)]
    counts = rng.integers(1, 4, size=60)
    weighted = fit_scaler(rows, "standard", weights=counts.astype(float))
    copied = fit_scaler(np.repeat(rows, counts, axis=0), "standard")
    np.testing.assert_allclose(weighted.width, copied.width, rtol=1e-12)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("Model", [SketchedKernelRegressor, TabularKernelRegressor])
def test_rare_flags_without_effect_do_not_spoil_their_rows(columns, Model):
    errors = [errors_with(columns, 4, k, Model(random_state=0), 250) for k in range(2)]
    usual, flagged = np.mean(errors, axis=0)
    assert usual < 0.01
    assert flagged < 0.06  # .3 to .5 where flags are divided by their deviation


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("preprocessing", ["standard", "rank", "both"])
def test_rare_flags_without_effect_are_left_out(preprocessing):
    model = SketchedKernelRegressor(preprocessing=preprocessing, random_state=0)
    errors = [errors_with(1, 4, seed, model, 250) for seed in range(2)]
    usual, flagged = np.mean(errors, axis=0)
    assert usual < 0.002
    assert flagged < 0.002  # .07, where their length scale is that of the others
    assert model.length_scales_[1] > 1e3


@pytest.mark.parametrize("preprocessing", ["rank", "both"])
def test_rare_flags_with_an_effect_are_kept(preprocessing):
    rng = np.random.default_rng(0)
    x, flag = rng.uniform(-2, 2, 240), np.arange(240) % 60 == 0
    y = np.sin(2 * x) + flag + 0.1 * rng.normal(size=240)
    model = SketchedKernelRegressor(preprocessing=preprocessing, random_state=0)
    model.fit(np.c_[x, flag], y)
    assert model.length_scales_[1] < 30
    effect = model.predict(np.c_[x, flag]) - model.predict(np.c_[x, 0 * x])
    assert effect[flag].mean() == pytest.approx(1, abs=0.1)


def test_many_constant_columns_leave_the_choice_of_length_scales_as_it_is():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, (300, 3))
    y = np.sin(2 * rows[:, :1]) + 0.1 * rng.normal(size=(300, 1))
    tuned = tune(rows, y, rng=0)
    with_constants = tune(np.c_[rows, np.ones((300, 30))], y, rng=0)
    assert tuned.error < 0.98 * tuned.isotropic_error
    np.testing.assert_allclose(with_constants.error, tuned.error, rtol=0.02)
    assert (with_constants.relevance[3:] == 0).all()


# rows of hardly any weight ----------


@pytest.mark.parametrize("weight", [1e-12, 1e-45, 1e-200])
def test_rows_of_hardly_any_weight_do_not_change_the_criteria(weight):
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(80, 2)), rng.normal(size=(80, 1))
    weights = np.where(np.arange(80) < 40, 1.0, weight)
    code, point = FAMILIES["matern-3/2"], np.array([0.3, -0.2, 0.5])
    every = Sample(rows, y, weights / weights.mean(), np.arange(20), code)
    some = Sample(rows[:40], y[:40], np.ones(40), np.arange(20), code)
    # a mean weight of 1: tau is twice as large in the mean over all rows
    doubled = point + np.log([1, 1, 2])
    value, slopes = every.by_evidence()(doubled)
    desired, desired_slopes = some.by_evidence()(point)
    np.testing.assert_allclose(slopes, desired_slopes, atol=1e-4)
    # constants of the weights
    other = every.by_evidence()(doubled + 0.1)[0]
    change = some.by_evidence()(point + 0.1)[0] - desired
    np.testing.assert_allclose(other - value, change, atol=1e-4)
    error = every.by_landmarks().path(doubled[:-1], doubled[-1:])
    desired = some.by_landmarks().path(point[:-1], point[-1:])
    np.testing.assert_allclose(error, desired, atol=1e-4)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", ["square", "huber", "pinball"])
@pytest.mark.parametrize("weight", [1e-6, 1e-60, 1e-200])
def test_rows_of_hardly_any_weight_do_not_change_the_length_scales(loss, weight):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, (200, 4))
    y = np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.3 * rng.normal(size=200)
    usual = np.arange(200) % 2 == 0
    y[~usual] += 5 * np.sin(9 * rows[~usual, 2])
    model = SketchedKernelRegressor(loss=loss, random_state=0)
    scales = model.fit(rows, y, np.where(usual, 1.0, weight)).length_scales_
    assert scales[2:].min() > 2 * scales[0]  # without a search all are equal


# rounding of distances ----------


@pytest.mark.thin(times=1)
@pytest.mark.filterwarnings("ignore:no penalty")
@pytest.mark.parametrize("loss", ["square", "huber"])
@pytest.mark.parametrize("Model", [SketchedKernelRegressor, TabularKernelRegressor])
def test_heavy_tails_are_no_error_of_linear_algebra(Model, loss):
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(120, 3))
    options = {"loss": loss} if Model is SketchedKernelRegressor else {}
    for rows in (np.exp(20 * normal), rng.standard_cauchy((120, 3)) ** 9):
        model = Model(random_state=0, **options).fit(rows, normal[:, 0])
        assert np.isfinite(model.predict(rows)).all()


# what nothing else holds ----------


class Flat:
    """A criterion that is the same everywhere."""

    level, error = 0, 0.0

    def __call__(self, point):
        return 0.0, np.zeros_like(point)


def test_without_evidence_length_scales_are_pulled_to_each_other():
    descent = Descent(Flat(), np.array([2.0, -1.0, 0.5, 1.0]), 50)
    descent.run(100, Budget(100, np.inf))
    np.testing.assert_allclose(descent.point[:3], 0.5, atol=0.02)
    np.testing.assert_allclose(descent.point[3], np.log(0.01), atol=0.05)


def test_the_penalty_of_fewer_features_is_corrected_to_that_of_all(monkeypatch):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(400, 120)) * np.arange(1, 121.0) ** -0.5
    y = (Z @ rng.normal(size=120) + 0.3 * rng.normal(size=400))[:, None]
    objective = regression_objective(y, None, True, HuberLoss(1.0))
    leading = np.linalg.svd(Z - Z.mean(axis=0))[2][:30].T

    def of(features):
        rng = np.random.default_rng(0)
        return LeftOutErrors(objective, ArrayDesign(features), rng)

    every, few = (part._ridge_alpha(part._ridge()) for part in (of(Z), of(Z @ leading)))
    assert few > 5 * every
    found = of(Z).smaller_alpha(30, 10**6)
    monkeypatch.setattr("nbsketch.fitting.penalty._LEAST_RATIO", 1.0)
    uncorrected = of(Z).smaller_alpha(30, 10**6)
    np.testing.assert_allclose(found / uncorrected, every / few, rtol=0.02)


def test_length_scales_of_rates_do_not_depend_on_their_unit():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, (100, 3))
    rates = rng.poisson(3 * np.exp(np.sin(2 * rows[:, 0]))).astype(float)
    model = SketchedKernelRegressor(loss="poisson", random_state=0)
    expected = model.fit(rows, rates).length_scales_
    for unit in (2.0**-30, 2.0**30):
        found = model.fit(rows, unit * rates).length_scales_
        np.testing.assert_allclose(found, expected, rtol=1e-9)


# one row more ----------


def test_the_limit_of_the_penalty_of_a_search_has_no_step():
    limits = np.array([least_log_tau(n) for n in range(50, 9000)])
    assert limits[0] == least_log_tau(1500) == -21
    assert limits[-1] == least_log_tau(4000) == -13
    assert np.diff(limits).min() >= 0 and np.diff(limits).max() < 0.01


@pytest.mark.parametrize("noise, single", [(0.0, False), (0.5, True)])
def test_penalties_of_all_rows_are_chosen_on_values_as_exact_as_they_ask_for(
    noise, single, monkeypatch
):
    types = []

    def recorded(kernel, rows, dtype=np.float32):
        types.append(np.dtype(dtype))
        return SymmetricGram(kernel, rows, dtype=dtype)

    monkeypatch.setattr("nbsketch.fitting.choice.SymmetricGram", recorded)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, (1501, 2))
    y = np.sin(2 * rows[:, 0]) + noise * rng.normal(size=1501)
    model = SketchedKernelRegressor("gaussian", bandwidth=1.5, random_state=0)
    error = model.fit(rows, y).predict(rows) - np.sin(2 * rows[:, 0])
    assert (np.dtype(np.float64) in types) != single
    if not noise:
        assert np.sqrt(np.mean(error**2)) < 1e-4


@pytest.mark.parametrize(
    ("model", "n"),
    [
        (SketchedKernelRegressor(random_state=0), 90),
        (SketchedKernelRegressor(cv=4, random_state=0), 90),
        (SketchedKernelRegressor(size=40, random_state=0), 90),
        (SketchedKernelRegressor("gaussian", bandwidth=0.5, random_state=0), 1600),
        (SpectralFilterRegressor(filter="cutoff", random_state=0), 90),
        (SketchedSGDRegressor(random_state=0), 90),
        (TabularKernelRegressor(random_state=0), 90),
    ],
)
def test_units_of_one_output_do_not_matter_to_others(model, n):
    """One penalty serves a precise output and one that is mostly noise."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-2, 2, (n, 1))
    pair = np.sin(2 * rows) + rng.normal(size=(n, 2)) * [0.1, 3.0]
    expected = model.fit(rows, pair).predict(NEW)
    units = [1.0, 1e4]
    actual = model.fit(rows, pair * units).predict(NEW) / units
    assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", ["huber", "epsilon-insensitive"])
@pytest.mark.parametrize(
    "kind", [SketchedKernelRegressor, SketchedSGDRegressor, TabularKernelRegressor]
)
def test_thresholds_of_losses_follow_the_units_of_targets(kind, loss):
    model = kind(loss=loss, random_state=0)
    expected = model.fit(X, Y).predict(NEW)
    actual = model.fit(X, 1e7 + 1e-3 * Y).predict(NEW)
    assert_allclose((actual - 1e7) * 1e3, expected, atol=1e-4)


def test_thresholds_are_in_robust_standard_deviations():
    """1.4826 times the median distance; mostly equal targets: the mean distance."""
    targets = np.array([0.0, 1.0, 2.0, 3.0, 100.0])[:, None]
    rare = np.array([0.0, 0.0, 0.0, 0.0, 10.0])[:, None]
    equal = np.ones((5, 1))
    for y, unit in ((targets, 1.4826), (rare, 2.0), (equal, 1.0)):
        assert_allclose(loss_at("huber", y, None).kappa, unit, rtol=1e-4)
        assert_allclose(loss_at(HuberLoss(3.0), y, None).kappa, 3.0)
    insensitive = loss_at("epsilon-insensitive", rare, np.array([1.0, 1, 1, 1, 0]))
    assert insensitive.epsilon == 0.1  # without the row of weight zero all are equal
    pair = np.c_[[3.0, 0, 0], [4.0, 0, 0], [0.0, 0, 0]].repeat(2, axis=0)
    assert loss_at("huber", pair, None).kappa == pytest.approx(5 / 3)


@pytest.mark.parametrize("Model", [SketchedKernelRegressor, SketchedSGDRegressor])
def test_outputs_that_are_small_next_to_others_are_told(Model):
    """R2 of an epsilon-insensitive loss was -4e8 without a word."""
    model = Model(bandwidth=1.0, loss="huber", random_state=0)
    small = "column 0 of `y` varied less than 0.001 times as much as the largest"
    with pytest.warns(UserWarning, match=small):
        model.fit(X, np.column_stack([Y, 1e9 * Y]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X, np.column_stack([Y, 10 * Y, np.full(len(Y), 0.1 + 0.2)]))
        Model(bandwidth=1.0, random_state=0).fit(X, np.column_stack([Y, 1e9 * Y]))
        wrong = np.where(np.arange(len(Y)) < 3, 1e9, Y)  # its deviation is not its unit
        model.fit(X, np.column_stack([Y, wrong]))


def test_rare_flags_do_not_spoil_their_rows_in_robust_losses_of_tables():
    """A robust regression cannot predict these rows, so their residuals are not cut."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 2000)
    y = np.exp(0.5 * np.sin(2 * x) + 0.01 * rng.normal(size=2000))
    flag = np.zeros(2000)
    flag[rng.choice(2000, 3, replace=False)] = 1
    model = TabularKernelRegressor(loss="huber", random_state=0)
    values = model.fit(np.column_stack([x, flag]), y).predict(np.c_[NEW, NEW**0])
    error = np.mean((values - np.exp(0.5 * np.sin(2 * NEW[:, 0]))) ** 2)
    assert error < 1e-3  # .04 where they are cut


@pytest.mark.parametrize(
    "n, seed, robust",
    [(1500, 0, True), (1500, 2, True), (1500, 3, True), (6000, 1, False)],
)
def test_rare_flags_do_not_spoil_their_rows_in_samples(n, seed, robust):
    """Robust losses do not trim them, and samples of many rows contain them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, n)
    y = np.exp(0.5 * np.sin(2 * x)) + 0.01 * rng.normal(size=n)
    flag = np.isin(np.arange(n), rng.choice(n, 3, replace=False))
    tuned = tune(np.c_[x, flag], y[:, None], robust=robust, rng=0)
    assert tuned.relevance[0] > 0.2
    assert tuned.relevance[1] < 1e-3  # .24 to 1 where one or two of them do not count


def test_rare_flags_with_an_effect_are_kept_in_robust_losses():
    rng = np.random.default_rng(0)
    x, flag = rng.uniform(-2, 2, 1500), np.arange(1500) < 10
    y = np.sin(2 * x) + flag + 0.01 * rng.normal(size=1500)
    tuned = tune(np.c_[x, flag], y[:, None], robust=True, rng=0)
    assert tuned.relevance[1] > 0.05  # 0 where all of them are trimmed


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("unit", [1e-120, 1e135])
@pytest.mark.parametrize("loss", ["square", "huber", "pinball", "absolute_error"])
def test_targets_of_any_unit_have_the_same_model(loss, unit):
    # The pinball loss was solved in single precision, and squares of losses overflowed.
    model = SketchedKernelRegressor(loss=loss, random_state=0)
    expected = model.fit(X, Y).predict(NEW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y * unit)
    assert_allclose(model.predict(NEW) / unit, expected, rtol=1e-6, atol=1e-6)
    assert model.dual_gap_ < 1e-6


@pytest.mark.parametrize("unit", [1e-120, 1e120])
def test_losses_of_any_unit_are_compared(unit):
    rng = np.random.default_rng(0)
    others = rng.uniform(size=50)
    noise = rng.normal(size=50)
    assert is_lower(unit * (others - 0.5), unit * others, None, 0.0)
    assert not is_lower(unit * (others + noise), unit * others, None, 0.0)
