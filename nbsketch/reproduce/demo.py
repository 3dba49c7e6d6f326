"""The main job at once, on data made here: multi-output regression with a sketch."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbsketch.reproduce._progress import Progress
from nbsketch.reproduce._report import as_text
from nbsketch.reproduce.multi_output import METHODS, Setting, Split, evaluate
from nbsketch.reproduce.table2 import summary

N_TRAIN, N_TEST, N_FEATURES, N_TARGETS, SIZE = 4000, 1000, 6, 5, 100
_SETTING = Setting(bandwidth=4.0, alpha=1e-6)
_REPLICATES = 5


def make_smooth_targets(seed: int = 0) -> Split:
    """Return inputs in six dimensions and five smooth functions of them, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N_TRAIN + N_TEST, N_FEATURES))
    directions = rng.normal(size=(N_FEATURES, N_TARGETS)) / np.sqrt(N_FEATURES)
    Y = np.sin(3 * X @ directions) + X[:, :1] * X[:, 1:2]
    Y += 0.1 * rng.normal(size=Y.shape)
    return Split.standardized(X[:N_TRAIN], Y[:N_TRAIN], X[N_TRAIN:], Y[N_TRAIN:])


def run() -> list[dict[str, Any]]:
    """Fit with and without a sketch, print errors and times, and return the rows."""
    split = make_smooth_targets()
    print(
        f"Kernel ridge on {N_TRAIN} rows, {N_FEATURES} features, {N_TARGETS} targets; "
        f"sketches of {SIZE} rows."
    )
    rows: list[dict[str, Any]] = []
    with Progress(len(METHODS) * _REPLICATES) as progress:
        for method in METHODS:
            results = []
            for result in evaluate(split, method, SIZE, _SETTING, _REPLICATES):
                results.append(result)
                progress.step(method)
            before = rows[0]["seconds"] if rows else None
            rows.append(summary("made here", method, results, before))
    print(as_text(rows))
    sketched = rows[-1]
    print(
        f"\nA p-sparsified sketch trains {sketched['faster']:.0f} times faster; "
        f"error {sketched['arrmse']:.3f} against {rows[0]['arrmse']:.3f}."
    )
    return rows
