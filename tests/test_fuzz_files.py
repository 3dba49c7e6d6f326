"""Crafted model files: refused by name, or harmless."""

import io
import json
import zipfile

import fuzz
import numpy as np
import pytest
import saved

import nbsketch
from nbsketch.files import STATES, archive

MODELS = fuzz.models()
# Mutations of each model; ``python tests/fuzz.py 20000`` tries many more.
COUNT = 40


def refused(path, *words):
    with pytest.raises(ValueError, match="`path` must be a model file") as found:
        nbsketch.load(path)
    for word in words:
        assert word in str(found.value)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("name", MODELS)
def test_mutated_files_do_no_harm(name, tmp_path):
    model, X = MODELS[name]()
    outcome = fuzz.run(model, X, COUNT, 0, tmp_path / "model.npz")
    assert outcome.total() == COUNT
    assert outcome["refused"] > COUNT / 2 and outcome["harmless"] > 0


@pytest.mark.parametrize("name", MODELS)
def test_files_without_mutations_are_loaded(name, tmp_path):
    model, X = MODELS[name]()
    path = tmp_path / "model.npz"
    fuzz.write(path, *fuzz.read(model))
    again = nbsketch.load(path)
    found, expected = saved.predictions(again, X), saved.predictions(model, X)
    assert abs(found - expected).max() == 0
    fuzz.use(again, X)


def test_each_estimator_has_a_table_of_its_state():
    saved = {type(make()[0]).__name__ for make in MODELS.values()}
    assert saved == set(STATES)
    public = (getattr(nbsketch, name) for name in nbsketch.__all__)
    estimators = {c.__name__ for c in public if hasattr(c, "fit")}
    assert estimators <= set(STATES)


@pytest.mark.parametrize("name", sorted(STATES))
def test_files_of_all_released_formats_are_loaded(name):
    """The promise of version 0.2.0: its files are those in the folder ``saved``."""
    with np.load(saved.FOLDER / "expected.npz") as expected:
        X, y = expected["X"], expected[name]
    model = nbsketch.load(saved.FOLDER / f"{name}.npz")
    np.testing.assert_allclose(saved.predictions(model, X), y, rtol=1e-6, atol=1e-9)


def test_saved_files_are_small():
    assert sum(file.stat().st_size for file in saved.FOLDER.iterdir()) < 150_000


def change(name, array, value, index=0):
    """Return the content and the arrays of a file with one number changed."""
    content, arrays = fuzz.read(MODELS[name]()[0])
    arrays[array] = np.array(arrays[array])
    arrays[array].reshape(-1)[index] = value
    return content, arrays


@pytest.mark.parametrize(
    ("name", "array", "value", "word"),
    [
        ("regressor", "fitted.sketch_.matrix.indices", 10**8, "must be in [0, 39]"),
        ("regressor", "fitted.sketch_.matrix.indices", -1, "must be in [0, 39]"),
        ("regressor", "fitted.sketch_.matrix.indptr", 3, "ascending pointers"),
        ("regressor", "fitted.sketch_.matrix.data", np.nan, "finite"),
        ("regressor", "fitted.landmarks_", np.inf, "`landmarks` must be finite"),
        ("regressor", "fitted.coef_", np.nan, "`coef_` must be finite"),
        ("sparse", "fitted.landmarks_.indices", 10**8, "must be in [0, 2]"),
        ("scaled", "fitted.scaler_.plain", 3, "`plain` must be in [0, 2]"),
        ("scaled", "fitted.scaler_.width", 0, "`width` must be positive"),
        ("srht", "fitted.sketch_.rows", 64, "`rows` must be in [0, 63]"),
        ("srht", "fitted.sketch_.signs", 2, "`signs` must be 1 or -1"),
        ("identity", "fitted.sketch_.matrix.indices", 3, "must be the identity"),
        ("precomputed", "fitted.landmarks_", 40, "`landmarks` must be in [0, 39]"),
        ("precomputed", "fitted.landmarks_", -1, "`landmarks` must be in [0, 39]"),
        ("classifier", "fitted.classes_", 7, "`classes_` must be"),
        ("structured", "fitted._output_weights.indices", 99, "must be in"),
        ("structured", "fitted._whitening.chosen", 99, "chosen` must be in [0, "),
        ("structured, precomputed", "fitted.candidates_", 5, "indices in order"),
    ],
)
def test_a_wrong_number_is_refused_by_name(name, array, value, word, tmp_path):
    path = tmp_path / "model.npz"
    fuzz.write(path, *change(name, array, value))
    refused(path, word)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("name", MODELS)
def test_shortened_arrays_are_refused(name, tmp_path):
    content, arrays = fuzz.read(MODELS[name]()[0])
    path = tmp_path / "model.npz"
    for array in (name for name, values in arrays.items() if len(values)):
        shorter = arrays | {array: arrays[array][:-1]}
        fuzz.write(path, content, shorter)
        refused(path, "must be an array of")  # the text says otherwise
        if any(part in array for part in ("path_", "calibration_", "quantiles")):
            continue  # of any length
        if name == "table with leaves" and array.endswith("machine_.rows"):
            continue  # its member has landmarks: no leaf has rows
        described = json.loads(json.dumps(content))
        fuzz.claim(described, shorter, array)
        fuzz.write(path, described, shorter)
        refused(path)


def test_other_attributes_and_parameters_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    content, arrays = fuzz.read(MODELS["regressor"]()[0])
    content["fitted"]["predict"] = 3
    fuzz.write(path, content, arrays)
    refused(path, "the unknown ['predict']")
    content, arrays = fuzz.read(MODELS["regressor"]()[0])
    del content["fitted"]["coef_"]
    fuzz.write(path, content, arrays)
    refused(path, "without ['coef_']")
    for name, value in [("tol", -1.0), ("verbose", "a"), ("loss", 3), ("other", 1)]:
        content, arrays = fuzz.read(MODELS["regressor"]()[0])
        content["params"][name] = value
        fuzz.write(path, content, arrays)
        refused(path, name)


def test_defaults_of_missing_parameters_are_compared_too(tmp_path):
    path = tmp_path / "model.npz"
    content, arrays = fuzz.read(MODELS["quantiles"]()[0])
    del content["params"]["quantiles"]
    fuzz.write(path, content, arrays)
    refused(path, "`quantiles` must have length 3, got 5")


@pytest.mark.parametrize("name", ["regressor", "sgd", "fourier"])
def test_other_precisions_are_refused(name, tmp_path):
    path = tmp_path / "model.npz"
    content, arrays = fuzz.read(MODELS[name]()[0])
    array = sorted(a for a in arrays if arrays[a].dtype.kind == "f")[0]
    arrays[array] = arrays[array].astype(np.float16)
    fuzz.claim(content, arrays, array)
    fuzz.write(path, content, arrays)
    refused(path, "float16")


def test_a_stream_goes_on_only_with_the_targets_of_before(tmp_path):
    path = tmp_path / "model.npz"
    for value, word in [(False, "must be True"), (None, "without ['_one_target']")]:
        content, arrays = fuzz.read(MODELS["sgd"]()[0])
        content["fitted"]["_one_target"] = value
        if value is None:
            del content["fitted"]["_one_target"]
        fuzz.write(path, content, arrays)
        refused(path, word)


def test_an_object_in_the_place_of_an_estimator_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    content = {"version": "0", "class": "GaussianKernel", "params": {}, "fitted": {}}
    fuzz.write(path, content, {})
    refused(path, "not an estimator that can be saved")
    nested = {"$object": "SketchedKernelRegressor", "fields": {}}
    content |= {"class": "SketchedKernelRegressor", "params": {"kernel": nested}}
    fuzz.write(path, content, {})
    refused(path, "must be an object with fields")


def test_deep_text_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    with path.open("wb") as file:
        np.savez(file, format="nbsketch model 2", model="[" * 10**6)
    refused(path)


def test_a_member_at_a_position_outside_of_the_file_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    content, arrays = fuzz.read(MODELS["regressor"]()[0])
    fuzz.write(path, content, arrays)
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02")  # the first entry of the central directory
    raw[entry + 42 : entry + 46] = b"\xff\xff\xff\x7f"
    path.write_bytes(raw)
    refused(path)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def write_members(path, members):
    """Write a compressed file of raw members beside those of a model."""
    content, arrays = fuzz.read(MODELS["regressor"]()[0])
    fuzz.write(path, content, arrays)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        for name, data in members:
            file.writestr(name, data)


def test_a_bomb_of_zeros_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "model.npz"
    zeros = npy(np.zeros(archive.FREE_BYTES // 8 + 1))
    write_members(path, [("zeros.npy", zeros)])
    assert path.stat().st_size < 1 << 20
    refused(path, "its arrays take")


def test_headers_are_checked_before_arrays_are_read(tmp_path):
    path = tmp_path / "model.npz"
    header = io.BytesIO()
    huge = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, huge)
    for data, word in [
        (header.getvalue(), "not have the size of its shape"),
        (npy(np.array([None])), "holds object"),
        (npy(np.ones(3, dtype=complex)), "holds complex128"),
        (b"\x93NUMPY\x01\x00\x10\x00{'shape': (((((\n", "must be a model file"),
        (npy(np.ones(3)) + b"more", "not have the size of its shape"),
        (b"not an array", "must be a model file"),
    ]:
        write_members(path, [("x.npy", data)])
        refused(path, word)
    write_members(path, [("x.txt", b"")])
    refused(path, "`x.txt` is not an array")


def test_one_array_in_many_places_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    content, arrays = fuzz.read(MODELS["regressor"]()[0])
    arrays["zeros"] = np.zeros(10)
    zeros = {"$array": "zeros", "dtype": "<f8", "shape": [10]}
    content["params"]["bandwidth"] = [zeros] * 40
    fuzz.write(path, content, arrays)
    refused(
        path, "`params.bandwidth.1` must be an array of the file that is used only once"
    )


def test_headers_that_no_parser_has_memory_for_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "-" * 9000 + "1,)}\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    write_members(path, [("x.npy", header)])
    refused(path)


@pytest.mark.parametrize("error", [MemoryError, AssertionError, RecursionError])
def test_every_error_of_reading_is_a_value_error(error, tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    fuzz.write(path, *fuzz.read(MODELS["regressor"]()[0]))

    def fail(*args, **options):
        raise error("of the file")

    monkeypatch.setattr(archive.npy, "read_array", fail)
    refused(path, "of the file")


def test_two_arrays_of_one_name_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    with pytest.warns(UserWarning, match="Duplicate name"):
        write_members(path, [("model.npy", npy(np.array("{}")))])
    refused(path, "two arrays of the same name")


def test_what_compresses_too_well_is_saved_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "FREE_BYTES", 1 << 10)
    monkeypatch.setattr(archive, "LARGEST_RATIO", 1.5)
    model, X = MODELS["identity"]()
    model.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
