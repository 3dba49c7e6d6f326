"""The map x -> S k_x of a drawn sketch, and features as a design matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._expansion import Expansion, cut_projection, is_cut, project, projection
from nbsketch._machine.memory import fits, slices
from nbsketch._report.progress import report_rows
from nbsketch._report.validation import warn
from nbsketch.gram import Product, SketchedColumns
from nbsketch.kernels import Kernel, LinearKernel, PrecomputedKernel
from nbsketch.rows.design import PartitionedColumns, PartitionedDesign
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.transform import check_domain
from nbsketch.sketches import IdentitySketch, Sketch, SketchRecipe, as_recipe
from nbsketch.solvers import scratch
from nbsketch.solvers.design import ArrayDesign, Blocks, Design

# Number of rows between two progress reports.
REPORTED_ROWS = 1 << 17
# Maximum size of a product K S^T that is stored between passes.
KEEP_BYTES = 256 << 20
# Default sketch for features and structured prediction. Their sketches are small: at
# equal size, p-sparsified sketches are more accurate.
_FEATURES_SKETCH = "p-sparsified"
_FEATURES_SIZE = 100


@dataclass(frozen=True)
class SketchMap:
    """The map x -> S k_x: kernel, landmarks and weights.

    S k_x = W k(landmarks, x), where W (s, s') has the nonzero columns of the sketch.
    `columns` are the training samples that are landmarks; None if unknown.
    """

    kernel: Kernel
    landmarks: Any
    weights: Any
    columns: NDArray | None = None
    # Whether the features are the columns of X.
    is_columns: bool = False

    @classmethod
    def of(cls, kernel: Kernel, X: Any, sketch: Sketch) -> SketchMap:
        """Return the map for a sketch of the samples X."""
        columns = sketch.columns
        return cls(kernel, kernel.take(X, columns), sketch.weights, columns)

    @classmethod
    def of_columns(cls, kernel: Kernel, X: Any) -> tuple[Sketch, SketchMap]:
        """Return the map for a linear kernel whose landmarks are the unit vectors.

        S k_x is then x: no column is lost to rounding, however small it is. As a sketch
        of n samples, it has the unit vectors in place of q of them.
        """
        n, q = X.shape
        sketch = Sketch(sp.eye_array(q, n, format="csr"))
        landmarks = sp.eye_array(q, format="csr", dtype=X.dtype)
        if not sp.issparse(X):
            landmarks = landmarks.toarray()
        return sketch, cls(kernel, landmarks, sketch.weights, is_columns=True)

    def rows(self, X: Any) -> Any:
        """Return the landmarks as samples, from the training samples X or others."""
        return self.landmarks if self.columns is None else X[self.columns]

    @cached_property
    def product(self) -> Product:
        """The product with samples, prepared once."""
        return Product(self.kernel, self.landmarks, self.weights)

    def original(self, kept: NDArray | None) -> SketchMap:
        """Return the map in terms of all samples passed by the user.

        Landmarks of a precomputed kernel are indices among all samples passed. `kept`
        are the indices of the used samples; None for all.
        """
        if kept is None or not isinstance(self.kernel, PrecomputedKernel):
            return self
        return replace(self, landmarks=kept[self.landmarks])

    def __call__(self, X: Any) -> NDArray:
        """Return S k(X, X_train)^T for the samples X, of shape (s, n), in float64."""
        return self.product(X)

    def inner(self, X: Any = None) -> NDArray:
        """Return S K S^T, (s, s), in blocks of landmarks: rows of X, if passed."""
        weights = self.weights
        rows = self.rows(X)
        if not isinstance(weights, np.ndarray | sp.csr_array):
            return self(rows) @ weights.T
        size, n_landmarks = weights.shape
        total = np.zeros((size, size))
        for part in slices(n_landmarks, scratch.rows_per_block(size, total.dtype)):
            total += self(rows[part]) @ weights[:, part].T
        return total

    def times(self, X: Any, B: NDArray) -> NDArray:
        """Return K S^T B of shape (n, d) for the samples X, in float64."""
        if isinstance(X, PartitionedRows):
            values = partial(_features_of, sketch_map=self, projection=B, dtype=float)
            return X.map(values, B.shape[1]).collect()
        expansion = Expansion(self.product, B)
        out = np.empty((X.shape[0], B.shape[1]))
        for part in slices(X.shape[0], REPORTED_ROWS):  # lazy rows are copied
            out[part] = expansion(X[part])
        return out


def resolve(
    X: Any,
    kernel: Kernel,
    rng: np.random.Generator,
    sample_weight: NDArray | None = None,
    name: str = "X",
) -> Kernel:
    """Return the kernel with its parameters set from X.

    Positive sample weights count in a median bandwidth. `name` replaces X in error
    messages.
    """
    check_domain(kernel, name, X)
    # Kernels defined by users may not accept weights.
    weighted = {} if sample_weight is None else {"sample_weight": sample_weight}
    resolved = kernel.resolve(X, rng, **weighted)
    if isinstance(resolved, PrecomputedKernel) and X.shape[0] != X.shape[1]:
        raise ValueError(
            f"`{name}` must be the square Gram matrix of the training samples when the "
            f"kernel is precomputed, got shape {X.shape}"
        )
    return resolved


def features_recipe(
    sketch: Any, size: int | None, n: int, prefix: str = ""
) -> SketchRecipe:
    """Return the recipe of a sketch without an objective; None: p-sparsified.

    Errors prepend `prefix` to the names of the arguments.
    """
    name = _FEATURES_SKETCH if sketch is None else sketch
    if size is None and isinstance(name, str) and name != "identity":
        size = min(_FEATURES_SIZE, n)
    return sized_recipe(name, size, n, prefix)


def sized_recipe(sketch: Any, size: Any, n: int, prefix: str = "") -> SketchRecipe:
    """Return the recipe of a sketch; warn and use all rows if `size` exceeds n."""
    exceeds = isinstance(size, int | np.integer) and size > n
    if not (isinstance(sketch, str) and exceeds):
        return as_recipe(sketch, size, n, prefix=prefix)
    as_recipe(sketch, n, n, prefix=prefix)  # checks the name
    name = f"{prefix}size"
    warn(f"`{name}` exceeds the number of samples, {n}: all are used, got {size}")
    return IdentitySketch()


def spans_columns(kernel: Kernel, X: Any, sketch: Sketch) -> bool:
    """Return whether a linear kernel has no more columns than the sketch has rows."""
    return isinstance(kernel, LinearKernel) and X.shape[1] <= sketch.shape[0]


def draw(
    X: Any,
    kernel: Kernel,
    recipe: SketchRecipe,
    rng: np.random.Generator,
    prefix: str = "",
) -> Sketch:
    """Return a sketch of the samples X, for a kernel with its parameters set.

    `prefix` is prepended to the name of the sketch in error messages.
    """
    n = X.shape[0]
    drawn = recipe.draw(n, rng, X=X, kernel=kernel)
    if drawn.columns.size == 0:
        raise ValueError(
            f"`{prefix}sketch` must have a nonzero entry, {recipe!r} drew none for {n} "
            "samples: increase its density or its size"
        )
    return drawn


def sketched_design(
    sketch_map: SketchMap,
    X: Any,
    *,
    keep: bool | None = None,
    whiten: Callable[..., Any] = projection,
) -> tuple[Any, Design]:
    r"""Return P of shape (s, r), :math:`P P^T = (S K S^T)^+`, and the features of X.

    :math:`Z = K S^T P`; see `nbsketch._expansion`.

    Parameters
    ----------
    sketch_map : SketchMap
        The map x -> S k_x.
    X : ndarray or csr_array of shape (n, q)
        Training samples.
    keep : bool or None, default=None
        Whether Z is stored: in memory or, above the memory limit, in a scratch file.
        None: in memory if it takes at most 256 MiB; otherwise it is recomputed in every
        pass.
    whiten : callable
        ``whiten(S K S^T)`` returns P: `projection`, or `PivotedCholesky.of` for
        many rows of the sketch.
    """
    P, design = _design(sketch_map, X, keep, whiten)
    design.is_graded = sketch_map.is_columns
    return P, design


def _design(
    sketch_map: SketchMap, X: Any, keep: bool | None, whiten: Callable[..., Any]
) -> tuple[Any, Design]:
    """Return the result of `sketched_design`."""
    if sketch_map.is_columns and isinstance(X, np.ndarray):
        return _columns_design(X)
    in_memory = not isinstance(X, PartitionedRows)
    n_bytes = X.dtype.itemsize * X.shape[0] * sketch_map.weights.shape[0]
    is_kept = keep is not False and in_memory and fits(n_bytes)
    if keep is None:
        keep = is_kept = is_kept and n_bytes <= KEEP_BYTES
    # The product and Z have the same size.
    columns = sketch_map.columns
    twice = is_kept and X.dtype == np.float64
    twice = twice and fits(n_bytes, copies=2, modest=KEEP_BYTES)
    if twice and columns is not None:
        return stored_design(sketch_map(X), sketch_map.weights, columns, whiten)
    report_rows(0, X.shape[0])
    if is_kept:
        return _filled_design(sketch_map, X, whiten)
    P = whiten(sketch_map.inner(X))
    design = features_design(sketch_map, P, X, near=bool(keep))
    return P, scratch.stored_or(design) if keep and in_memory else design


def _columns_design(X: NDArray) -> tuple[NDArray, Design]:
    """Return the columns that are not zero, as features of a linear kernel."""
    used = np.asarray(X.any(axis=0))
    # Compiled code would be compiled again for arrays of another kind.
    Z = np.require(X if used.all() else X[:, used], requirements=["C", "W"])
    return np.eye(len(used))[:, used], ArrayDesign._trusted(Z)


def _filled_design(
    sketch_map: SketchMap, X: Any, whiten: Callable[..., Any]
) -> tuple[Any, Design]:
    """Return the features, block by block, without their product with all rows."""
    columns = sketch_map.columns
    product = sketch_map(sketch_map.rows(X))
    P = whiten(product @ sketch_map.weights.T)
    features = Expansion(sketch_map.product, P)
    Z = np.empty((X.shape[0], features.n_columns), X.dtype)
    others = np.arange(X.shape[0])
    if columns is not None:
        Z[columns] = project(product, P)
        others = np.setdiff1d(others, columns)
    del product
    for first in range(0, len(others), REPORTED_ROWS):
        part = others[first : first + REPORTED_ROWS]
        features.fill(X, part, Z)
        report_rows(X.shape[0] - len(others) + first + len(part), X.shape[0])
    return P, ArrayDesign._trusted(Z)


def features_design(
    sketch_map: SketchMap, projection: Any, X: Any, near: bool = False
) -> Design:
    """Return the features of any samples: recomputed in every pass, or where X is.

    `near`: features of a Dask array are gathered here if they are small.
    """
    if not isinstance(X, PartitionedRows):
        return StreamedDesign(sketch_map, projection, X)
    blocks = X.partitions.map(
        partial(
            _features_of, sketch_map=sketch_map, projection=projection, dtype=X.dtype
        )
    )
    design = PartitionedDesign.near if near else PartitionedDesign
    n_columns = getattr(projection, "rank", None) or projection.shape[1]
    return design(blocks, n_columns, X.dtype)


def stored_design(
    product: NDArray,
    weights: Any,
    columns: NDArray,
    whiten: Callable[..., Any] = projection,
) -> tuple[Any, Design]:
    """Return the result of `sketched_design` from the product S k(X, X)^T, (s, n)."""
    inner = product[:, columns] @ weights.T
    P = whiten(inner)
    design = ArrayDesign._trusted(project(product, P))
    if isinstance(P, np.ndarray) and is_cut(P):
        lost = project(product, cut_projection(P, inner))
        design.cut = ArrayDesign._trusted(lost)
    return P, design


def sketched_columns(
    kernel: Kernel, X: Any, sketch: Sketch
) -> SketchedColumns | PartitionedColumns:
    """Return K S^T as an operator, on the workers for distributed X."""
    kind = PartitionedColumns if isinstance(X, PartitionedRows) else SketchedColumns
    return kind(kernel, X, sketch)


class StreamedDesign(scratch.IndexedDesign):
    """Features that are recomputed, block by block, in every pass."""

    dtype = np.dtype(np.float64)

    def __init__(self, sketch_map: SketchMap, projection: Any, X: Any) -> None:
        self._features = Expansion(sketch_map.product, projection)
        self._X = X
        self._map = sketch_map
        self._projection = projection
        self.shape = X.shape[0], self._features.n_columns

    def blocks(self) -> Blocks:
        """Yield (start, stop, Z[start:stop]) in order, covering all rows."""
        for start, stop in self._ranges():
            yield start, stop, self.at(slice(start, stop))

    def at(self, rows: Any) -> NDArray:
        """Return some rows, which are computed."""
        return self._features(self._X[rows])

    def _products(self, W: NDArray) -> NDArray:
        """Return ``Z W`` for W of shape (r, d), without computing Z."""
        if not isinstance(self._projection, np.ndarray):
            return super()._products(W)
        columns = self._projection @ W
        values = Expansion(self._map.product, columns)
        out = np.empty((self.shape[0], columns.shape[1]))
        for start, stop in self._ranges():
            out[start:stop] = values(self._X[start:stop])
        return out

    def gather(self, rows: NDArray) -> Design:
        """Return the features of the given rows only."""
        # Kernel values and features are in memory together.
        if scratch.fits_memory(2 * len(rows), self.shape[1], self.dtype):
            return ArrayDesign._trusted(self.at(rows), self.is_graded)
        return scratch.stored_or(scratch.RowsDesign(self, rows))


def _features_of(
    X: NDArray, sketch_map: SketchMap, projection: Any, dtype: Any
) -> NDArray:
    return Expansion(sketch_map.product, projection)(X, dtype)
