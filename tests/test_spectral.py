"""SpectralFilterRegressor: the estimator around the filters."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from test_filters import FILTERS, ShowalterFilter

import nbsketch
from nbsketch import (
    CutoffFilter,
    IteratedRidgeFilter,
    LandweberFilter,
    SketchedFeatures,
    SketchedKernelRegressor,
    SpectralFilterRegressor,
)
from nbsketch.model_selection import cross_validate
from nbsketch.sketches import _BY_NAME as SKETCHES
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.filters import as_filter
from nbsketch.solvers.spectrum import decompose

COMMON = {"bandwidth": 0.8, "random_state": 0}
NAMES = ("ridge", "iterated-ridge", "cutoff", "landweber")
each_name = pytest.mark.parametrize("filter", NAMES)


def data(n=150, d=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    columns = [np.sin(3 * X[:, 0] + j) + X[:, 1] for j in range(d or 1)]
    Y = np.column_stack(columns) + 0.2 * rng.normal(size=(n, d or 1))
    return X, Y if d else Y[:, 0]


def regressor(filter="ridge", **parameters):
    return SpectralFilterRegressor(filter=filter, **{**COMMON, "size": 30} | parameters)


def features(X, **parameters):
    options = {**COMMON, "sketch": "subsampling", "size": 30} | parameters
    return SketchedFeatures(**options).fit_transform(X)


# solutions --------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("criterion", ["leave-one-out", "gcv"])
def test_ridge_is_the_regressor_of_the_square_loss(fit_intercept, criterion):
    X, y = data()
    ours = regressor(criterion=criterion, fit_intercept=fit_intercept).fit(X, y)
    alpha = None if criterion == "leave-one-out" else ours.alpha_
    other = SketchedKernelRegressor(
        size=30, alpha=alpha, fit_intercept=fit_intercept, **COMMON
    ).fit(X, y)
    assert_allclose(ours.alpha_, other.alpha_, rtol=1e-8)
    assert_allclose(ours.predict(X), other.predict(X), rtol=0, atol=1e-8)


@pytest.mark.parametrize("filter", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("d", [None, 3])
def test_model_is_the_filter_on_the_features(filter, d):
    X, y = data(d=d)
    Z = features(X)
    spectrum = decompose(ArrayDesign(Z), y.reshape(len(y), -1))
    B, b = spectrum.coefficients(filter, 0.02)
    model = regressor(filter, alpha=0.02).fit(X, y)
    desired = Z @ B + b
    assert_allclose(model.predict(X), desired if d else desired[:, 0], atol=1e-9)
    assert_allclose(
        model.objective_, np.square(y.reshape(desired.shape) - desired).sum() / 2 / 150
    )
    assert model.coef_.shape == ((30, 3) if d else (30,))
    assert model.n_iter_ == filter.n_iter(0.02)
    assert model.path_ is None


def test_cutoff_is_sketched_principal_component_regression():
    X, y = data()
    Z = features(X)
    pca = PCA().fit(Z)
    variances = pca.explained_variance_ * (1 - 1 / len(Z))
    scores = pca.transform(Z)[:, :6]
    desired = LinearRegression().fit(scores, y).predict(scores)
    model = regressor("cutoff", alpha=float(variances[5:7].mean())).fit(X, y)
    assert_allclose(model.predict(X), desired, rtol=0, atol=1e-8)


def test_number_of_steps_is_gradient_descent_on_the_features():
    X, y = data()
    Z = features(X)
    Z = Z - Z.mean(axis=0)
    w, step = np.zeros(Z.shape[1]), 0.5 / np.linalg.eigvalsh(Z.T @ Z / len(Z))[-1]
    for _ in range(40):
        w -= step * Z.T @ (Z @ w - y + y.mean()) / len(Z)
    model = regressor("landweber", step=step, n_steps=40).fit(X, y)
    assert_allclose(model.predict(X), Z @ w + y.mean(), rtol=0, atol=1e-10)
    assert model.n_iter_ == 40
    assert_allclose(model.alpha_, 1 / (40 * step))
    same = regressor("landweber", step=step, alpha=model.alpha_).fit(X, y)
    assert_array_equal(same.coef_, model.coef_)


@pytest.mark.thin
@pytest.mark.parametrize("name", SKETCHES)
@each_name
def test_any_sketch_is_a_projection(name, filter):
    X, y = data()
    size = None if name == "identity" else 40
    model = regressor(filter, sketch=name, size=size).fit(X, y)
    assert model.score(X, y) > 0.9
    assert np.isfinite(model.path_["error"]).all()


def test_filter_of_a_user():
    X, y = data()
    model = regressor(ShowalterFilter()).fit(X, y)
    assert model.score(X, y) > 0.9


@each_name
def test_outputs_are_separate_models(filter):
    X, Y = data(d=3)
    joint = regressor(filter, alpha=0.01).fit(X, Y).predict(X)
    for j in range(3):
        one = regressor(filter, alpha=0.01).fit(X, Y[:, j]).predict(X)
        assert_allclose(joint[:, j], one, rtol=0, atol=1e-11)


@each_name
def test_integer_weights_are_repetitions(filter):
    X, y = data(60)
    times = np.arange(60) % 3
    rows = np.repeat(np.arange(60), times)
    # without a sketch the subspace is that of the rows, repeated or not
    exact = {"sketch": "identity", "size": None, "alpha": 0.01}
    model = regressor(filter, **exact).fit(X, y, sample_weight=times)
    same = regressor(filter, **exact).fit(X[rows], y[rows])
    if filter == "cutoff":  # directions without variance are cut where they are noise
        assert_allclose(model.predict(X), same.predict(X), rtol=0, atol=1e-6)
    else:
        assert_allclose(model.predict(X), same.predict(X), rtol=0, atol=1e-8)


@each_name
def test_sparse_rows_are_dense_rows(filter):
    X, y = data()
    X[X < 0.3] = 0
    dense = regressor(filter, alpha=0.01).fit(X, y)
    sparse = regressor(filter, alpha=0.01).fit(sp.csr_array(X), y)
    assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), atol=1e-8)


def test_single_precision():
    X, y = data()
    model = regressor("landweber").fit(X.astype(np.float32), y)
    assert model.landmarks_.dtype == np.float32
    double = regressor("landweber", alpha=model.alpha_).fit(X, y)
    assert_allclose(model.predict(X.astype(np.float32)), double.predict(X), atol=1e-2)


# the choice of the parameter --------------------------------------------------------


@each_name
@pytest.mark.parametrize("criterion", ["gcv", "leave-one-out"])
def test_path_and_choice(filter, criterion):
    X, y = data()
    model = regressor(filter, criterion=criterion).fit(X, y)
    alpha, error = model.path_["alpha"], model.path_["error"]
    assert (np.diff(alpha) < 0).all()
    assert model.alpha_ == alpha[np.argmin(error)]
    assert model.n_iter_ == model.path_["n_iter"][np.argmin(error)]
    fresh, truth = data(1000, seed=9)
    assert np.mean((model.predict(fresh) - truth) ** 2) < 0.06  # 0.04 is noise
    again = regressor(filter, alpha=model.alpha_).fit(X, y)
    assert_array_equal(again.coef_, model.coef_)


@each_name
def test_both_criteria_estimate_the_error_on_new_rows(filter):
    X, y = data(400)
    fresh, truth = data(4000, seed=9)
    for criterion in ("gcv", "leave-one-out"):
        model = regressor(filter, criterion=criterion).fit(X, y)
        error = np.mean((model.predict(fresh) - truth) ** 2)
        assert_allclose(model.path_["error"].min(), error, rtol=0.15)


@each_name
@pytest.mark.parametrize("d", [None, 2])
def test_choice_on_validation_rows(filter, d):
    X, y = data(d=d)
    others, truth = data(80, d=d, seed=5)
    model = regressor(filter).fit(X, y, X_val=others, y_val=truth)
    models = regressor(filter).fit_path(X, y, model.path_["alpha"])
    units = 1.0 if d is None else y.std(axis=0)
    residuals = [(m.predict(others) - truth) / units for m in models]
    errors = [np.square(r).sum() / 80 for r in residuals]
    assert_allclose(model.path_["error"], errors, rtol=1e-6)
    assert model.alpha_ == model.path_["alpha"][np.argmin(model.path_["error"])]


def test_fit_path():
    X, y = data()
    models = regressor("landweber").fit_path(X, y, [1.0, 0.01])
    for model, alpha in zip(models, [1.0, 0.01], strict=True):
        one = regressor("landweber", alpha=alpha).fit(X, y)
        assert_allclose(model.predict(X), one.predict(X), rtol=0, atol=1e-11)
        assert (model.alpha_, model.n_iter_, model.path_) == (alpha, one.n_iter_, None)


@each_name
@pytest.mark.parametrize("sketch", ["identity", "subsampling"])
def test_cross_validation(filter, sketch):
    X, y = data(90)
    size = None if sketch == "identity" else 40
    model = regressor(filter, sketch=sketch, size=size)
    alphas = [1.0, 1e-2, 1e-4]
    found = cross_validate(model, X, y, [0.8], alphas, cv=3)
    errors = np.zeros(3)
    # a fold is made of rows of the features of all
    Z = features(X, sketch="subsampling", size=40)
    for left_out in np.split(np.arange(90), 3):
        kept = np.delete(np.arange(90), left_out)
        if sketch == "identity":
            models = model.fit_path(X[kept], y[kept], alphas)
            fitted = [m.predict(X[left_out]) for m in models]
        else:
            spectrum = decompose(ArrayDesign(Z[kept]), y[kept, None])
            resolved = as_filter(filter).resolve(spectrum.top)
            solutions = [spectrum.coefficients(resolved, a) for a in alphas]
            fitted = [(Z[left_out] @ B + b)[:, 0] for B, b in solutions]
        errors += [np.square(f - y[left_out]).sum() / 90 for f in fitted]
    # the number of steps is rounded, and the largest eigenvalue decides which way
    assert_allclose(found.errors[0, :, 0], errors, rtol=1e-4)


# saving, errors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "filter", ["cutoff", IteratedRidgeFilter(3), LandweberFilter(0.1)], ids=repr
)
def test_save_and_load(filter, tmp_path):
    X, y = data()
    model = regressor(filter).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert again.filter == filter
    assert_array_equal(again.predict(X), model.predict(X))
    assert_array_equal(again.path_["error"], model.path_["error"])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"filter": "tikhonov"}, "`filter` must be one of"),
        ({"order": 2}, "`order` must be None for filter='ridge'"),
        ({"filter": "cutoff", "step": 1.0}, "`step` must be None"),
        ({"n_steps": 3}, r"`n_steps` must be None for RidgeFilter\(\), got 3"),
        ({"filter": "landweber", "n_steps": 0}, "`n_steps` must be at least 1"),
        ({"filter": "landweber", "n_steps": 2, "alpha": 1.0}, "set the same number"),
        ({"filter": "landweber", "step": 1e3}, "`step` must be at most 1 over"),
        ({"filter": CutoffFilter(), "order": 2}, "`order` requires the name"),
        ({"criterion": "aic"}, "`criterion` must be one of"),
        ({"alpha": -1.0}, "`alpha` must be in"),
        ({"fit_intercept": "yes"}, "`fit_intercept` must be one of"),
    ],
    ids=str,
)
def test_bad_parameters_leave_a_fitted_model(parameters, message):
    X, y = data()
    model = regressor().fit(X, y)
    desired = model.predict(X)
    model.set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert_array_equal(model.predict(X), desired)


def test_bad_validation_rows():
    X, y = data()
    with pytest.raises(ValueError, match="`X_val` and `y_val` must be passed together"):
        regressor().fit(X, y, X_val=X)
    with pytest.raises(ValueError, match=r"`y_val` must have shape \(150, 1\), got"):
        regressor().fit(X, y, X_val=X, y_val=y[:9])
    with pytest.raises(ValueError, match="`X_val` must be None if `alpha` or"):
        regressor(alpha=1.0).fit(X, y, X_val=X, y_val=y)
    with pytest.raises(ValueError, match="features"):
        regressor().fit(X, y, X_val=X[:, :1], y_val=y)


def test_refitting_with_a_parameter_forgets_the_path():
    X, y = data()
    model = regressor().fit(X, y)
    assert model.path_ is not None
    assert model.set_params(alpha=0.1).fit(X, y).path_ is None


def test_pure_noise_is_shrunk_away():
    X, _ = data(300)
    y = np.random.default_rng(3).normal(size=300) + 5.0
    for filter in ("ridge", "iterated-ridge", "cutoff"):
        fitted = regressor(filter).fit(X, y).predict(X)
        assert_allclose(fitted, y.mean(), atol=0.35)


def test_rows_of_hardly_any_weight_leave_no_freedom():
    """Beside 200 rows, 100 of weight 1e-10 made an interpolating filter the best."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(300, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=300)
    weights = np.where(np.arange(300) < 200, 1.0, 1e-10)
    models = [SpectralFilterRegressor(bandwidth=1.0, random_state=0) for _ in range(2)]
    alone = models[0].fit(X[:200], y[:200])
    model = models[1].fit(X, y, weights)
    assert 0.3 < 1.5 * model.alpha_ / alone.alpha_ < 3
    assert_allclose(model.predict(X), alone.predict(X), atol=0.05)


@each_name
def test_targets_that_are_mostly_zero_are_not_interpolated(filter):
    """Claims: GCV weighs all residuals alike, and most of them are tiny."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 3))
    y = np.where(X[:, 0] > 1.5, rng.gamma(2.0, 5.0, 800), 0.0)
    new = rng.normal(size=(1000, 3))
    truth = np.where(new[:, 0] > 1.5, 10.0, 0.0)
    model = SpectralFilterRegressor(filter=filter, random_state=0).fit(X, y)
    ridge = SketchedKernelRegressor(random_state=0).fit(X, y)
    error, best = (np.std(m.predict(new) - truth) for m in (model, ridge))
    assert error < 1.1 * best
