"""Learned length-scales in the estimators: when they are, when not, what they give."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV

from nbsketch import (
    GaussianKernel,
    HuberLoss,
    JointQuantileRegressor,
    LogisticLoss,
    MaternKernel,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    SubsamplingSketch,
    load,
    plots,
)
from nbsketch.fitting.objectives import (
    JointQuantileObjective,
    LeastSquaresObjective,
    ScalarObjective,
)
from nbsketch.fitting.plan import Plan
from nbsketch.losses import SquareLoss
from nbsketch.model_selection import cross_validate


def wiggle(n=160, q=4, seed=0):
    """Return rows of which the first feature bends and the second is a slope."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n)


def regressor(**options):
    return SketchedKernelRegressor(**({"size": 60, "random_state": 0} | options))


def error_of(model, X, y):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


# What is given is not touched.


@pytest.mark.parametrize("kernel", ["auto", "gaussian", "matern"])
@pytest.mark.parametrize("bandwidth", [0.7, (0.5, 1.0, 2.0, 4.0)])
def test_numbers_are_used_as_they_are(kernel, bandwidth):
    X, y = wiggle()
    model = regressor(kernel=kernel, bandwidth=bandwidth).fit(X, y)
    assert model.bandwidth_ == model.kernel_.bandwidth == bandwidth
    assert model.scaler_ is None and model.length_scales_ is None
    assert np.isin(model.landmarks_, X).all()


def test_the_median_is_that_of_the_rows():
    X, y = wiggle()
    model = regressor(bandwidth="median").fit(X, y)
    assert model.kernel_ == GaussianKernel("median").resolve(X)
    assert model.scaler_ is None and model.length_scales_ is None


def test_a_kernel_object_is_kept():
    X, y = wiggle()
    kernel = MaternKernel(bandwidth=2.0, nu=2.5)
    model = regressor(kernel=kernel).fit(X, y)
    assert model.kernel_ is kernel
    assert model.scaler_ is None and model.length_scales_ is None


def test_kernels_without_length_scales_have_none():
    X, y = wiggle()
    model = regressor(kernel="polynomial").fit(X, y)
    assert model.bandwidth_ is None and model.length_scales_ is None
    model = regressor(kernel="laplacian", bandwidth="median").fit(X, y)
    assert np.ndim(model.bandwidth_) == 0 and model.length_scales_ is None


@pytest.mark.parametrize("n, learned", [(29, False), (30, True)])
def test_few_rows_fall_back_to_the_median(n, learned):
    X, y = wiggle(n)
    model = regressor(size=None).fit(X, y)
    assert (model.length_scales_ is not None) == learned
    if not learned:
        assert model.kernel_ == GaussianKernel("median").resolve(X)


def test_sparse_rows_fall_back_to_the_median():
    X, y = wiggle()
    model = regressor().fit(sp.csr_array(X), y)
    assert model.kernel_ == GaussianKernel("median").resolve(sp.csr_array(X))
    assert model.scaler_ is None and model.length_scales_ is None


@pytest.mark.parametrize(
    "kernel", ["linear", "sobolev", "precomputed", GaussianKernel(1.0)]
)
def test_auto_needs_a_kernel_that_can_be_learned(kernel):
    X, y = wiggle(50)
    with pytest.raises(ValueError, match="`bandwidth` can be 'auto' for dense X"):
        regressor(kernel=kernel, bandwidth="auto").fit(X, y)


def test_auto_needs_dense_rows():
    X, y = wiggle(50)
    with pytest.raises(ValueError, match="`bandwidth` can be 'auto' for dense X"):
        regressor(bandwidth="auto").fit(sp.csr_array(X), y)


# The transformation of the inputs.


@pytest.mark.parametrize(
    "preprocessing, plain, ranked", [("standard", 4, 0), ("rank", 0, 4)]
)
def test_a_named_preprocessing_goes_with_numbers(preprocessing, plain, ranked):
    X, y = wiggle()
    model = regressor(bandwidth=1.0, preprocessing=preprocessing).fit(X, y)
    assert (len(model.scaler_.plain), len(model.scaler_.ranked)) == (plain, ranked)
    assert model.bandwidth_ == 1.0 and model.length_scales_ is None
    scaled = regressor(bandwidth=1.0).fit(model.scaler_.transform(X), y)
    expected = scaled.predict(model.scaler_.transform(X[:20]))
    assert_allclose(model.predict(X[:20]), expected, rtol=1e-8)


def test_ranks_do_not_feel_heavy_tails():
    X, y = wiggle()
    model, other = (
        regressor(bandwidth=1.0, preprocessing="rank").fit(rows, y)
        for rows in (X, X**3)
    )
    assert_allclose(model.predict(X), other.predict(X**3), atol=1e-2)


def test_without_preprocessing_only_bandwidths_are_learned():
    X, y = wiggle()
    model = regressor(preprocessing=None).fit(X, y)
    assert model.scaler_ is None
    widths = model.length_scales_ * X.std(axis=0)
    assert_allclose(model.bandwidth_, widths, rtol=1e-9)


@pytest.mark.parametrize("preprocessing", ["robust", 1.0])
def test_preprocessing_is_checked(preprocessing):
    X, y = wiggle(50)
    with pytest.raises(ValueError, match="`preprocessing` must be"):
        regressor(preprocessing=preprocessing).fit(X, y)


def test_a_named_preprocessing_needs_dense_features():
    X, y = wiggle(50)
    for rows, kernel in [(sp.csr_array(X), "gaussian"), (X @ X.T, "precomputed")]:
        with pytest.raises(ValueError, match="`preprocessing` must be None or 'auto'"):
            regressor(kernel=kernel, preprocessing="standard").fit(rows, y)


# What is learned.


def test_irrelevant_features_are_ignored():
    rng = np.random.default_rng(0)

    def draw(n):
        X = rng.uniform(size=(n, 60))
        y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
        return X, y + 10 * X[:, 3] + 5 * X[:, 4]

    X, y = draw(400)
    X_new, y_new = draw(1000)
    learned = regressor(size=120).fit(X, y)
    median = regressor(size=120, bandwidth="median").fit(X, y)
    assert error_of(learned, X_new, y_new) < 0.6 * error_of(median, X_new, y_new)
    relevance = 1 / learned.length_scales_
    assert relevance[[0, 1, 3]].min() > 2 * np.quantile(relevance[5:], 0.95)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_learned_scales_beat_the_median(dtype):
    X, y = wiggle(q=10)
    X_new, y_new = wiggle(500, q=10, seed=1)
    X, X_new = X.astype(dtype), X_new.astype(dtype)
    learned = regressor().fit(X, y)
    median = regressor(bandwidth="median").fit(X, y)
    assert error_of(learned, X_new, y_new) < 0.6 * error_of(median, X_new, y_new)
    assert learned.landmarks_.dtype == dtype
    assert learned.length_scales_.shape == (10,)
    assert learned.length_scales_.argmin() == 0


def test_rows_without_weight_teach_nothing():
    X, y = wiggle(400)
    weights = np.repeat([1.0, 0.0], 200)
    with_outliers = np.where(weights > 0, y, 1e4)
    first, second = (
        regressor().fit(X, t, sample_weight=weights) for t in (y, with_outliers)
    )
    assert_array_equal(first.length_scales_, second.length_scales_)
    assert first.length_scales_.argmin() == 0


def test_outliers_do_not_own_the_scales_of_a_robust_loss():
    X, y = wiggle(300)
    y[:6] = 300
    model = regressor(loss=HuberLoss(kappa=0.2)).fit(X, y)
    assert model.length_scales_.argmin() == 0
    assert error_of(model, *wiggle(seed=1)) < 0.4


def in_thirds(y):
    return np.digitize(y, [-0.4, 0.4])


def as_three(y):
    return np.column_stack([y, -y, y**2])


SMALL = {"size": 30, "random_state": 0}
MODELS = {
    "binary": (SketchedKernelClassifier(**SMALL), np.signbit),
    "classes": (SketchedKernelClassifier(**SMALL), in_thirds),
    "quantiles": (JointQuantileRegressor((0.2, 0.8), calibration=0.2, **SMALL), None),
    "spectral": (SpectralFilterRegressor(filter="landweber", **SMALL), None),
    "sgd": (SketchedSGDRegressor(bandwidth="auto", **SMALL), None),
    "outputs": (regressor(), as_three),
    "growing": (regressor(size="auto"), None),
    "adam": (regressor(solver="adam"), None),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_estimator_learns(name):
    model, transform = MODELS[name]
    X, y = wiggle(80)
    model.fit(X, y if transform is None else transform(y))
    assert model.length_scales_.argmin() == 0
    assert len(model.bandwidth_) == model.landmarks_.shape[1]
    assert model.size_ == model.sketch_.shape[0]
    assert len(model.predict(X[:5])) == 5


def test_a_stream_keeps_what_its_first_rows_have_taught():
    X, y = wiggle(600)
    model = SketchedSGDRegressor(bandwidth="auto", size=50, random_state=0)
    model.partial_fit(X[:300], y[:300])
    scales, kernel = model.length_scales_, model.kernel_
    before = error_of(model, *wiggle(seed=1))
    for _ in range(5):
        model.partial_fit(X, y)
    assert_array_equal(model.length_scales_, scales)
    assert model.kernel_ == kernel
    assert error_of(model, *wiggle(seed=1)) < before


def test_the_same_seed_gives_the_same_model_at_any_number_of_threads():
    X, y = wiggle(150)
    before, models = numba.get_num_threads(), []
    try:
        for count in (1, before):
            numba.set_num_threads(count)
            models.append(regressor().fit(X, y))
    finally:
        numba.set_num_threads(before)
    first, second = models
    assert_array_equal(first.length_scales_, second.length_scales_)
    assert_allclose(first.predict(X), second.predict(X), rtol=0, atol=1e-8)
    other = regressor(random_state=1).fit(X, y)
    assert (other.length_scales_ != first.length_scales_).any()


@pytest.mark.parametrize("preprocessing", ["auto", None, "rank"])
def test_files_keep_what_was_learned(tmp_path, preprocessing):
    X, y = wiggle(100)
    model = regressor(preprocessing=preprocessing).fit(np.exp(X), y)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert_array_equal(again.predict(np.exp(X)), model.predict(np.exp(X)))
    assert_array_equal(again.length_scales_, model.length_scales_)
    assert again.summary() == model.summary()


def strange(name):
    rng = np.random.default_rng(0)
    X, _ = wiggle(48)
    X_of = {
        "constant": lambda: np.column_stack([X, np.full(48, 1e6)]),
        "all constant": lambda: np.ones((48, 3)),
        "duplicated": lambda: np.hstack([X, X]),
        "one-hot": lambda: np.eye(6)[rng.integers(6, size=48)],
        "heavy tails": lambda: rng.standard_cauchy((48, 3)) ** 3,
        "tiny": lambda: X * 1e-150,
        "equal rows": lambda: np.repeat(X[:4], 12, axis=0),
        "one value": lambda: np.vstack([np.zeros((47, 2)), np.ones((1, 2))]),
    }
    return X_of[name]()


@pytest.mark.thin(times=1)
@pytest.mark.filterwarnings("ignore:no penalty from")
@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "constant", "all constant", "duplicated", "one-hot", "heavy tails", "tiny",
        "equal rows", "one value",
    ],
)  # fmt: skip
def test_strange_columns_are_survived(name, classes):
    X, y = strange(name), wiggle(48)[1]
    model = regressor(size=None)
    if classes:
        model, y = SketchedKernelClassifier(random_state=0), y > 0
    assert np.isfinite(model.fit(X, y).predict(X).astype(float)).all()
    assert_array_equal(np.isinf(model.length_scales_), np.ptp(X, axis=0) == 0)


def test_targets_without_variance_are_survived():
    X, _ = wiggle(100)
    model = regressor().fit(X, np.full(100, 7.0))
    assert_allclose(model.predict(X), 7.0)


# Selection.


def test_cross_validation_and_grid_search_take_numbers():
    X, y = wiggle(160)
    found = cross_validate(regressor(), X, y, [0.01, 1.0], [1e-5], cv=3)
    assert found.best() == (1.0, 1e-5)
    grid = {"bandwidth": [0.01, 1.0, "auto"]}
    search = GridSearchCV(regressor(), grid, cv=3).fit(X, y)
    assert search.best_params_["bandwidth"] == "auto"
    assert search.best_estimator_.length_scales_ is not None


def test_models_of_a_path_share_what_is_learned():
    X, y = wiggle(100)
    strong, weak = regressor().fit_path(X, y, [1.0, 1e-4])
    assert_array_equal(strong.length_scales_, weak.length_scales_)
    fitted = regressor().fit(X, y)
    assert_array_equal(fitted.length_scales_, weak.length_scales_)
    assert weak.size_path_ is None and weak.size_ == 60


# The default size of a sketch.


@pytest.mark.parametrize(
    "n, square, robust, joint",
    [
        (50, 50, 50, 50),
        (1500, 1500, 500, 375),  # least squares costs little: all rows
        (1501, 1000, 500, 375),
        (15_000, 1000, 500, 1000),
        (60_000, 912, 500, 547),
        (240_000, 456, 456, 273),  # n s^2 stays the same
        (10_000_000, 100, 100, 100),
    ],
)
def test_default_size(n, square, robust, joint):
    Y, eye = np.zeros((n, 1)), np.eye(1)
    sizes = [
        LeastSquaresObjective(Y, None, True, SquareLoss(), eye).default_size(),
        ScalarObjective(Y, None, True, HuberLoss()).default_size(),
        JointQuantileObjective(Y, None, True, (0.1, 0.5, 0.9), eye).default_size(),
    ]
    assert sizes == [square, robust, joint]


def test_default_size_for_many_classes():
    labels = np.ones((24_000, 9))
    assert ScalarObjective(labels, None, True, LogisticLoss()).default_size() == 481


def test_the_default_size_is_used():
    X, y = wiggle(1600)
    options = {"size": None, "bandwidth": 1.0, "alpha": 1e-4}
    assert regressor(**options).fit(X, y).size_ == 1600  # the exact machine
    assert regressor(**options, cv=3).fit(X, y).size_ == 1000
    assert regressor(size=None, bandwidth=1.0).fit(X[:400], y[:400]).size_ == 400


def test_a_sketch_of_all_rows_is_the_exact_model():
    X, y = wiggle(200)
    model = regressor(size=None).fit(X, y)
    exact = regressor(size=None, sketch="identity").fit(X, y)
    assert model.sketch_.is_identity
    assert_allclose(model.predict(X), exact.predict(X), rtol=0, atol=1e-8)
    with pytest.raises(ValueError, match="`sketch` must be one of"):
        regressor(size=None, sketch="nystrom").fit(X, y)


@pytest.mark.parametrize(
    "sketch, size, expected, kind",
    [
        (None, None, 200, "identity (default)"),
        (None, 200, 200, "SubsamplingSketch (default)"),
        (None, 30, 30, "SubsamplingSketch (default)"),
        ("subsampling", None, 100, "subsampling (given)"),
        ("p-sparsified", None, 100, "p-sparsified (given)"),
        ("gaussian", 30, 30, "gaussian (given)"),
        ("identity", None, 200, "identity (given)"),
        (SubsamplingSketch(200), None, 200, "SubsamplingSketch (given)"),
    ],
)
def test_a_given_sketch_is_kept(sketch, size, expected, kind):
    X, y = wiggle(200)
    model = regressor(sketch=sketch, size=size, bandwidth=1.0).fit(X, y)
    assert model.sketch_.is_identity == kind.startswith("identity")
    assert model.size_ == expected
    line = next(s for s in model.summary().splitlines() if s.startswith("  sketch"))
    assert line.endswith(kind)


@pytest.mark.parametrize("sketch", [None, "p-sparsified", "gaussian", "identity"])
def test_summary_reports_the_size_of_the_model(sketch, tmp_path):
    X, y = wiggle(300)
    size = None if sketch == "identity" else 40
    model = regressor(sketch=sketch, size=size, bandwidth=1.0, alpha=1e-3).fit(X, y)
    line = next(s for s in model.summary().splitlines() if "kernel values" in s)
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        names = ("landmarks_", "sketch_", "coef_")
        arrays = [file[k] for k in file if set(names) & set(k.split("."))]
    bytes_ = sum(array.nbytes for array in arrays)
    assert float(line.split()[-2]) == pytest.approx(bytes_ / 1e6, rel=5e-3)
    assert f" {len(model.landmarks_)} kernel values" in line


def test_a_given_sketch_has_the_default_size_below_n():
    X, y = wiggle(1600)
    known = {"sketch": "subsampling", "size": None, "bandwidth": 1.0, "alpha": 1e-4}
    assert regressor(**known).fit(X, y).size_ == 1000
    gaussian = Plan(sketch="gaussian")
    assert [gaussian.recipe(n, n).size for n in (1, 2, 5)] == [1, 1, 2]


# Printed text and figures.


def test_summary_reports_the_choices():
    X, y = wiggle(120, q=9)
    model = regressor(size="auto").fit(X, y)
    lines = dict(line.split(maxsplit=1) for line in model.summary().splitlines()[1:])
    assert model.summary().splitlines()[0] == "SketchedKernelRegressor"
    assert lines["samples"] == "120, 9 features"
    assert lines["kernel"].startswith("MaternKernel(bandwidth=<")
    assert lines["inputs"].startswith("9 standardized features")
    assert lines["length-scales"].startswith(f"x0 {model.length_scales_[0]:.3g}, ")
    assert lines["length-scales"].endswith("; 4 longer")
    assert lines["sketch"].startswith(f"size {model.size_}, rank {model.rank_}, ")
    landmarks = len(model.landmarks_)
    assert lines["prediction"].startswith(
        f"{landmarks} kernel values per sample, model of "
    )
    assert f"{model.size_}: " in lines["size"]
    assert float(lines["alpha"]) == pytest.approx(model.alpha_, rel=1e-3)
    assert float(lines["objective"].split(",")[0]) == pytest.approx(
        model.objective_, rel=1e-5
    )


def test_summary_of_what_was_given():
    X, y = wiggle(100)
    text = regressor(bandwidth=0.5, alpha=0.25, solver="adam").fit(X, y).summary()
    assert "GaussianKernel(bandwidth=0.5)" in text and "as given" in text
    assert "0.25" in text
    assert not any(word in text for word in ("length-scales", "path", "minimum"))
    text = SketchedSGDRegressor(bandwidth=0.5, size=9).fit(X, y).summary()
    assert "steps         2000" in text and "size 9" in text
    assert "LinearKernel()" in regressor(kernel="linear").fit(X, y).summary()


def test_features_are_called_by_their_names():
    pandas = pytest.importorskip("pandas")
    X, y = wiggle(100)
    model = regressor().fit(pandas.DataFrame(X, columns=["a", "b", "c", "d"]), y)
    assert " a " in model.summary() and "x0" not in model.summary()


@pytest.mark.parametrize("q, bars", [(4, 4), (40, 30)])
def test_plot_of_length_scales(q, bars):
    X, y = wiggle(60, q)
    X[:, 3] = 0
    model = regressor(size=30).fit(X, y)
    axes = pyplot.figure().subplots()
    assert plots.plot_length_scales(model, ax=axes) is axes
    pyplot.close("all")
    widths = [bar.get_width() for bar in axes.patches]
    assert_allclose(widths, np.sort(1 / model.length_scales_)[::-1][:bars])
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == bars and names[0] == f"x{model.length_scales_.argmin()}"
    assert ("30 of 40" in axes.get_title()) == (q == 40)


def test_there_is_no_picture_of_scales_that_were_given():
    X, y = wiggle(100)
    for model in (regressor(), regressor(bandwidth=1.0).fit(X, y)):
        with pytest.raises(ValueError, match="`model` must be fitted with learned"):
            plots.plot_length_scales(model)


def test_a_given_size_replaces_the_default():
    X, y = np.random.default_rng(0).uniform(size=(1000, 2)), np.zeros(1000)
    y[:] = np.sin(9 * X[:, 0])
    options = {"bandwidth": 1.0, "loss": "huber", "alpha": 1e-3, "random_state": 0}
    sizes = [
        SketchedKernelRegressor(size=size, **options).fit(X, y).size_
        for size in (None, 500, 20)
    ]
    assert sizes == [1000, 500, 20]


def test_learning_is_shown(capsys):
    X = np.random.default_rng(0).uniform(size=(60, 2))
    SketchedKernelRegressor(verbose=1, random_state=0).fit(X, np.sin(9 * X[:, 0]))
    shown = capsys.readouterr().err
    assert "length-scales, iteration 1: leave-one-out error" in shown
    assert shown.endswith("\n")
    SketchedKernelRegressor(random_state=0).fit(X, X[:, 0])
    assert capsys.readouterr().err == ""
