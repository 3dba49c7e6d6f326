"""Collect the results of ``benchmarks/history.py`` in docs/results/history.csv.

Usage, from this folder after ``asv run ... --bench history``:

    python history_table.py results/MACHINE ../docs/results/history.csv COMMIT=LABEL ...
"""

import csv
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from nbsketch.reproduce._report import read_provenance, write_provenance

COLUMNS = {
    "product": "Product.time_product",
    "fits": "Fit.time_fit",
    "quantiles": "Quantiles.time_fit",
    "predict": "Predict.time_predict",
    "default": "Defaults.time_fit",
    "unexplained": "Defaults.track_error",
    "diabetes": "RealErrors.track_diabetes",
    "digits": "RealErrors.track_digits",
    "cold": "FirstFit.track_without_cache",
    "warm": "FirstFit.track_with_cache",
}
LOSSES = ("square", "huber", "pinball", "epsilon_insensitive")
# Milliseconds and percent instead of seconds and shares.
UNITS = dict.fromkeys(("product", "quantiles", "predict", *LOSSES), 1e3)
UNITS |= {"unexplained": 100, "digits": 100}


def read_commit(path):
    """Return date and values of a file of results; None where a benchmark failed."""
    known = json.loads(path.read_text(encoding="utf-8"))
    row = {"date": datetime.fromtimestamp(known["date"] / 1000, UTC).isoformat()[:16]}
    for column, name in COLUMNS.items():
        values = known["results"][f"history.{name}"][0] or [None]
        names = LOSSES if column == "fits" else [column]
        row |= dict(zip(names, values, strict=True))
    return {
        name: value if name not in UNITS or value is None else value * UNITS[name]
        for name, value in row.items()
    }


def collect(folder, labels):
    """Return a row for each commit with a label, from the oldest on."""
    rows = []
    for commit, label in labels.items():
        (path,) = folder.glob(f"{commit}*.json")
        rows.append({"commit": commit, "version": label} | read_commit(path))
    return sorted(rows, key=lambda row: row["date"])


def main(folder, out, *labels):
    """Write the table and its provenance."""
    rows = collect(Path(folder), dict(label.split("=", 1) for label in labels))
    with Path(out).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_provenance(Path(out))
    print(read_provenance(Path(out)))


if __name__ == "__main__":
    main(*sys.argv[1:])
