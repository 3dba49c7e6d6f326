"""Checks of arguments; errors name the argument, the requirement and the value.

For missing and infinite values, errors also state where they are and what to do.
Warnings point at the line of the user's code.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from decimal import Decimal
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from types import FrameType
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

T = TypeVar("T")
_PACKAGE = __name__.partition(".")[0]
# What to do about missing values, by the name of the argument.
_REMEDIES = {
    "X": "impute them first, make_pipeline(SimpleImputer(), model) in scikit-learn, "
    "or remove these rows",
    "sample_weight": "use weight 0 to exclude a sample",
}
_ENCODE = """encode them first, for instance with scikit-learn:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), [{columns}]),
        remainder="passthrough")
    model = make_pipeline(encode, model)
or with TargetEncoder() in place of OneHotEncoder for many categories"""
# Parameters of other libraries, the equivalent parameter here, and how to use it.
_INSTEAD = {
    "gamma": ("bandwidth", "exp(-gamma |x - y|^2) has bandwidth=(2 * gamma) ** -0.5"),
    "C": ("alpha", "pass alpha=1 / (n * C) for n samples"),
    "reg_lambda": ("alpha", "pass alpha"),
    "length_scale": ("bandwidth", "pass bandwidth, a number or one for each column"),
    "n_components": ("size", "pass size, the size of the sketch"),
    "n_jobs": (
        "random_state",
        "all processors are used; OMP_NUM_THREADS, OPENBLAS_NUM_THREADS and "
        "NUMBA_NUM_THREADS limit them",
    ),
    "epsilon": (
        "loss",
        "pass loss=EpsilonInsensitiveLoss(epsilon) or HuberLoss(kappa)",
    ),
    "kappa": ("loss", "pass loss=HuberLoss(kappa)"),
    "quantile": ("loss", "pass loss=PinballLoss(quantile)"),
    "penalty": ("alpha", "pass alpha, the factor of the squared norm"),
    "effort": (
        "partners",
        'the default replaces "fast", with boosted trees for classes (partners=None: '
        'without), and partners="auto" for regression replaces "high"',
    ),
}
# Names in other libraries, and the nearest one here.
_SYNONYMS = {
    "rbf": "gaussian",
    "poly": "polynomial",
    "nystroem": "subsampling",
    "nystrom": "subsampling",
    "mse": "square",
    "mae": "absolute_error",
    "log": "logistic",
}
# Parameters of kernels that tabular models choose.
_CHOSEN = "alpha", "bandwidth", "kernel", "size", "sketch"
# Prefixes of dtypes of dates and durations in pandas and polars.
_DATES = "date", "time", "duration"
_NO_DATES = "convert dates to numbers first: days since a start, the month, the hour"
# Largest magnitude for which the squares of 1e28 values have a finite sum.
_LARGEST = 1e140
# Smallest positive spread for which squares keep their digits.
_LEAST_SPREAD = 1e-150
# Number of rows used to find columns with such a small spread.
_HEAD = 100
# Ranges below this share of the largest value count as rounding of a constant, as in a
# text file of 12 digits,
_CONSTANT = 1e-11
# and ranges below this many units in its last place.
_ULPS = 8
# Prefix of messages about missing and infinite values, raised as a ValueError.
_INPUT = "Input "
# Prefixes of scikit-learn's messages about shapes.
_SHAPE = "Expected 2D array", "Found array with dim", "Found array with 0"
# Maximum number of indices listed in an error.
_LISTED = 5


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn about the first caller outside the package.

    Parameters
    ----------
    message : str or Warning
        Text, or a warning with its text.
    category : type, default=UserWarning
        Category of a text.
    """
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_globals["__name__"].partition(".")[0] == _PACKAGE:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def check_real(
    name: str,
    value: Any,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return `value` as a float if it is a number inside the interval."""
    interval = f"{'(' if low_open else '['}{low}, {high}{')' if high_open else ']'}"
    value = unboxed(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number in {interval}, got {value!r}")
    number = float(value)
    above = number > low if low_open else number >= low
    below = number < high if high_open else number <= high
    if not (above and below):
        raise ValueError(f"`{name}` must be in {interval}, got {value!r}")
    return number


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a float if it is a positive finite number."""
    return check_real(name, value, low=0, low_open=True, high_open=True)


def check_level(name: str, value: Any) -> float:
    """Return `value` as a float if it is strictly between 0 and 1."""
    return check_real(name, value, low=0, high=1, low_open=True, high_open=True)


def check_integer(
    name: str, value: Any, *, low: int = 1, high: int | None = None
) -> int:
    """Return `value` as an int if it is an integer between `low` and `high`."""
    limits = f"at least {low}" if high is None else f"in [{low}, {high}]"
    value = unboxed(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be an integer {limits}, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ValueError(f"`{name}` must be {limits}, got {value!r}")
    return number


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Return the element of `choices` equal to `value`, which may be a NumPy string."""
    allowed = list(choices)
    value = unboxed(value)
    for choice in allowed:
        if isinstance(value, type(choice)) and value == choice:
            return choice
    raise ValueError(
        f"`{name}` must be one of {allowed}, got {value!r}{meant(value, allowed)}"
    )


def unboxed(value: Any) -> Any:
    """Return a number or string of NumPy, printed with its type, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def meant(value: Any, names: Iterable[Any]) -> str:
    """Return the end of an error: the name that is probably meant, if any."""
    word = str(value)
    words = [name for name in names if isinstance(name, str)]
    near = get_close_matches(_SYNONYMS.get(word.lower(), word), words, n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def check_no_class(name: str, value: Any) -> None:
    """Raise an error if a value is a class, not an object of it."""
    if isinstance(value, type):
        raise TypeError(
            f"`{name}` must be an object or a name, got a class: write "
            f"{value.__name__}(...)"
        )


def check_length(name: str, values: Any, n: int, noun: str = "entries") -> None:
    """Raise an error if there are not n values."""
    if len(values) != n:
        raise ValueError(f"`{name}` must have {n} {noun}, got {len(values)}")


def check_indices(name: str, index: NDArray, n: int) -> None:
    """Raise an error if an integer is outside [0, n - 1]."""
    if index.size and not 0 <= index.min() <= index.max() < n:
        raise ValueError(
            f"`{name}` must be in [0, {n - 1}], got {index.min()} to {index.max()}"
        )


def row_weights(weights: NDArray | None, rows: Sized) -> NDArray:
    """Return the weights of rows, ones if they are None."""
    return np.ones(len(rows)) if weights is None else weights


def check_matrix(name: str, value: Any, *, n_features: int | None = None) -> NDArray:
    """Return `value` as a finite C-ordered float matrix; float32 is kept."""
    check_unmasked(name, value)
    array = np.asarray(value)
    array = np.ascontiguousarray(array, dtype=_checked_dtype(name, array, n_features))
    check_finite(name, array)
    return array


def check_rows(name: str, value: Any, *, n_features: int | None = None) -> Any:
    """Return `value` by `check_matrix` or, if it is sparse, by `as_csr`."""
    if not sp.issparse(value):
        return check_matrix(name, value, n_features=n_features)
    dtype = _checked_dtype(name, value, n_features)
    rows = as_csr(value.astype(dtype, copy=False), name)
    check_finite(name, rows)
    return rows


def as_csr(value: Any, name: str = "X") -> sp.csr_array:
    """Return a sparse matrix as a CSR array with sorted, distinct columns in each row.

    Memory is shared with `value` if possible. Pointers and indices are checked first,
    because compiled code (also in SciPy) would read and write out of bounds.
    """
    if value.format in ("csr", "csc"):
        major = value.shape if value.format == "csr" else value.shape[::-1]
        _check_compressed(name, value.indptr, value.indices, value.data.size, major)
    elif value.format == "bsr":
        value.check_format(full_check=True)
    rows = sp.csr_array(value)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def csr_from_parts(
    name: str, data: Any, indices: Any, indptr: Any, shape: Any
) -> sp.csr_array:
    """Return the CSR array with these parts (from a file) after checking them.

    The parts are 1-dimensional; columns are sorted and distinct in each row.
    """
    if not (isinstance(shape, tuple) and len(shape) == 2):
        raise ValueError(f"`{name}` must have two axes, got shape {shape!r}")
    rows, columns = (check_integer(f"{name}.shape", k, high=2**62) for k in shape)
    check_array_of(f"{name}.data", data, "fiub", 1)
    check_array_of(f"{name}.indices", indices, "iu", 1)
    check_array_of(f"{name}.indptr", indptr, "iu", 1)
    check_finite(name, data)
    _check_compressed(name, indptr, indices, data.size, (rows, columns))
    matrix = sp.csr_array((data, indices, indptr), shape=(rows, columns))
    if not matrix.has_canonical_format:
        raise ValueError(f"`{name}` must have ascending columns in each row")
    return matrix


def _check_compressed(
    name: str, indptr: NDArray, indices: NDArray, size: int, shape: tuple[int, int]
) -> None:
    """Raise an error if pointers or indices exceed the arrays."""
    n_major, n_minor = shape
    if indptr.size != n_major + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            f"`{name}` must have ascending pointers, {n_major + 1} from 0 on, got "
            f"{indptr.size}"
        )
    used = int(indptr[-1])
    if used > min(indices.size, size):
        raise ValueError(
            f"`{name}` must have {used} nonzeros, got {indices.size} indices and "
            f"{size} values"
        )
    check_indices(f"{name}.indices", indices[:used], n_minor)


def check_array_of(
    name: str, value: Any, kinds: str, ndim: int | None = None
) -> NDArray:
    """Return `value` if it is an array of these kinds and number of axes.

    Kind "f" alone requires single or double precision.
    """
    dtype = getattr(value, "dtype", type(value).__name__)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        raise TypeError(f"`{name}` must be an array of type {kinds!r}, got {dtype}")
    if kinds == "f" and value.dtype.itemsize not in (4, 8):
        raise TypeError(f"`{name}` must be float32 or float64, got {dtype}")
    if ndim is not None and value.ndim != ndim:
        raise ValueError(f"`{name}` must have {ndim} axes, got shape {value.shape}")
    return value


def _checked_dtype(name: str, array: Any, n_features: int | None) -> type[np.floating]:
    """Return the dtype for computing with a matrix, after checking that it is one."""
    if array.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must hold real numbers, got dtype {array.dtype}")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"`{name}` must be a non-empty 2-dimensional array, got shape {array.shape}"
        )
    if n_features is not None and array.shape[1] != n_features:
        raise ValueError(
            f"`{name}` must have {n_features} columns, got shape {array.shape}"
        )
    return np.float32 if array.dtype == np.float32 else np.float64


def check_finite(name: str, value: Any) -> None:
    """Raise an error if an array or a sparse matrix has NaN or infinity."""
    if not np.isfinite(value.data if sp.issparse(value) else value).all():
        message = f"`{name}` must be finite, got NaN or infinity{_places(value)}"
        raise ValueError(message)


def check_positives(name: str, values: Any) -> list[float]:
    """Return `values` as a list of floats if they are positive finite numbers."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"`{name}` must be a sequence of numbers, got {values!r}")
    return [check_positive(name, value) for value in values]


def random_generator(rng: Any) -> np.random.Generator:
    """Return a Generator from None, a seed, a Generator or a RandomState."""
    if isinstance(rng, np.random.RandomState):
        return np.random.default_rng(rng.randint(2**32, size=4, dtype=np.uint32))
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "`random_state` must be None, a non-negative integer or a Generator, "
            f"got {rng!r}"
        ) from error


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
def declares_parameters(estimator: type[T]) -> type[T]:
    """Create the constructor of an estimator from its own and inherited parameters.

    A parameter is an annotated default of the class, passed by name.
    """
    made = dataclass(eq=False, repr=False, kw_only=True)(estimator)
    assign = made.__init__
    names = {part.name for part in fields(made)}  # type: ignore[arg-type]

    @wraps(assign)
    def initialize(self: Any, *values: Any, **parameters: Any) -> None:
        for name in parameters:
            if name not in names:
                text = f"{type(self).__name__} has no parameter {name!r}"
                raise TypeError(f"{text}{_hint(name, names)}")
        assign(self, *values, **parameters)

    made.__init__ = initialize  # type: ignore[method-assign]
    return made


def _hint(name: str, names: set[str]) -> str:
    """Return what to pass in place of an unknown parameter, if known."""
    if near := meant(name, sorted(names)):
        return near
    parameter, instead = _INSTEAD.get(name, (name, ""))
    if "partners" in names and parameter in _CHOSEN:
        return ": tabular models choose kernels and penalties from the data"
    return f": {instead}" if parameter in names else ""


@contextmanager
def keeping_fitted(estimator: Any) -> Iterator[None]:
    """Restore a fitted estimator if refitting raises an error."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@contextmanager
def explaining(data: dict[str, Any], *, labels: bool = False) -> Iterator[None]:
    """Name arguments and missing, infinite and string values in errors of a data check.

    Masks and dates are checked before; values only after an error, so valid data cost
    nothing.

    Parameters
    ----------
    data : dict of str to array, data frame, sparse matrix or None
        Data as passed by the user, by argument name; the features first.
    labels : bool, default=False
        Whether y may hold strings.
    """
    text = "y" if labels else None
    for name, value in data.items():
        check_unmasked(name, value)
        dtype = getattr(value, "dtype", None)
        is_date = isinstance(dtype, np.dtype) and dtype.kind in "mM"
        if is_date and name != text:  # NumPy would convert them to integers
            raise TypeError(f"`{name}` must hold numbers, got {dtype}; {_NO_DATES}")
    try:
        yield
    except (TypeError, ValueError) as error:
        for name, value in data.items():
            message = fault(name, value, name == text)
            if message is not None:
                is_type = isinstance(error, TypeError) and not message.startswith(
                    _INPUT
                )
                raise (TypeError if is_type else ValueError)(message) from error
        if not str(error).startswith(_SHAPE):
            raise
        shapes = {name: np.shape(value) for name, value in data.items()}
        name = max(shapes, key=lambda name: len(shapes[name]) > 2 or 0 in shapes[name])
        if 0 in shapes[name]:
            raise ValueError(f"`{name}` must not be empty: {error}") from error
        raise ValueError(not_a_table(name, shapes[name])) from None  # all values


def check_collected(name: str, value: Any) -> None:
    """Raise an error for a lazy frame (polars or narwhals)."""
    if type(value).__name__ == "LazyFrame":
        raise TypeError(
            f"`{name}` must be in memory, got a LazyFrame: pass {name}.collect()"
        )


def check_unmasked(name: str, value: Any) -> None:
    """Raise an error for masked values, with their positions, and for lazy frames."""
    check_collected(name, value)
    if message := masked_fault(name, value):
        raise ValueError(message)


def masked_fault(name: str, value: Any) -> str | None:
    """Return the message for the masked values of an array; None if there are none."""
    if not (isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value)):
        return None
    missing = np.where(np.ma.getmaskarray(value), np.nan, 0.0)
    return _contains(name, missing, None, " (masked values)")


def as_numbers(y: Any) -> Any:
    """Return targets that are an array of objects as finite floats; others unchanged.

    Objects must be numbers, such as Decimal; None and missing values raise an error.
    """
    check_unmasked("y", y)
    try:
        array = np.asarray(y)
    except ValueError:  # rows of different lengths
        return y
    if array.dtype.kind != "O" or not array.ndim:  # a sparse matrix has no axes here
        return y
    with explaining({"y": y}):
        numbers = array.astype(np.float64)
        check_finite("y", numbers)
    return numbers


def as_labels(name: str, value: Any) -> NDArray:
    """Return labels as a sortable array without missing values.

    Numbers in an object array, which scikit-learn rejects, become a numeric array.
    """
    check_unmasked(name, value)
    labels = np.asarray(value)
    if labels.dtype.kind in "fO" and (message := fault(name, value, True)):
        raise ValueError(message)
    if labels.dtype.kind == "O":
        _check_one_type(name, labels)
        numbers = np.array(labels.tolist()) if labels.ndim == 1 else labels
        labels = numbers if numbers.dtype.kind in "fiub" else labels
    return labels


def _check_one_type(name: str, labels: NDArray) -> None:
    """Raise an error for labels of strings and other types: they cannot be sorted."""
    kinds = {type(label) for label in labels.ravel().tolist()}
    texts = {kind for kind in kinds if issubclass(kind, str)}
    if texts and texts != kinds:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(
            f"`{name}` must hold labels of one type, got {names}: convert all to "
            "strings or all to numbers"
        )


def not_a_table(name: str, shape: tuple[int, ...]) -> str:
    """Return the message for an array that does not have two axes."""
    if len(shape) > 2:
        return (
            f"Found array with dim {len(shape)}, while dim <= 2 is required: `{name}` "
            f"must have one row per sample, got shape {shape}: pass "
            f"{name}.reshape(len({name}), -1)"
        )
    return (
        f"Expected 2D array, got {len(shape)}D array instead: `{name}` must have shape "
        f"(n, q), got {shape}. Reshape your data using {name}.reshape(-1, 1) if it has "
        f"a single feature or {name}.reshape(1, -1) if it is a single row"
    )


def fault(name: str, value: Any, may_be_text: bool = False) -> str | None:
    """Return the message about invalid values of an array or frame; None if valid."""
    if value is None:
        return None
    array = value
    if not sp.issparse(value):
        try:
            array = np.asarray(value)
        except ValueError:
            return (
                f"`{name}` must have rows of equal length, with one value in each place"
            )
        except TypeError:  # columns without a common dtype
            return _dates(name, value)
    if array.ndim == 0:
        value = array.item()
        text = f"`{name}` must be an array of numbers, got {value!r}"
        return text if _is_text(value) and not may_be_text else None
    kind = array.dtype.kind
    if kind == "c":
        return (
            f"Complex data not supported: `{name}` must hold real numbers, got "
            f"{array.dtype}: pass {name}.real, or both parts as columns"
        )
    # pyarrow's columns are values
    labels = getattr(value, "column_names", getattr(value, "columns", None))
    if kind in "OSU" and not may_be_text:
        text = np.frompyfunc(_is_text, 1, 1)(array.astype(object)).astype(bool)
        if text.any():
            return _text(name, text, labels)
    if labels is not None and (dates := _dates(name, value)):
        return dates
    if kind == "O" and not may_be_text and (others := _others(name, array, labels)):
        return others
    if kind in "OSU":
        array = np.frompyfunc(_as_float, 1, 1)(array.astype(object)).astype(float)
    if array.dtype.kind != "f" or array.ndim > 2:
        return None
    values = array.data if sp.issparse(array) else array
    return None if np.isfinite(values).all() else _contains(name, array, labels)


def _others(name: str, objects: NDArray, labels: Any) -> str | None:
    """Return the message about objects that are no numbers; None if there are none."""
    others = ~np.frompyfunc(_is_value, 1, 1)(objects).astype(bool)
    if not others.any():
        return None
    kinds = sorted({type(v).__name__ for v in objects[others]})
    is_table = objects.ndim == 2
    places = np.flatnonzero(others.any(axis=0) if is_table else others)
    return (
        f"`{name}` must hold numbers: an argument must be a string or a "
        f"number, got {', '.join(kinds)} in "
        f"{listed('column' if is_table else 'row', places, labels)}"
    )


def check_magnitude(name: str, value: Any) -> float:
    """Return the largest magnitude in an array, after checking its square.

    Squares of larger values would overflow in double precision.
    """
    values = value.data if sp.issparse(value) else value
    if not values.size:
        return 0.0
    largest = max(-float(values.min()), float(values.max()))
    if largest > _LARGEST:
        raise ValueError(
            f"`{name}` must have magnitudes up to {_LARGEST:g}, got {largest:.3g}, "
            "whose square overflows: rescale it, or check for corrupt values"
        )
    return largest


def check_spread(name: str, value: Any, labels: Any = None) -> None:
    """Raise an error if squares of the spread of a training column underflow.

    Constant columns have no spread. Only columns that are tiny in the first rows are
    read completely; for data not in memory, only those that vary there.
    """
    if not value.shape[0] or value.dtype.kind != "f":
        return
    low, high = extremes(value[np.arange(min(_HEAD, value.shape[0]))])
    tiny = np.maximum(-low, high) < np.sqrt(_LEAST_SPREAD)
    if not isinstance(value, np.ndarray) and not sp.issparse(value):
        tiny &= high > low
    if tiny.any():
        low, high = extremes(value)
        spread = high - low
        columns = np.flatnonzero(tiny & (spread > 0) & (spread < _LEAST_SPREAD))
        if len(columns):
            where = f" in {listed('column', columns, labels)}" if value.ndim > 1 else ""
            raise ValueError(
                f"`{name}` must have a spread of at least {_LEAST_SPREAD:g}, got "
                f"{spread[columns[0]]:.3g}{where}, whose square underflows: "
                "rescale it"
            )


def extremes(value: Any) -> tuple[NDArray, NDArray]:
    """Return the smallest and the largest value of each column."""
    ends = [value.min(axis=0), value.max(axis=0)]
    if sp.issparse(value):
        ends = [end.toarray().ravel() for end in ends]
    return np.atleast_1d(ends[0]), np.atleast_1d(ends[1])


def varying_features(X: Any) -> NDArray:
    """Return the mask of the features of X (n, q) that vary by more than rounding.

    Integers that are exact in the dtype of X vary by any difference.
    """
    low, high = extremes(X)
    info = np.finfo(X.dtype)
    rounding = max(_CONSTANT, _ULPS * float(info.eps))
    largest = np.maximum(abs(low), abs(high))
    varies = high / 2 - low / 2 > rounding / 2 * largest
    is_exact = (high > low) & (largest < 2.0**info.nmant)
    for j in np.flatnonzero(is_exact & ~varies):
        column = X[:, [j]].data if sp.issparse(X) else X[:, j]
        varies[j] = (column == np.rint(column)).all()
    return varies


def _dates(name: str, frame: Any) -> str | None:
    """Return the message for a frame with dates or durations; None without."""
    kinds = [str(dtype) for dtype in getattr(frame, "dtypes", ())]
    dates = [j for j, kind in enumerate(kinds) if kind.lower().startswith(_DATES)]
    if not dates:
        return None
    columns = listed("column", np.asarray(dates), list(frame.columns))
    return (
        f"`{name}` must hold numbers, got {kinds[dates[0]]} in {columns}; {_NO_DATES}"
    )


def _is_text(value: Any) -> bool:
    """Return whether a value is a string that is not a number."""
    if not isinstance(value, str | bytes):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def _is_value(value: Any) -> bool:
    """Return whether a value is a number, the text of one, or missing."""
    return isinstance(value, str | bytes | Real | Decimal) or np.isnan(_as_float(value))


def _as_float(value: Any) -> float:
    """Return a number, NaN for missing values and 0 for other objects."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return np.nan
    return float(value) if isinstance(value, Real) else 0.0


def _text(name: str, text: NDArray, labels: Any) -> str:
    text_of = f"`{name}` must hold numbers, could not convert string to float in "
    if text.ndim != 2:
        rows = listed("row", np.flatnonzero(text))
        return f"{text_of}{rows}; fit class labels by a classifier"
    columns = np.flatnonzero(text.any(axis=0))
    chosen = ", ".join(map(repr, _labels(columns, labels)))
    chosen += ", ..." if len(columns) > _LISTED else ""
    remedy = _ENCODE.format(columns=chosen) if name == "X" else "encode them first"
    return text_of + f"{listed('column', columns, labels)}; {remedy}"


def _contains(name: str, value: Any, labels: Any, origin: str = "") -> str:
    """Return the message for user data with NaN or infinity.

    `origin` explains the NaN, in parentheses.
    """
    values = value.data if sp.issparse(value) else value
    tests = {"NaN": np.isnan, "infinity": np.isinf}
    kinds = [kind for kind, test in tests.items() if test(values).any()]
    message = f"{_INPUT}{name} contains {' and '.join(kinds)}{origin}, finite numbers "
    message += f"are expected: found{_places(value, labels)}"
    return f"{message}; {_REMEDIES[name]}" if name in _REMEDIES else message


def _places(value: Any, labels: Any = None) -> str:
    """Return the number of non-finite values, with their rows and columns."""
    if sp.issparse(value):
        entries = value.tocoo()
        values = entries.data
        bad = ~np.isfinite(values)
        index = tuple(axis[bad] for axis in entries.coords)
    else:
        values = value
        index = np.nonzero(np.atleast_1d(~np.isfinite(values)))
    where = f" in {index[0].size} of {values.size} values"
    if value.ndim not in (1, 2):
        return where
    rows = listed("row", np.unique(index[0]))
    if value.ndim == 1:
        return f"{where}, {rows}"
    return f"{where}, {rows} and {listed('column', np.unique(index[1]), labels)}"


def _labels(index: NDArray, labels: Any) -> list[Any]:
    """Return the first labels, or the index, as which scikit-learn reads integers."""
    return [
        int(k) if labels is None or isinstance(labels[k], Integral) else labels[k]
        for k in index[:_LISTED]
    ]


def listed(noun: str, index: NDArray, labels: Any = None) -> str:
    """Return the first indices with their labels, and their number."""
    names = [
        f"{k}" if isinstance(label, int) else f"{k} ({label!r})"
        for k, label in zip(index, _labels(index, labels), strict=False)
    ]
    more = f", ... ({len(index)} in all)" if len(index) > _LISTED else ""
    return f"{noun}{'s' if len(index) > 1 else ''} {', '.join(names)}{more}"
