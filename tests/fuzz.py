"""Mutated model files: what is loaded of them must predict without harm.

``python tests/fuzz.py 20000`` tries so many mutations of each model.
"""

import copy
import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from functools import cache, partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from tables import small_leaves

import nbsketch

NUMBERS = [0, 1, -1, 2, 7, 10**8, -(10**8), 2**31, 2**62, 2**63, 2**64, -(2**63)]
NUMBERS += [0.5, 1e-300, 1e300, -1e9, float("nan"), float("inf"), -float("inf")]
OTHERS = [None, True, False, "", "gaussian", "x", [], {}, [1, 2], [[0.5]], {"a": 1}]
OTHERS += [{"$tuple": []}, {"$tuple": [3, 40]}, {"$array": "nothing"}, {"$names": []}]
DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", ">f8", ">i8", "?", "U3"]
ALLOWED = (
    TypeError,
    ValueError,
    FloatingPointError,
)  # steps of a changed state diverge


def models():
    """Return a function of each name that fits a small model once, of every estimator.

    It returns the model and rows for it.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    Y, labels = np.column_stack([y, y**2]), np.digitize(y, [-0.5, 0.5])
    sparse = sp.csr_array(X * (rng.random(X.shape) < 0.5))
    K = X @ X.T
    fixed = {"random_state": 0, "alpha": 1e-2, "bandwidth": 1.0}
    sets = (rng.random((40, 4)) < 0.4).astype(np.int8)
    regressor, io_regressor = (
        nbsketch.SketchedKernelRegressor,
        nbsketch.InputOutputKernelRegressor,
    )
    gaussian = {"bandwidth": 1.0, "output_bandwidth": 1.0, "random_state": 0}
    makers = {
        "regressor": lambda: regressor(size=9, **fixed).fit(X, y),
        "scaled": lambda: regressor(size=9, preprocessing="both", **fixed).fit(X, Y),
        "sparse": lambda: regressor(size=9, **fixed).fit(sparse, Y),
        "srht": lambda: regressor(sketch="srht", size=9, **fixed).fit(X, y),
        "dense sketch": lambda: regressor(sketch="gaussian", size=9, **fixed).fit(X, y),
        "identity": lambda: regressor(sketch="identity", **fixed).fit(X[:9], y[:9]),
        "precomputed": lambda: regressor("precomputed", size=9, alpha=0.1).fit(K, y),
        "classifier": lambda: nbsketch.SketchedKernelClassifier(
            size=9, loss="logistic", **fixed
        ).fit(X, labels),
        "quantiles": lambda: nbsketch.JointQuantileRegressor(
            (0.1, 0.5, 0.9), size=9, calibration=0.3, **fixed
        ).fit(X, y),
        "spectral": lambda: nbsketch.SpectralFilterRegressor(
            size=9, bandwidth=1.0, random_state=0
        ).fit(X, y),
        "sgd": lambda: nbsketch.SketchedSGDRegressor(
            size=9, bandwidth=1.0, random_state=0, n_epochs=2
        ).fit(X, y),
        "sgd of classes": lambda: nbsketch.SketchedSGDClassifier(
            size=9, bandwidth=1.0, random_state=0, n_epochs=2
        ).fit(X, labels),
        "structured": lambda: io_regressor(
            sketch=nbsketch.SubsamplingSketch(9),
            output_sketch=nbsketch.PSparsifiedSketch(4),
            **gaussian,
        ).fit(X, sets),
        "structured, sparse": lambda: io_regressor(**gaussian).fit(
            sparse, sp.csr_array(sets)
        ),
        "structured, precomputed": lambda: io_regressor(
            bandwidth=1.0, output_kernel="precomputed", output_sketch="subsampling",
            output_size=5, random_state=0,
        ).fit(X, K + 40 * np.eye(40)),
        "outputs": lambda: nbsketch.OutputEmbedding(
            output_bandwidth=1.0, sketch="p-sparsified", size=9, random_state=0
        ).fit(X),
        "features": lambda: nbsketch.SketchedFeatures(
            bandwidth=1.0, size=9, random_state=0
        ).fit(X),
        "fourier": lambda: nbsketch.RandomFourierFeatures(
            bandwidth=1.0, size=8, random_state=0
        ).fit(X),
        "table": lambda: nbsketch.TabularKernelRegressor(random_state=0).fit(X, Y),
        "table of classes": lambda: nbsketch.TabularKernelClassifier(
            random_state=0
        ).fit(X, labels),
        "table with leaves": lambda: table_with_leaves(X, y),
    }  # fmt: skip
    inputs = dict.fromkeys(makers, X[:5])
    inputs |= {"sparse": sparse[:5], "precomputed": K[:5]}
    inputs["structured, sparse"] = sparse[:5]
    return {
        name: cache(partial(_with_rows, make, inputs[name]))
        for name, make in makers.items()
    }


def _with_rows(make, X):
    return make(), X


def table_with_leaves(X, y):
    """Return a model of few rows with a base and leaves."""
    with small_leaves(alone=20, leaf_rows=15):
        return nbsketch.TabularKernelRegressor(random_state=0).fit(X, y)


def read(model):
    """Return the text and the arrays of the file of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        model.save(path)
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    del arrays["format"]
    return json.loads(str(arrays.pop("model"))), arrays


def write(path, content, arrays):
    with warnings.catch_warnings(), path.open("wb") as file:
        warnings.simplefilter("ignore")
        form, text = "nbsketch model 2", json.dumps(content)
        np.savez(file, format=form, model=text, **arrays)


def use(model, X):
    """Do what a model does once it is fitted."""
    if hasattr(model, "transform"):
        model.transform(X)
        return
    if hasattr(model, "encode"):
        model.decode(model.encode(X))
        return
    model.predict(X)
    if hasattr(model, "predict_interval"):
        model.predict_interval(X, 0.5)
    if hasattr(model, "partial_fit"):
        model.partial_fit(X, np.arange(5.0) % 2)
        model.predict(X)
    if hasattr(model, "predict_topk"):
        model.predict_topk(X, 2)
        model.score(X, model.predict(X))
    if hasattr(model, "predict_proba"):
        model.predict_proba(X)


def nodes(value, path=()):
    """Yield the paths of all values in JSON."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield from nodes(inner, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def mutate_text(rng, content):
    """Change one value of the text, or its key."""
    path = rng.choice([p for p in nodes(content) if p])
    parent, key = at(content, path[:-1]), path[-1]
    what = rng.choice(["number", "other", "swap", "delete", "rename", "nearby", "nest"])
    if what == "number":
        parent[key] = rng.choice(NUMBERS)
    elif what == "other":
        parent[key] = copy.deepcopy(rng.choice(OTHERS))
    elif what == "swap":
        source = rng.choice([p for p in nodes(content) if p])
        parent[key] = copy.deepcopy(at(content, source))
    elif what == "delete":
        del parent[key]
    elif what == "rename" and isinstance(parent, dict):
        parent[rng.choice([f"{key}_", "$object", "alpha", "coef_", "$tuple"])] = (
            parent.pop(key)
        )
    elif what == "nearby" and type(parent[key]) in (int, float):
        parent[key] = rng.choice([parent[key] + 1, parent[key] - 1, -parent[key]])
    else:
        parent[key] = {"$tuple": [parent[key]]}


def mutate_array(rng, arrays):
    """Change values, shape or type of an array, or lose it; return its name."""
    name = rng.choice(sorted(arrays))
    array = np.array(arrays[name])
    ways = ["value", "value", "values", "type", "cut", "grow", "reverse", "shuffle"]
    what = rng.choice([*ways, "shape", "swap", "lose", "bytes"])
    if what in ("value", "values") and array.size:
        count = 1 if what == "value" else array.size
        flat = array.reshape(-1)
        for i in rng.choices(range(array.size), k=min(count, 50)):
            flat[i] = _as(rng.choice(NUMBERS), array.dtype)
        array = flat.reshape(array.shape)
    elif what == "type":
        with np.errstate(all="ignore"):
            array = array.astype(rng.choice(DTYPES))
    elif what == "cut":
        array = array[: rng.randrange(len(array) + 1)] if array.ndim else array
    elif what == "grow" and array.ndim:
        array = np.concatenate([array, array[-1:]])
    elif what == "reverse" and array.ndim:
        array = array[::-1]
    elif what == "shuffle" and array.ndim:
        array = array[np.array(rng.sample(range(len(array)), len(array)), dtype=int)]
    elif what == "shape":
        shapes = [array.reshape(-1), array[None], array.T, array[..., None], array[:0]]
        array = rng.choice(shapes) if array.ndim else array[None]
    elif what == "swap":
        array = np.array(arrays[rng.choice(sorted(arrays))])
    elif what == "lose":
        del arrays[name]
        return name
    elif what == "bytes" and array.dtype.kind in "iuf" and array.size:
        raw = bytearray(array.tobytes())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        array = np.frombuffer(bytes(raw), dtype=array.dtype).reshape(array.shape)
    arrays[name] = np.array(array)
    return name


def _as(number, dtype):
    """Return a number in the range of a type."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        known = number if abs(number) < np.inf else 0
        return int(min(max(known, limits.min), limits.max))
    return str(number) if dtype.kind == "U" else float(number)


def claim(content, arrays, name):
    """Let the text say of an array what is true now."""
    for path in nodes(content):
        node = at(content, path)
        if isinstance(node, dict) and node.get("$array") == name and name in arrays:
            node["dtype"] = arrays[name].dtype.str
            node["shape"] = list(arrays[name].shape)


def mutated(rng, content, arrays, path):
    """Write a file with one to three mutations."""
    content, arrays = copy.deepcopy(content), dict(arrays)
    for _ in range(rng.choice([1, 1, 2, 3])):
        if rng.random() < 0.4:
            mutate_text(rng, content)
        elif arrays:
            name = mutate_array(rng, arrays)
            if rng.random() < 0.8:
                claim(content, arrays, name)
    write(path, content, arrays)
    if rng.random() < 0.05:
        raw = bytearray(path.read_bytes())
        for _ in range(3):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        path.write_bytes(raw[: rng.choice([len(raw), rng.randrange(len(raw))])])


def run(model, X, count, seed, path):
    """Return how many mutated files were refused, loaded, and refused by predict.

    Anything but the errors of a bad value goes up.
    """
    rng, outcome = random.Random(seed), Counter()
    content, arrays = read(model)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for i in range(count):
            mutated(rng, content, arrays, path)
            try:
                found = nbsketch.load(path)
            except (OSError, ValueError):
                outcome["refused"] += 1
                continue
            except BaseException:
                print(f"mutation {i} of seed {seed}", flush=True)
                raise
            try:
                use(found, X)
                outcome["harmless"] += 1
            except (*ALLOWED, nbsketch_not_fitted()):
                outcome["refused by predict"] += 1
            except BaseException:
                print(f"mutation {i} of seed {seed}", flush=True)
                raise
    return outcome


def nbsketch_not_fitted():
    from sklearn.exceptions import NotFittedError

    return NotFittedError


def main(count):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        for name, make in models().items():
            model, X = make()
            print(name, dict(run(model, X, count, 1, path)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
