"""Models as .npz files: arrays as arrays, everything else as JSON, nothing pickled."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import nbsketch
from nbsketch.sketches import DenseSketch, Sketch, TransformSketch
from nbsketch.sketches.sampling import IdentityMatrix

_FORMAT = "nbsketch model 1"
_UNSAVABLE = "a model file holds numbers, text, arrays and objects of nbsketch"
# Files of earlier versions: fields with another name now; constructor parameters with
# another name (None: dropped), and values with another name.
_RENAMED = {"centre": "center"}
_RENAMED_PARAMS: dict[str, str | None] = {"scale": "preprocessing", "accuracy": None}
_RENAMED_VALUES = {"method=sgm": "projected"}
_SKETCHES: dict[str, type[Sketch]] = {
    cls.__name__: cls for cls in (DenseSketch, IdentityMatrix, Sketch, TransformSketch)
}


class SaveMixin:
    """Gives an estimator its `save`."""

    def save(self, path: str | Path) -> None:
        """Write the model to a portable .npz file, without pickle.

        `nbsketch.load` reads it back. A kernel that is a Python function cannot be
        saved.
        """
        save_model(self, path)


def save_model(model: Any, path: str | Path) -> None:
    """Write an estimator, fitted or not, to a .npz file."""
    arrays: dict[str, Any] = {}
    content = {
        "version": nbsketch.__version__,
        "class": _name_of(model, "model"),
        "params": _encode(model.get_params(deep=False), "params", arrays),
        "fitted": _encode(_fitted(model), "fitted", arrays),
    }
    text = json.dumps(content)  # all that can be refused is, before the file is touched
    with Path(path).open("wb") as file:
        np.savez_compressed(file, format=_FORMAT, model=text, **arrays)


def load(path: str | Path) -> Any:
    """Read a model that was written by its ``save`` method.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    estimator
        The model, with the same parameters and the same predictions.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import nbsketch
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = nbsketch.SketchedKernelRegressor(size=10).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.npz"
    ...     model.save(path)
    ...     again = nbsketch.load(path)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    arrays = _read(path)
    if str(arrays.get("format")) != _FORMAT:
        raise ValueError(f"`path` must name a model file of nbsketch, got {path}")
    content = json.loads(str(arrays["model"]))
    model = _public(content["class"])(**_current(_decode(content["params"], arrays)))
    vars(model).update(_decode(content["fitted"], arrays))
    return model


def _current(params: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor parameters of a file of any version by today's names."""
    current = {}
    for name, value in params.items():
        today = _RENAMED_PARAMS.get(name, name)
        if today is not None:
            current[today] = _RENAMED_VALUES.get(f"{name}={value}", value)
    return current


def _read(path: str | Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file, or none if the file is something else."""
    with Path(path).open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            return {}
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def _fitted(model: Any) -> dict[str, Any]:
    params = model.get_params(deep=False)
    return {name: value for name, value in vars(model).items() if name not in params}


def _encode(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return `value` in terms of JSON; arrays go to `arrays` under their names.

    Keys with a dollar say what a JSON object stands for: no parameter has such a name.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return {"$names": [str(v) for v in value]}  # of features
        arrays[name] = value
        return {"$array": name}
    if sp.issparse(value):
        rows = sp.csr_array(value)
        parts = [rows.data, rows.indices, rows.indptr, rows.shape]
        return {"$csr": _encode(parts, name, arrays)}
    if isinstance(value, dict):
        return {key: _encode(v, f"{name}.{key}", arrays) for key, v in value.items()}
    if isinstance(value, list | tuple):
        parts = [_encode(v, f"{name}.{i}", arrays) for i, v in enumerate(value)]
        return parts if isinstance(value, list) else {"$tuple": parts}
    if isinstance(value, Sketch):
        return {
            "$sketch": type(value).__name__,
            "parts": _encode(value.to_parts(), name, arrays),
        }
    if is_dataclass(value) and not isinstance(value, type):
        content = {f.name: getattr(value, f.name) for f in fields(value)}
        return {
            "$object": _name_of(value, name),
            "fields": _encode(content, name, arrays),
        }
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None  # a stream has no place in a file; the model is drawn already
    raise TypeError(f"{_UNSAVABLE}, but `{name}` is {value!r}")


def _decode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return arrays[value["$array"]]
    if "$csr" in value:
        *parts, shape = _decode(value["$csr"], arrays)
        return sp.csr_array(tuple(parts), shape=shape)
    if "$names" in value:
        return np.array(value["$names"], dtype=object)
    if "$tuple" in value:
        return tuple(_decode(value["$tuple"], arrays))
    if "$sketch" in value:
        parts = _decode(value["parts"], arrays)
        return _SKETCHES[value["$sketch"]].from_parts(parts)
    if "$object" in value:
        content = _decode(value["fields"], arrays)
        renamed = {_RENAMED.get(name, name): part for name, part in content.items()}
        return _public(value["$object"])(**renamed)
    return {key: _decode(v, arrays) for key, v in value.items()}


def _name_of(value: Any, name: str) -> str:
    """Return the name of the class of `value`, which must be public."""
    cls = type(value)
    if getattr(nbsketch, cls.__name__, None) is not cls:
        raise TypeError(f"{_UNSAVABLE}, but `{name}` is {value!r}")
    return cls.__name__


def _public(name: str) -> Any:
    """Return a public class: a file can name nothing else."""
    found = getattr(nbsketch, name) if name in nbsketch.__all__ else None
    if not isinstance(found, type):
        raise ValueError(f"the model file needs {name!r}, which nbsketch does not have")
    return found
