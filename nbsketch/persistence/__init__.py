"""Models as .npz files: arrays as arrays, everything else as JSON, nothing pickled.

A file of unknown origin is safe to load: it can do no more than make a model of
nbsketch from valid parts. See `load`.
"""

from __future__ import annotations

import json
from numbers import Integral
from pathlib import Path
from typing import Any

import nbsketch
from nbsketch.persistence.archive import Archive, open_archive, write_archive
from nbsketch.persistence.coding import Decoder, encode, name_of, public_class
from nbsketch.persistence.states import STATES, check_parameters, check_state

__all__ = ["load"]

_FORMAT = "nbsketch model 2"


class SaveMixin:
    """Gives an estimator its `save`."""

    def save(self, path: str | Path) -> None:
        """Write the model to a portable .npz file, without pickle.

        `nbsketch.load` reads it back. A kernel that is a Python function cannot be
        saved. An old file stays as it is until the new one is complete.
        """
        save_model(self, path)


def save_model(model: Any, path: str | Path) -> None:
    """Write an estimator, fitted or not, to a .npz file."""
    arrays: dict[str, Any] = {}
    name, params = name_of(model, "model"), model.get_params(deep=False)
    fitted = {key: value for key, value in vars(model).items() if key not in params}
    content = {
        "version": nbsketch.__version__,
        "class": name,
        "params": encode(_stored(params), "params", arrays),
        "fitted": encode(fitted, "fitted", arrays),
    }
    if fitted:  # what `load` would refuse is refused now
        check_state(name, fitted, params)
    text = json.dumps(content)  # all that can be refused is, before the file is touched
    write_archive(path, {"format": _FORMAT, "model": text, **arrays})


def _stored(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that a file holds: of `cv` an integer or None.

    Splitters and index arrays belong to the training rows, which are not in the file; a
    callback is code.
    """
    kept = {name: value for name, value in params.items() if name != "callback"}
    if not isinstance(params.get("cv"), Integral | None):
        kept["cv"] = None
    return kept


def load(path: str | Path) -> Any:
    """Read a model that was written by its ``save`` method.

    Files of unknown origin are safe. Every array is checked against the text of the
    file and every value against what the estimator takes, before compiled code uses it:
    types, shapes, bounds of indices, finite numbers, and that all parts fit together.
    Nothing is unpickled, and memory is bounded: each array is used once, and all of
    them may take 64 MiB, or 100 times the size of the file if that is more.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    estimator
        The model, with the same parameters and the same predictions.

    Raises
    ------
    ValueError
        If the file is not a model file of nbsketch, or if a part of it is not valid;
        the message names the part.
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
    ...     again = nbsketch.load(path)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    try:
        with open_archive(path) as archive:
            return _model(archive)
    except OSError:
        raise
    except Exception as error:  # of a crafted file: any, even a MemoryError
        raise ValueError(
            f"`path` must name a model file of nbsketch, got {path}: {error}"
        ) from error


def _model(archive: Archive) -> Any:
    if archive.text("format") != _FORMAT:
        raise ValueError("its format is unknown: it may be of another version")
    content = json.loads(archive.text("model"))
    keys = {"version", "class", "params", "fitted"}
    if not isinstance(content, dict) or set(content) != keys:
        raise ValueError("its text must describe version, class, params and fitted")
    cls, decode = public_class(content["class"]), Decoder(archive)
    if cls.__name__ not in STATES:
        raise ValueError(f"{cls.__name__} is not an estimator that can be saved")
    params, fitted = (decode(content[name], name) for name in ("params", "fitted"))
    if not (isinstance(params, dict) and isinstance(fitted, dict)):
        raise TypeError("`params` and `fitted` must be objects of JSON")
    check_parameters(params)
    model = cls(**params)
    if fitted:
        params = model.get_params(deep=False)  # with defaults for those not in the file
        vars(model).update(check_state(cls.__name__, fitted, params))
    return model
