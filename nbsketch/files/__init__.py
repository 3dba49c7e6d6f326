"""Model files (.npz): arrays as arrays, everything else as JSON, no pickle.

Files of unknown origin are safe to load: they can only create a model of nbsketch from
valid parts. See `load`, and its parameter `trusted` for estimators of other libraries.
In the JSON, an object with a dollar key encodes another type:

=========================================  ==========================================
``{"$array": name, "dtype", "shape"}``     an array of the file, of that type and shape
``{"$csr": {...}}``                        a CSR array by its parts
``{"$names": [...]}``                      an array of strings
``{"$tuple": [...]}``                      a tuple
``{"$object": class, "fields": {...}}``    a small object, public or registered
``{"$estimator": array}``                  an estimator of another library (skops)
=========================================  ==========================================
"""

import json
from collections.abc import Sequence
from dataclasses import is_dataclass
from importlib.util import find_spec
from inspect import signature
from io import BytesIO
from numbers import Integral
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

import numpy as np
import scipy.sparse as sp

import nbsketch
from nbsketch._report.fields import STORED, named_class
from nbsketch._report.validation import csr_from_parts
from nbsketch.files.archive import Archive, open_archive, write_archive
from nbsketch.files.states import STATES, check_parameters, check_state
from nbsketch.sketches._sketch import Origin

__all__ = ["load"]

_FORMAT = "nbsketch model 2"
# Attribute in which scikit-learn stores callbacks, which are not saved.
_CALLBACKS = "_skl_callbacks"
_UNSAVABLE = "a model file holds numbers, text, arrays and objects of nbsketch"
_CSR = "data", "indices", "indptr", "shape"


class SaveMixin:
    """Mixin that provides `save`."""

    def save(self: Any, path: str | Path | BinaryIO) -> None:
        """Write the model to a portable .npz file, without pickle.

        Read it with `nbsketch.load`. Kernels that are Python functions cannot be saved.
        An existing file is replaced only when the new one is complete. An open binary
        file, such as ``io.BytesIO()``, is written at its current position.
        """
        encode = Encoder()
        name = name_of(self, "model")
        params = self.get_params(deep=False)
        others = {*params, _CALLBACKS}
        fitted = {key: value for key, value in vars(self).items() if key not in others}
        content = {
            "version": nbsketch.__version__,
            "class": name,
            "params": encode(_stored(params), "params"),
            "fitted": encode(fitted, "fitted"),
        }
        if fitted:  # check now what `load` will check
            check_state(name, fitted, params)
        # Everything that can fail is checked before the file is touched.
        text = json.dumps(content)
        write_archive(path, {"format": _FORMAT, "model": text, **encode.arrays})


def _stored(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that a file holds; `cv` only if an integer or None.

    Splitters and index arrays refer to training data, which are not in the file;
    callbacks are code.
    """
    kept = {name: value for name, value in params.items() if name != "callback"}
    if not isinstance(params.get("cv"), Integral | None):
        kept["cv"] = None
    return kept


def load(path: str | Path | BinaryIO, trusted: Sequence[str] | None = None) -> Any:
    """Read a model written by its ``save`` method.

    Files of unknown origin are safe. Before compiled code uses them, all arrays are
    checked against the description in the file, and all values against the requirements
    of the estimator: types, shapes, index bounds, finite numbers and consistency of the
    parts. Nothing is unpickled. Memory is limited: each array is used once, and all
    arrays together take at most 64 MiB or 100 times the file size, whichever is larger.

    Parameters
    ----------
    path : str, Path or binary file
        The file; an open file is read to its end.
    trusted : sequence of str, default=None
        Types that may be created for estimators of other libraries (`partners`), by the
        names listed in the error, in addition to the types trusted by the package
        skops. Trusted types may crash the process if the file is corrupt. None: files
        with such estimators raise an error.

    Returns
    -------
    estimator
        Model with the same parameters and the same predictions.

    Raises
    ------
    ValueError
        If the file is not a model file of nbsketch, or if a part of it is invalid; the
        message names the part.
    OSError
        If the file cannot be read.

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
    ...     loaded = nbsketch.load(path)
    >>> print(abs(loaded.predict(X) - model.predict(X)).max())
    0.0
    """
    try:
        with open_archive(path) as archive:
            return _model(archive, trusted)
    except OSError:
        raise
    except Exception as error:  # a crafted file may raise any, even MemoryError
        raise ValueError(
            f"`path` must be a model file of nbsketch, got {path}: {error}"
        ) from error


def _model(archive: Archive, trusted: Sequence[str] | None) -> Any:
    if archive.text("format") != _FORMAT:
        raise ValueError("its format is unknown: it may be from another version")
    content = json.loads(archive.text("model"))
    keys = {"version", "class", "params", "fitted"}
    if not isinstance(content, dict) or set(content) != keys:
        raise ValueError("its text must contain version, class, params and fitted")
    cls = named_class(content["class"])
    decode = Decoder(archive, trusted)
    if cls.__name__ not in STATES:
        raise ValueError(f"{cls.__name__} is not an estimator that can be saved")
    # Partners come first, because their types have to be trusted.
    fitted, params = (decode(content[name], name) for name in ("fitted", "params"))
    if not (isinstance(params, dict) and isinstance(fitted, dict)):
        raise TypeError("`params` and `fitted` must be objects of JSON")
    check_parameters(params)
    model = cls(**params)
    if fitted:
        params = model.get_params(deep=False)  # defaults for missing parameters
        vars(model).update(check_state(cls.__name__, fitted, params))
    return model


class Encoder:
    """Convert values to the types of JSON, and collect their arrays.

    Errors and arrays name a value by its path.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def __call__(self, value: Any, name: str) -> Any:
        """Return `value` in JSON types; `name` is its path."""
        match value:
            case None | bool() | int() | float() | str():
                return value
            case np.generic():
                return value.item()
            case np.ndarray():
                return self._array(name, value)
            case dict():
                return {key: self(v, f"{name}.{key}") for key, v in value.items()}
            case list():
                return [self(v, f"{name}.{i}") for i, v in enumerate(value)]
            case tuple():
                return {"$tuple": self(list(value), name)}
            case np.random.Generator() | np.random.RandomState():
                return None  # the model is already drawn
            case Origin() if value.probabilities is not None:
                return None  # n numbers: a loaded sketch cannot grow
        return self._object(name, value)

    def _array(self, name: str, array: np.ndarray) -> dict[str, Any]:
        if array.dtype == object:
            return {"$names": [str(text) for text in array]}  # of features
        self.arrays[name] = array
        return {"$array": name, "dtype": array.dtype.str, "shape": list(array.shape)}

    def _object(self, name: str, value: Any) -> dict[str, Any]:
        if sp.issparse(value):
            matrix = sp.csr_array(value)
            return {"$csr": self({key: getattr(matrix, key) for key in _CSR}, name)}
        if is_object(type(value)):
            keys = signature(type(value)).parameters
            inside = self({key: getattr(value, key) for key in keys}, name)
            return {"$object": name_of(value, name), "fields": inside}
        if hasattr(value, "get_params"):
            packed = np.frombuffer(_skops().dumps(value), dtype=np.uint8)
            return {"$estimator": self(packed, name)}
        raise TypeError(f"{_UNSAVABLE}, but `{name}` is {value!r}")


class Decoder:
    """Convert the JSON of a file to values, using each array once.

    Errors name the value by its path in the file.
    """

    def __init__(self, archive: Archive, trusted: Sequence[str] | None = None) -> None:
        self._archive = archive
        self._trusted = trusted
        self._unused = set(archive.headers)

    def __call__(self, value: Any, name: str) -> Any:
        """Return the value encoded by JSON; `name` is its path."""
        match value:
            case list():
                return [self(v, f"{name}.{i}") for i, v in enumerate(value)]
            case {"$array": array, **claimed}:
                return self._array(name, array, claimed)
            case {"$csr": dict(parts), **others} if not others:
                return csr_from_parts(name, **self(parts, name))
            case {"$names": [*texts], **others} if not others:
                return np.array([str(text) for text in texts], dtype=object)
            case {"$tuple": [*parts], **others} if not others:
                return tuple(self(parts, name))
            case {"$object": class_name, "fields": fields, **others} if not others:
                return self._object(name, class_name, self(fields, name))
            case {"$estimator": array, **others} if not others:
                return self._estimator(name, self(array, name))
            case dict() if marks := [key for key in value if key.startswith("$")]:
                raise ValueError(f"`{name}` has unknown keys or parts: {marks!r:.60}")
            case dict():
                return {key: self(v, f"{name}.{key}") for key, v in value.items()}
        return value

    def _array(self, name: str, array: Any, claimed: Any) -> np.ndarray:
        if not isinstance(array, str) or array not in self._unused:
            raise ValueError(
                f"`{name}` must be an array of the file that is used only once, got "
                f"{array!r:.60}"
            )
        self._unused.remove(array)  # limits memory: no array is read twice
        dtype, shape = self._archive.headers[array]
        actual = {"dtype": dtype.str, "shape": list(shape)}
        if claimed != actual:
            raise ValueError(f"`{name}` must be an array of {claimed}, got {actual}")
        return self._archive[array]

    def _object(self, name: str, class_name: Any, content: Any) -> Any:
        cls = named_class(class_name)
        if not (is_object(cls) and isinstance(content, dict)):
            raise ValueError(f"`{name}` must be an object with fields, got {cls!r}")
        try:
            return cls(**content)
        except (TypeError, ValueError) as error:
            raise type(error)(f"`{name}`: {error}") from error

    def _estimator(self, name: str, packed: Any) -> Any:
        data = np.asarray(packed, dtype=np.uint8).tobytes()
        with ZipFile(BytesIO(data)) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > len(data):  # limits memory
            raise ValueError(f"`{name}` must not be compressed, got {size} bytes")
        types = _skops().get_untrusted_types(data=data)
        if self._trusted is None or not set(types) <= set(self._trusted):
            raise ValueError(
                f"`{name}` is an estimator of another library: if you trust the file, "
                f"load it with `trusted` of {types}, got {self._trusted}"
            )
        return _skops().loads(data, trusted=types)


def _skops() -> Any:
    """Return the module that writes estimators of other libraries."""
    if find_spec("skops") is None:
        raise ModuleNotFoundError(
            "files of models with estimators of other libraries need skops: pip "
            'install "nbsketch[skops]"',
            name="skops",
        )
    import skops.io

    return skops.io


def is_object(cls: type) -> bool:
    """Return whether objects of a class can be saved by their fields."""
    named = STORED.get(cls.__name__) is cls
    return named or (is_dataclass(cls) and not hasattr(cls, "fit"))


def name_of(value: Any, name: str) -> str:
    """Return the name of the class of `value`, which must be public."""
    cls = type(value)
    registered = STORED.get(cls.__name__) or getattr(nbsketch, cls.__name__, None)
    if registered is not cls:
        raise TypeError(f"{_UNSAVABLE}, but `{name}` is {value!r}")
    return cls.__name__
