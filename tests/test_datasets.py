"""Data sets: the real files if they are available, tiny ones in their format, and
every way of not finding them. No test reaches a network."""

import doctest
import gzip
import hashlib
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from urllib.error import HTTPError, URLError

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import sklearn.datasets
from numpy.testing import assert_allclose, assert_array_equal

from nbsketch import datasets
from nbsketch.datasets import Dataset, _files, make_friedman_outliers, mulan, tables
from nbsketch.datasets._files import read_arff, read_lines
from nbsketch.metrics import arrmse

LOADERS = [name for name in datasets.__all__ if name.startswith("load_")]
NO_DOWNLOAD = ["autompg", "bibtex", "bookmarks", "mediamill", "otoliths"]
REAL_DATA = os.environ.get("NBSKETCH_DATA")
needs_data = pytest.mark.skipif(
    REAL_DATA is None, reason="NBSKETCH_DATA does not name a folder with the data sets"
)


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Hide the data and the cache of this machine, and cut every wire."""

    def cut(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.delenv("NBSKETCH_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(_files, "urlopen", cut)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", cut)
    monkeypatch.setattr(sklearn.datasets, "fetch_california_housing", cut)


@cache
def real(name, **options):
    return getattr(datasets, f"load_{name}")(
        data_home=REAL_DATA, download=False, **options
    )


def write(folder, name, text, zipped=False):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if zipped:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")


def dense_arff(names, rows, kind="NUMERIC"):
    header = "".join(f"@attribute {name} {kind}\n" for name in names)
    body = "".join(",  ".join(map(str, row)) + "\n" for row in rows)
    return f"@relation TRAIN\n\n{header}\n@data\n{body}  \n"


# The package


def test_import_is_light():
    code = (
        "import sys, nbsketch.datasets; "
        "print({'sklearn', 'numba', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", datasets.__all__)
def test_examples_run(name):
    module = importlib.import_module(getattr(datasets, name).__module__)
    results = doctest.testmod(module)
    assert results.attempted and not results.failed


@pytest.mark.parametrize("loader", LOADERS)
def test_loaders_document_each_argument_and_error(loader):
    function = getattr(datasets, loader)
    doc = inspect.getdoc(function)
    for name in inspect.signature(function).parameters:
        assert f"\n{name} : " in doc
    titles = re.findall(r"^(\w+)\n-+$", doc, re.MULTILINE)
    assert titles == ["Parameters", "Returns", "Raises", "References", "Examples"]
    assert max(map(len, doc.splitlines())) <= 84
    assert doc.count("\nFileNotFoundError\n") == doc.count("\nValueError\n") == 1


def test_each_set_of_the_table_file_has_a_loader():
    entries = [*tables.TABLES, *mulan.LABEL_SETS, *mulan.TARGET_SETS, *mulan.IMAGES]
    assert sorted(f"load_{name.replace('-', '_')}" for name in entries) == LOADERS
    for entry in tables.TABLES.values():
        assert set(entry.categories) <= set(entry.feature_names)
        assert all(bool(file.url) == bool(file.sha256) for file in entry.files)


def test_python_without_docstrings_loads_the_loaders(run_python):
    code = "from nbsketch.datasets import load_rf1; print(load_rf1.__doc__)"
    assert run_python(code, PYTHONOPTIMIZE="2") == "None"


# Dataset


def toy(n=10, n_train=None, y=None):
    X = np.arange(2.0 * n).reshape(n, 2)
    return Dataset(
        "toy", X, np.arange(n) if y is None else y, ("a", "b"), ("t",), n_train
    )


def test_published_split_is_first_rows_then_the_rest():
    data = toy(n_train=6)
    assert_array_equal(np.vstack([data.X_train, data.X_test]), data.X)
    assert_array_equal(data.y_train, np.arange(6))
    assert_array_equal(data.y_test, np.arange(6, 10))


@pytest.mark.parametrize("part", ["X_train", "y_train", "X_test", "y_test"])
def test_no_published_split_points_to_random_split(part):
    with pytest.raises(ValueError, match=r"toy has no published split: use random_spl"):
        getattr(toy(), part)


@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [((0.7, 0.3), (354, 152)), ((0.5, 0.3, 0.2), (253, 152, 101)), ((0.5,), (253,))],
)
def test_random_split_deals_every_row_once(fractions, sizes):
    parts = toy(506).random_split(0, fractions)
    assert tuple(len(y) for _, y in parts) == sizes
    for X, y in parts:
        assert_array_equal(X[:, 0], 2 * y)
    dealt = np.concatenate([y for _, y in parts])
    assert len(set(dealt)) == sum(sizes)
    assert not np.array_equal(dealt, np.sort(dealt))


def test_random_split_follows_its_seed_and_takes_sparse_rows():
    data = toy(50)
    sparse = Dataset("toy", sp.csr_array(data.X), data.y, ("a", "b"), ("t",))
    (X, y), _ = sparse.random_split(np.random.default_rng(3))
    (dense, again), _ = data.random_split(3)
    assert_array_equal(y, again)
    assert_array_equal(X.toarray(), dense)
    assert not np.array_equal(y, data.random_split(4)[0][1])
    data.random_split(np.random.RandomState(0))


@pytest.mark.parametrize("fractions", [(0.7, 0.4), (0.0, 0.5), (1.5,), (0.99, 0.01)])
def test_random_split_refuses_fractions_it_cannot_serve(fractions):
    with pytest.raises(ValueError, match="`fractions` must"):
        toy().random_split(0, fractions)


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="`y` must have 10 rows, got 9"):
        toy(y=np.arange(9))
    with pytest.raises(ValueError, match="`n_train` must be in"):
        toy(n_train=10)
    with pytest.raises(ValueError, match="`feature_names` and `target_names` must"):
        toy(y=np.ones((10, 2)))


# ARFF


def test_dense_arff(tmp_path):
    text = (
        "% a comment\r\n@RELATION r\r\n@Attribute 'a b' real\r\n"
        '@attribute "c" {0,1}\r\n@attribute d-e numeric\r\n\r\n@DATA\r\n'
        " 1.5,\t0,  ? \r\n% between\r\n-2e3, 1 , 4\r\n   \r\n"
    )
    write(tmp_path, "t.arff", text)
    names, table = read_arff(tmp_path / "t.arff")
    assert names == ["a b", "c", "d-e"]
    assert_array_equal(table, [[1.5, 0, np.nan], [-2000, 1, 4]])


def test_sparse_arff(tmp_path):
    text = (
        "@attribute a {0,1}\n@attribute b numeric\n@attribute c numeric\n@data\n"
        "{2 0.5, 0 1}\n{}\n{ 1 -3 ,2 ?}\n{1 0}\n"
    )
    write(tmp_path, "t.arff", text, zipped=True)
    names, table = read_arff(tmp_path / "t.arff.gz")
    assert names == ["a", "b", "c"]
    assert table.format == "csr" and table.nnz == 4 and table.has_sorted_indices
    expected = [[1, 0, 0.5], [0, 0, 0], [0, -3, np.nan], [0, 0, 0]]
    assert_array_equal(table.toarray(), expected)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("@dota\n1,2", "has no line '@data'"),
        ("@data\n\n", "has no rows"),
        ("@data\n1,x", "cannot be read"),
        ("@data\n1,2\n3", "cannot be read"),
        ("@data\n1,2,3", "must have 2 columns, got 3"),
        ("@data\n{0 1, 2 1}", r"outside \[0, 1\]"),
        ("@data\n{0 1, 1}", "not 'index value' pairs"),
        ("@data\n{0 x}", "cannot be read"),
    ],
)
def test_broken_arff_is_refused_with_its_path(tmp_path, body, message):
    write(tmp_path, "t.arff", f"@attribute a real\n@attribute b real\n{body}\n")
    with pytest.raises(ValueError, match=rf"t\.arff.*{message}"):
        read_arff(tmp_path / "t.arff")


# Tiny files in the true format

RIVERS = ["CHSI2", "NASI2", "EADM7", "SCLM7", "CLKM7", "VALI2", "NAPM7", "DLDI4"]
LAGS = ["0", "-6", "-12", "-18", "-24", "-36", "-48", "-60"]
RF1_NAMES = [f"{river}__{lag}" for lag in LAGS for river in RIVERS]
RF1_NAMES += [f"{river}_48H__0" for river in RIVERS]


def write_rf1(folder, zipped=False):
    """Two training rows and one test row; the first and last columns have gaps."""
    rows = np.arange(3 * 72).reshape(3, 72) + 0.75
    rows = [list(map(str, row)) for row in rows]
    rows[0][0] = rows[2][0] = rows[0][63] = rows[1][63] = "?"
    write(folder, "rf1/rf1-train.arff", dense_arff(RF1_NAMES, rows[:2]), zipped)
    write(folder, "rf1/rf1-test.arff", dense_arff(RF1_NAMES, rows[2:]), zipped)


@pytest.mark.parametrize("zipped", [False, True])
def test_rf1_plain_fills_gaps_with_the_training_mean(tmp_path, zipped):
    write_rf1(tmp_path, zipped)
    data = datasets.load_rf1(data_home=tmp_path, download=False)
    assert (data.X.shape, data.y.shape, data.n_train) == ((3, 64), (3, 8), 2)
    assert_array_equal(data.X[:, 0], 72.75)  # the one known training value
    assert_array_equal(data.X[:, 63], [0, 0, 207.75])  # no known one
    assert_array_equal(data.X[:, 1], [1.75, 73.75, 145.75])
    assert_array_equal(data.y[:, 7], [71.75, 143.75, 215.75])
    assert data.target_names[1] == "NASI2_48H__0" and data.feature_names[8][-2:] == "-6"


def test_rf1_paper_reads_gaps_as_zero_and_truncates_targets(tmp_path):
    write_rf1(tmp_path)
    data = datasets.load_rf1(data_home=str(tmp_path), preparation="paper")
    assert_array_equal(data.X[:, 0], [0, 72.75, 0])
    assert_array_equal(data.y[:, 7], [71, 143, 215])


def test_unknown_preparation_and_download_are_refused(tmp_path):
    write_rf1(tmp_path)
    with pytest.raises(ValueError, match="`preparation` must be one of"):
        datasets.load_rf1(data_home=tmp_path, preparation="none")
    with pytest.raises(ValueError, match="`download` must be one of"):
        datasets.load_rf1(data_home=tmp_path, download="yes")


def test_rf1_refuses_other_columns(tmp_path):
    write_rf1(tmp_path)
    names = ["other" if name == "EADM7_48H__0" else name for name in RF1_NAMES]
    write(tmp_path, "rf1/rf1-test.arff", dense_arff(names, np.ones((1, 72))))
    with pytest.raises(ValueError, match=r"rf1-test\.arff must have 64 inputs and the"):
        datasets.load_rf1(data_home=tmp_path)


def sparse_arff(n_columns, rows):
    header = "".join(f"@attribute w{i} {{0,1}}\n" for i in range(n_columns))
    body = "".join(
        "{" + ",".join(f"{j} 1" for j in sorted(row)) + "}\n" for row in rows
    )
    return f"@relation r\n\n{header}\n@data\n{body}"


def test_bibtex_in_small(tmp_path):
    write(tmp_path, "bibtex/bibtex-train.arff", sparse_arff(1995, [{0, 1836}, {1835}]))
    write(tmp_path, "bibtex/bibtex-test.arff", sparse_arff(1995, [{5, 1994}]), True)
    data = datasets.load_bibtex(data_home=tmp_path)
    assert data.n_train == 2 and data.X.format == "csr" and data.X.shape == (3, 1836)
    assert_array_equal(data.X.nonzero()[1], [0, 1835, 5])
    assert data.y.dtype == np.int8 and data.y.shape == (3, 159)
    assert_array_equal(np.argwhere(data.y), [[0, 0], [2, 158]])
    assert data.X_test.shape == (1, 1836)


def test_bookmarks_in_true_size(tmp_path):
    rows = [{i % 2150, 2150 + i % 208} for i in range(87856)]
    write(tmp_path, "bookmarks/bookmarks.arff", sparse_arff(2358, rows))
    data = datasets.load_bookmarks(data_home=tmp_path)
    assert data.X_train.shape == (60000, 2150) and data.y_test.shape == (27856, 208)
    assert_array_equal(data.y.argmax(axis=1), np.arange(87856) % 208)


def test_mediamill_in_small(tmp_path):
    rows = np.hstack([np.full((3, 120), 0.25), np.eye(3, 101, dtype=int)])
    names = [f"Att{i}" for i in range(120)] + [f"Class{i}" for i in range(101)]
    write(tmp_path, "mediamill/mediamill-train.arff", dense_arff(names, rows[:2]))
    write(tmp_path, "mediamill/mediamill-test.arff", dense_arff(names, rows[2:]))
    data = datasets.load_mediamill(data_home=tmp_path)
    assert data.n_train == 2
    assert_array_equal(data.X, rows[:, :120])
    assert_array_equal(data.y, np.eye(3, 101))
    assert data.target_names[0] == "Class0"


@pytest.mark.parametrize("name", ["bibtex", "mediamill"])
def test_multilabel_refuses_other_columns(tmp_path, name):
    for part in ("train", "test"):
        write(tmp_path, f"{name}/{name}-{part}.arff", sparse_arff(7, [{1}]))
    with pytest.raises(ValueError, match=r"-train\.arff must have \d+ columns, got 7"):
        getattr(datasets, f"load_{name}")(data_home=tmp_path)


def write_otoliths(folder, dtype, ages=(3, 5, 2)):
    for part, stem, table, rows in (
        ("train", "Train", "Training", ages[:2]),
        ("test", "Test", "Testing", ages[2:]),
    ):
        lines = "".join(f"{i},img_{i}.jpg,{age}\n" for i, age in enumerate(rows))
        path = f"otoliths/{part}/{table}_info.csv"
        write(folder, path, f"\ufeff,Name,Ground truth\n{lines}")
        for i, age in enumerate(rows):
            image = np.arange(4096, dtype=dtype).reshape(64, 64) + dtype(age)
            np.save(folder / "otoliths" / part / f"{stem}_fc_{i}.npy", image)


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [(np.float32, np.float32), (np.float64, np.float64), (np.int32, np.float64)],
)
def test_otoliths_in_small(tmp_path, dtype, kept):
    write_otoliths(tmp_path, dtype)
    data = datasets.load_otoliths(data_home=tmp_path)
    assert data.X.dtype == kept and data.n_train == 2
    assert_array_equal(data.y, [3, 5, 2])
    assert_array_equal(data.X, np.arange(4096) + data.y[:, None])
    assert data.feature_names[65] == "pixel_1_1" and data.target_names == ("age",)


def test_otoliths_refuses_a_missing_a_small_and_an_ageless_one(tmp_path):
    write_otoliths(tmp_path, np.float32)
    image = tmp_path / "otoliths" / "train" / "Train_fc_1.npy"
    np.save(image, np.zeros((32, 32)))
    with pytest.raises(ValueError, match=r"Train_fc_1\.npy must hold 4096 values"):
        datasets.load_otoliths(data_home=tmp_path)
    image.unlink()
    with pytest.raises(FileNotFoundError, match=r"Train_fc_1\.npy .* was not found"):
        datasets.load_otoliths(data_home=tmp_path)
    write(tmp_path, "otoliths/test/Testing_info.csv", "Name,Age\nimg.jpg,3\n")
    with pytest.raises(ValueError, match=r"a column named 'Ground truth'"):
        datasets.load_otoliths(data_home=tmp_path)


TABLES = {
    "boston": (
        "boston_house_prices.csv",
        "2,13,,,,,,,,,,,,\n" + ",".join(f'"{c}"' for c in "ABCDEFGHIJKLMN") + "\n"
        "0.1,2,3,4,5,6,7,8,9,10,11,12,13,24\n1,2,3,4,5,6,7,8,9,10,11,12,13,22.5\n",
    ),
    "concrete": (
        "concrete.txt",
        "540.0 \t0.0 \t0 \t162.0 \t2.5 \t1040.0 \t676.0 \t28 \t24 \n"
        "1 \t2 \t3 \t4 \t5 \t6 \t7 \t8 \t22.5 \n\n",
    ),
    "airfoil": (
        "airfoil_self_noise.dat",
        "1\t0\t3\t4\t5\t24\r\n1\t2\t3\t4\t5\t22.5\r\n",
    ),
    "yacht": ("yacht.txt", "-2.3 1 4 3 3 0.1 24 \n-2.3 1 4 3 3 0.2 22.5 \n\n"),
    "powerplant": ("powerplant.txt", "8.3\t40\t1010\t90\t24\n8\t40\t1\t2\t22.5\n"),
    "autompg": (
        "auto-mpg.data",
        '24.0   8   307.0      130.0      3504.      12.0   70  1\t"what is it?"\n'
        '25.0   4   98.00      ?          2046.      19.0   71  1\t"ford pinto"\n'
        '22.5   8   307.0      130.0      3504.      12.0   70  1\t"amc"\n',
    ),
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_regression_table_in_small(tmp_path, name, zipped):
    file, text = TABLES[name]
    write(tmp_path, f"{name}/{file}", text, zipped)
    data = getattr(datasets, f"load_{name}")(data_home=tmp_path)
    assert_array_equal(data.y, [24, 22.5])
    assert data.X.shape == (2, len(data.feature_names)) and data.n_train is None
    assert data.X.flags.c_contiguous and data.y.flags.c_contiguous


def numbers(count, target):
    return ",".join(f"{j}.5" for j in range(count)) + f",{target}\n"


COLIC = "{},1,5301{},38.5,66,?,3,3,?,2,5,4,4,?,?,?,3,5,45.00,8.4,?,?,2,{},11300,0,0,2\n"
ADULT = "{}, {}, 7, Masters, 13, Divorced, Sales, Wife, White, {}, 2174, 0, 40, ?, {}\n"
# Files of two rows with targets 24 and 22, or labels of two kinds.
UCI = {
    "elevators": ("data.csv", numbers(18, 24) + numbers(18, 22)),
    "pol": ("data.csv", numbers(26, 24) + numbers(26, 22)),
    "sml": ("data.csv", numbers(26, 24) + numbers(26, 22)),
    "parkinsons": ("data.csv", numbers(20, 24) + numbers(20, 22)),
    "skillcraft": ("data.csv", numbers(19, 24) + numbers(19, 22)),
    "stock": ("data.csv", numbers(11, 24) + numbers(11, 22)),
    "keggdirected": ("data.csv", numbers(20, 24) + numbers(20, 22)),
    "abalone": (
        "abalone.csv",
        "M,0.4,0.3,0.09,0.5,0.2,0.1,0.15,24\nI,0.3,0.2,0.09,0.2,0.09,0.04,0.07,22\n",
    ),
    "german": (
        "german.csv",
        "A11,6,A34,A43,1169,A65,A75,4,A93,A101,4,A121,67,A143,A152,2,A173,1,A192,A201,24\n"
        "A12,48,A32,A43,5951,A61,A73,2,A92,A101,2,A121,22,A143,A152,1,A173,1,A191,A201,22\n",
    ),
    "phoneme": ("phoneme.csv", numbers(5, 24) + numbers(5, 22)),
    "horse-colic": (
        "horse-colic.csv",
        COLIC.format(2, 1, 24) + COLIC.format("?", 2, 22),
    ),
    "ionosphere": ("ionosphere.csv", numbers(34, 24) + numbers(34, 22)),
}


def load_uci(name, **options):
    return getattr(datasets, f"load_{name.replace('-', '_')}")(**options)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", UCI)
def test_uci_table_in_small(tmp_path, name, zipped):
    file, text = UCI[name]
    write(tmp_path, f"{name}/{file}", text, zipped)
    data = load_uci(name, data_home=tmp_path)
    assert_array_equal(data.y, [24, 22])
    assert data.X.shape == (2, len(data.feature_names)) and data.n_train is None
    frames = load_uci(name, data_home=tmp_path, as_frame=True)
    assert frames.X.columns.tolist() == list(data.feature_names)
    assert frames.y.name == data.target_names[0] and frames.X.shape == data.X.shape
    for j, feature in enumerate(data.feature_names):
        known = ~frames.X[feature].isna()
        assert_array_equal(data.X[known, j], frames.X[feature][known])


def test_adult_in_small(tmp_path):
    rows = (
        ADULT.format(39, "Private", "Male", "<=50K"),
        ADULT.format(5, "?", "Male", ">50K"),
    )
    write(tmp_path, "adult/adult-train.csv", "".join(rows) + "\n")
    test = ADULT.format(28, "Private", "Female", ">50K.")
    write(tmp_path, "adult/adult-test.csv", f"|1x3 Cross validator\n{test}\n")
    data = datasets.load_adult(data_home=tmp_path)
    assert data.n_train == 2 and data.X[:, 0].tolist() == [39, 5, 28]
    assert data.X[:, 1].tolist() == ["Private", None, "Private"]
    assert data.y.tolist() == ["<=50K", ">50K", ">50K"]
    frames = datasets.load_adult(data_home=tmp_path, as_frame=True)
    assert frames.X.dtypes["age"] == np.int64 and frames.y.dtype == "category"
    assert frames.X["workclass"].cat.categories.tolist() == ["Private"]
    assert frames.X_test["sex"].tolist() == ["Female"]
    assert frames.X["native_country"].isna().all()


def test_horse_colic_leaves_out_what_tells_the_label(tmp_path):
    write(tmp_path, "horse-colic/horse-colic.csv", UCI["horse-colic"][1])
    data = datasets.load_horse_colic(data_home=tmp_path)
    first = dict(zip(data.feature_names, data.X[0], strict=True))
    assert first["rectal_temperature"] == 38.5 and first["pathology_data"] == "2"
    assert first["outcome"] == "2" and first["mucous_membranes"] is None
    assert np.isnan(first["respiratory_rate"]) and data.X[1, 0] is None
    assert "11300" not in data.X[0] and "53011" not in data.X[0]


def test_frames_are_split_by_position(tmp_path):
    write(tmp_path, "abalone/abalone.csv", 50 * UCI["abalone"][1])
    arrays = datasets.load_abalone(data_home=tmp_path)
    frames = datasets.load_abalone(data_home=tmp_path, as_frame=True)
    frames = replace(frames, X=frames.X[::-1], y=frames.y[::-1])  # the index descends
    arrays = replace(arrays, X=arrays.X[::-1], y=arrays.y[::-1])
    for (X, y), (table, target) in zip(
        arrays.random_split(0), frames.random_split(0), strict=True
    ):
        assert_array_equal(table.to_numpy(), X)
        assert_array_equal(target.to_numpy(), y)


def test_frames_without_pandas_say_so(tmp_path, monkeypatch):
    write(tmp_path, "yacht/yacht.txt", TABLES["yacht"][1])
    assert datasets.load_yacht(data_home=tmp_path, as_frame=True).X.shape == (2, 6)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="`as_frame=True` needs pandas"):
        datasets.load_yacht(data_home=tmp_path, as_frame=True)
    with pytest.raises(ValueError, match="`as_frame` must be one of"):
        datasets.load_yacht(data_home=tmp_path, as_frame="yes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M,1,2\n", r"abalone\.csv must have 9 columns, got 3"),
        ("\n", r"abalone\.csv has no rows of data"),
        (UCI["abalone"][1].replace("0.09", "x"), "cannot be read: could not convert"),
    ],
)
def test_uci_table_refuses_other_content(tmp_path, text, message):
    write(tmp_path, "abalone/abalone.csv", text)
    with pytest.raises(ValueError, match=message):
        datasets.load_abalone(data_home=tmp_path)


def test_regression_table_refuses_other_columns(tmp_path):
    write(tmp_path, "yacht/yacht.txt", "1 2 3\n")
    with pytest.raises(ValueError, match=r"yacht\.txt must have 7 columns, got 3"):
        datasets.load_yacht(data_home=tmp_path)


CALIFORNIA = (
    "longitude,latitude,housingMedianAge,totalRooms,totalBedrooms,population,"
    "households,medianIncome,medianHouseValue\n"
    "-122.23,37.88,41.0,880.0,129.0,322.0,126.0,8.3252,452600.0\n"
)


def test_california_derives_the_features_of_sklearn(tmp_path):
    write(tmp_path, "california/cal_housing_full.data", CALIFORNIA)
    data = datasets.load_california(data_home=tmp_path)
    # the first row as scikit-learn's user guide prints it
    expected = [8.3252, 41, 6.98412698, 1.02380952, 322, 2.55555556, 37.88, -122.23]
    assert_allclose(data.X, [expected], rtol=1e-8)
    assert_allclose(data.y, [4.526], rtol=1e-15)
    assert data.feature_names[2] == "AveRooms"


# Where files are looked for, and downloads


def test_the_argument_comes_before_the_environment_and_that_before_the_cache(
    tmp_path, monkeypatch
):
    homes = [tmp_path / "a", tmp_path / "b", tmp_path / "cache" / "nbsketch"]
    for i, home in enumerate(homes):
        write(home, "yacht/yacht.txt", f"1 2 3 4 5 6 {i}\n1 2 3 4 5 6 {i}\n")
    monkeypatch.setenv("NBSKETCH_DATA", str(homes[1]))
    assert datasets.load_yacht(data_home=homes[0]).y[0] == 0
    assert datasets.load_yacht(data_home=tmp_path / "none").y[0] == 1
    assert datasets.load_yacht(download=False).y[0] == 1
    monkeypatch.setenv("NBSKETCH_DATA", "")
    assert datasets.load_yacht(download=False).y[0] == 2


def test_half_a_set_does_not_count(tmp_path):
    write_rf1(tmp_path / "whole")
    write(tmp_path / "half", "rf1/rf1-train.arff", dense_arff(["a"], [[1]]))
    with pytest.raises(FileNotFoundError):
        datasets.load_rf1(data_home=tmp_path / "half", download=False)


def shown(error):
    """Return the names of the exceptions in the traceback."""
    names = []
    while error is not None:
        names.append(type(error).__name__)
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return names


@pytest.mark.parametrize("download", [True, False])
@pytest.mark.parametrize("loader", LOADERS)
def test_missing_files_have_the_same_message_everywhere(
    loader, download, tmp_path, monkeypatch
):
    monkeypatch.setenv("NBSKETCH_DATA", str(tmp_path / "env"))
    name = loader.removeprefix("load_").replace("_", "-")
    with pytest.raises(FileNotFoundError) as caught:
        getattr(datasets, loader)(data_home=tmp_path / "given", download=download)
    message = str(caught.value)
    assert f"The data set '{name}' was not found" in message
    assert f"FOLDER/{name}/" in message and "NBSKETCH_DATA" in message
    for home in ("given", "env"):
        assert str(tmp_path / home / name) in message
    if not download:
        reason = "because download=False"
    elif name in NO_DOWNLOAD:
        reason = "The set has no plain files to download"
    else:
        reason = "no route to host"
    assert reason in message
    assert shown(caught.value) == ["FileNotFoundError"]
    assert not (tmp_path / "cache").exists()


def serve(monkeypatch, answers):
    """Answer addresses that end in a key with its bytes; return the calls."""
    calls = []

    def fetch(url):
        calls.append(url)
        return next(body for end, body in answers.items() if url.endswith(end))

    monkeypatch.setattr(_files, "fetch", fetch)
    return calls


def test_download_is_checked_cached_and_done_once(tmp_path, monkeypatch):
    write_rf1(tmp_path)
    answers = {p.name: p.read_bytes() for p in (tmp_path / "rf1").iterdir()}
    entry = mulan.TARGET_SETS["rf1"]
    files = tuple(
        replace(file, sha256=hashlib.sha256(answers[file.name]).hexdigest())
        for file in entry.files
    )
    monkeypatch.setitem(mulan.TARGET_SETS, "rf1", replace(entry, files=files))
    load_rf1 = mulan.target_loader("rf1")
    calls = serve(monkeypatch, answers)
    with pytest.raises(FileNotFoundError):
        load_rf1(download=False)
    assert not calls
    first, second = load_rf1(), load_rf1()
    assert len(calls) == 2 and all(url.startswith("https://") for url in calls)
    assert_array_equal(first.X, second.X)
    cached = tmp_path / "cache" / "nbsketch" / "rf1"
    assert {p.name for p in cached.iterdir()} == set(answers)


def test_gzipped_download_is_unpacked_and_checked(monkeypatch, tmp_path):
    text = UCI["pol"][1].encode()
    file = _files.RemoteFile("data.csv", "https://example.org/data.csv.gz")
    file = replace(file, sha256=hashlib.sha256(text).hexdigest())
    source = _files.Entry(name="pol", origin="somewhere", files=(file,), text={})
    serve(monkeypatch, {"data.csv.gz": gzip.compress(text)})
    (path,) = _files.locate(source, None, True)
    assert path.read_bytes() == text
    path.unlink()
    serve(monkeypatch, {"data.csv.gz": gzip.compress(text)[:-9]})
    with pytest.raises(FileNotFoundError, match="The download failed"):
        _files.locate(source, None, True)


def test_download_of_another_content_is_refused(tmp_path, monkeypatch):
    serve(monkeypatch, {"": TABLES["boston"][1].encode()})
    with pytest.raises(FileNotFoundError, match=r"is not the expected file: SHA-256"):
        datasets.load_boston()
    assert not (tmp_path / "cache").exists()


def test_fetch_reads_the_answer_and_bounds_the_wait(monkeypatch):
    class Answer:
        def __enter__(self):
            return SimpleNamespace(read=lambda size: b"content")

        def __exit__(self, *args):
            return None

    def urlopen(url, timeout):
        assert 0 < timeout <= 60
        return Answer()

    monkeypatch.setattr(_files, "urlopen", urlopen)
    assert _files.fetch("https://example.org/file") == b"content"


def openml_rf1(n_rows=9125, names=RF1_NAMES):
    rng = np.random.default_rng(0)
    table = rng.uniform(1, 2, (n_rows, len(names)))
    table[0, 0] = np.nan
    # OpenML may keep the targets elsewhere than last.
    order = np.roll(np.arange(len(names)), 8)
    columns = [names[i] for i in order]
    return table, SimpleNamespace(data=table[:, order], feature_names=columns)


def test_openml_stands_in_for_the_two_files(monkeypatch):
    table, bunch = openml_rf1()
    asked = {}

    def fetch_openml(**options):
        asked.update(options)
        return bunch

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    data = datasets.load_rf1(preparation="paper")
    assert asked["data_id"] == 41483 and asked["target_column"] is None
    assert data.n_train == 4108
    assert_array_equal(data.X, np.nan_to_num(table[:, :64]))
    assert_array_equal(data.y, np.trunc(table[:, 64:]))


@pytest.mark.parametrize(
    ("bunch", "message"),
    [
        (openml_rf1(n_rows=9124)[1], r"41483 must have 4108 \+ 5017 rows .* got 9124"),
        (openml_rf1(names=RF1_NAMES[:-1])[1], "41483 must have 64 inputs and the"),
    ],
)
def test_openml_of_another_shape_is_refused(monkeypatch, bunch, message):
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **options: bunch)
    with pytest.raises(ValueError, match=message):
        datasets.load_rf1()


@pytest.mark.parametrize(
    "error",
    [
        HTTPError("https://example.org", 404, "gone", None, None),
        TimeoutError("timed out"),
        ValueError("unknown identifier"),
    ],
)
def test_whatever_sklearn_fails_with_is_a_missing_file(monkeypatch, error):
    def fail(**options):
        raise error

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    with pytest.raises(
        FileNotFoundError, match="The download through scikit-learn failed"
    ) as caught:
        datasets.load_scm1d()
    assert shown(caught.value) == ["FileNotFoundError"]


def test_california_through_sklearn(monkeypatch):
    bunch = SimpleNamespace(data=np.ones((5, 8)), target=np.arange(5.0))
    monkeypatch.setattr(
        sklearn.datasets, "fetch_california_housing", lambda **options: bunch
    )
    assert_array_equal(datasets.load_california().y, np.arange(5))


# The real files


@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "n_targets", "n_train"),
    [
        ("rf1", (9125, 64), 8, 4108),
        pytest.param("rf2", (9125, 576), 8, 4108, marks=pytest.mark.full),
        pytest.param("scm1d", (9803, 280), 16, 8145, marks=pytest.mark.full),
        ("scm20d", (8966, 61), 16, 7463),
        ("bibtex", (7395, 1836), 159, 4880),
    ],
)
def test_real_sets_with_a_published_split(name, shape, n_targets, n_train):
    data = real(name)
    assert data.X.shape == shape and data.y.shape == (shape[0], n_targets)
    assert data.n_train == n_train and len(data.y_test) == shape[0] - n_train
    values = data.X.data if sp.issparse(data.X) else data.X
    assert np.isfinite(values).all() and np.isfinite(data.y).all()


@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "first_input", "first_and_last_target"),
    [
        ("boston", (506, 13), 0.00632, (24, 11.9)),
        ("concrete", (1030, 8), 540, (79.99, 32.4)),
        ("airfoil", (1503, 5), 800, (126.201, 104.204)),
        ("autompg", (392, 7), 8, (18, 31)),
        ("yacht", (308, 6), -2.3, (0.11, 46.66)),
        ("powerplant", (9568, 4), 8.34, (480.48, 451.67)),
        ("california", (20640, 8), 8.3252, (4.526, 0.894)),
    ],
)
def test_real_regression_sets(name, shape, first_input, first_and_last_target):
    data = real(name)
    assert data.X.shape == shape and data.y.shape == shape[:1]
    assert data.n_train is None and data.X[0, 0] == first_input
    assert_allclose(data.y[[0, -1]], first_and_last_target, rtol=1e-15)
    assert np.isfinite(data.X).all() and np.isfinite(data.y).all()


@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "ends", "n_missing"),
    [
        ("elevators", (16599, 18), (-0.041959, -0.041959), 0),
        ("pol", (15000, 26), (71.055, -28.945), 0),
        ("sml", (4137, 26), (-1.0261, -13.497), 0),
        ("parkinsons", (5875, 20), (5.3791, 2.4941), 0),
        ("skillcraft", (3338, 19), (-0.034886, 0.3616), 0),
        ("stock", (536, 11), (0.022417, 0.018128), 0),
        ("keggdirected", (48827, 20), (0.83566, -1.6901), 0),
        ("abalone", (4177, 8), (15, 12), 0),
        pytest.param(
            "adult", (48842, 14), ("<=50K", ">50K"), 6465, marks=pytest.mark.full
        ),
        ("german", (1000, 20), (1, 1), 0),
        ("phoneme", (5404, 5), (0, 1), 0),
        ("horse-colic", (300, 23), (2, 2), 1605),
        ("ionosphere", (351, 34), ("g", "g"), 0),
    ],
)
def test_real_uci_tables(name, shape, ends, n_missing):
    data = load_uci(name, data_home=REAL_DATA, download=False, as_frame=True)
    assert data.X.shape == shape and data.y.shape == shape[:1]
    assert (data.y.iloc[0], data.y.iloc[-1]) == ends
    assert data.X.isna().to_numpy().sum() == n_missing
    assert data.n_train == (32561 if name == "adult" else None)


@needs_data
def test_files_of_tables_are_those_of_the_downloads():
    for table in tables.TABLES.values():
        paths = _files.locate(table, REAL_DATA, False)
        for path, file in zip(paths, table.files, strict=True):
            if file.sha256 and file.name != "adult-test.csv":  # UCI's has a line more
                content = path.read_bytes()
                content = gzip.decompress(content) if path.suffix == ".gz" else content
                assert hashlib.sha256(content).hexdigest() == file.sha256


@needs_data
@pytest.mark.thin(every=4)
@pytest.mark.parametrize(
    ("name", "n_missing_train", "n_missing_test"),
    [("rf1", 1632, 1632), ("rf2", 332256, 23904), ("scm1d", 0, 0), ("scm20d", 0, 0)],
)
def test_real_missing_values(name, n_missing_train, n_missing_test):
    plain, paper = real(name), real(name, preparation="paper")
    paths = _files.locate(mulan.TARGET_SETS[name], REAL_DATA, False)
    gaps = ["".join(read_lines(path)).count("?") for path in paths]
    assert gaps == [n_missing_train, n_missing_test]
    differ = plain.X != paper.X
    assert (paper.X[differ] == 0).all()
    # A mean may be 0 too, but not often.
    assert 0.99 * sum(gaps) <= differ.sum() <= sum(gaps)
    means = plain.X_train.mean(axis=0)
    filled = differ.any(axis=0)
    rows = differ[:, filled].argmax(axis=0)
    assert_allclose(plain.X[rows, filled], means[filled], rtol=1e-9)


@needs_data
def test_real_river_flows():
    plain, paper = real("rf1"), real("rf1", preparation="paper")
    assert_array_equal(paper.y, np.trunc(plain.y))
    assert plain.y_test[674, plain.target_names.index("NASI2_48H__0")] == 78.9
    assert_array_equal(plain.X[0, :3], [288, 3.41, 276])
    assert_array_equal(plain.y_test[0, :3], [128, 3.38, 125])
    assert_array_equal(plain.y, real("rf2").y)


@needs_data
@pytest.mark.parametrize("name", ["scm1d", "scm20d"])
def test_real_supply_chain_is_the_same_in_both_preparations(name):
    plain, paper = real(name), real(name, preparation="paper")
    assert_array_equal(plain.X, paper.X)
    assert_array_equal(plain.y, paper.y)
    assert_array_equal(plain.X[0, :2], [9, 27])
    assert plain.target_names[:2] == ("LBL", "MTLp2" if name == "scm1d" else "MTLp2A")


@needs_data
def test_real_bibtex_is_binary_and_labeled():
    data = real("bibtex")
    assert (data.X.data == 1).all() and data.X.nnz == 507746
    assert_array_equal(np.unique(data.y), [0, 1])
    assert data.y.sum(axis=1).min() == 1
    assert_allclose(data.y.sum(axis=1).mean(), 2.402, atol=5e-4)  # as published
    assert all(name.startswith("TAG_") for name in data.target_names)


@pytest.mark.full
@needs_data
def test_paper_preparation_gives_the_papers_number():
    """Kernel ridge without sketch on rf1: the paper prints an aRRMSE of 0.575."""
    data = real("rf1", preparation="paper")
    mean, deviation = data.X_train.mean(axis=0), data.X_train.std(axis=0)
    X, X_new = (data.X_train - mean) / deviation, (data.X_test - mean) / deviation
    gamma, alpha = 7.847599703514607e-06, 2.06913808111479e-06

    def kernel(A, B):
        squares = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1) - 2 * A @ B.T
        return np.exp(-gamma * np.maximum(squares, 0))

    ridge = kernel(X, X) + len(X) * alpha * np.eye(len(X))
    dual = scipy.linalg.solve(ridge, data.y_train, assume_a="pos")
    prediction = kernel(X_new, X) @ dual
    score = arrmse(data.y_test, prediction, data.y_train.mean(axis=0))
    assert_allclose(score, 0.5755, atol=5e-5)


# The synthetic set


def target(X):
    return (
        0.1 * np.exp(4 * X[:, 0])
        + 4 / (1 + np.exp(-20 * (X[:, 1] - 0.5)))
        + 3 * X[:, 2]
        + 2 * X[:, 3]
        + X[:, 4]
    )


def test_friedman_without_noise_is_the_formula():
    X, y = make_friedman_outliers(500, noise=0, random_state=0)
    assert_allclose(y, target(X), rtol=1e-12)


def test_friedman_draws_what_it_says():
    X, y = make_friedman_outliers(random_state=0)
    assert X.shape == (10_000, 10) and y.shape == (10_000,)
    outlying = (X > 1).any(axis=1) | (X < 0).any(axis=1)
    assert outlying.sum() == 100
    inside, outside = X[~outlying], X[outlying]
    # four standard errors of the means and of the deviations
    assert_allclose(inside.mean(axis=0), 0.5, atol=4 * 0.289 / np.sqrt(9900))
    assert_allclose(outside.mean(), 1.5, atol=4 * 0.25 / np.sqrt(1000))
    assert_allclose(outside.std(), 0.25, atol=4 * 0.25 / np.sqrt(2000))
    errors = y - target(X)
    assert_allclose(errors.mean(), 0, atol=4 / np.sqrt(10_000))
    assert_allclose(errors.std(), 1, atol=4 / np.sqrt(20_000))


def test_friedman_changes_only_what_an_argument_says():
    X, y = make_friedman_outliers(400, random_state=0)
    clean, y_clean = make_friedman_outliers(400, n_outliers=0, random_state=0)
    changed = (clean != X).any(axis=1)
    assert changed.sum() == 20 and ((clean >= 0) & (clean < 1)).all()
    assert_array_equal(y[~changed], y_clean[~changed])
    wide, _ = make_friedman_outliers(400, outlier_std=0.5, noise=3, random_state=0)
    assert_allclose(wide[changed] - 1.5, 2 * (X[changed] - 1.5), atol=1e-12)
    assert_array_equal(wide[~changed], X[~changed])


def test_friedman_follows_its_seed():
    X, y = make_friedman_outliers(50, n_features=5, random_state=1)
    again, y_again = make_friedman_outliers(
        50, n_features=5, random_state=np.random.default_rng(1)
    )
    assert_array_equal(X, again)
    assert_array_equal(y, y_again)
    other, _ = make_friedman_outliers(50, n_features=5, random_state=2)
    assert not np.array_equal(X, other)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_samples", 0),
        ("n_features", 4),
        ("n_outliers", 51),
        ("n_outliers", -1),
        ("noise", -1.0),
        ("noise", np.inf),
        ("outlier_std", -0.1),
    ],
)
def test_friedman_errors_name_the_argument(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must be"):
        make_friedman_outliers(**{"n_samples": 50, argument: value})


def test_large_answers_are_not_read_to_the_end(monkeypatch):
    content = bytes(3000)
    sizes = []

    class Answer(io.BytesIO):
        def read(self, size=-1):
            sizes.append(size)
            return super().read(size)

    monkeypatch.setattr(_files, "MOST_BYTES", 1000)
    monkeypatch.setattr(_files, "urlopen", lambda url, timeout: Answer(content))
    with pytest.raises(OSError, match="more than 1000 bytes"):
        _files.fetch("https://example.org/file")
    assert sizes == [1001]
    packed = gzip.compress(content)
    assert len(packed) < 1000
    file = _files.RemoteFile("data.csv", "https://example.org/data.csv.gz", "0")
    monkeypatch.setattr(_files, "urlopen", lambda url, timeout: Answer(packed))
    with pytest.raises(OSError, match="more than 1000 bytes"):
        _files._download("set", file)
