"""Losses of regression on tables."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import d2_tweedie_score, mean_pinball_loss
from sklearn.model_selection import GridSearchCV
from tables import small_leaves

import nbsketch
from nbsketch import OutlierWarning, TabularKernelRegressor
from nbsketch.losses import (
    EpsilonInsensitiveLoss,
    GammaLoss,
    HuberLoss,
    Loss,
    PinballLoss,
    PoissonLoss,
    SquareLoss,
)
from nbsketch.tabular.suspects import is_robust
from nbsketch.tabular.working import WorkingLoss, _leveled, start, working_loss

ALL = (
    "huber",
    HuberLoss(0.3),
    "absolute_error",
    EpsilonInsensitiveLoss(0.1),
    "squared-epsilon-insensitive",
    PinballLoss(0.9),
    "poisson",
    "gamma",
)


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, 3 + np.sin(3 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)


def fit(X, y, loss, *args, **options):
    return TabularKernelRegressor(loss=loss, random_state=0, **options).fit(X, y, *args)


@pytest.mark.parametrize("loss", ALL, ids=str)
def test_each_loss_fits_predicts_and_is_kept_in_a_file(loss):
    X, y = rows(150)
    y = 5 * y
    model = fit(X, y, loss)
    values = model.predict(X)
    assert np.corrcoef(values, y)[0, 1] > 0.95
    low, high = model.predict_interval(X, 0.9).T
    assert 0.85 < np.mean((low <= y) & (y <= high)) <= 1
    assert str(model.loss_) in model.summary()
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    again = nbsketch.load(file)
    assert_array_equal(again.predict(X), values)
    assert again.loss_ == model.loss_
    assert clone(model).get_params()["loss"] == loss


def test_the_square_loss_has_names_and_is_the_default():
    X, y = rows(60)
    expected = TabularKernelRegressor(random_state=0).fit(X, y).predict(X)
    for loss in "square", "squared_error", SquareLoss():
        assert_array_equal(fit(X, y, loss).predict(X), expected)


def mean_error(model, X):
    truth = 3 + np.sin(3 * X[:, 0]) + X[:, 1]
    return np.abs(model.predict(X) - truth).mean()


@pytest.fixture(scope="module")
def error_without_gross_errors():
    X, y = rows(300)
    return mean_error(fit(X, y, "square"), X)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("loss", ["absolute_error", "huber"])
def test_gross_errors_of_any_share_hardly_count(
    loss, share, error_without_gross_errors
):
    X, y = rows(300)
    bad = np.random.default_rng(2).permutation(300)[: int(share * 300)]
    y[bad] *= 10
    with pytest.warns(OutlierWarning, match="are excluded"):
        model = fit(X, y, loss)
    assert model.n_outliers_ >= 0.9 * len(bad)
    assert mean_error(model, X) < 1.4 * error_without_gross_errors


def test_quantiles_use_all_rows_and_have_their_level():
    X, y = rows(500)
    y[::5] += np.random.default_rng(0).exponential(50, size=100)
    model = fit(X, y, PinballLoss(0.9))
    assert model.n_outliers_ == 0
    assert abs(np.mean(y <= model.predict(X)) - 0.9) < 0.04
    assert_array_equal(model.predict(X), model.predict_quantiles(X, 0.9)[:, 0])
    expected = mean_pinball_loss(y, model.predict(X), alpha=0.9)
    assert_allclose(model.loo_error_, expected, rtol=0.2)


@pytest.mark.parametrize(("loss", "power"), [("poisson", 1), ("gamma", 2)])
def test_means_have_weights_scores_and_positive_quantiles(loss, power):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 2))
    mean = np.exp(1.5 * X[:, 0])
    exposure = rng.uniform(0.2, 3, size=400)
    y = rng.poisson(mean * exposure) / exposure
    if power == 2:
        y = mean * rng.gamma(2.0, size=400) / 2
    model = fit(X, y, loss, exposure)
    means = np.average([model.predict(X), y], axis=1, weights=exposure)
    assert_allclose(means[0], means[1], rtol=0.05)
    assert np.abs(np.log(model.predict(X) / mean)).mean() < 0.2
    expected = d2_tweedie_score(y, model.predict(X), power=power)
    assert model.score(X, y) == expected
    assert model.predict_quantiles(X, [0.001]).min() >= 0
    assert (model.predict_cdf(X[:3], -1.0) == 0).all()
    assert model.__sklearn_tags__().target_tags.positive_only


def test_rare_counts_have_means_below_those_of_a_half():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(600, 2))
    y = rng.poisson(0.05 * np.exp(2 * X[:, 0]))
    model = fit(X, y, "poisson")
    assert_allclose(model.predict(X).mean(), y.mean(), rtol=0.1)
    assert model.predict([[-0.9, 0.0]])[0] < 0.05


def test_units_of_targets_do_not_matter():
    X, y = rows(120)
    y = y / 10
    for loss in "huber", "poisson":
        small = fit(X, y, loss).predict(X)
        large = fit(X, 1e3 * y, loss).predict(X)
        assert_allclose(large, 1e3 * small, rtol=0.01)


def test_beyond_one_leaf_and_with_blocks_and_partners():
    X, y = rows(400)
    with small_leaves(leaf_rows=200):
        model = fit(X, y, "poisson", cv=5, partners=[Ridge()])
    assert "2 leaves" in model.summary()
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.95
    assert len(model.partner_weights_) == 1


def test_blocks_that_are_never_left_out_have_scores():
    X, y = rows(200)
    folds = [(np.arange(50, 200), np.arange(50))]
    model = fit(X, y, "absolute_error", cv=folds)
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.95


def test_several_outputs_have_losses_of_norms():
    X, y = rows()
    Y = np.column_stack([y, y**2])
    model = fit(X, Y, "huber")
    assert model.predict(X).shape == Y.shape
    assert model.loo_error_.shape == (2,)
    with pytest.raises(ValueError, match="must be one of"):
        fit(X, Y, "quantile")


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        ("hinge", None, "TabularKernelClassifier"),
        ("cubic", None, "must be a Loss or one of"),
        ("gamma", 0.0, "must be positive"),
        ("poisson", -1.0, "must be nonnegative"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(loss, y, message):
    X, targets = rows(60)
    if y is not None:
        targets[3] = y
    with pytest.raises(ValueError, match=message):
        fit(X, targets, loss)


def test_a_loss_without_a_slope_is_refused():
    class Half(Loss):
        def value(self, x):
            return np.abs(x) / 2

    X, y = rows(60)
    with pytest.raises(TypeError, match="derivative"):
        fit(X, y, Half())


def test_parameters_of_a_loss_are_searched():
    X, y = rows(60)
    model = TabularKernelRegressor(loss="huber", random_state=0)
    search = GridSearchCV(model, {"loss__kappa": [0.1, 10.0]}, cv=2).fit(X, y)
    assert search.best_estimator_.loss_.kappa in (0.1, 10.0)


def test_weights_of_a_kink_are_bounded():
    y = np.array([[0.0], [1.0], [2.0], [9.0]])
    ends = np.zeros(1), np.ones(1)
    work = WorkingLoss(PinballLoss(0.75), y, np.ones(len(y)), *ends)
    response, h = work.at(np.array([[0.0], [0.0], [3.0], [np.nan]]))
    assert response is y
    r = [0.1, 1.0]  # a tenth of the median size of residuals, and a residual
    assert_allclose(h[:2] / h[2], [0.75 / r[0] / 0.25, 0.75 / r[1] / 0.25])


def counts():
    """Return the loss of weighted counts at targets 0, 3 and 8."""
    loss = PoissonLoss()
    y = np.array([[0.0], [3.0], [8.0]])
    return WorkingLoss(loss, loss.link(y), np.array([0.5, 2, 0.5]), *np.eye(2))


def test_working_responses_of_counts_are_those_of_newton():
    response, h = counts().at(np.log([[2.0], [1.0], [1e-9]]))
    assert_allclose(response[:, 0], [np.log(2.0) - 1, 2.0, np.log(1e-9) + 8e9 - 1])
    assert_allclose(h, [0.5, 2 * 0.5, 0.5 * 1e-6])  # at least 1e-6 of the largest


@pytest.mark.parametrize("loss, share", [(PoissonLoss(), 0.5), (GammaLoss(), 0.0)])
def test_length_scales_of_means_are_those_of_logarithms(loss, share):
    y = np.array([[1.0], [3.0], [8.0]])
    rows = SimpleNamespace(Y=loss.link(y), weights=np.array([0.5, 2.0, 0.5]))
    mean = np.average(y, weights=rows.weights[:, None])
    assert_allclose(start(rows, loss), np.log(y + share * mean))


def test_first_scores_of_means_have_the_mean_of_the_targets():
    work = counts()
    scores = np.array([[0.3], [-1.0], [2.0]])
    change = _leveled(scores, work, 0) - scores
    mean = np.average([0, 3, 8], weights=work.weights)
    fitted = np.average(np.exp(scores[:, 0]), weights=work.weights)
    assert_allclose(change, np.log(mean / fitted))
    assert _leveled(scores, work, 1) is scores
    assert _leveled(scores, work._replace(loss=HuberLoss()), 0) is scores


def test_scores_of_counts_go_down_to_that_of_one_count_in_all_rows():
    loss = PoissonLoss()
    y = loss.link(np.array([[0.0], [0.0], [0.0], [2.0]]))
    work = working_loss(loss, y, np.array([1.0, 1.0, 0.5, 1.5]), y[[0, 3]])
    assert_allclose(work.low, np.log(2 * 1.5 / 4 / 4))
    assert_allclose(work.high, np.log(2.5) + 0.1 * np.log(2.5 / 0.5))
    other = working_loss(HuberLoss(), y, np.ones(4), y[[0, 3]])
    assert_allclose(other.low, np.log(0.5) - 0.1 * np.log(2.5 / 0.5))


def test_the_law_of_errors_around_a_quantile_is_that_of_medians():
    X, y = rows(60)
    models = [fit(X, y, loss) for loss in (PinballLoss(0.9), "absolute_error")]
    expected = models[1].predict_quantiles(X, [0.2, 0.5])
    assert_array_equal(models[0].predict_quantiles(X, [0.2, 0.5]), expected)


def test_even_losses_of_bounded_slope_are_robust():
    robust = HuberLoss(), EpsilonInsensitiveLoss(), PinballLoss(0.5)
    assert all(is_robust(loss) for loss in robust)
    others = SquareLoss(), PinballLoss(0.9), PoissonLoss(), GammaLoss()
    assert not any(is_robust(loss) for loss in others)


# The median of the claims is 8.4, the quantile 19.4.
@pytest.mark.parametrize(
    ("loss", "most"), [("huber", 12), ("absolute_error", 12), (PinballLoss(0.9), 25)]
)
def test_targets_that_are_mostly_zero_have_no_scale_to_cut_residuals_at(loss, most):
    """Claims: the residuals of a robust fit are rounding in most rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 3))
    y = np.where(X[:, 0] > 1.5, rng.gamma(2.0, 5.0, 800), 0.0)
    model = TabularKernelRegressor(loss=loss, random_state=0).fit(X, y)
    values = model.predict([[1.8, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    assert 5 < values[0] < most and abs(values[1]) < 0.1
