"""Table 1 of the p-sparsified paper: joint quantile regression on two real sets.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023: test pinball and crossing losses and
training time of joint quantile regression at five levels, without a sketch and with
p-sparsified sketches of s = 50 rows, on the Boston housing data (ten random splits of
70 % and 30 %) and on images of fish otoliths.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nbsketch.datasets import Dataset, load_boston
from nbsketch.reproduce import otoliths
from nbsketch.reproduce._choices import Key, settings_for
from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._report import as_text, write
from nbsketch.reproduce._summary import spread, timing
from nbsketch.reproduce.joint_quantiles import (
    QuantileResult,
    QuantileSetting,
    evaluate,
    tune,
    with_scaled_targets,
)
from nbsketch.reproduce.multi_output import METHODS, WITHOUT, Split

SIZE = 50
REPLICATES, QUICK_REPLICATES = 10, 3
# The pinball loss, times 100, that the paper's Table 1 reports.
PAPER = {"boston": {WITHOUT: 51.3, "20/n-SR": 54.7, "20/n-SG": 54.7}}
NOTES = (
    "Losses on the test rows, times 100, mean and deviation over the random splits "
    "(otoliths: over the draws of the sketch). Pinball: summed over the levels 0.1, "
    "0.3, 0.5, 0.7 and 0.9. Crossing: the sum over neighboring levels of the excess "
    "of the lower quantile over the upper one. Lower is better.",
    "Inputs and output standardized by the training rows.",
    "Training time: `fit`, drawing the sketch included, in seconds, the median over "
    "the replicates. Every fit is certified to be within 1e-6 of the minimum, but that "
    "without a sketch on the otoliths, which is by Adam.",
    "Bandwidth, alpha and gamma: 3-fold cross-validation on the training rows of each "
    "split; without a sketch, of a 20/n-SR sketch of 100 rows.",
    "The paper's crossing losses are not given beside: its program adds up the gaps "
    "between quantiles in the right order.",
)


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    tuning: Path | None = None,
    data_home: Path | None = None,
) -> list[dict[str, Any]]:
    """Reproduce the table; print it, write it into `out`, and return its rows.

    Parameters
    ----------
    replicates : int, optional
        Random splits, or draws of each sketch for a set with a published split: 10, or
        3 if `quick`.
    quick : bool
        Whether fewer replicates will do, and Boston alone.
    out : Path, optional
        Folder for table1.csv and table1.md.
    tuning : Path, optional
        File of chosen bandwidths, penalties and couplings: read where it has a choice,
        and completed by cross-validation where it has not. By default the choices that
        come with the package.
    data_home : Path, optional
        Folder of the data sets: see `nbsketch.datasets`.
    """
    replicates = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    rows = _rows(load_boston(data_home=data_home), replicates, tuning)
    if not quick:
        rows += _rows(otoliths.load(data_home), replicates, tuning)
    print(as_text(rows))
    if out is not None:
        write(rows, out, "table1", "Table 1: joint quantile regression, s = 50", NOTES)
    return rows


def _rows(
    dataset: Dataset, replicates: int, tuning: Path | None
) -> list[dict[str, Any]]:
    """Return the rows of one set, a row for each method."""
    splits = _splits(dataset, replicates)
    settings = _settings(dataset, splits, tuning)
    rows: list[dict[str, Any]] = []
    counts = {m: len(splits) if m == WITHOUT else replicates for m in METHODS}
    with Progress(sum(counts.values())) as progress:
        for method, count in counts.items():
            results = []
            for i in range(count):
                j = i % len(splits)
                setting = settings[method, j]
                results.append(evaluate(splits[j], method, SIZE, setting, seed=i))
                progress.step(f"{dataset.name} {method}")
            before = rows[0]["seconds"] if rows else None
            rows.append(summary(dataset.name, method, results, before))
    return rows


def summary(
    name: str,
    method: str,
    results: list[QuantileResult],
    seconds_without: float | None,
) -> dict[str, Any]:
    """Return one row of the table; the speed-up is over the method without a sketch."""
    seconds = float(np.median([result.seconds for result in results]))
    return {
        "set": name,
        "method": method,
        **spread("pinball", (100 * result.pinball for result in results)),
        **spread("crossing", (100 * result.crossing for result in results)),
        **timing(seconds, seconds_without),
        "paper": PAPER.get(name, {}).get(method),
    }


def _splits(dataset: Dataset, replicates: int) -> list[Split]:
    """Return the published split, or as many random ones as there are replicates."""
    if dataset.n_train is not None:
        return [with_scaled_targets(Split.of(dataset))]
    parts = [dataset.random_split(seed) for seed in range(replicates)]
    return [
        with_scaled_targets(Split.standardized(*train, *test)) for train, test in parts
    ]


def _settings(
    dataset: Dataset, splits: list[Split], tuning: Path | None
) -> dict[tuple[str, int], QuantileSetting]:
    """Return the setting of every method on every split."""
    keys = [(dataset.name, m, str(i)) for m in METHODS for i in range(len(splits))]

    def choose(key: Key) -> dict[str, float]:
        return tune(splits[int(key[2])], key[1], SIZE)._asdict()

    chosen = settings_for(keys, choose, "table1_tuning.json", tuning)
    return {
        (method, int(i)): QuantileSetting(**chosen[name, method, i])
        for name, method, i in keys
    }
