"""Columns of tables: every kind of column, training rows, new rows, files."""

import datetime
import json
import re
import uuid
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import TargetEncoder

import nbsketch
from nbsketch.files import Decoder, Encoder
from nbsketch.files.archive import open_archive, write_archive
from nbsketch.tabular.columns import TableColumns, fit_columns
from nbsketch.tabular.encodings import (
    FOLDS,
    MOST_LEVELS,
    LevelColumn,
    NumberColumn,
    date_parts,
)
from nbsketch.tabular.reading import is_table, read_columns


def fitted(values, y=None, **options):
    """Fit a frame of one column, beside one that varies; return encodings and rows."""
    n = len(values)
    X = pd.DataFrame({"c": values, "t": np.arange(n)})
    return fit_columns(X, np.arange(float(n)) if y is None else y, **options)


def shown(values, **options):
    """Return what a column becomes, by the name of the new columns."""
    columns, rows = fitted(values, **options)
    found = dict(zip(columns.feature_names.tolist(), rows.T.tolist(), strict=True))
    found.pop("t")
    return found


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (pd.DataFrame({"a": [1.0]}), True),
        (np.array([["a", 1]], dtype=object), True),
        ([["a", 1], ["b", 2]], True),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), True),
        ([[1, 2], [3, 4]], False),
        (np.ones((2, 2), dtype=bool), False),
        (np.array(["a", "b"]), False),
        (sp.csr_array(np.eye(2)), False),
        ([[1, 2], [3]], False),
    ],
)
def test_what_is_a_table(X, expected):
    assert is_table(X) == expected


@pytest.mark.parametrize(
    "values",
    [
        [3.0, np.nan, 1.0, 2.0],
        pd.array([3, None, 1, 2], dtype="Int64"),
        [3, None, Decimal(1), np.float32(2)],
    ],
    ids=["floats", "nullable integers", "objects"],
)
def test_missing_numbers_become_the_median_with_a_mark(values):
    expected = {"c": [3, 2, 1, 2], "c_missing": [0, 1, 0, 0]}
    assert shown(pd.Series(values)) == expected


def test_numbers_that_miss_later_only_have_no_mark():
    columns, _ = fitted([3.0, 5.0, 1.0])
    new = pd.DataFrame({"c": [None, 4.0], "t": [1, 2]})
    assert_array_equal(columns.transform(new), [[3, 1], [4, 2]])


def test_booleans_and_durations_are_numbers():
    assert shown([True, False, True]) == {"c": [1, 0, 1]}
    boolean = pd.array([True, None, False], dtype="boolean")
    assert shown(boolean)["c"] == [1, 0.5, 0]
    hours = pd.to_timedelta([12, 24, 36], unit="h")
    for spans in (hours, pd.Series(hours).astype(object)):
        assert shown(spans) == {"c": [0.5, 1, 1.5]}


def test_parts_of_dates_are_those_of_datetime(rng):
    seconds = rng.integers(-2_000_000_000, 4_000_000_000, 200)
    dates = [
        datetime.datetime(1970, 1, 1) + datetime.timedelta(0, int(s)) for s in seconds
    ]
    expected = [
        [d.year, d.month, d.day, d.weekday(), d.hour + d.minute / 60 + d.second / 3600]
        for d in dates
    ]
    parts = date_parts(np.array(dates, dtype="datetime64[us]"))
    assert_allclose(parts[:, :5], expected, rtol=1e-12)
    assert_allclose(parts[:, 5], seconds / 86400, rtol=1e-12)


def test_dates_have_local_parts_and_constant_ones_are_dropped():
    times = pd.to_datetime(["2024-03-01 23:00", "2024-03-02 06:00", None])
    found = shown(times)
    days = (datetime.date(2024, 3, 1) - datetime.date(1970, 1, 1)).days
    assert found["c_day"] == [1, 2, 1.5] and found["c_hour"] == [23, 6, 14.5]
    assert found["c_days"][:2] == [days + 23 / 24, days + 1.25]
    assert found["c_missing"] == [0, 0, 1] and "c_year" not in found
    aware = pd.Series(times).dt.tz_localize("Asia/Tokyo")
    assert shown(aware) == found == shown(aware.astype(object))
    plain = [datetime.date(2024, 3, 1), datetime.date(2024, 3, 2)]
    assert shown(plain)["c_weekday"] == [4, 5]


def test_few_levels_have_a_column_each():
    found = shown(["u", "v", None, "w", "u"])
    expected = {"c_u": [1, 0, 0, 0, 1], "c_v": [0, 1, 0, 0, 0]}
    expected |= {"c_w": [0, 0, 0, 1, 0], "c_missing": [0, 0, 1, 0, 0]}
    assert found == expected
    assert shown(["no", "yes", "no"]) == {"c_yes": [0, 1, 0]}


def test_unknown_levels_are_zero_and_missing_ones_too_unless_trained():
    columns, _ = fitted(["u", "v", "w"])
    new = pd.DataFrame({"c": ["x", None, "v"], "t": [0, 0, 0]})
    assert_array_equal(columns.transform(new)[:, :3], [[0, 0, 0], [0, 0, 0], [0, 1, 0]])


def test_categories_of_pandas_with_and_without_order():
    sizes = pd.Categorical(["L", "S", None, "M"], ["S", "M", "L", "XL"], ordered=True)
    found = shown(sizes)
    assert found == {"c": [2, 0, 1, 1], "c_missing": [0, 0, 1, 0]}
    columns, _ = fitted(sizes)
    new = pd.DataFrame({"c": ["XL", "L"], "t": [0, 0]})  # no training row is XL
    assert_array_equal(columns.transform(new)[:, 0], [1, 2])
    loose = pd.Categorical([1, 2, 3, 1], [1, 2, 3])
    assert list(shown(loose)) == ["c_1", "c_2", "c_3"]
    numbers = pd.DataFrame({"c": [2.0, 3.0], "t": [0, 0]})
    assert_array_equal(
        fitted(loose)[0].transform(numbers)[:, :3], [[0, 1, 0], [0, 0, 1]]
    )


def same_table():
    """Return one table in frames of several libraries, rows with every kind missing."""
    days = [datetime.datetime(2024, 3, 1, 23) + 1.125 * k * DAY for k in range(40)]
    local = [day.replace(tzinfo=ZoneInfo("Asia/Tokyo")) for day in days]
    columns = {
        "whole": pa.array(range(40)),
        "real": pa.array([k / 7 for k in range(40)]),
        "flag": pa.array([k % 3 == 0 for k in range(40)]),
        "text": pa.array([f"t{k % 5}" for k in range(40)]),
        "code": pa.array([f"c{k % 17}" for k in range(40)]),
        "day": pa.array([day.date() for day in days]),
        "time": pa.array(days, pa.timestamp("us")),
        "zone": pa.array(local, pa.timestamp("us", "Asia/Tokyo")),
        "span": pa.array([0.3 * k * DAY for k in range(40)]),
        "kind": pa.array([f"k{-k % 4}" for k in range(40)]).dictionary_encode(),
    }
    names = list(columns)
    for j, name in enumerate(names):
        mask = pa.array([k % 11 == j for k in range(40)])
        columns[name] = pc.if_else(
            mask, pa.nulls(40, columns[name].type), columns[name]
        )
    table = pa.table(columns)
    return {
        "pyarrow": table,
        "polars": pl.from_arrow(table),
        "pandas": table.to_pandas(),
        "pandas, arrow types": table.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas, nullable": table.to_pandas().convert_dtypes(),
    }


DAY = datetime.timedelta(1)
LIBRARIES = ("pyarrow", "polars", "pandas, arrow types", "pandas, nullable")


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_all_libraries_give_the_same_numbers(library):
    frames, y = same_table(), np.sin(np.arange(40))
    expected, rows = fit_columns(frames["pandas"], y)
    columns, found = fit_columns(frames[library], y)
    assert columns.names == expected.names
    assert columns.feature_names.tolist() == expected.feature_names.tolist()
    assert {"day_days", "zone_hour", "span", "kind_k1", "code_code"} < set(
        columns.feature_names
    )
    assert_allclose(found, rows, rtol=1e-6)
    inside = expected.transform(frames["pandas"])
    for X in frames.values():  # fitted to one library, applied to others
        assert_allclose(columns.transform(X), inside, rtol=1e-6)


def test_time_zones_have_local_hours():
    for name, X in same_table().items():
        columns, rows = fit_columns(X, np.arange(40.0))
        hours = rows[:, columns.feature_names.tolist().index("zone_hour")]
        zone = columns.feature_names.tolist().index("zone_missing")
        expected = (23 + 3 * np.arange(40)) % 24
        assert_array_equal(np.where(rows[:, zone], expected, hours), expected, name)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_a_model_keeps_the_names_of_a_frame(library):
    X, y = same_table()[library], np.sin(np.arange(40))
    model = nbsketch.TabularKernelRegressor(random_state=0).fit(X, y)
    assert model.feature_names_in_.tolist() == list(model.columns_.names)
    names = list(reversed(model.columns_.names))
    assert_array_equal(model.predict(X.select(names)), model.predict(X))
    with pytest.raises(ValueError, match=r"yet now missing:\n- kind"):
        model.predict(X.select(names[1:]))


def test_orders_of_categories_of_all_libraries():
    levels, values = ["S", "M", "L"], ["L", "S", None, "M"]
    ordered = pd.Categorical(values, levels, ordered=True)
    codes = pa.array([2, 0, None, 1])
    arrow = pa.DictionaryArray.from_arrays(codes, pa.array(levels), ordered=True)
    for X in (
        pd.DataFrame({"c": ordered}),
        pl.DataFrame({"c": pl.Series(values, dtype=pl.Enum(levels))}),
        pa.table({"c": arrow}),
    ):
        columns, rows = fit_columns(X, np.arange(4.0))
        assert columns.columns[0].kind == "order"
        assert_array_equal(rows, [[2, 0], [0, 0], [1, 1], [1, 0]])


ONE_TWO_THREE = [
    ["1", "2", "3"],
    [1, 2, 3],
    [1.0, 2.0, 3.0],
    pd.Categorical([1, 2, 3]),
    pd.Categorical(["01", "02", "03"]),
    ["1.0", "2.0", "3.0"],
    [Decimal(1), Decimal(2), Decimal(3)],
    [1, "2", 3.0],
]


@pytest.mark.parametrize("values", ONE_TWO_THREE, ids=str)
def test_categories_of_another_type_are_the_same(values):
    new = pd.DataFrame({"c": values, "t": [0, 0, 0]})
    for trained in (["1", "2", "3"], pd.Categorical([1, 2, 3]), ["01", "2.0", "3"]):
        columns, _ = fitted(trained)
        assert_array_equal(columns.transform(new)[:, :3], np.eye(3))
    unknown = pd.DataFrame({"c": [7, 2, None], "t": [0, 0, 0]})
    assert_array_equal(columns.transform(unknown)[:, :3], [[0] * 3, [0, 1, 0], [0] * 3])


def test_truth_values_of_another_type_are_the_same():
    answers = pd.Categorical([True, False, True])
    for trained in (answers, ["True", "False", "True"], ["1", "0", "1"]):
        columns, rows = fitted(trained)
        for new in ([True, False, True], [1, 0, 1], answers, ["True", "False", "True"]):
            found = columns.transform(pd.DataFrame({"c": new, "t": [0, 0, 0]}))
            assert_array_equal(found[:, 0], rows[:, 0])
    columns, rows = fitted([True, "other", False])
    new = pd.DataFrame({"c": [1, "other", 0], "t": [0, 1, 2]})
    assert_array_equal(columns.transform(new), rows)


def test_numbers_in_place_of_other_text_are_refused():
    columns, _ = fitted(["u", "v", "w"])
    new = pd.DataFrame({"c": [1, 2], "t": [0, 0]})
    with pytest.raises(TypeError, match="'c' of `X` must hold text as in `fit`, got n"):
        columns.transform(new)
    columns, _ = fitted(["1", "01", "001"])
    first = columns.feature_names.tolist().index("c_1")
    assert_array_equal(columns.transform(new[:1])[0, :3], np.eye(3)[first])
    columns, _ = fitted(["01", "001", "2"])
    with pytest.raises(ValueError, match="'001' and '01' are different levels, got"):
        columns.transform(new)
    text = pd.DataFrame({"c": ["1", "2"], "t": [0, 0]})  # new text is unknown
    second = columns.feature_names.tolist().index("c_2")
    assert_array_equal(columns.transform(text)[:, :3], [[0, 0, 0], np.eye(3)[second]])


def test_large_integers_stay_apart():
    large = [2**53, 2**53 + 1, 2**53 + 2]
    columns, _ = fitted(pd.Categorical(large))
    for new in (large, pd.Categorical(large), list(map(str, large))):
        found = columns.transform(pd.DataFrame({"c": new, "t": [0, 0, 0]}))
        assert_array_equal(found[:, :3], np.eye(3))
    X = np.array([[k, 0] for k in large])
    assert_array_equal(columns.transform(X)[:, :3], np.eye(3))


def test_numbers_as_text_that_are_not_used_are_reported():
    numbers = [f"{k}.5" for k in range(38)] + ["?", None]
    with pytest.warns(UserWarning, match="'c' of `X` is not used: it has 39 levels"):
        columns, _ = fitted(numbers)
    assert columns.feature_names.tolist() == ["t"]
    fitted([f"row {k}" for k in range(40)])  # without a warning


@pytest.mark.parametrize("missing", ["?", "n/a"])
def test_a_column_of_numbers_with_a_mark_of_missing_ones_is_reported(missing):
    rng = np.random.default_rng(0)
    numbers = [str(k) for k in rng.integers(0, 40, 200)]
    fitted(numbers)  # names of categories
    fitted(pd.Categorical(rng.integers(0, 40, 200)))
    told = rf"mean targets of its 4\d levels, but .* others are '{re.escape(missing)}'"
    with pytest.warns(UserWarning, match=told):
        fitted([*numbers, missing])
    with pytest.warns(UserWarning, match="numbers stored as text"):
        fitted([f"{k}.5" for k in numbers])


@pytest.mark.parametrize("form", ["${:,.2f}", "{:.2f}%", " {:.2f} €"])
def test_numbers_with_units_as_text_are_reported(form):
    texts = [form.format(1000 * k + 0.25) for k in range(40)]
    for values in (texts, texts * 3):
        with pytest.warns(UserWarning, match="40 of them are numbers stored as text"):
            fitted(values)


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d", "%d/%m/%y", "%d.%m.%Y", "%Y-%m-%dT%H:%M:%SZ", "%m/%d/%Y %H:%M"]
)
def test_dates_as_text_are_reported(form):
    texts = pd.date_range("1969-11-30", periods=40, freq="7D").strftime(form).tolist()
    hint = "40 of them are dates stored as text or .*. Convert it to dates first, or"
    for values in (texts, texts * 3):
        with pytest.warns(UserWarning, match=hint):
            fitted(values)
    fitted([f"{k}-{k}" for k in range(40)])  # without a warning
    fitted([f"123-45-{k:04}" for k in range(40)])


def test_the_warning_of_numbers_is_at_the_call_of_fit():
    rng = np.random.default_rng(0)
    X = np.array([[str(k), "a"] for k in rng.integers(0, 40, 200)], dtype=object)
    X[3, 0] = "?"
    y = rng.normal(size=200)
    with pytest.warns(UserWarning, match="'x0' of `X` is encoded by") as caught:
        nbsketch.TabularKernelRegressor(random_state=0).fit(X, y)
    assert caught[0].filename == __file__


def many_levels(n=600):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2 * MOST_LEVELS, n)
    return np.array([f"c{k:02}" for k in codes], dtype=object), codes, rng


def test_many_levels_have_target_codes_near_their_means():
    values, codes, rng = many_levels()
    y = codes + rng.normal(size=600)
    columns, rows = fitted(values, y)
    assert columns.feature_names.tolist() == ["c_code", "t"]
    new = pd.DataFrame({"c": [*columns.columns[0].levels, "new"], "t": 0})
    means = [y[codes == k].mean() for k in range(2 * MOST_LEVELS)]
    assert_allclose(columns.transform(new)[:, 0], [*means, y.mean()], atol=0.1)
    assert np.corrcoef(rows[:, 0], codes)[0, 1] > 0.99


def test_target_codes_of_training_rows_leave_out_their_own_targets():
    values, _, rng = many_levels()
    y = rng.normal(size=600)
    own = fitted(values, y)[1][:, 0]
    for i in (0, 300):
        other = y.copy()
        other[i] += 100
        # but for the mean of all targets, to which codes are shrunk
        assert_allclose(fitted(values, other)[1][i, 0], own[i], atol=0.02)
    columns, rows = fitted(values, y)
    inside = columns.transform(pd.DataFrame({"c": values, "t": 0}))[:, 0]
    # noise: what leaves out the own target does not explain it, what has it does
    assert abs(np.corrcoef(own, y)[0, 1]) < 0.12 < np.corrcoef(inside, y)[0, 1]
    assert len(np.unique(rows[:, 0])) <= FOLDS * 2 * MOST_LEVELS


def test_target_codes_are_those_of_scikit_learn():
    values, codes, rng = many_levels()
    Y = codes[:, None] + rng.normal(size=(600, 2))
    columns, _ = fitted(values, Y)
    encoder = TargetEncoder(target_type="continuous")
    for j in range(2):
        expected = encoder.fit(values[:, None], Y[:, j]).transform(values[:, None])
        found = columns.transform(pd.DataFrame({"c": values, "t": 0}))[:, j]
        assert_allclose(found, expected[:, 0])


def test_target_codes_have_weights():
    values, codes, rng = many_levels()
    y, bad = codes + 0.1 * rng.normal(size=600), rng.random(600) < 0.3
    expected, _ = fitted(values[~bad], y[~bad])
    weights = np.where(bad, 1e-6, 1.0)
    columns, found = fitted(values, np.where(bad, 100, y), sample_weight=weights)
    new = pd.DataFrame({"c": values, "t": 0})
    assert_allclose(columns.transform(new), expected.transform(new), atol=0.01)
    assert_allclose(found[~bad, 0], codes[~bad], atol=1)
    # A level with less than one row's weight is shrunk by it.
    lonely = np.append(values, "alone")
    weights = np.append(np.ones(600), 1e-6)
    columns, _ = fitted(lonely, np.append(y, 1e3), sample_weight=weights)
    alone = columns.transform(pd.DataFrame({"c": ["alone"], "t": [0]}))[0, 0]
    assert abs(alone - y.mean()) < 0.1


def test_weights_and_repeated_rows_give_the_same_target_codes():
    values, _, rng = many_levels()
    y, counts = rng.normal(size=600), rng.integers(1, 4, 600)
    table = pd.DataFrame({"c": values, "t": rng.normal(size=600)})
    again = np.repeat(np.arange(600), counts)
    often, rows = fit_columns(table.iloc[again], y[again])
    columns, expected = fit_columns(table, y, sample_weight=2.0 * counts)
    assert_array_equal(often.columns[0].table, columns.columns[0].table)
    assert_array_equal(rows, expected[again])
    assert np.abs(rows[:, 0] - expected[again, 0].mean()).max() > 0.1


def test_medians_of_gaps_count_weights_as_repetitions():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, 41)
    numbers = np.where(rng.random(41) < 0.2, np.nan, rng.exponential(size=41))
    table = pd.DataFrame(
        {
            "number": numbers,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(numbers, "D"),
            "order": pd.Categorical.from_codes(
                np.where(np.isnan(numbers), -1, np.arange(41) % 7), list("abcdefg"),
                ordered=True,
            ),
            "row": np.arange(41.0),
        }
    )  # fmt: skip
    again = np.repeat(np.arange(41), counts)
    often = table.iloc[again].assign(row=np.arange(len(again)))  # no copies
    expected = fit_columns(often, numbers[again] > 1)[0].columns
    for weights in (counts, counts / 3.0):
        columns = fit_columns(table, numbers > 1, weights)[0].columns
        assert columns[0].fill == expected[0].fill
        assert_array_equal(columns[1].fill, expected[1].fill)
        assert_array_equal(columns[2].table, expected[2].table)
    assert columns[0].fill != fit_columns(table, numbers > 1)[0].columns[0].fill


def test_target_codes_use_the_blocks_that_are_left_out():
    values, codes, rng = many_levels()
    y = codes + rng.normal(size=600)
    columns, _ = fitted(values, y, blocks=codes % 5)
    assert columns.feature_names.tolist() == ["t"]  # nothing is known of a new level
    blocks = np.arange(600) % 4 - 1
    _, rows = fitted(values, y, blocks=blocks)
    one = blocks == 1
    others = [y[~one & (codes == k)].mean() for k in codes[one]]
    assert_allclose(rows[one, 0], others, atol=0.3)
    other = y.copy()
    other[one] = rng.permutation(other[one])  # the same mean
    same = fitted(values, other, blocks=blocks)[1]
    assert_allclose(same[one], rows[one], rtol=1e-12)
    assert (same[~one, 0] != rows[~one, 0]).any()


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_expected_error_of_left_out_groups_is_that_of_new_ones(seed):
    rng = np.random.default_rng(seed)
    groups, effects = rng.integers(0, 40, 400), 2 * rng.normal(size=240)

    def sample(groups):
        X = pd.DataFrame(rng.normal(size=(len(groups), 2)), columns=["a", "b"])
        X["group"] = [f"g{k}" for k in groups]
        noise = 0.3 * rng.normal(size=len(groups))
        return X, np.sin(X["a"].to_numpy()) + effects[groups] + noise

    X, y = sample(groups)
    new, truth = sample(rng.integers(40, 240, 2000))
    model = nbsketch.TabularKernelRegressor(cv=GroupKFold(5), random_state=0)
    model.fit(X, y, groups=groups)
    error = np.sqrt(np.mean((model.predict(new) - truth) ** 2))
    assert 0.7 < model.loo_error_ / error < 1.4
    low, high = model.predict_interval(new, 0.9).T
    assert np.mean((low <= truth) & (truth <= high)) > 0.8


def test_target_codes_of_classes_and_of_several_outputs():
    values, codes, _ = many_levels()
    labels = np.where(codes % 3 == 0, "a", np.where(codes % 3 == 1, "b", "c"))
    columns, rows = fitted(values, labels, classification=True)
    assert columns.feature_names.tolist()[:2] == ["c_code_0", "c_code_1"]
    assert_allclose(rows[:, 0], labels == "b", atol=0.15)
    Y = np.column_stack([codes, -codes, codes**2])
    assert fitted(values, Y)[1].shape == (600, 4)
    assert fitted(values, codes % 2 == 0, classification=True)[1].shape == (600, 2)


def test_identifiers_constants_and_copies_are_not_used():
    n = 40
    X = pd.DataFrame({"id": [f"r{k}" for k in range(n)], "one": 1.0, "text": "same"})
    X["nothing"], X["a"] = None, np.arange(n) % 7
    X["b"] = X["a"].astype(float)
    columns, rows = fit_columns(X, np.arange(n))
    assert columns.feature_names.tolist() == ["a"]
    assert_array_equal(rows[:, 0], X["a"])
    entries = dict(columns.summary_rows())
    assert entries["not used"] == "id, one, text, nothing, b"
    assert entries["columns"].endswith(": 1 features")
    X["nothing"] = "now something"
    assert_array_equal(columns.transform(X), rows)


def test_only_constant_columns_leave_one():
    columns, rows = fit_columns(pd.DataFrame({"a": [1, 1], "b": [2, 2]}), [0, 1])
    assert_array_equal(rows, [[1], [1]])
    assert len(columns.feature_names) == 1


def test_rows_of_weight_zero_change_nothing(rng):
    values, codes, _ = many_levels()
    X = pd.DataFrame({"c": values, "x": rng.normal(size=600), "k": codes % 3})
    X["k"] = X["k"].astype(str)
    y = rng.normal(size=600)
    more = pd.concat([X, pd.DataFrame({"c": ["zz"], "x": [1e6], "k": ["odd"]})])
    weights = np.append(np.ones(600), 0)
    columns, rows = fit_columns(more, np.append(y, 1e9), weights)
    expected, inside = fit_columns(X, y)
    assert_array_equal(rows[:600], inside)
    assert_array_equal(columns.transform(X), expected.transform(X))
    assert rows.shape == (601, inside.shape[1])


def test_columns_are_found_by_name():
    X = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["u", "v", "u"], "c": [3, 2, 1]})
    columns, rows = fit_columns(X, [0, 1, 2])
    assert_array_equal(columns.transform(X[["c", "a", "b"]]), rows)
    assert_array_equal(columns.transform(X.to_numpy(dtype=object)), rows)
    with pytest.raises(ValueError, match=r"yet now missing:\n- a\n- c\n$"):
        columns.transform(X[["b"]])
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- d\n$"):
        columns.transform(X.assign(d=1))
    with pytest.raises(ValueError, match="unseen at fit time:\n- x0\n"):
        columns.transform(np.ones((2, 2)))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"a": ["u", "v"]}, TypeError, "'a' of `X` must hold numbers as in `fit`, got"),
        ({"a": [1.0, np.inf]}, ValueError, "contains infinity in column 'a'"),
        ({"d": [1.0, 2.0]}, TypeError, "'d' of `X` must hold dates as in `fit`, got"),
        ({"b": pd.to_datetime(["2020", "2021"])}, TypeError, "must hold categories"),
    ],
)
def test_columns_of_another_kind_are_refused(change, error, message):
    X = pd.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]})
    X["d"] = pd.to_datetime(["2020-01-01", "2021-06-01"])
    columns, _ = fit_columns(X, [0, 1])
    with pytest.raises(error, match=message):
        columns.transform(X.assign(**change))


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            ValueError,
            "distinct column names",
        ),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), ValueError, r"\['1'\] twice"),
        (pd.DataFrame({"a": [{"b": 1}]}), TypeError, "string or a number, got dict in"),
        (pd.DataFrame({"a": [1j]}), TypeError, "got complex in column 'a'"),
        (pd.DataFrame({"a": [np.inf]}), ValueError, "contains infinity in column 'a'"),
        (pd.DataFrame(index=[0]), ValueError, r"0 feature\(s\) \(shape=\(1, 0\)\)"),
    ],
)
def test_tables_that_cannot_be_read(X, error, message):
    with pytest.raises(error, match=message):
        fit_columns(X, [1.0])


def test_rows_and_targets_must_be_as_many():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fit_columns(pd.DataFrame({"a": ["u", "v"]}), [1.0])
    identifiers = [f"r{k}" for k in range(30)]
    with pytest.raises(
        ValueError, match="a column that is not an identifier, got none"
    ):
        fit_columns(pd.DataFrame({"a": identifiers}), np.arange(30))


def test_arrays_of_text_and_of_objects():
    kinds = [
        values.kind for values in read_columns(np.array([["1.5", "a"], ["2", "b"]]))
    ]
    assert kinds == ["numbers", "categories"]
    mixed = np.array([["1.5", 1], ["2", "one"]], dtype=object)
    assert [values.levels for values in read_columns(mixed)] == [
        ("1.5", "2"),
        ("1", "one"),
    ]
    assert [v.levels for v in read_columns([[b"a"], ["b"]])] == [("a", "b")]


def test_single_precision_is_kept_where_it_holds_everything():
    X = pd.DataFrame({"a": np.array([1, 2, 4], np.float32), "b": ["u", "v", "u"]})
    assert fit_columns(X, [0, 1, 2])[1].dtype == np.float32
    columns, rows = fit_columns(X.assign(k=[1, 2, 3]), [0, 1, 2])
    assert rows.dtype == columns.transform(X.assign(k=1)).dtype == np.float64


def test_a_model_of_a_frame_finds_columns_by_name_and_is_saved(tmp_path, rng):
    values, codes, _ = many_levels(200)
    X = pd.DataFrame({"city": values, "x": rng.normal(size=200)})
    X["d"] = pd.date_range("2020-01-01", periods=200, freq="9h")
    X.loc[::9, "x"] = None
    y = codes + np.sin(X["x"].fillna(0))
    model = nbsketch.TabularKernelRegressor(random_state=0).fit(X, y)
    predicted = model.predict(X)
    assert np.std(predicted - y) < 0.3 * np.std(y)
    assert_array_equal(model.predict(X[["d", "x", "city"]]), predicted)
    model.save(tmp_path / "model.npz")
    assert_array_equal(nbsketch.load(tmp_path / "model.npz").predict(X), predicted)
    assert "1 target codes" in model.summary()
    with pytest.raises(ValueError, match=r"yet now missing:\n- x"):
        model.predict(X[["d", "city"]])
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- z"):
        model.predict(X.assign(z=1))


def test_encodings_go_through_a_file(tmp_path):
    values, codes, rng = many_levels()
    X = pd.DataFrame(
        {"city": values, "k": (codes % 3).astype(str), "x": rng.normal(size=600)}
    )
    X["d"] = pd.date_range("2020-01-01", periods=600, freq="9h")
    X.loc[4] = None
    columns, _ = fit_columns(X, rng.normal(size=600))
    encoder = Encoder()
    text = json.dumps(encoder(columns, "columns"))
    write_archive(tmp_path / "c.npz", encoder.arrays)
    with open_archive(tmp_path / "c.npz") as archive:
        again = Decoder(archive)(json.loads(text), "columns")
    assert isinstance(again, TableColumns) and again.names == ("city", "k", "x", "d")
    assert_array_equal(again.transform(X), columns.transform(X))
    assert list(again.summary_rows()) == list(columns.summary_rows())


@pytest.mark.parametrize(
    "make",
    [
        lambda: NumberColumn("a", float("nan"), False),
        lambda: NumberColumn("a", 1.0, 1),
        lambda: LevelColumn("a", ("u",), np.ones((2, 1)), "order", ("",)),
        lambda: LevelColumn("a", (1,), np.ones((3, 1)), "order", ("",)),
        lambda: TableColumns((NumberColumn("a", 1.0, False),), np.array([1])),
        lambda: TableColumns((NumberColumn("a", 1.0, False),), np.array([], dtype=int)),
        lambda: TableColumns(("a",), np.array([0])),
    ],
)
def test_parts_that_do_not_fit_are_refused(make):
    with pytest.raises((TypeError, ValueError), match=r"must (have|hold|be)"):
        make()


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("names", [["f", "m"], ["m", "f"]])
def test_two_levels_have_the_share_of_the_rarer_for_other_values(gaps, weighted, names):
    rarer = np.array([0, 1, 0, 0, 1, 0, 1, 0])
    column = np.array(names, dtype=object)[rarer]
    missing = np.isin(np.arange(8), [0, 4]) & gaps
    column[missing] = None
    weights = np.array([9.0, 0, 2, 1, 3, 1, 4, 1]) if weighted else np.ones(8)
    X = np.column_stack([column, np.arange(8).astype(object)])
    encodings, rows = fit_columns(X, np.arange(8.0), weights)
    share = np.average(rarer[~missing], weights=weights[~missing])
    assert encodings.feature_names[0] == f"x0_{names[1]}"
    new = [[names[1], 0], [names[0], 0], ["x", 0], [None, 0]]
    assert_allclose(encodings.transform(new)[:, 0], [1, 0, share, share], rtol=1e-15)
    assert_allclose(rows[missing, 0], share, rtol=1e-15)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("shares", [[0.7, 0.3], [0.5, 0.5], [0.4, 0.4, 0.2]])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_names_of_levels_do_not_matter(kind, shares):
    rng = np.random.default_rng(0)
    k = len(shares)
    level = np.repeat(np.arange(k), np.round(120 * np.array(shares)).astype(int))
    x = rng.normal(size=120)
    y = 10.0 * (level > 0) * (x > 0) + x + 0.1 * rng.normal(size=120)
    model = nbsketch.TabularKernelRegressor(random_state=0)
    if kind == "classification":
        model = nbsketch.TabularKernelClassifier(random_state=0)
        y = y > 3
    predictions = []
    for names in (["f", "m", "o"], ["z", "a", "b"]):
        column = np.array(names, dtype=object)[level]
        column[::10] = None
        model.fit(np.column_stack([column, x.astype(object)]), y)
        new = [[name, 0.3] for name in ("new", None, *names[:k])]
        evaluate = getattr(model, "predict_proba", model.predict)
        predictions.append(evaluate(new))
    assert_array_equal(*predictions)
    if kind == "regression" and k == 2:
        assert 2 < predictions[0][0] < 8  # between the levels, near 0.3 and 10.3


def of_objects(values):
    """Return objects as an array of one axis, tuples too."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


DAYS = [datetime.date(2024, 1, day) for day in (2, 10, 30)]
OBJECTS = {
    "intervals": list(pd.interval_range(0.0, 30.0, 3)),
    "dates": DAYS,
    "times": list(pd.to_datetime(DAYS)),
    "durations": list(pd.to_timedelta([2, 10, 30], unit="D")),
    "periods": list(pd.period_range("2024-02", periods=3, freq="M")),
    "tuples": [("b", 2), ("b", 10), ("a", 3)],
}


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_categories_of_objects_are_levels_by_their_text(kind, ordered):
    categories = of_objects(OBJECTS[kind])
    codes = np.array([0, 1, 2, 2, 1, 0, -1])
    values = pd.Categorical.from_codes(codes, categories, ordered=ordered)
    text = pd.Categorical.from_codes(
        codes, [str(c) for c in categories], ordered=ordered
    )
    encodings, rows = fitted(values)
    expected, expected_rows = fitted(text)
    assert encodings.feature_names.tolist() == expected.feature_names.tolist()
    assert encodings.columns[0].kind == ("order" if ordered else "one-hot")
    assert_array_equal(rows, expected_rows)
    if ordered:
        assert_array_equal(rows[:6, 0], codes[:6])
    new = pd.DataFrame({"c": values[::-1], "t": np.arange(7)})
    assert_array_equal(encodings.transform(new)[::-1, 0], rows[:, 0])


PLAIN_OBJECTS = OBJECTS | {
    "uuids": [uuid.UUID(int=k) for k in (2, 10, 30)],
    "hours": [datetime.time(hour) for hour in (2, 10, 20)],
    "mixture": [("b", 2), DAYS[0], 10],
}


@pytest.mark.parametrize("container", ["frame", "array", "polars"])
@pytest.mark.parametrize("kind", ["intervals", "periods", "hours"])
def test_objects_of_an_order_are_its_ranks(kind, container):
    codes = np.array([2, 0, 1, 1, 2, 0, -1])
    X = table_of([*PLAIN_OBJECTS[kind], None], codes, container)
    encodings, rows = fit_columns(X, np.arange(7.0))
    assert encodings.columns[0].levels == tuple(map(str, PLAIN_OBJECTS[kind]))
    assert_array_equal(rows[:6, 0], codes[:6])
    assert_array_equal(rows[:, 1], codes < 0)


@pytest.mark.parametrize("container", ["frame", "array", "polars"])
@pytest.mark.parametrize("kind", ["tuples", "uuids", "mixture"])
def test_other_objects_are_levels_by_their_text(kind, container):
    objects = [*PLAIN_OBJECTS[kind], None]
    codes = np.array([2, 0, 1, 1, 2, 0, -1])
    encodings, rows = fit_columns(table_of(objects, codes, container), np.arange(7.0))
    names = [None if value is None else str(value) for value in objects]
    text = table_of(names, codes, "frame" if container == "polars" else container)
    expected, expected_rows = fit_columns(text, np.arange(7.0))
    assert encodings.columns[0].levels == expected.columns[0].levels
    assert_array_equal(rows, expected_rows)


def table_of(objects, codes, container):
    """Return a column of objects, by their codes, beside one of numbers."""
    values = of_objects([objects[code] for code in codes])
    if container == "array":
        return np.column_stack([values, np.arange(len(codes)).astype(object)])
    if container == "polars":
        column = pl.Series("c", values.tolist(), dtype=pl.Object)
        return pl.DataFrame({"c": column, "t": np.arange(len(codes))})
    return pd.DataFrame({"c": pd.Series(values), "t": np.arange(len(codes))})


def test_periods_of_several_frequencies_are_levels_without_an_order():
    periods = [pd.Period("2024-02", "M"), pd.Period("2024", "Y"), pd.Period("2023")]
    encodings, _ = fit_columns(table_of(periods, [0, 1, 2, 1], "frame"), np.arange(4.0))
    assert encodings.columns[0].kind == "one-hot"
    assert encodings.columns[0].levels == ("2023", "2024", "2024-02")


@pytest.mark.parametrize("kind", OBJECTS)
def test_levels_of_objects_are_found_in_columns_of_objects(kind):
    categories = of_objects(OBJECTS[kind])
    codes = np.array([0, 1, 2, 2, 1, 0])
    encodings, rows = fitted(pd.Categorical.from_codes(codes, categories))
    new = pd.DataFrame({"c": pd.Series(categories[codes], dtype=object)})
    new["t"] = np.arange(6)
    assert_array_equal(encodings.transform(new), rows)


@pytest.mark.parametrize("value", [["a"], {"a": 1}, {1}, frozenset({1}), 1j])
def test_objects_without_a_text_of_their_own_are_refused(value):
    table = table_of([value, "b"], [0, 1, 0], "frame")
    with pytest.raises(TypeError, match=f"got {type(value).__name__}, str in column"):
        fit_columns(table, np.arange(3.0))


@pytest.mark.parametrize("kind", ["intervals", "periods", "tuples", "uuids"])
def test_conformal_models_take_tables_of_objects(kind):
    codes = np.random.default_rng(0).integers(0, 3, 90)
    model = nbsketch.TabularKernelRegressor(random_state=0)
    model = nbsketch.conformal.ConformalRegressor(model, random_state=0)
    X = table_of(PLAIN_OBJECTS[kind], codes, "frame")
    y = codes + 0.01 * np.random.default_rng(1).normal(size=90)
    assert_allclose(model.fit(X, y).predict(X), codes, atol=0.1)
    assert (np.diff(model.predict_interval(X)) < 0.2).all()


@pytest.mark.parametrize("cut", [pd.cut, pd.qcut])
def test_columns_that_are_cut_are_fitted(cut):
    x = np.random.default_rng(0).normal(size=80)
    X = pd.DataFrame({"bins": cut(x, 4)})
    model = nbsketch.TabularKernelRegressor(random_state=0).fit(X, x)
    assert model.columns_.feature_names.tolist() == ["bins"]
    assert model.score(X, x) > 0.7
    others = pd.DataFrame({"bins": cut(x, 7)})  # levels that no training row has
    assert np.isfinite(model.predict(others)).all()


def mixed_frame():
    """Return a frame of pandas with columns of all kinds, and gaps in most of them."""
    rng = np.random.default_rng(0)
    n = 40
    gap = rng.random(n) < 0.2
    words = rng.choice(["red", "green", "1", "01"], n)
    number = rng.normal(size=n)
    days = pd.Timestamp("2024-01-31") + pd.to_timedelta(rng.integers(0, 900, n), "h")
    words_with_gaps = [None if g else w for g, w in zip(gap, words, strict=True)]
    return pd.DataFrame(
        {
            "float64": np.where(gap, np.nan, number),
            "float32": number.astype(np.float32) / 3,
            "int64": rng.integers(-(2**60), 2**60, n),
            "int8": rng.integers(-100, 100, n).astype(np.int8),
            "bool": number > 0,
            "Int64": pd.array(np.where(gap, None, rng.integers(0, 9, n)), "Int64"),
            "boolean": pd.array(np.where(gap, None, number > 0), "boolean"),
            "str": pd.Series(words_with_gaps, dtype="str"),
            "string": pd.Series(words_with_gaps, dtype="string"),
            "object": pd.Series(words_with_gaps, dtype=object),
            "objects of numbers": pd.Series([*number[1:], None], dtype=object),
            "flags": pd.Series([*(number > 0)], dtype=object),
            "category": pd.Categorical(words_with_gaps),
            "ordered": pd.Categorical(words, ["01", "red", "1", "green"], ordered=True),
            "day": days.to_series().where(~gap).to_numpy(),
            "zone": days.tz_localize("Europe/Rome", ambiguous=True),
            "day of objects": pd.Series([*days], dtype=object),
            "span": pd.to_timedelta(rng.integers(0, 9, n), "D"),
        }
    )


@pytest.mark.parametrize("count", [1, 5])
def test_few_rows_of_a_frame_are_read_as_they_are_among_many(count):
    frame = mixed_frame()
    y = np.random.default_rng(1).normal(size=len(frame))
    columns, _ = fit_columns(frame, y)
    every = columns.transform(frame)
    parts = [frame[k : k + count] for k in range(0, len(frame), count)]
    few = [columns.transform(part) for part in parts]
    assert_array_equal(np.concatenate(few), every)
