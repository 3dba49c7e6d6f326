"""Table 1 of the p-sparsified paper: joint quantile regression on two real sets.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 4.2: test pinball and crossing
losses and training time at five levels, without a sketch and with sketches of s = 50
rows, on Boston housing (ten random splits of 70 % and 30 %) and on images of otoliths.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nbsketch._progress import Progress
from nbsketch.datasets import Dataset, load_boston
from nbsketch.reproduce._tools.data import Split
from nbsketch.reproduce._tools.publish import publish_table
from nbsketch.reproduce._tools.report import Row
from nbsketch.reproduce._tools.settings import Key, settings_for
from nbsketch.reproduce.p_sparsified import otoliths
from nbsketch.reproduce.p_sparsified.joint_quantiles import (
    QuantileSetting,
    evaluate,
    is_certified,
    tune,
)
from nbsketch.reproduce.p_sparsified.methods import (
    ACCUMULATED,
    METHODS,
    WITHOUT,
    Published,
    compare,
    published,
)

SIZE = 50
REPLICATES, QUICK_REPLICATES = 10, 3
SETTINGS = Path(__file__).with_name("table1_tuning.json")
# Pinball loss and training time of the paper's Table 1.
PAPER = {
    "boston": published(
        (51.28, 54.75, 54.78, 54.73, 54.60), (6.97, 1.43, 1.38, 1.48, 1.23)
    ),
    "otoliths": published(
        (2.78, 2.66, 2.64, 2.67, 2.65), (606.8, 20.4, 20.0, 22.1, 20.9)
    ),
}
NOTES = (
    "Losses on the test rows, times 100, mean and deviation over the random splits "
    "(otoliths: over the draws of the sketch). Pinball: summed over the levels 0.1, "
    "0.3, 0.5, 0.7 and 0.9. Crossing: the sum over neighboring levels of the excess "
    "of the lower quantile over the upper one. Lower is better.",
    "Inputs and output standardized by the training rows.",
    f"accumulation: m = {ACCUMULATED}. Bandwidth, alpha and gamma: 5-fold "
    "cross-validation on the training rows of each split; without a sketch, of a "
    "20/n-SR sketch of 100 rows.",
    "seconds: processor time of `fit` (all threads), including the draw of the sketch, "
    "median over the replicates. "
    "Every fit is certified to be within 1e-6 of the minimum, except that without a "
    "sketch on the otoliths, which is by Adam: no speed-up is given there.",
    "paper, paper_seconds: pinball loss and training time of the paper, by a "
    "subgradient method on another machine. The paper does not state the scale of the "
    "losses on the otoliths. Its crossing losses are left out: its program adds up the "
    "gaps between quantiles in the right order.",
)


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    tuning: Path | None = None,
    data_home: Path | None = None,
) -> list[Row]:
    """Reproduce Table 1 (see `nbsketch.reproduce` for the parameters).

    Replicates are random splits, or draws of each sketch for a published split: 10, or
    3 on Boston alone if `quick`.
    """
    replicates = replicates or (QUICK_REPLICATES if quick else REPLICATES)
    rows = _rows(load_boston(data_home=data_home), replicates, tuning)
    if not quick:
        rows += _rows(otoliths.load(data_home), replicates, tuning)
    title = f"Table 1: joint quantile regression, s = {SIZE}"
    return publish_table(rows, out, "table1", title, NOTES)


def _rows(dataset: Dataset, replicates: int, tuning: Path | None) -> list[Row]:
    """Return a row for each method."""
    splits = _splits(dataset, replicates)
    settings = _settings(dataset, splits, tuning)
    counts = {m: len(splits) if m == WITHOUT else replicates for m in METHODS}

    def results(method: str) -> Iterator[Row]:
        for i in range(counts[method]):
            j = i % len(splits)
            yield evaluate(splits[j], method, SIZE, settings[method, j], seed=i)

    with Progress(sum(counts.values())) as progress:
        rows = compare(dataset.name, METHODS, results, np.median, progress)
    paper = PAPER.get(dataset.name, {})
    for row in rows:
        if not is_certified(splits[0], WITHOUT):
            row["faster"] = None  # the time without a sketch is that of Adam
        row["paper"], row["paper_seconds"] = paper.get(row["method"], Published())
    return rows


def _splits(dataset: Dataset, replicates: int) -> list[Split]:
    """Return the published split, or as many random ones as there are replicates."""
    if dataset.n_train is not None:
        splits = [Split.published(dataset)]
    else:
        splits = [Split.of(*dataset.random_split(seed)) for seed in range(replicates)]
    return [split.with_standardized_targets() for split in splits]


def _settings(
    dataset: Dataset, splits: list[Split], tuning: Path | None
) -> dict[tuple[str, int], QuantileSetting]:
    """Return the setting of every method on every split."""
    keys = [(dataset.name, m, str(i)) for m in METHODS for i in range(len(splits))]

    def choose(key: Key) -> dict[str, float]:
        return tune(splits[int(key[2])], key[1], SIZE)._asdict()

    chosen = settings_for(keys, choose, SETTINGS, tuning)
    return {
        (method, int(i)): QuantileSetting(**chosen[name, method, i])
        for name, method, i in keys
    }
