"""Tags of scikit-learn follow the parameters, and classifiers have logarithms."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

from nbsketch import (
    GammaLoss,
    GaussianTanimotoKernel,
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    PinballLoss,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SobolevKernel,
    SpectralFilterRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch.conformal import ConformalClassifier, ConformalRegressor

PLAIN = {"bandwidth": 1.0, "alpha": 1e-2, "sketch": "identity"}
CHECKED = [
    SketchedKernelRegressor(loss="poisson", **PLAIN),
    SketchedKernelRegressor(loss="gamma", tol=1e-9, **PLAIN),
    SketchedKernelRegressor(loss="pinball", sketch="identity", alpha=1e-5),
    SketchedKernelRegressor(bandwidth="auto", alpha=1e-2),
    SketchedKernelRegressor(preprocessing="rank", bandwidth="median", alpha=1e-2),
    SketchedKernelRegressor("gaussian-tanimoto", bandwidth="median", alpha=1e-2),
    SketchedFeatures(bandwidth="auto"),
    RandomFourierFeatures(bandwidth="auto"),
    ConformalRegressor(Ridge()),
    ConformalClassifier(LogisticRegression()),
]
# Names that the tags of these parameters decide.
DECIDED = (
    "sparse",
    "multioutput",
    "regressors_train",
    "regressors_int",
    "y_2d",
    "positive_only",
    "n_features_in",
    "not_an_array",
    "fit_score_takes_y",
    "requires_y_none",
)


def decided_checks():
    """Yield estimators and the checks of scikit-learn that their tags decide."""
    for estimator in CHECKED:
        for tested, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            if any(part in name for part in DECIDED) and "equivalence" not in name:
                yield pytest.param(tested, check, id=f"{estimator}-{name}")


@pytest.mark.thin
@pytest.mark.parametrize(("estimator", "check"), list(decided_checks()))
def test_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [SketchedKernelRegressor, SketchedSGDRegressor])
@pytest.mark.parametrize(
    ("loss", "positive", "several"),
    [
        ("square", False, True),
        ("huber", False, True),
        ("pinball", False, False),
        (PinballLoss(0.2), False, False),
        ("poisson", True, False),
        (GammaLoss(), True, False),
        ("unknown", False, True),
    ],
    ids=str,
)
def test_targets_follow_the_loss(estimator, loss, positive, several):
    tags = get_tags(estimator(loss=loss)).target_tags
    assert (tags.positive_only, tags.multi_output) == (positive, several)


def test_monotone_models_have_one_target():
    assert not get_tags(
        SketchedKernelRegressor(monotonic_cst=[1])
    ).target_tags.multi_output


@pytest.mark.thin(times=1)
@pytest.mark.filterwarnings("ignore:predictions move")
@pytest.mark.parametrize(
    "estimator",
    [
        SketchedKernelRegressor,
        SketchedKernelClassifier,
        SketchedSGDRegressor,
        SketchedSGDClassifier,
        SpectralFilterRegressor,
        JointQuantileRegressor,
        InputOutputKernelRegressor,
        SketchedFeatures,
        RandomFourierFeatures,
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"preprocessing": "auto"},
        {"preprocessing": "standard"},
        {"preprocessing": "rank"},
        {"bandwidth": "auto"},
        {"bandwidth": [1.0] * 4},
        {"kernel": "laplacian"},
        {"kernel": "linear"},
        {"monotonic_cst": [1, 0, 0, 0]},
    ],
    ids=str,
)
def test_sparse_rows_follow_the_parameters(estimator, options, rng):
    model = estimator()
    if options.keys() - model.get_params().keys():
        pytest.skip("no such parameter")
    X = sp.random_array((60, 4), density=0.5, rng=rng, format="csr")
    y = X.toarray()[:, 0] > 0.2
    y = y.reshape(-1, 1) if estimator is InputOutputKernelRegressor else y
    known = {"alpha": 1e-2} if hasattr(model, "alpha") else {}
    model.set_params(**options, **known)
    try:
        model.fit(X.toarray(), y)
    except ValueError:
        pytest.skip("no such kernel")
    try:
        model.fit(X, y)
        fits = True
    except (TypeError, ValueError) as error:
        assert "sparse" in str(error)
        fits = False
    assert get_tags(model).input_tags.sparse == fits


def test_positive_rows_are_those_of_one_kernel():
    for kernel in ("sobolev", SobolevKernel()):
        tags = get_tags(SketchedKernelRegressor(kernel)).input_tags
        assert tags.positive_only and not tags.sparse
    assert not get_tags(SketchedKernelRegressor("linear")).input_tags.positive_only


@pytest.mark.parametrize(
    "estimator",
    [
        Ridge(),
        SketchedKernelRegressor(loss="poisson"),
        SketchedKernelRegressor("laplacian"),
        TabularKernelRegressor(),
    ],
)
def test_conformal_tags_are_those_of_the_estimator(estimator):
    found, expected = get_tags(ConformalRegressor(estimator)), get_tags(estimator)
    assert found.input_tags == expected.input_tags
    assert found.target_tags == expected.target_tags
    assert found.estimator_type == "regressor"


def test_a_column_of_the_only_target_is_flattened_with_a_warning(rng):
    X = rng.normal(size=(40, 2))
    for model in (
        SketchedKernelRegressor(loss="pinball", **PLAIN),
        SketchedSGDRegressor(loss="pinball", random_state=0),
    ):
        expected = model.fit(X, X[:, 0]).predict(X)
        with pytest.warns(DataConversionWarning, match="column-vector"):
            found = model.fit(X, X[:, :1]).predict(X)
        assert_array_equal(found, expected)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelClassifier(loss="logistic", random_state=0),
        SketchedSGDClassifier(loss="logistic", random_state=0),
        TabularKernelClassifier(random_state=0),
        ConformalClassifier(LogisticRegression(), random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_logarithms_are_those_of_the_probabilities(model, classes, rng):
    X = rng.normal(size=(80, 2))
    y = np.digitize(X[:, 0], [-0.5, 0.5])[:, None].clip(0, classes - 1)[:, 0]
    model.fit(X, y)
    found, chances = model.predict_log_proba(X), model.predict_proba(X)
    assert_allclose(np.exp(found), chances, rtol=1e-12)
    assert_allclose(chances.sum(axis=1), 1.0)


def test_classifiers_without_probabilities_have_no_logarithms():
    assert not hasattr(SketchedKernelClassifier(loss="hinge"), "predict_log_proba")
    assert not hasattr(SketchedSGDClassifier(loss="hinge"), "predict_log_proba")


@pytest.mark.parametrize("classes", [2, 3])
def test_logarithms_of_the_logistic_loss_are_exact_far_out(classes):
    X = np.linspace(-1, 1, 60)[:, None]
    y = np.digitize(X[:, 0], np.linspace(-1, 1, classes + 1)[1:-1])
    model = SketchedKernelClassifier("linear", loss="logistic", alpha=1e-3).fit(X, y)
    far = [[1e5], [-1e5]]
    scores = model.decision_function(far)
    scores = np.column_stack([-scores, scores]) if classes == 2 else scores
    exact = -np.logaddexp(0, -scores)
    if classes == 3:
        exact -= np.logaddexp.reduce(exact, axis=1)[:, None]
    found = model.predict_log_proba(far)
    assert found.min() < -1000
    assert_allclose(found, exact, rtol=1e-12)
    assert_array_equal(model.predict_proba(far).argmax(axis=1), [classes - 1, 0])


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_the_median_of_tanimoto_distances(container, rng):
    X = (rng.random((50, 8)) < 0.4).astype(float)
    inner = X @ X.T
    norms = np.diag(inner)
    union = norms[:, None] + norms - inner
    similarity = np.divide(inner, union, out=np.ones_like(inner), where=union > 0)
    distances = np.sqrt(2 - 2 * similarity[np.triu_indices(50, 1)])
    kernel = GaussianTanimotoKernel("median").resolve(container(X))
    assert kernel.bandwidth == pytest.approx(np.median(distances[distances > 1e-7]))
    model = SketchedKernelRegressor("gaussian-tanimoto", bandwidth="median", alpha=1e-2)
    assert model.fit(container(X), X[:, 0]).bandwidth_ == pytest.approx(
        kernel.bandwidth
    )
    with pytest.raises(ValueError, match="must be a number before the kernel"):
        GaussianTanimotoKernel("median")(X)
    with pytest.raises(ValueError, match="`bandwidth`"):
        GaussianTanimotoKernel("mean")
