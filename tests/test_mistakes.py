"""Mistakes and odd names of users: errors say what to do, and names stay apart."""

import io
from decimal import Decimal

import matplotlib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError

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
    plots,
)
from nbsketch.conformal import ConformalClassifier, ConformalRegressor

matplotlib.use("agg")
RIDGE = SketchedKernelRegressor(bandwidth=1.0, alpha=1e-2, random_state=0)
MODELS = [
    RIDGE,
    SketchedKernelClassifier(bandwidth=1.0, alpha=1e-2, random_state=0),
    SketchedFeatures(bandwidth=1.0, random_state=0),
    TabularKernelRegressor(random_state=0),
    TabularKernelClassifier(random_state=0),
    ConformalRegressor(RIDGE, random_state=0),
]
each_model = pytest.mark.parametrize(
    "model", MODELS, ids=lambda model: type(model).__name__
)


def data():
    X = np.random.default_rng(0).normal(size=(40, 2))
    return X, (X[:, 0] > 0).astype(int)


@each_model
def test_lazy_frames_are_to_be_collected(model):
    polars = pytest.importorskip("polars")
    X, y = data()
    frame = polars.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    targets = polars.DataFrame({"y": y})
    message = r"`{0}` must be in memory, got a LazyFrame: pass {0}.collect\(\)"
    with pytest.raises(TypeError, match=message.format("X")):
        clone(model).fit(frame.lazy(), y)
    if not isinstance(model, SketchedFeatures):
        with pytest.raises(TypeError, match=message.format("y")):
            clone(model).fit(frame, targets.lazy())
    model = clone(model).fit(frame, y)
    apply = getattr(model, "transform", None) or model.predict
    with pytest.raises(TypeError, match=message.format("X")):
        apply(frame.lazy())


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("library", ["polars", "pyarrow", "objects"])
@pytest.mark.parametrize(
    "model", [RIDGE, TabularKernelRegressor(random_state=0)], ids=["kernel", "table"]
)
def test_decimals_are_targets(model, library):
    X, _ = data()
    numbers = [Decimal(f"{value:.3f}") for value in X[:, 0]]
    if library == "objects":
        y = np.array(numbers, dtype=object)
    else:
        names = {"polars": "Series", "pyarrow": "array"}
        y = getattr(pytest.importorskip(library), names[library])(numbers)
    expected = clone(model).fit(X, np.array(numbers, dtype=float)).predict(X)
    assert_array_equal(clone(model).fit(X, y).predict(X), expected)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_matrix_is_a_table():
    X, y = data()
    expected = TabularKernelRegressor(random_state=0).fit(X, y).predict(X)
    model = TabularKernelRegressor(random_state=0).fit(np.asmatrix(X), y)
    assert_array_equal(model.predict(np.asmatrix(X)), expected)


@pytest.mark.parametrize("model", [MODELS[0], MODELS[3]])
def test_a_file_needs_a_folder(model, tmp_path):
    X, y = data()
    model = clone(model).fit(X, y)
    with pytest.raises(FileNotFoundError, match=r"got '.*none/model.npz': create '.*n"):
        model.save(tmp_path / "none" / "model.npz")
    with pytest.raises(IsADirectoryError, match="`path` must be a file, got the fold"):
        model.save(tmp_path)
    assert not list(tmp_path.iterdir())


@each_model
def test_unknown_parameters_name_the_estimator(model):
    name = type(model).__name__
    with pytest.raises(TypeError, match=rf"{name} has no parameter 'n_jobs'"):
        type(model)(n_jobs=2)


def test_features_of_one_name_stay_apart():
    X, y = data()
    gaps = np.where(np.arange(40) % 5, X[:, 0], np.nan)
    frame = pd.DataFrame({"a": gaps, "a_missing": X[:, 1]})
    model = TabularKernelRegressor(random_state=0).fit(frame, y)
    assert model.columns_.feature_names.tolist() == ["a", "a_missing_", "a_missing"]
    frame = pd.DataFrame(
        {"c_x": X[:, 1], "c": np.array(list("xyz"))[np.arange(40) % 3]}
    )
    model.fit(frame, y)
    assert sorted(model.columns_.feature_names) == ["c_x", "c_x_", "c_y", "c_z"]


def test_dollars_in_names_are_drawn():
    X, y = data()
    names = ["cost $", "$a_{b$"]
    frame = pd.DataFrame(X, columns=names)
    model = SketchedKernelRegressor(random_state=0).fit(frame, y)
    charts = [
        plots.plot_length_scales(model),
        plots.plot_shapley_summary(X, X, names),
        plots.plot_shapley_row(X[0], 0.0, names),
        plots.plot_shapley_dependence(X, X, 1, names),
    ]
    for chart in charts:
        chart.figure.savefig(io.BytesIO())


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("classifier", nbsketch.SketchedKernelRegressor()),
        ("classifier", None),
        ("regressor", nbsketch.SketchedKernelClassifier()),
        ("regressor", nbsketch.SketchedKernelRegressor),
        ("regressor", 3),
    ],
    ids=repr,
)
def test_conformal_models_say_which_estimators_they_take(kind, model):
    X = np.random.default_rng(0).normal(size=(20, 2))
    conformal = getattr(nbsketch.conformal, f"Conformal{kind.title()}")
    with pytest.raises(TypeError, match=f"`estimator` must be a {kind}, got"):
        conformal(model).fit(X, np.arange(20) % 2)


@pytest.mark.parametrize("method", ["predict_interval", "predict_quantiles"])
def test_models_for_tables_that_are_not_fitted(method):
    with pytest.raises(NotFittedError, match="is not fitted"):
        getattr(nbsketch.TabularKernelRegressor(), method)(np.eye(2), [0.5])


def test_rows_of_several_lengths_are_named():
    with pytest.raises(ValueError, match="`X` must have rows of equal length"):
        nbsketch.SketchedKernelRegressor().fit([[1.0, 2.0], [3.0]], [1.0, 2.0])


@pytest.mark.parametrize(
    "value", [(1, 2), {"a": 1}, object()], ids=["tuple", "dict", "object"]
)
def test_objects_in_the_place_of_numbers_are_named(value):
    X = np.empty((3, 1), dtype=object)
    for row in range(3):
        X[row, 0] = value
    message = f"`X` must hold numbers.*got {type(value).__name__}"
    with pytest.raises((TypeError, ValueError), match=message):
        nbsketch.SketchedKernelRegressor().fit(X, [1.0, 2.0, 3.0])


EVERY = [
    *MODELS,
    RandomFourierFeatures(random_state=0),
    SketchedKernelRegressor(loss="huber", random_state=0),
    JointQuantileRegressor(random_state=0),
    SpectralFilterRegressor(random_state=0),
    SketchedSGDRegressor(random_state=0),
    SketchedSGDClassifier(random_state=0),
    ConformalClassifier(MODELS[1], random_state=0),
]
WRONG = {
    "complex": lambda v: v + 1j,
    "axes": lambda v: np.stack([v, v], axis=-1)[..., None],
    "empty": lambda v: v[:0],
    "length": lambda v: v[1:].tolist(),
}
SAYS = {
    "complex": "Complex data not supported: `{0}` must hold real numbers, got complex",
    "axes": r"dim {1}, while dim <= 2 is required: `{0}` .*got shape \(\d+, 2",
    "empty": r"`[Xy]` must (not be empty|have a row and a column).*0.sample",
    "length": r"`y` must have {1} rows as `X`, got {2} \(inconsistent numbers of",
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("model", EVERY, ids=lambda model: type(model).__name__)
def test_data_of_a_wrong_kind_or_shape_are_named(model, kind):
    X, y = data()
    for name in ("X", "y"):
        rows, targets = X, y
        if name == "X":
            rows = WRONG[kind](X)
        else:
            targets = WRONG[kind](y)
        args = {"axes": (4 if name == "X" else 3,), "length": (len(rows), len(targets))}
        if kind == "complex" and name == "X" and hasattr(model, "partners"):
            continue  # tables name the column
        if hasattr(model, "transform") and (name == "y" or kind == "length"):
            continue  # which take no targets
        if kind == "empty":
            rows, targets = rows[:0], targets[:0]
        says = SAYS[kind].format(name, *args.get(kind, ()))
        with pytest.raises(ValueError, match=says) as caught:
            clone(model).fit(rows, targets)
        assert len(str(caught.value)) < 200  # not all the values


@pytest.mark.parametrize("model", EVERY, ids=lambda model: type(model).__name__)
def test_weights_of_a_wrong_kind_or_length_are_named(model):
    X, y = data()
    if hasattr(model, "transform"):
        return
    for kind, weights in (("complex", np.ones(40) + 1j), ("length", [1.0] * 39)):
        says = SAYS[kind].replace("`y`", "`sample_weight`")
        says = says.format("sample_weight", 40, 39)
        with pytest.raises(ValueError, match=says):
            clone(model).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("method", ["split", "cv+"])
def test_conformal_rows_without_columns_are_empty(method):
    model = ConformalRegressor(RIDGE, method=method, random_state=0)
    with pytest.raises(ValueError, match=r"`X` must not be empty.*0 feature"):
        model.fit(np.empty((40, 0)), np.arange(40.0))


@pytest.mark.parametrize("name", ["size", "output_size"])
@pytest.mark.parametrize("value", ["auto", 1.5])
def test_sizes_of_structured_models_are_integers(name, value):
    X, _ = data()
    model = nbsketch.InputOutputKernelRegressor(random_state=0, **{name: value})
    with pytest.raises(TypeError, match=f"`{name}` must be an integer at least 1, got"):
        model.fit(X, X)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", nbsketch.GaussianKernel),
        ("loss", nbsketch.HuberLoss),
        ("sketch", nbsketch.SubsamplingSketch),
        ("output", nbsketch.GraphOutput),
    ],
)
def test_a_class_in_place_of_its_object(name, value):
    message = (
        rf"`{name}` must be an object or a name, got a class: write {value.__name__}"
    )
    with pytest.raises(TypeError, match=message):
        clone(RIDGE).set_params(bandwidth=None, **{name: value}).fit(*data())


def test_labels_need_a_classifier():
    X, y = data()
    with pytest.raises(TypeError, match=r"`y` .*: fit class labels by a classifier$"):
        clone(RIDGE).fit(X, np.array(["low", "high"])[y])
    for model in (RIDGE, TabularKernelRegressor(), ConformalRegressor(RIDGE)):
        with pytest.raises(
            ValueError, match=r"`y` .*; fit class labels by a classifier"
        ):
            clone(model).fit(X, pd.Series(["low", "high"])[y])
    with pytest.raises(ValueError, match=r"`loss` .* 'logistic', got SquareLoss\(\)"):
        SketchedKernelClassifier(loss="square").fit(X, y)


def test_columns_with_numbers_as_names_are_listed_by_place():
    frame = pd.DataFrame({k: ["a", "b"] * 20 for k in range(7, 0, -1)})
    message = r"(?s)columns 0, 1, 2, 3, 4, .* \[0, 1, 2, 3, 4, \.\.\.\]"
    with pytest.raises(ValueError, match=message):
        clone(RIDGE).fit(frame, data()[1])
    named = frame.iloc[:, :1].rename(columns=str)
    with pytest.raises(ValueError, match=r"(?s)column 0 \('7'\).* \['7'\]\)"):
        clone(RIDGE).fit(named, data()[1])


@pytest.mark.parametrize(
    "params, words",
    [
        ({"kernel": "rbf"}, "did you mean 'gaussian'"),
        ({"kernel": "RBF"}, "did you mean 'gaussian'"),
        ({"kernel": "poly"}, "did you mean 'polynomial'"),
        ({"kernel": "laplace"}, "did you mean 'laplacian'"),
        ({"kernel": "cosine"}, "got 'cosine'$"),
        ({"loss": "mse"}, "did you mean 'square'"),
        ({"loss": "mae"}, "did you mean 'absolute_error'"),
        ({"loss": "Huber"}, "did you mean 'huber'"),
        ({"sketch": "nystroem"}, "did you mean 'subsampling'"),
        ({"sketch": "p_sparsified"}, "did you mean 'p-sparsified'"),
        ({"preprocessing": "standardize"}, "did you mean 'standard'"),
        ({"solver": "Adam"}, "did you mean 'adam'"),
        ({"tol": np.float64(0)}, r"`tol` must be in \(0, inf\), got 0.0$"),
        ({"max_iter": np.int64(0)}, "`max_iter` must be at least 1, got 0$"),
        ({"max_iter": np.True_}, "`max_iter` must be an integer .* got True$"),
        ({"bandwidth": np.float32(-1)}, "`bandwidth` .* got -1.0$"),
        ({"max_seconds": "10"}, r"in \(0, inf\) or None, got '10'"),
        ({"max_seconds": 0}, r"in \(0, inf\) or None, got 0"),
        ({"size": "all"}, "`size` must be an integer, 'auto' or None, got 'all'"),
    ],
)
def test_errors_of_parameters_say_what_is_meant(params, words):
    X, y = data()
    with pytest.raises((TypeError, ValueError), match=words):
        SketchedKernelRegressor(**params).fit(X, y)


@pytest.mark.parametrize("name", ["step", "batch_size", "n_epochs", "regime", "alpha"])
@pytest.mark.parametrize("value", ["auto", np.float64(-1)])
def test_errors_of_gradient_steps_mention_none(name, value):
    X, y = data()
    got = repr(getattr(value, "item", lambda: value)())
    words = rf"`{name}` must be .* or None, got {got}$"
    for cls, targets in ((SketchedSGDRegressor, y), (SketchedSGDClassifier, y > 0)):
        with pytest.raises((TypeError, ValueError), match=words):
            cls(**{name: value}).fit(X, targets)


@pytest.mark.parametrize("groups", [3, "a", np.ones((40, 2)), [1, 2]])
def test_groups_of_a_wrong_shape_are_named(groups):
    X, y = data()
    words = r"`groups` must have shape \(40,\), got"
    models = RIDGE, ConformalRegressor(RIDGE), ConformalClassifier(MODELS[1])
    for model in models:
        with pytest.raises(ValueError, match=words):
            clone(model).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match=words):
        clone(RIDGE).fit(X, y).fit_posterior(X, y, groups=groups)


@pytest.mark.parametrize(
    "value, words",
    [
        ("a", "got 'a'"),
        (["b"], "in row 0"),
        (None, "got None"),
        ([0.0, np.nan], r"got \[0.0, nan\]"),
    ],
)
def test_values_of_a_distribution_are_named(value, words):
    X, y = data()
    for model in (JointQuantileRegressor(bandwidth=1.0), TabularKernelRegressor()):
        with pytest.raises(ValueError, match=f"`y` must .*{words}"):
            model.fit(X, y).predict_cdf(X, value)


@pytest.mark.parametrize("columns", [1, 2])
def test_sample_weight_of_two_axes_is_named(columns):
    X, y = data()
    weights = np.ones((40, columns))
    words = rf"`sample_weight` must have shape \(n,\), got \(40, {columns}\)"
    streams = SketchedSGDRegressor(size=5), SketchedSGDClassifier(size=5)
    others = SpectralFilterRegressor(), JointQuantileRegressor(bandwidth=1.0)
    models = *streams, *others, *(m for m in MODELS if hasattr(m, "score"))
    logistic = clone(MODELS[1]).set_params(loss="logistic")
    for model in (*models, ConformalClassifier(logistic)):
        labels = y if is_regressor(model) else y > 0
        calls = [getattr(clone(model), "partial_fit", model.fit), clone(model).fit]
        for call in (*calls, clone(model).fit(X, labels).score):
            for given in (weights, pd.DataFrame(weights)):
                with pytest.raises(ValueError, match=words):
                    call(X, labels, sample_weight=given)
    structured = InputOutputKernelRegressor()
    with pytest.raises(ValueError, match=words):
        structured.fit(X, np.eye(40), sample_weight=weights)
    with pytest.raises(ValueError, match=words):
        clone(RIDGE).fit(X, y).fit_posterior(X, y, weights)
