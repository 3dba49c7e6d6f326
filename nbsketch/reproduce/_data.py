"""Data sets and sketches by name, splits, settings chosen by cross-validation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch import datasets, losses, sketches
from nbsketch._report.progress import counted
from nbsketch.reproduce import read_toml
from nbsketch.reproduce._report import timed

MaybePath = Path | None
WITHOUT = "without sketch"
_SKETCHES = read_toml("sketches.toml")


def load(name: str, data_home: MaybePath, **options: Any) -> Any:
    """Return the result of the loader of a set."""
    return getattr(datasets, f"load_{name}")(data_home=data_home, **options)


def selected(sets: Sequence[str] | None, every: Iterable[str]) -> list[str]:
    """Return the names of the selected sets, all by default, or raise a ValueError."""
    names = list(every)
    unknown = [name for name in sets or () if name not in names]
    if unknown:
        raise ValueError(f"`sets` must be among {names}, got {unknown}")
    return [name for name in names if name in (sets or names)]


def sketch_of(label: str, size: int | None, n: int = 0) -> sketches.SketchRecipe:
    """Return the sketch of a label for n rows; size None is the default size."""
    if size is None or label == WITHOUT:
        return sketches.IdentitySketch()
    options = dict(_SKETCHES[label])
    kind = getattr(sketches, options.pop("kind"))
    if "nonzeros" in options:
        options["density"] = min(1.0, options.pop("nonzeros") / n)
    return kind(size, **options)


def loss_of(kind: str, *parameters: float) -> losses.Loss:
    """Return the loss of a class with its parameters."""
    return getattr(losses, kind)(*parameters)


def standardized(X_train: NDArray, *others: NDArray) -> list[NDArray]:
    """Return all inputs, shifted and scaled to mean 0 and deviation 1 in training."""
    mean = X_train.mean(axis=0)
    deviation = X_train.std(axis=0)
    deviation = np.where(deviation == 0, 1.0, deviation)
    return [np.ascontiguousarray((X - mean) / deviation) for X in (X_train, *others)]


class Split(NamedTuple):
    """Training and test data; the inputs standardized by the training rows."""

    X_train: NDArray
    Y_train: NDArray
    X_test: NDArray
    Y_test: NDArray

    @classmethod
    def of(cls, train: tuple[NDArray, NDArray], test: tuple[NDArray, NDArray]) -> Split:
        """Return a split of two pairs of inputs and targets."""
        X_train, X_test = standardized(train[0], test[0])
        return cls(X_train, train[1], X_test, test[1])

    @classmethod
    def published(cls, data: datasets.Dataset) -> Split:
        """Return the published split of a data set."""
        return cls.of((data.X_train, data.y_train), (data.X_test, data.y_test))

    def with_standardized_targets(self) -> Split:
        """Return the split with targets of mean 0 and deviation 1 in training."""
        Y_train, Y_test = standardized(self.Y_train, self.Y_test)
        return self._replace(Y_train=Y_train, Y_test=Y_test)

    def fit(self, model: Any, start: int = 0) -> tuple[NDArray, float]:
        """Fit a model; return its predictions, and the processor seconds of the fit.

        The time includes drawing the sketch; a fit of `start` rows compiles first.
        """
        if start:
            model.fit(self.X_train[:start], self.Y_train[:start])
        _, seconds = timed(model.fit, self.X_train, self.Y_train)
        return model.predict(self.X_test), seconds


Key = tuple[str, ...]
Setting = dict[str, Any]  # parameters of a model by name


def settings_for(
    keys: Sequence[Key],
    choose: Callable[[Key], Setting],
    shipped: Path,
    file: Path | None = None,
) -> dict[Key, Setting]:
    """Return the setting of each key, choosing missing settings.

    Parameters
    ----------
    keys : sequence of tuples of str
        Nested keys of the file, as in ``("rf1", "20/n-SR")``.
    choose : callable
        Returns the setting of a key by cross-validation.
    shipped : Path
        File in the package, read if no `file` is given.
    file : Path, optional
        Read if it exists, and written after each choice.

    Raises
    ------
    ValueError
        If `file` is not JSON.
    """
    chosen = _read(file or shipped)
    missing = [key for key in keys if not _inner(chosen, key)]
    for key in counted(missing, lambda key: f"cross-validation: {' '.join(key)}"):
        _inner(chosen, key).update(choose(key))
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
    return {key: _inner(chosen, key) for key in keys}


def _read(file: Path) -> Setting:
    try:
        return json.loads(file.read_text("utf-8")) if file.exists() else {}
    except ValueError as error:
        raise ValueError(
            f"{file} is not a file of settings (JSON): {error}; correct or remove it"
        ) from error


def _inner(chosen: Setting, key: Key) -> Setting:
    """Return the dictionary under a nested key, a new one if there is none."""
    for name in key:
        chosen = chosen.setdefault(name, {})
    return chosen
