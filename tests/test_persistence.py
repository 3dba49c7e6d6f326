"""Models in files: what comes back, what is refused, and nothing pickled."""

import io
import json
import math
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import nbsketch
from nbsketch import (
    AccumulationSketch,
    CallableKernel,
    CountSketch,
    GaussianKernel,
    GaussianSketch,
    GaussianTanimotoKernel,
    GraphOutput,
    IdentityOutput,
    IdentitySketch,
    LaplacianKernel,
    LeverageSketch,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    PrecomputedKernel,
    PSparsifiedSketch,
    QuantileOutput,
    RademacherSketch,
    RandomFourierFeatures,
    RPCholeskySketch,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SobolevKernel,
    SparseJLSketch,
    SRHTSketch,
    SubsamplingSketch,
    TabularKernelClassifier,
    TanimotoKernel,
)
from nbsketch.tabular.members import Tree
from nbsketch.tuning.trees import Partition

RECIPES = [
    PSparsifiedSketch(9),
    PSparsifiedSketch(9, density=0.1, law="gaussian"),
    GaussianSketch(9),
    RademacherSketch(9),
    SubsamplingSketch(9, replace=True),
    LeverageSketch(9),
    RPCholeskySketch(9),
    AccumulationSketch(9, m=3),
    CountSketch(9),
    SparseJLSketch(9),
    SRHTSketch(9),
    SRHTSketch(9, transform="dct"),
    SRHTSketch(9, transform="fourier"),
    IdentitySketch(),
    "subsampling",
]
KERNELS = [
    GaussianKernel(),
    GaussianKernel(gamma=0.3),
    LaplacianKernel(bandwidth=(1.0, 1 / 3)),
    MaternKernel(nu=math.inf),
    MaternKernel(bandwidth=2, nu=2.5),
    PolynomialKernel(degree=2, scale=0.1),
    LinearKernel(),
    SobolevKernel(),
    TanimotoKernel(),
    GaussianTanimotoKernel(bandwidth=1 / 3),
    "laplacian",
]
OUTPUTS = [
    None,
    np.array([[2.0, 1.0], [1.0, 2.0]]),
    [[2.0, 1.0], [1.0, 2.0]],
    IdentityOutput(),
    QuantileOutput(quantiles=(0.1, 0.9), gamma=1 / 3),
    GraphOutput(adjacency=[[0, 1], [1, 0]], mu=0.3),
]


def data(dtype=np.float64):
    X = np.random.default_rng(0).normal(size=(40, 2)).astype(dtype)
    return X, np.column_stack([np.sin(X[:, 0]), X[:, 1]])


def there_and_back(model, path):
    model.save(path)
    return nbsketch.load(path)


def assert_same(first, second):
    """Compare two fitted values of any kind, to the bit."""
    if isinstance(first, np.ndarray):
        assert second.dtype == first.dtype
        assert_array_equal(second, first)
    elif hasattr(first, "to_csr"):
        assert type(second) is type(first)
        assert_array_equal(second.to_csr().toarray(), first.to_csr().toarray())
        assert_array_equal(second.columns, first.columns)
    elif isinstance(first, nbsketch.InputScaler):
        for field in fields(first):
            assert_same(getattr(first, field.name), getattr(second, field.name))
    elif isinstance(first, dict):
        assert list(second) == list(first)
        for name in first:
            assert_same(first[name], second[name])
    else:
        assert type(second) is type(first)
        assert second == first


def assert_same_model(first, second):
    assert type(second) is type(first)
    assert vars(second).keys() == vars(first).keys()
    for name, value in vars(first).items():
        assert_same(value, vars(second)[name])


# there and back ---------------------------------------------------------------------


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("recipe", RECIPES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sketches(recipe, dtype, tmp_path):
    X, Y = data(dtype)
    model = SketchedKernelRegressor(sketch=recipe, random_state=0).fit(X, Y)
    again = there_and_back(model, tmp_path / "model.npz")
    assert_same_model(model, again)
    assert_array_equal(again.predict(X), model.predict(X))
    assert_array_equal(again.fit(X, Y).predict(X), model.predict(X))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels(kernel, tmp_path):
    X, Y = data()
    X = (X - X.min()) / np.ptp(X)  # the unit square, which one of them asks for
    model = SketchedKernelRegressor(kernel, size=9, random_state=0).fit(X, Y[:, 0])
    again = there_and_back(model, tmp_path / "model.npz")
    assert_same_model(model, again)
    assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("kernel", ["precomputed", PrecomputedKernel()])
def test_precomputed_kernel(kernel, tmp_path):
    X, Y = data()
    K = X @ X.T
    model = SketchedKernelRegressor(kernel, size=9).fit(K, Y)
    again = there_and_back(model, tmp_path / "model.npz")
    assert_same_model(model, again)
    assert_array_equal(again.predict(K[:5]), model.predict(K[:5]))


@pytest.mark.parametrize("output", OUTPUTS, ids=repr)
def test_outputs(output, tmp_path):
    X, Y = data()
    model = SketchedKernelRegressor(size=9, output=output, alpha=1 / 3).fit(X, Y)
    again = there_and_back(model, tmp_path / "model.npz")
    assert_same_model(model, again)
    assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"bandwidth": 0.1, "size": 7, "alpha": 1e-300, "random_state": 3},
        {"bandwidth": [0.1, 0.2], "fit_intercept": False},
        {"bandwidth": (0.1, 0.2), "output": np.eye(2, dtype=np.float32)},
        {"bandwidth": np.array([0.1, 0.2]), "output": np.eye(2, order="F")},
        {"kernel": GaussianKernel(), "sketch": IdentitySketch()},
    ],
    ids=repr,
)
def test_models_that_are_not_fitted(parameters, tmp_path):
    model = SketchedKernelRegressor(**parameters)
    again = there_and_back(model, tmp_path / "model.npz")
    assert_same_model(model, again)
    assert not hasattr(again, "coef_")


def test_numbers_of_numpy_come_back_as_numbers(tmp_path):
    model = SketchedKernelRegressor(
        size=np.int64(9), alpha=np.float32(0.5), random_state=np.int32(3)
    )
    again = there_and_back(model, tmp_path / "model.npz")
    assert (again.size, again.alpha, again.random_state) == (9, 0.5, 3)


def test_features(tmp_path):
    X, _ = data()
    model = SketchedFeatures("laplacian", size=9, random_state=0).fit(X)
    model.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert_same_model(model, again)
    assert_array_equal(again.transform(X), model.transform(X))
    assert_array_equal(again.get_feature_names_out(), model.get_feature_names_out())


def test_feature_names(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, Y = data()
    frame = pandas.DataFrame(X, columns=["length", "weight in kg: «ü»"])
    model = SketchedKernelRegressor(size=9).fit(frame, Y)
    again = there_and_back(model, tmp_path / "model.npz")
    assert_same_model(model, again)
    assert_array_equal(again.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.iloc[:, ::-1])


def test_a_generator_is_left_behind(tmp_path):
    X, Y = data()
    for random_state in (np.random.default_rng(0), np.random.RandomState(0)):
        model = SketchedKernelRegressor(size=9, random_state=random_state).fit(X, Y)
        again = there_and_back(model, tmp_path / "model.npz")
        assert again.random_state is None
        assert_array_equal(again.predict(X), model.predict(X))


# files ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_the_file_is_where_it_was_asked_for(kind, tmp_path):
    X, Y = data()
    path = kind(tmp_path / "model of mine")
    model = SketchedKernelRegressor(size=9).fit(X, Y)
    assert_array_equal(there_and_back(model, path).predict(X), model.predict(X))
    assert [file.name for file in tmp_path.iterdir()] == ["model of mine"]


def test_nothing_is_pickled(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, Y = data()
    for recipe in RECIPES:
        model = SketchedKernelRegressor(sketch=recipe, output=OUTPUTS[1], alpha=1e-3)
        model.fit(pandas.DataFrame(X, columns=["a", "b"]), Y)
        model.save(tmp_path / "model.npz")
        with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        assert {array.dtype.kind for array in arrays.values()} <= set("fiuU")
        content = json.loads(str(arrays["model"]))
        assert content["class"] == "SketchedKernelRegressor"
        assert content["version"] == nbsketch.__version__


def test_a_file_is_small(tmp_path):
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    model = SketchedKernelRegressor(size=10, bandwidth=1.0).fit(X, X[:, 0])
    model.save(tmp_path / "model.npz")
    # about 200 landmarks, with an index and a sign each
    assert (tmp_path / "model.npz").stat().st_size < 20_000


# what is refused --------------------------------------------------------------------


@dataclass(frozen=True)
class OwnKernel(GaussianKernel):
    """A kernel that a reader of the file does not have."""


class OwnRegressor(SketchedKernelRegressor):
    """An estimator that a reader of the file does not have."""


def product(X, Y):
    return X @ Y.T


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (SketchedKernelRegressor(product), "params.kernel"),
        (SketchedKernelRegressor(CallableKernel(product)), "params.kernel.function"),
        (SketchedKernelRegressor(OwnKernel(bandwidth=1.0)), "params.kernel"),
        (SketchedKernelRegressor(GaussianKernel), "params.kernel"),
        (SketchedKernelRegressor(bandwidth={1.0}), "params.bandwidth"),
        (SketchedKernelRegressor(bandwidth=[1.0, object()]), "params.bandwidth.1"),
        (OwnRegressor(), "model"),
    ],
    ids=["function", "callable", "kernel", "class", "set", "object", "estimator"],
)
def test_what_cannot_be_saved_leaves_no_trace(model, name, tmp_path):
    path = tmp_path / "model.npz"
    words = f"a model file holds numbers, .* but `{name}` is "
    with pytest.raises(TypeError, match=words):
        model.save(path)
    assert not path.exists()
    path.write_bytes(b"something of value")
    with pytest.raises(TypeError, match=words):
        model.save(path)
    assert path.read_bytes() == b"something of value"


def test_a_fitted_model_with_a_function_is_refused(tmp_path):
    X, Y = data()
    model = SketchedKernelRegressor(product, size=9).fit(X, Y)
    with pytest.raises(TypeError, match=r"but `params.kernel` is <function product"):
        model.save(tmp_path / "model.npz")
    model.set_params(kernel="gaussian")
    with pytest.raises(TypeError, match=r"but `fitted.kernel_.function` is"):
        model.save(tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()


def test_no_folder(tmp_path):
    path = tmp_path / "nowhere" / "model.npz"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SketchedKernelRegressor().save(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        nbsketch.load(path)


def write_text(path):
    path.write_text("a,b\n1,2\n")


def write_nothing(path):
    path.write_bytes(b"")


def write_array(path):
    with path.open("wb") as file:
        np.save(file, np.eye(2))


def write_other_arrays(path):
    with path.open("wb") as file:
        np.savez(file, model=np.eye(2))


def write_later_format(path):
    with path.open("wb") as file:
        np.savez(file, format="nbsketch model 2", model="{}")


def write_half(path):
    X, Y = data()
    SketchedKernelRegressor(size=9).fit(X, Y).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    "write",
    [
        write_text,
        write_nothing,
        write_array,
        write_other_arrays,
        write_later_format,
        write_half,
    ],
)
def test_other_files_are_refused(write, tmp_path):
    path = tmp_path / "model.npz"
    write(path)
    with pytest.raises(ValueError, match=r"`path` must be a model file .*model.npz"):
        nbsketch.load(path)


def rewrite(path, change):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    content = json.loads(str(arrays.pop("model")))
    change(content)
    with path.open("wb") as file:
        np.savez(file, model=json.dumps(content), **arrays)


@pytest.mark.parametrize(
    "name", ["Ridge", "SketchMap", "load", "datasets", "__version__", "os.system", ""]
)
def test_a_file_can_only_name_public_classes(name, tmp_path):
    path = tmp_path / "model.npz"
    SketchedKernelRegressor(GaussianKernel()).save(path)
    rewrite(path, lambda content: content.update({"class": name}))
    with pytest.raises(ValueError, match=f"needs '{name}', which nbsketch does not"):
        nbsketch.load(path)
    SketchedKernelRegressor(GaussianKernel()).save(path)
    rewrite(path, lambda content: content["params"]["kernel"].update({"$object": name}))
    with pytest.raises(ValueError, match=f"needs '{name}', which nbsketch does not"):
        nbsketch.load(path)


def test_values_in_a_file_are_checked_as_those_of_a_user(tmp_path):
    path = tmp_path / "model.npz"
    SketchedKernelRegressor(GaussianKernel(bandwidth=1.0)).save(path)
    fields = {"bandwidth": -1.0}
    rewrite(path, lambda content: content["params"]["kernel"].update(fields=fields))
    with pytest.raises(ValueError, match="`bandwidth` must be in"):
        nbsketch.load(path)


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    path, link = tmp_path / "model.npz", tmp_path / "link.npz"
    SketchedKernelRegressor(size=9).save(path)
    link.symlink_to(path)
    before = path.read_bytes()

    def fail(file, **arrays):
        file.write(b"the first bytes")
        raise OSError("no space left")

    with monkeypatch.context() as full:
        full.setattr(np, "savez_compressed", fail)
        with pytest.raises(OSError, match="no space left"):
            SketchedKernelRegressor(size=10).save(path)
    assert path.read_bytes() == before
    path.chmod(0o640)
    SketchedKernelRegressor(size=10).save(link)
    assert nbsketch.load(path).size == 10 and path.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, path]


# objects that check themselves ------------------------------------------------------


def leaves(**changes):
    fields = {"feature": [0, -1, -1], "child": [1, 0, 1], "order": [2, 0, 1]}
    fields |= {"starts": [0, 1, 3]} | changes
    arrays = {name: np.array(values) for name, values in fields.items()}
    return Partition(threshold=np.zeros(3), **arrays)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"order": [2, 0, 0]}, "`order` must have each row in one leaf"),
        ({"starts": [0, 1, 2]}, "`starts` must ascend from 0 to 3"),
        ({"child": [0, 0, 1]}, "`child` must be of a binary tree"),
        ({"child": [1, 0, 2]}, "`child` must be of a binary tree"),
        ({"feature": [0.0, -1, -1]}, "`feature` must be an array of type 'i'"),
        ({"feature": [0, -1]}, "`threshold` must have length 2, got 3"),
    ],
)
def test_parts_of_models_check_their_fields(changes, words):
    assert leaves().n_leaves == 2
    with pytest.raises((TypeError, ValueError), match=words):
        leaves(**changes)


def test_the_parts_of_a_part_are_compared():
    coef = np.zeros((3, 1))
    Tree(leaves(), coef, np.zeros((2, 1)))
    with pytest.raises(ValueError, match="`intercept` must have length 2, got 3"):
        Tree(leaves(), coef, np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"`coef` must have length 3, got 2"):
        Tree(leaves(), coef[:2], np.zeros((2, 1)))
    with pytest.raises(TypeError, match="`partition` must be of type Partition"):
        Tree(None, coef, np.zeros((2, 1)))


def test_the_origin_of_a_sketch_is_compared_with_it():
    S = SubsamplingSketch(3).draw(9, 0)
    type(S)(S.matrix, S.origin)
    with pytest.raises(ValueError, match="`origin` must be of a sketch with 2"):
        type(S)(S.matrix[:2], S.origin)
    shares = replace(S.origin, probabilities=np.full(8, 1 / 8))
    with pytest.raises(ValueError, match="`probabilities` must have length 9, got 8"):
        type(S)(S.matrix, shares)
    with pytest.raises(ValueError, match="`recipe` must be a SizedRecipe"):
        replace(S.origin, recipe=3)


def test_errors_of_saving_name_the_file(tmp_path):
    path = tmp_path / "missing" / "model.npz"
    with pytest.raises(FileNotFoundError) as error:
        SketchedKernelRegressor().save(path)
    assert str(path) in str(error.value)
    assert ".nbsketch-" not in str(error.value)


def test_devices_and_pipes_are_not_read(tmp_path):
    paths = [Path("/dev/zero")] if Path("/dev/zero").exists() else []
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        paths.append(tmp_path / "pipe")
    for path in paths:
        with pytest.raises(ValueError, match="it is not a regular file"):
            nbsketch.load(path)


@pytest.mark.parametrize(
    "model", [RandomFourierFeatures(bandwidth=1.0), SketchedFeatures(bandwidth=1.0)]
)
def test_fitted_kernels_have_a_bandwidth(model, tmp_path):
    path = tmp_path / "model.npz"
    model.fit(np.random.default_rng(0).normal(size=(30, 2))).save(path)
    with np.load(path) as arrays:
        content = dict(arrays)
    text = json.loads(str(content["model"]))
    text["fitted"]["kernel_"]["fields"]["bandwidth"] = "median"
    np.savez(path, **content | {"model": json.dumps(text)})
    with pytest.raises(ValueError, match="`kernel_` must have a numeric bandwidth"):
        nbsketch.load(path)


def test_files_that_are_open_hold_models():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = SketchedKernelRegressor(size=10, random_state=0).fit(X, X[:, 0])
    file = io.BytesIO()
    file.write(b"before")
    model.save(file)
    again = nbsketch.load(io.BytesIO(file.getvalue()[6:]))
    assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="must be a model file"):
        nbsketch.load(io.BytesIO(b"no model"))
    with pytest.raises(TypeError, match="a path or an open binary file, got 3"):
        model.save(3)


@pytest.mark.parametrize(
    "Model", [SketchedKernelClassifier, SketchedSGDClassifier, TabularKernelClassifier]
)
def test_labels_of_a_text_column_are_saved(Model, rng, tmp_path):
    """Those of pandas are objects."""
    X = rng.normal(size=(40, 2))
    y = np.array(["up", "down"], dtype=object)[(X[:, 0] > 0).astype(int)]
    settings = {} if Model is TabularKernelClassifier else {"bandwidth": 1.0}
    model = Model(random_state=0, **settings).fit(X, y)
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert loaded.classes_.dtype == model.classes_.dtype
    assert_array_equal(loaded.predict(X), model.predict(X))
    model.classes_ = np.array([Path("down"), Path("up")], dtype=object)
    with pytest.raises(TypeError, match="`classes_` must hold strings"):
        model.save(tmp_path / "model.npz")
