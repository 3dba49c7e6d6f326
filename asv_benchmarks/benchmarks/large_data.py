"""Rows in a file: time per row and memory beyond the data against n.

NBSKETCH_ROWS sets the largest n, for instance 1e8; a file of n rows takes 40 n bytes.
NBSKETCH_SIZE sets the size of the sketch. `InMemory` has rows in memory and everything
else at its default: how time and error of a given size, or the default, depend on n.
"""

import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import nbsketch
from benchmarks.common import choose

LARGEST = int(float(os.environ.get("NBSKETCH_ROWS", choose(fast=1e5, regular=1e6))))
SIZES = sorted({n for n in (10**5, 10**6, 10**7) if n < LARGEST} | {LARGEST})
SIZE = int(os.environ.get("NBSKETCH_SIZE", "200"))
LIMIT = "300MB"
_BLOCK = 10**6


def write_rows(path, n):
    """Write uniform rows of ten features in single precision."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, n, _BLOCK):
            count = min(_BLOCK, n - start)
            file.write(rng.random((count, 10), dtype=np.float32).tobytes())


def noisy_targets(X):
    """Return Friedman's function with noise, block by block."""
    rng, y = np.random.default_rng(1), np.empty(len(X))
    for start in range(0, len(X), _BLOCK):
        rows = np.asarray(X[start : start + _BLOCK])
        f = 10 * np.sin(np.pi * rows[:, 0] * rows[:, 1]) + 20 * (rows[:, 2] - 0.5) ** 2
        f += 10 * rows[:, 3] + 5 * rows[:, 4]
        y[start : start + _BLOCK] = f + rng.standard_normal(len(rows))
    return y


def make_model(loss, y):
    """Return an estimator for a loss, and its targets."""
    options = {
        "kernel": "gaussian", "bandwidth": 1.0, "sketch": "subsampling", "size": SIZE,
        "alpha": 1e-6, "tol": 1e-4, "random_state": 0,
    }  # fmt: skip
    if loss == "logistic":
        labels = y > np.median(y[:_BLOCK])
        return nbsketch.SketchedKernelClassifier(loss=loss, **options), labels
    return nbsketch.SketchedKernelRegressor(loss=loss, **options), y


def private_bytes():
    """Return the memory of this process without mapped files, on Linux."""
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    known = dict(line.split(":", 1) for line in status)
    return 1024 * int(known["RssAnon"].split()[0])


class Peak:
    """The largest private memory while it is open, above that before."""

    def __enter__(self):
        self._before, self.bytes = private_bytes(), 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._stop.wait(0.02):
            self.bytes = max(self.bytes, private_bytes() - self._before)

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()


class FromFile:
    """Fits of a memory-mapped file, with features of 300 MB in memory at most."""

    params = (SIZES, ["square", "huber", "pinball", "logistic"])
    param_names = ("n", "loss")
    timeout = 36_000

    def setup(self, n, loss):
        self._folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        path = Path(self._folder.name) / "X.f32"
        write_rows(path, n)
        self.X = np.memmap(path, np.float32, "r", shape=(n, 10))
        self.model, self.y = make_model(loss, noisy_targets(self.X))
        nbsketch.set_memory_limit(LIMIT)
        self.model.fit(np.asarray(self.X[:5000]), self.y[:5000])

    def teardown(self, n, loss):
        nbsketch.set_memory_limit(None)
        del self.X
        self._folder.cleanup()

    def track_microseconds_per_row(self, n, loss):
        start = time.process_time()
        self.model.fit(self.X, self.y)
        return 1e6 * (time.process_time() - start) / n

    def track_bytes_per_row(self, n, loss):
        with Peak() as peak:
            self.model.fit(self.X, self.y)
        return peak.bytes / n

    track_microseconds_per_row.unit = "microseconds of processor time"
    track_bytes_per_row.unit = "bytes"


class InMemory:
    """Fits of a given or the default size, length scales and penalty included.

    Errors are those to the function without noise, or shares of wrong classes.
    """

    params = (
        choose(fast=[10_000], regular=[20_000, 40_000, 80_000, 160_000]),
        ["square", "huber", "pinball", "logistic"],
        choose(fast=[200], regular=[None, 1000, 2500]),
    )
    param_names = ("n", "loss", "size")
    timeout = 3600

    def setup(self, n, loss, size):
        self.has_classes = loss == "logistic"
        self.X, self.y, _ = self.draw(n, 0)
        self.X_test, _, self.truth = self.draw(4000, 100)
        self.fit(2000, loss, 200)

    def draw(self, n, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 10))
        truth = np.sin(X[:, 0] + X[:, 1] * X[:, 2])
        y = truth + 0.1 * rng.normal(size=n)
        return (X, y > 0, truth > 0) if self.has_classes else (X, y, truth)

    def fit(self, n, loss, size):
        classes = nbsketch.SketchedKernelRegressor, nbsketch.SketchedKernelClassifier
        model = classes[self.has_classes](loss=loss, size=size, random_state=0)
        return model.fit(self.X[:n], self.y[:n])

    def track_seconds(self, n, loss, size):
        start = time.process_time()
        self.fit(n, loss, size)
        return time.process_time() - start

    def track_error(self, n, loss, size):
        predicted = self.fit(n, loss, size).predict(self.X_test)
        if self.has_classes:
            return float(np.mean(predicted != self.truth))
        return float(np.sqrt(np.mean((predicted - self.truth) ** 2)))

    track_seconds.unit = "seconds of processor time"
