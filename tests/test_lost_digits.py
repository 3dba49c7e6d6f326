"""Integers that doubles do not tell apart, and columns that hardly vary: told."""

import warnings
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from nbsketch import (
    InputOutputKernelRegressor,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch._report.validation import varying_features
from nbsketch.kernels import GaussianKernel

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

N = 80
# Nanoseconds of 40 pairs, a millisecond apart.
STAMPS = 1_700_000_000_000_000_000 + 10**6 * (np.arange(N) // 2) + np.arange(N) % 2
TIME = np.linspace(0, 1, N)
Y = np.sin(6 * TIME)
CONTAINERS = {
    "int64": np.column_stack,
    "uint64": lambda columns: np.column_stack(columns).astype(np.uint64),
    "object": lambda columns: np.column_stack(columns).astype(object),
    "lists": lambda columns: np.column_stack(columns).tolist(),
    "decimals": lambda columns: np.array(
        [list(map(Decimal, row)) for row in np.column_stack(columns).tolist()]
    ),
    "pandas": lambda columns: pd.DataFrame(dict(zip("ab", columns, strict=True))),
    "nullable": lambda columns: pd.DataFrame(
        {k: pd.array(c, "Int64") for k, c in zip("ab", columns, strict=True)}
    ),
    "polars": lambda columns: pl.DataFrame(dict(zip("ab", columns, strict=True))),
    "arrow": lambda columns: pa.table(dict(zip("ab", columns, strict=True))),
    "csr": lambda columns: sp.csr_array(np.column_stack(columns)),
}


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(bandwidth=1.0, alpha=1e-3),
        SketchedFeatures(bandwidth=1.0, size=5),
        TabularKernelRegressor(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_integers_that_become_equal_are_named(model, container):
    if container == "csr" and isinstance(model, TabularKernelRegressor):
        pytest.skip("tables are dense")
    make = CONTAINERS[container]
    model.set_params(random_state=0)
    with pytest.warns(UserWarning, match="different integers above 2.*in column 0.*eq"):
        model.fit(make([STAMPS, np.arange(N) % 7]), Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        apart = 2**60 + 2**30 * np.arange(N)  # large, but different as doubles
        model.fit(make([apart, STAMPS - STAMPS[0]]), Y)


def test_missing_integers_and_dates_are_no_cause():
    rows = pd.DataFrame({"a": pd.array(STAMPS, "Int64"), "b": pd.to_datetime(STAMPS)})
    rows.loc[::9, ["a", "b"]] = pd.NA
    with pytest.warns(UserWarning, match=r"column 0 \('a'\) that are equal"):
        TabularKernelClassifier(random_state=0).fit(rows.assign(t=TIME), Y > 0)
    apart = rows.assign(a=pd.array(2**60 + 2**30 * np.arange(N), "Int64"), t=TIME)
    apart.loc[::9, "a"] = pd.NA
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        TabularKernelClassifier(random_state=0).fit(apart[["a", "t"]], Y > 0)


def test_integers_of_dask_are_told():
    da = pytest.importorskip("dask.array")
    rows = da.from_array(STAMPS[:, None], chunks=(40, 1))
    with pytest.warns(UserWarning, match="column 0 that are equal"):
        SketchedKernelRegressor(bandwidth=1.0, alpha=1e-3).fit(
            rows, da.from_array(Y, chunks=40)
        )


@pytest.mark.filterwarnings("ignore:column 1 .* had only one value")
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_integers_of_dask_beside_floats_are_told(method):
    """A data frame makes floats of them before they are rows."""
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(40) / 7, "time": 2**60 + np.arange(40)})
    X = dd.from_pandas(frame, npartitions=2)
    y = dd.from_pandas(frame["a"], npartitions=2)
    model = SketchedSGDRegressor(bandwidth=1.0, size=10, random_state=0)
    with pytest.warns(UserWarning, match=r"above 2\*\*53 in column 1 \('time'\)"):
        getattr(model, method)(X, y)


def test_columns_of_dask_that_count_as_constant_are_named():
    da = pytest.importorskip("dask.array")
    rows = np.column_stack([TIME, 1.7e12 + 3.1 * TIME])
    with pytest.warns(UserWarning, match="varies in column 1.*subtract an offset"):
        SketchedKernelRegressor(random_state=0).fit(
            da.from_array(rows, chunks=(40, 2)), da.from_array(Y, chunks=40)
        )


SCALED = [
    SketchedKernelRegressor(),
    SketchedKernelRegressor(GaussianKernel()),
    SketchedKernelRegressor(bandwidth=0.3, preprocessing="standard"),
    SketchedKernelClassifier(),
    SketchedSGDRegressor(),
    SketchedFeatures(),
    RandomFourierFeatures(bandwidth="auto"),
    InputOutputKernelRegressor(),
    TabularKernelRegressor(),
    TabularKernelClassifier(),
]


@pytest.mark.parametrize("model", SCALED, ids=str)
def test_columns_that_count_as_constant_are_named(model):
    y = (Y > 0) if "Classifier" in str(model) else Y
    y = y[:, None] if isinstance(model, InputOutputKernelRegressor) else y
    near = np.column_stack([TIME, 1.7e12 + 3.1 * TIME])
    model.set_params(random_state=0)
    with pytest.warns(UserWarning, match="varies in column 1.*subtract an offset"):
        model.fit(near, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        constant = np.full(N, 0.1 + 0.2)
        model.fit(np.column_stack([near - [0, 1.7e12], constant]), y)


def test_columns_that_are_used_are_not_named():
    near = 1.7e12 + 3.1 * TIME[:, None]
    kernel = np.exp(-1e-13 * np.square(TIME[:, None] - TIME))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = SketchedKernelRegressor(bandwidth=0.3, alpha=1e-6).fit(near, Y)
        assert_allclose(model.predict(near), Y, atol=0.01)
        SketchedKernelRegressor("linear").fit(near, Y)
        SketchedKernelRegressor("precomputed").fit(kernel, Y)


@pytest.mark.parametrize("model", SCALED[:7:6] + SCALED[8:9], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.int64, object])
def test_whole_numbers_within_little_of_a_large_offset_count(model, dtype):
    time = np.arange(N) % 17  # milliseconds since 1970, within 17 of them
    X = (1_700_000_000_000 + time)[:, None].astype(dtype)
    y = np.sin(0.5 * time)
    model.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X, y)
    if hasattr(model, "predict"):
        assert_allclose(model.predict(X), y, atol=0.01)
    else:
        assert np.ptp(model.transform(X), axis=0).max() > 0.1


def test_whole_numbers_beyond_the_digits_of_a_type_are_rounding():
    for dtype, offset in ((np.float64, 2.0**54), (np.float32, 2.0**25)):
        X = offset + np.arange(3)[:, None] * np.finfo(dtype).eps * offset
        assert not varying_features(X.astype(dtype)).any()
        few = (offset / 8 + np.arange(3)[:, None]).astype(dtype)
        assert varying_features(few).all() and varying_features(-few).all()
        assert varying_features(sp.csr_array(few)).all()
