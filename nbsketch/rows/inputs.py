"""Input checks of estimators, for data in memory or in Dask collections.

Samples of weight zero are removed first. Methods of fitted models are lazy for Dask
collections and return the chunks of X.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial, wraps
from inspect import signature
from numbers import Integral
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import InputTags, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, _check_y, validate_data

from nbsketch._report.validation import (
    as_csr,
    as_labels,
    as_numbers,
    check_collected,
    check_length,
    check_magnitude,
    check_spread,
    explaining,
    fault,
    masked_fault,
    row_weights,
    warn,
)
from nbsketch.kernels import KERNELS, PrecomputedKernel, SobolevKernel
from nbsketch.rows.class_weights import check_sum
from nbsketch.rows.lost_digits import check_differences, warn_of_equal_integers
from nbsketch.rows.partitions import (
    PartitionedRows,
    array_of,
    as_dask_array,
    as_dask_arrays,
    blocks_of,
    check_numbers,
    check_steady,
    computed,
    dask_module,
    frame_parts,
    literal,
    one_row,
    task,
)
from nbsketch.rows.transform import PREPROCESSINGS, choose_rows, transform_rows

# A larger share of the total weight in one sample, of at least so many, is warned of.
_MOST_WEIGHT = 0.5
_FEW_WEIGHTS = 20
# Largest magnitude for which the squares of 1e6 float32 values have a finite sum.
_MOST_SINGLE = 1e16


def is_dask(value: Any) -> bool:
    """Return whether a value is a Dask collection, without importing Dask."""
    package = type(value).__module__.partition(".")[0]
    return package == "dask" and hasattr(value, "__dask_graph__")


Method = TypeVar("Method", bound=Callable[..., Any])


def rowwise(of_rows: Callable[..., Any]) -> Callable[[Method], Method]:
    """Return a decorator for methods that return one row per row of X.

    For Dask collections the methods return the result of `of_rows`, a function below.
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def decorated(self: Any, X: Any, *args: Any, **options: Any) -> Any:
            if not is_dask(X):
                return method(self, X, *args, **options)
            bound = signature(method).bind(self, X, *args, **options)
            for name, value in [*bound.arguments.items()][2:]:
                if is_dask(value) or np.ndim(value) > 1:
                    lazy = "a Dask collection" if is_dask(value) else None
                    raise ValueError(
                        f"`{name}` must be a number or have shape (k,), the same for "
                        "all rows of a Dask collection, got "
                        f"{lazy or f'shape {np.shape(value)}'}: pass X.compute() and "
                        f"{name} in memory"
                    )
            return of_rows(getattr(self, method.__name__), *bound.args[1:])

        return cast(Method, decorated)

    return decorate


def available_where(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """Return scikit-learn's `available_if` as a decorator that keeps the type."""
    return cast(Callable[[Method], Method], available_if(check))


def checked_rows(
    estimator: Any, X: Any, *, reset: bool = False, dtype: Any = None, name: str = "X"
) -> Any:
    """Return X after scikit-learn's checks; sparse X as a CSR array."""
    if is_dask(X):
        single = dtype if isinstance(dtype, np.dtype) else None
        return partitioned_rows(estimator, X, reset=reset, dtype=single, name=name)[0]
    dtype = dtype or [np.float64, np.float32]
    with explaining({name: X}):
        rows = validate_data(
            estimator, X, reset=reset, dtype=dtype, order="C", accept_sparse="csr"
        )
    rows = _with_squares(name, rows, reset)
    if reset:
        check_differences(estimator, name, X, rows)
    return rows


def _with_squares(name: str, rows: Any, reset: bool) -> Any:
    """Return rows whose squares are finite; sparse rows as a CSR array.

    Large float32 rows of a new model are converted to float64.
    """
    largest = check_magnitude(name, rows)
    rows = as_csr(rows) if sp.issparse(rows) else rows
    is_double = reset and largest > _MOST_SINGLE
    return rows.astype(np.float64, copy=False) if is_double else rows


def model_dtype(landmarks: Any) -> Any:
    """Return the dtype of the computations of a fitted model: that of its landmarks.

    Landmarks of a precomputed kernel are indices; its values may have either dtype.
    """
    is_index = landmarks.dtype.kind == "i"
    return [np.float64, np.float32] if is_index else landmarks.dtype


def new_rows(model: Any, X: Any) -> Any:
    """Return checked rows for a fitted model, in the dtype of its computations."""
    return checked_rows(model, X, dtype=model_dtype(model.landmarks_))


def compared_rows(model: Any, X: Any) -> Any:
    """Return checked rows for a fitted model, transformed for its kernel."""
    return transform_rows(new_rows(model, X), model.scaler_, model.kernel_)


def is_pairwise(kernel: Any) -> bool:
    """Return whether X holds kernel values."""
    return isinstance(kernel, PrecomputedKernel) or (
        isinstance(kernel, str) and kernel == "precomputed"
    )


def set_input_tags(model: Any, tags: InputTags) -> None:
    """Set the tags that depend on the parameters; `fit` rejects invalid parameters."""
    kernel = model.kernel
    family = KERNELS.get(kernel) if isinstance(kernel, str) else kernel
    tags.pairwise = is_pairwise(kernel)
    tags.positive_only = SobolevKernel in (family, type(family))
    tags.sparse = (
        getattr(family, "takes_sparse", callable(family))
        and getattr(model, "preprocessing", None) not in PREPROCESSINGS
        and not (isinstance(model.bandwidth, str) and model.bandwidth == "auto")
        and getattr(model, "monotonic_cst", None) is None
    )


def training_data(
    estimator: Any, X: Any, y: Any, sample_weight: Any, **options: Any
) -> tuple[Any, NDArray, Any]:
    """Return checked training data: rows where they are, targets in memory."""
    check_alike(X, y=y, sample_weight=sample_weight)
    numeric = options.get("y_numeric", False)
    reset = options.pop("reset", True)
    is_lazy = is_dask(X)
    if is_lazy:
        if is_pairwise(estimator.kernel):
            raise ValueError(
                "`kernel` must not be 'precomputed' for a Dask collection, whose rows "
                "are on several machines: pass the rows and a kernel of them"
            )
        of_rows = {"reset": reset, "dtype": options.pop("dtype", None)}
        rows = partitioned_rows(
            estimator, _watched(X), **of_rows, y=y, sample_weight=sample_weight
        )
        X, y, sample_weight = rows
    if numeric:
        y = as_numbers(y)
    elif hasattr(y, "__array__") and not isinstance(y, np.ndarray):
        y = as_labels("y", y)  # scikit-learn rounds integers that may be missing
    if is_lazy:
        with explaining({"y": y}, labels=not numeric):
            y = _check_y(y, estimator=estimator, **options)
        rows = X
    else:
        options = {"dtype": [np.float64, np.float32], "order": "C"} | options
        options |= {"accept_sparse": "csr", "reset": reset}
        with explaining({"X": X, "y": y}, labels=not numeric):
            rows, y = validate_data(estimator, X, y, **options)
        rows = _with_squares("X", rows, reset)
    if reset:
        check_differences(estimator, "X", X, rows)
    if not numeric:
        return rows, as_labels("y", y), sample_weight
    # scikit-learn accepts text and sparse matrices here.
    if sp.issparse(y) or y.dtype.kind not in "fiub":
        raise TypeError(
            f"`y` must be an array of numbers, got {y!r:.60}: fit class labels by a "
            "classifier"
        )
    check_magnitude("y", np.asarray(y, dtype=float))
    check_spread("y", y)
    return rows, y, sample_weight


def _watched(X: Any) -> Any:
    """Return a data frame that warns of integers lost where its parts become floats.

    Other collections are unchanged.
    """
    is_frame = hasattr(X, "map_partitions") and hasattr(X, "columns")
    return X.map_partitions(_with_warnings, meta=X._meta) if is_frame else X


def _with_warnings(part: Any) -> Any:
    """Return a part of a data frame; warn of its large integers beside floats."""
    rows = part.to_numpy()
    if len(part) and rows.dtype.kind == "f":
        warn_of_equal_integers("X", part, rows, part.columns)
    return part


def partitioned_rows(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    dtype: Any = None,
    name: str = "X",
    **others: Any,
) -> tuple[Any, ...]:
    """Return checked rows of a Dask collection in partitions, and others in memory.

    Parameters
    ----------
    estimator : estimator
        Sets its number and names of features if `reset`, else compares them.
    X : dask array or data frame of shape (n, q)
        Finite numbers; unknown chunk sizes are computed.
    dtype : dtype or None
        Dtype of the rows. None: float32 for float32, else float64.
    name : str
        Name of the argument in error messages.
    **others : dask arrays, data frames or None
        Targets and weights of the same rows, computed together with X and returned as
        arrays in memory.

    Returns
    -------
    tuple of PartitionedRows and ndarrays or None

    Raises
    ------
    ValueError
        If the order of the rows changes when they are computed again.
    """
    named = {name: X} | {k: v for k, v in others.items() if v is not None}
    array, *arrays = as_dask_arrays(named)
    array = _with_known_size(name, array, 2)
    check_numbers(name, array)
    example = one_row(X, name)
    with explaining({name: example}):
        validate_data(estimator, example, reset=reset)
    single = array.dtype == np.float32
    dtype = dtype or (np.float32 if single else np.float64)
    check = partial(_checked, dtype=np.dtype(dtype), name=name)
    reads = [blocks_of(other) for other in arrays]
    rows, results = PartitionedRows.of(array).checked(check, dtype, reads)
    joined = dict(zip(list(named)[1:], map(_concatenated, results), strict=True))
    for key, value in joined.items():
        check_length(key, value, len(rows), "rows as `X`")
    return rows, *(joined.get(key) for key in others)


def _concatenated(parts: Sequence[NDArray]) -> NDArray:
    """Return concatenated arrays, with their masks if any."""
    is_masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
    return np.ma.concatenate(parts) if is_masked else np.concatenate(parts)


def check_alike(X: Any, **others: Any) -> None:
    """Raise an error unless all data, or none, are Dask collections of one length.

    None and unknown lengths are skipped.
    """
    for name, value in others.items():
        if value is None:
            continue
        if is_dask(value) != is_dask(X):
            raise TypeError(
                f"`X` and `{name}` must both be Dask collections or both arrays, got "
                f"{type(X).__name__} and {type(value).__name__}: convert one with "
                "dask.array.from_array or .compute()"
            )
        check_as_many(name, value, X)


def check_as_many(name: str, value: Any, X: Any) -> None:
    """Raise an error unless there is one value per row of X, if both are countable.

    Other checks reject text instead of numbers, and data without rows.
    """
    if name == "sample_weight":
        array = np.array(value) if isinstance(value, list) else value
        if getattr(array, "ndim", 1) > 1:
            raise ValueError(f"`{name}` must have shape (n,), got {array.shape}")
    n = _n_rows(X)
    m = _n_rows(value)
    counted = isinstance(n, Integral) and isinstance(m, Integral) and n != 0
    if counted and n != m and not isinstance(value, str):
        raise ValueError(
            f"`{name}` must have {n} rows as `X`, got {m} (inconsistent numbers of "
            f"samples: [{n}, {m}])"
        )


def _n_rows(value: Any) -> Any:
    """Return the number of rows; None for numbers, lazy or NaN if it is unknown."""
    try:
        return value.shape[0] if hasattr(value, "shape") else len(value)
    except (IndexError, TypeError):
        return None


def check_in_memory(name: str, X: Any, use: str) -> None:
    """Raise an error for a Dask collection or a lazy frame."""
    check_collected(name, X)
    if is_dask(X):
        raise TypeError(
            f"`{name}` must be in memory for {use}, got a Dask collection: pass "
            f"{name}.compute()"
        )


def loaded(X: Any, **others: Any) -> tuple[Any, ...]:
    """Return data unchanged, or Dask collections loaded as arrays or data frames.

    Either all or none must be Dask collections; None stays None.
    """
    check_alike(X, **others)
    if not is_dask(X):
        return X, *others.values()
    return tuple(computed((X, *others.values())))


def predicted(
    model: Any, X: Any, y: Any, sample_weight: Any
) -> tuple[NDArray, NDArray, NDArray | None]:
    """Return targets, predictions and weights; Dask collections as arrays."""
    check_alike(X, y=y, sample_weight=sample_weight)
    if not is_dask(X):
        return y, model.predict(X), sample_weight
    lazy = model.predict(X)  # checks the column names of data frames
    arguments = {"y": y} | (
        {} if sample_weight is None else {"sample_weight": sample_weight}
    )
    parts = frame_parts(X, *arguments.values())
    if parts is None:
        arrays = map(as_dask_array, arguments, arguments.values())
        predictions, *values = computed([lazy, *arrays])
    else:
        shared = literal(copy(model))
        reads = [task(_predict_part, part, shared) for part in parts]
        results = [r for r in computed(reads) if r is not None]
        predictions, *values = map(_concatenated, zip(*results, strict=True))
    here = dict(zip(arguments, values, strict=True))
    for name, value in here.items():
        check_length(name, value, len(predictions), "rows as `X`")
    return here["y"], predictions, here.get("sample_weight")


def _predict_part(part: tuple[Any, ...], model: Any) -> tuple[NDArray, ...] | None:
    """Return predictions and values for a part of a data frame; None if it is empty."""
    X, *values = part
    return (model.predict(X), *(v.to_numpy() for v in values)) if len(X) else None


def in_blocks(X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the parts of Dask collections in the chunks of X, gathered in order.

    Parts of a data frame X are data frames. None stays None in each part. Data in
    memory are one part.
    """
    if not is_dask(X):
        yield X, y, sample_weight
        return
    check_alike(X, y=y, sample_weight=sample_weight)
    others = y, sample_weight
    named = {"X": _watched(X)}
    named |= {f"{k}": a for k, a in enumerate(others) if a is not None}
    shared = iter(as_dask_arrays(named))
    rows = _with_known_size("X", next(shared), 2)
    check_numbers("X", rows)
    arrays = [None if a is None else _in_chunks_of(rows, next(shared)) for a in others]
    reads = [blocks_of(a) for a in (rows, *arrays) if a is not None]
    check_steady(reads, reads)
    for k, size in enumerate(rows.chunks[0]):
        if size:
            parts = [None if a is None else a.blocks[k] for a in (rows, *arrays)]
            block, *values = computed(parts)
            if hasattr(X, "columns"):
                block = type(X._meta)(block, columns=X._meta.columns)
            yield block, *values


def _in_chunks_of(rows: Any, value: Any) -> Any:
    """Return targets or weights in the chunks of the rows."""
    array = _with_known_size("y", value, None)
    check_length("y", array, len(rows), "rows as `X`")
    return array.rechunk({0: rows.chunks[0]})


def labels_of(y: Any) -> NDArray | None:
    """Return the sorted distinct labels of a Dask collection; None for other data."""
    if not is_dask(y):
        return None
    reads = [task(np.unique, block) for block in as_dask_array("y", y, 1).to_delayed()]
    return np.unique(np.concatenate(computed(reads)))


def _with_known_size(name: str, value: Any, ndim: int | None) -> Any:
    array = as_dask_array(name, value, ndim)
    return array.compute_chunk_sizes() if np.isnan(array.shape[0]) else array


def _checked(
    block: NDArray, start: int, size: int, dtype: np.dtype, name: str
) -> NDArray:
    """Return the rows of a block; errors state its first row."""
    if len(block) != size:
        raise ValueError(
            f"`{name}` must have {size} rows in the chunk from row {start}, as its "
            f"chunks say, got {len(block)}: pass {name}.compute_chunk_sizes()"
        )
    rows = np.ascontiguousarray(block, dtype=dtype)
    message = masked_fault(name, block) or fault(name, rows)
    if message is not None:
        raise ValueError(f"{message}; rows are counted from row {start}")
    check_magnitude(name, rows)
    warn_of_equal_integers(name, block, rows, None)
    return rows


class TrainingRows(NamedTuple):
    """Samples of positive weight; a fit uses no others.

    Attributes
    ----------
    X : ndarray, csr_array, LazyRows, PartitionedRows or Objects of n rows
        Inputs; kernel values without the columns of removed samples.
    y : ndarray, csr_array or Objects of n rows
        Targets.
    weights : ndarray of shape (n,) or None
        Positive weights as passed. None: equal weights.
    kept : ndarray of shape (n,) or None
        Indices of these samples among those passed. None: all of them.
    n_given : int
        Number of samples passed, if some were removed.
    """

    X: Any
    y: Any
    weights: NDArray | None = None
    kept: NDArray | None = None
    n_given: int = 0

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        weights: NDArray | None,
        *,
        pairwise: bool = False,
        lazy: bool = False,
    ) -> TrainingRows:
        """Return the samples of positive weight.

        `pairwise`: X holds kernel values. `lazy`: large data are copied block by block,
        on access.
        """
        is_square = X.shape[0] == X.shape[-1]
        if weights is None or weights.all() or (pairwise and not is_square):
            return cls(X, y, weights)  # the error for a non-square matrix comes later
        kept = np.flatnonzero(weights)
        if pairwise:
            X = X[np.ix_(kept, kept)]
        else:
            X = choose_rows(X, kept) if lazy else X[kept]
        return cls(X, y[kept], weights[kept], kept, len(weights))

    def take(self, rows: NDArray, columns: NDArray | None = None) -> TrainingRows:
        """Return a subset of samples; for kernel values also of the columns."""
        X = (
            choose_rows(self.X, rows)
            if columns is None
            else self.X[np.ix_(rows, columns)]
        )
        weights = None if self.weights is None else self.weights[rows]
        kept = rows if self.kept is None else self.kept[rows]
        return TrainingRows(X, self.y[rows], weights, kept)

    def joined(self, others: TrainingRows) -> TrainingRows:
        """Return these samples followed by others, in memory and in the type of X."""
        if sp.issparse(self.X):
            X = sp.csr_array(sp.vstack([self.X, sp.csr_array(others.X)]))
        else:
            below = others.X.toarray() if sp.issparse(others.X) else others.X
            X = np.concatenate([self.X, below]).astype(self.X.dtype, copy=False)
        weights = None
        if self.weights is not None or others.weights is not None:
            parts = [row_weights(part.weights, part.y) for part in (self, others)]
            weights = np.concatenate(parts)
        return TrainingRows(X, np.concatenate([self.y, others.y]), weights)

    @property
    def relative_weights(self) -> NDArray | None:
        """Weights scaled to mean one; None if they are equal.

        In the objective, a sample of weight two is then equivalent to the same sample
        twice, and a sample of weight zero to none.
        """
        weights = self.weights
        if weights is None or np.ptp(weights) == 0:
            return None
        return weights / weights.mean()


def check_weights(sample_weight: Any, X: Any) -> NDArray | None:
    """Return nonnegative weights, not all zero, one per row of X; None: None."""
    if sample_weight is None:
        return None
    with explaining({"sample_weight": sample_weight}):
        weights = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
    if not weights.any():
        raise ValueError("`sample_weight` must have a positive entry, got zeros only")
    check_sum("sample_weight", weights)
    share = weights.max() / weights.sum()
    count = np.count_nonzero(weights)
    if share > _MOST_WEIGHT and count >= _FEW_WEIGHTS:
        warn(
            f"one of {count} samples has {share:.0%} of the total `sample_weight`: "
            "penalties, held-out errors and intervals depend on it almost alone"
        )
    return weights


def labels_of_rows(name: str, values: Any) -> NDArray:
    """Return labels, one entry per sample."""
    return column_or_1d(as_labels(name, values), dtype=None, warn=True)


def row_by_row(method: Callable[..., NDArray], X: Any, *args: Any) -> Any:
    """Return the lazy result of a method of a model that returns one row per sample.

    It has the chunks of X. The method is called once with one row of zeros, so that a
    wrong number of features raises an error immediately.

    Parameters
    ----------
    method : bound method
        ``method(X, *args)`` takes arrays. The current state of the model is used.
    X : dask array or data frame
        Samples.

    Examples
    --------
    >>> import numpy as np
    >>> import dask.array as da
    >>> from nbsketch import SketchedFeatures
    >>> from nbsketch.rows.inputs import row_by_row
    >>> model = SketchedFeatures(size=2, random_state=0).fit(np.eye(4))
    >>> row_by_row(model.transform, da.ones((6, 4), chunks=(3, 4))).chunks
    ((3, 3), (2,))
    """
    array = as_dask_array("X", X, ndim=2)
    check_numbers("X", array)
    nothing = method(one_row(X), *args)[:0]
    model = copy(method.__self__)  # type: ignore[attr-defined]
    # Checked before: blocks of a data frame have no names.
    vars(model).pop("feature_names_in_", None)
    return dask_module("dask.array").map_blocks(
        _of_part, array, method=_function_of(method), args=args, nothing=nothing,
        model=literal(model), dtype=nothing.dtype, meta=nothing,
        drop_axis=[1] if nothing.ndim == 1 else None,
        new_axis=[2] if nothing.ndim == 3 else None,
        chunks=(array.chunks[0], *((k,) for k in nothing.shape[1:])),
    )  # fmt: skip


def table_by_row(method: Callable[..., NDArray], X: Any, *args: Any) -> Any:
    """Return the result of `row_by_row` for a model that takes any data frame.

    The chunks of a data frame have unknown sizes.
    """
    if not hasattr(X, "columns"):
        return row_by_row(method, X, *args)
    nothing = method(X._meta_nonempty.iloc[:1], *args)[:0]
    model = literal(copy(method.__self__))  # type: ignore[attr-defined]
    bound = model, _function_of(method), args, nothing
    return array_of([task(_of_part, p, *bound) for p in X.to_delayed()], nothing)


def _function_of(method: Callable[..., NDArray]) -> Callable[..., NDArray]:
    """Return the function of a bound method, which need not belong to the class."""
    return method.__func__  # type: ignore[attr-defined]


def _of_part(
    X: Any, model: Any, method: Callable, args: tuple, nothing: NDArray
) -> NDArray:
    X = np.ascontiguousarray(X) if type(X) is np.ndarray else X  # not masked rows
    return method(model, X, *args) if len(X) else nothing
