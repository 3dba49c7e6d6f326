r"""Training outputs as points of a sketched feature space.

:math:`z(y) = P^T R\, k_Y(Y, y)` with :math:`P P^T = (R K_Y R^T)^+` are the coordinates
of the projection of :math:`\psi(y)` on the sketched space. h(x) is predicted in these
coordinates, and scores are inner products. Without a sketch, h(x) is a combination of
the training outputs, and :math:`z(y) = k_Y(Y, y)`. Identical training outputs are one
point, with their weights added. `OneSet` and `SetPerRow` are the candidates of a
prediction.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._expansion import PivotedCholesky
from nbsketch._jit.decoding import insert_best
from nbsketch._jit.threads import run_slices
from nbsketch._machine.blas import eigh
from nbsketch._machine.memory import batches, fits, slices
from nbsketch._report.progress import report
from nbsketch._report.validation import (
    as_csr,
    check_indices,
    check_integer,
    check_rows,
    check_spread,
    check_unmasked,
    fault,
    row_weights,
    warn,
)
from nbsketch._sketch_map import SketchMap, draw, features_recipe, resolve
from nbsketch.gram import CompiledForm, evaluate
from nbsketch.kernels import (
    CallableKernel,
    Kernel,
    LinearKernel,
    PolynomialKernel,
    PrecomputedKernel,
    as_kernel,
)
from nbsketch.sketches import Sketch, SubsamplingSketch

_ROWS = 512  # per tile of scores
_CANDIDATES = 2048  # per tile of scores
_WIDTH = 16  # samples per thread at a time
_SECONDS_PER_TILE = _WIDTH * 1e-9  # per candidate
# Number of candidates of consecutive samples that are encoded together.
_BATCH = 4096
# Matrices of the size of a Gram matrix: inputs, outputs, system and solution.
_COPIES = 5
# Minimum size of a subsample. Input features that do not fit are not stored.
_LEAST_SIZE = 100
# Ratio of mean to spread of outputs, beyond which accuracy is lost (linear kernel, 2000
# rows, alpha 1e-5: R2 .993 up to 30, .985 at 100, .960 at 300).
_LARGEST_MEAN = 100.0
# Number of outputs used for the targets of learned length scales.
_LANDMARKS = 100
# Maximum number of principal components used as targets,
_COMPONENTS = 5
# and their minimum variance relative to the largest.
_LEAST_VARIANCE = 1e-6


class Objects(list):
    """A list of objects compared by a kernel, with the interface of an array."""

    dtype = np.dtype(np.float64)
    itemsize = dtype.itemsize

    @property
    def shape(self) -> tuple[int, int]:
        """(n, 1)."""
        return len(self), 1

    def __getitem__(self, index: Any) -> Any:
        """Return an object, or those selected by a slice or indices."""
        if isinstance(index, slice):
            return Objects(super().__getitem__(index))
        if np.ndim(index):
            return Objects(self[i] for i in index)
        return super().__getitem__(index)


@dataclass(frozen=True)
class ObjectKernel(CallableKernel):
    """A function of two lists of objects as a kernel."""

    def _check_rows(self, name: str, rows: Any, n_features: int | None = None) -> Any:
        return rows


def as_objects(kernel: Kernel, name: str, value: Any) -> tuple[Kernel, Objects] | None:
    """Return objects and kernel if `kernel` is a function and `value` is no matrix.

    Two-dimensional arrays and sparse matrices hold rows; anything else, objects.
    """
    if not isinstance(kernel, CallableKernel) or sp.issparse(value):
        return None
    if hasattr(value, "__array__") and np.ndim(value) == 2:
        return None
    return ObjectKernel(kernel.function), check_objects(name, value)


def check_objects(name: str, value: Any) -> Objects:
    """Return `value` as objects after checking that it is a non-empty sequence."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(
            f"`{name}` must be an array or a sequence of objects, got {value!r:.60}"
        )
    objects = value if isinstance(value, Objects) else Objects(value)
    if not len(objects):
        raise ValueError(f"`{name}` must not be empty, got no objects")
    return objects


def check_outputs(
    name: str, value: Any, kernel: Kernel, *, n_features: int | None = None
) -> Any:
    """Return valid rows for a kernel, dense or CSR, with unchanged dtype."""
    rows = as_csr(value, name) if sp.issparse(value) else _as_matrix(name, value)
    kernel.check_domain(name, check_rows(name, rows, n_features=n_features))
    return rows


def _as_matrix(name: str, value: Any) -> NDArray:
    """Return an array; arrays of objects are converted to floats."""
    check_unmasked(name, value)
    try:
        array = np.asarray(value)
        return array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError) as error:
        if message := fault(name, value, may_be_text=True):
            raise ValueError(message) from error
        raise type(error)(
            f"`{name}` must be a matrix of numbers for the kernel, got {value!r:.60}: "
            "pass a kernel function to compare other objects"
        ) from error


def as_double(rows: Any) -> Any:
    """Return rows in double precision."""
    if isinstance(rows, Objects):
        return rows
    if sp.issparse(rows):
        return rows.astype(np.float64)
    return np.ascontiguousarray(rows, dtype=np.float64)


def stack(parts: list[Any]) -> Any:
    """Stack the rows of several parts of the same type."""
    if isinstance(parts[0], Objects):
        return Objects(item for part in parts for item in part)
    if any(sp.issparse(part) for part in parts):
        return sp.vstack(parts, format="csr")
    return np.concatenate(parts)


def distinct(rows: Any) -> tuple[NDArray, NDArray]:
    """Return the first index of each distinct row, and the distinct row of each row.

    Unhashable objects count as distinct.
    """
    places: dict[Hashable, int] = {}
    owner = [places.setdefault(key, len(places)) for key in _keys(rows)]
    return np.unique(owner, return_index=True)[1], np.array(owner)


def places_of(kernel: Kernel, Y: Any) -> tuple[NDArray, NDArray]:
    """Return `distinct`; outputs of a precomputed kernel are all distinct."""
    if isinstance(kernel, PrecomputedKernel):
        return np.arange(len(Y)), np.arange(len(Y))
    return distinct(Y)


def _keys(rows: Any) -> Iterator[Hashable]:
    if isinstance(rows, Objects):
        for item in rows:
            try:
                hash(item)
            except TypeError:
                item = object()
            yield item
    elif sp.issparse(rows):
        canonical = as_csr(rows).copy()  # a CSR array shares memory with its origin
        canonical.eliminate_zeros()
        for start, stop in pairwise(canonical.indptr):
            places = canonical.indices[start:stop].tobytes()
            yield places, canonical.data[start:stop].tobytes()
    else:
        for row in np.asarray(rows) + 0.0:  # -0.0 becomes 0.0
            yield row.tobytes()


@dataclass(frozen=True, eq=False)
class Candidates:
    """Encoded outputs to choose from."""

    features: NDArray  # z(y), (c, r)
    penalty: NDArray  # half of k(y, y), (c,)

    def __len__(self) -> int:
        return len(self.penalty)

    def take(self, rows: slice | NDArray) -> Candidates:
        """Return a subset of the candidates."""
        return Candidates(self.features[rows], self.penalty[rows])


class TopK(NamedTuple):
    """The best candidates of each sample, best first.

    Attributes
    ----------
    indices : ndarray of shape (n, k)
        Indices of the candidates; of equal scores the lower index comes first. -1
        beyond the end of a set of fewer than k candidates.
    scores : ndarray of shape (n, k)
        Their scores; -inf beyond the end of a set.
    """

    indices: NDArray
    scores: NDArray

    @classmethod
    def empty(cls, n: int, k: int) -> TopK:
        """Return arrays without candidates."""
        return cls(np.full((n, k), -1), np.full((n, k), -np.inf))

    def rows(self, part: slice) -> TopK:
        """Return a view of some rows."""
        return TopK(self.indices[part], self.scores[part])


def scores(h: NDArray, candidates: Candidates) -> NDArray:
    """Return <h, z(y)> - k(y, y) / 2, of shape (n, c)."""
    return _products(h, candidates.features) - candidates.penalty


def keep_best(h: NDArray, candidates: Candidates, best: TopK) -> None:
    """Insert the best candidates of each row of `h` into `best`.

    Scores are computed in tiles. Each score is a sum in a fixed order, independent of
    the tile, so that equal candidates tie exactly.
    """
    for part in slices(len(h), _ROWS):
        for chosen in slices(len(candidates), _CANDIDATES):
            subset = candidates.take(chosen)
            products = _products(h[part], subset.features)
            kept = best.scores[part], best.indices[part]
            seconds = _SECONDS_PER_TILE * len(subset)
            n_tiles = -(-len(products) // _WIDTH)
            args = products, subset.penalty, chosen.start, *kept, _WIDTH
            run_slices(insert_best, n_tiles, seconds, *args)


def _products(h: NDArray, features: NDArray) -> NDArray:
    """Return h @ features.T by compiled code, identical for any number of threads."""
    return evaluate(CompiledForm("product", "power", np.ones(h.shape[1])), h, features)


class OneSet(NamedTuple):
    """The same candidates for every sample."""

    outputs: Any
    encoded: Candidates

    @property
    def largest(self) -> int:
        """Number of candidates."""
        return len(self.encoded)

    def keep_best(self, h: NDArray, start: int, best: TopK) -> None:
        """Update `best` for the samples from `start` on, with points `h`."""
        keep_best(h, self.encoded, best)

    def pick(self, index: NDArray) -> Any:
        """Return the candidate with the given index for each sample."""
        return self.outputs[index]


class SetPerRow(NamedTuple):
    """A different set of candidates for each sample."""

    sets: list[Any]
    training: TrainingOutputs

    @property
    def largest(self) -> int:
        """Number of candidates in the largest set."""
        return max(one.shape[0] for one in self.sets)

    def keep_best(self, h: NDArray, start: int, best: TopK) -> None:
        """Update `best` for the samples from `start` on, with points `h`."""
        chosen = self.sets[start : start + len(h)]
        for rows in batches((one.shape[0] for one in chosen), _BATCH):
            sets = chosen[rows]
            encoded = self.training.encode(stack(sets))
            last = 0
            for i, one in enumerate(sets, start=rows.start):
                first = last
                last = last + one.shape[0]
                row = slice(i, i + 1)
                keep_best(h[row], encoded.take(slice(first, last)), best.rows(row))

    def pick(self, index: NDArray) -> Any:
        """Return the candidate with the given index for each sample."""
        return stack([s[i : i + 1] for s, i in zip(self.sets, index, strict=True)])


def one_set(training: TrainingOutputs, candidates: Any = None) -> OneSet:
    """Return the given candidates; None: the training outputs."""
    if candidates is None:
        return OneSet(training.rows, training.encoded)
    outputs = training.check("candidates", candidates)
    return OneSet(outputs, training.encode(outputs))


def choose_set(
    training: TrainingOutputs, candidates: Any, candidate_sets: Any, n: int
) -> OneSet | SetPerRow:
    """Return the candidates of n samples from the arguments of `predict`."""
    if candidate_sets is None:
        return one_set(training, candidates)
    if candidates is not None:
        raise ValueError("pass either `candidates` or `candidate_sets`, got both")
    if not isinstance(candidate_sets, Iterable):
        raise TypeError(
            f"`candidate_sets` must be a sequence of sets, got {candidate_sets!r:.60}"
        )
    sets = [
        training.check(f"candidate_sets[{i}]", one)
        for i, one in enumerate(candidate_sets)
    ]
    if len(sets) != n:
        raise ValueError(
            f"`candidate_sets` must have one set per sample, {n}, got {len(sets)}"
        )
    return SetPerRow(sets, training)


def best_of(
    sets: OneSet | SetPerRow, k: int, points: Iterable[tuple[int, NDArray]], n: int
) -> TopK:
    """Return the k best candidates of n points, passed as (start, points)."""
    best = TopK.empty(n, check_integer("k", k, high=sets.largest))
    for start, h in points:
        part = slice(start, start + len(h))
        sets.keep_best(h, start, best.rows(part))
        report("decoding", rows=part.stop, n_rows=n)
    return best


@dataclass(frozen=True, eq=False)
class TargetRows:
    """Features of n training outputs, stored for the distinct outputs only."""

    features: Any  # of the distinct outputs, dense or sparse, (c, t)
    owner: NDArray  # index of each training output among them, (n,)

    def __getitem__(self, rows: slice) -> Any:
        """Return the features of a slice of samples."""
        return self.features[self.owner[rows]]


class TrainingOutputs(NamedTuple):
    """The training outputs of a fitted model, and the encoding of other outputs.

    With a precomputed kernel, a training output is given by its index, another output
    by its kernel values with all training outputs.

    Attributes
    ----------
    rows : rows, Objects or ndarray
        The c distinct outputs in the type passed by the user; with a precomputed
        kernel, the indices of all outputs.
    encoded : Candidates
        Coordinates of the outputs.
    sketch_map : SketchMap
        Map from outputs to the values of their sketch.
    whitening : PivotedCholesky or None
        Map from these values to coordinates; None without a sketch.
    """

    rows: Any
    encoded: Candidates
    sketch_map: SketchMap
    whitening: PivotedCholesky | None

    @classmethod
    def of(
        cls, kernel: Kernel, Y: Any, sketch: Sketch, places: tuple[NDArray, NDArray]
    ) -> tuple[Self, TargetRows]:
        """Return the training outputs Y for a drawn sketch, and the regression targets.

        Without a sketch the targets are unit vectors: h is a combination of outputs.
        `places` is the result of `places_of`.
        """
        rows = as_double(Y)
        first, owner = places
        space = _output_space(kernel, rows, sketch, first, owner)
        encoded = _encode(*space, rows[first], kernel.diag(rows[first]))
        features = encoded.features
        if sketch.is_identity:
            features = sp.eye_array(len(first), format="csr")
        precomputed = isinstance(kernel, PrecomputedKernel)
        outputs = cls(first if precomputed else Y[first], encoded, *space)
        return outputs, TargetRows(features, owner)

    def whitened(self) -> Self:
        """Return the outputs in orthonormal coordinates, also without a sketch.

        Their features then map combinations of outputs, as rows, to coordinates.
        """
        if self.whitening is not None:
            return self
        whitening = PivotedCholesky.of(self.encoded.features)
        features = np.ascontiguousarray(whitening.apply(self.encoded.features))
        encoded = Candidates(features, self.encoded.penalty)
        return self._replace(encoded=encoded, whitening=whitening)

    def along(self, directions: NDArray) -> Self:
        """Return the outputs in coordinates along orthonormal directions (r, k)."""
        assert self.whitening is not None
        space = self.sketch_map
        rows = self.whitening.lift(directions, space.weights.shape[0]).T
        k = directions.shape[1]
        return self._replace(
            encoded=Candidates(
                self.encoded.features @ directions, self.encoded.penalty
            ),
            sketch_map=replace(space, weights=np.asarray(rows @ space.weights)),
            whitening=PivotedCholesky(np.eye(k, order="F"), np.arange(k)),
        )

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.sketch_map.kernel, PrecomputedKernel)

    def check(self, name: str, value: Any) -> Any:
        """Return outputs in the form of the training outputs."""
        if isinstance(self.rows, Objects):
            return check_objects(name, value)
        kernel = self.sketch_map.kernel
        if not self._precomputed:
            return check_outputs(name, value, kernel, n_features=self.rows.shape[1])
        array = np.asarray(value)
        n = len(self.encoded)
        if array.ndim != 1:
            return check_outputs(name, array, kernel, n_features=n)
        if array.size == 0 or array.dtype.kind not in "iu":
            raise ValueError(
                f"`{name}` must hold indices of training outputs, or their kernel "
                f"values with new ones, got shape {array.shape} and dtype {array.dtype}"
            )
        check_indices(name, array, n)
        return array

    def encode(self, outputs: Any) -> Candidates:
        """Return checked outputs as candidates."""
        space = self.sketch_map, self.whitening
        if not self._precomputed:
            rows = as_double(outputs)
            return _encode(*space, rows, self.sketch_map.kernel.diag(rows))
        if outputs.ndim == 1:
            return self.encoded.take(outputs)
        penalty = self.encoded.penalty
        if np.ptp(penalty) > 1e-9 * penalty.max():
            raise ValueError(
                "a precomputed `output_kernel` must be constant on its diagonal to "
                "score new outputs: pass a function of indices instead"
            )
        return _encode(*space, outputs, np.full(len(outputs), 2 * penalty[0]))


def _output_space(
    kernel: Kernel, Y: Any, sketch: Sketch, first: NDArray, owner: NDArray
) -> tuple[SketchMap, PivotedCholesky | None]:
    """Return the map from training outputs to their sketch, and its whitening.

    `first` and `owner` are returned by `distinct`: columns of the sketch that belong to
    identical outputs are added.
    """
    if sketch.is_identity:
        identity = sp.eye_array(len(first), format="csr")
        return SketchMap(kernel, kernel.take(Y, first), identity), None
    n = len(owner)
    shape = n, len(first)
    weights = sketch @ sp.csr_array((np.ones(n), owner, np.arange(n + 1)), shape=shape)
    weights = sp.csr_array(weights) if sp.issparse(weights) else weights
    active = np.flatnonzero(abs(weights).sum(axis=0))
    sketch_map = SketchMap(kernel, kernel.take(Y, first[active]), weights[:, active])
    core = sketch_map.weights @ sketch_map(Y[first[active]]).T
    return sketch_map, PivotedCholesky.of(core)


def _encode(
    sketch_map: SketchMap,
    whitening: PivotedCholesky | None,
    rows: Any,
    diagonal: NDArray,
) -> Candidates:
    """Return outputs as candidates; `diagonal` is k(y, y)."""
    values = sketch_map(as_double(rows))
    features = values.T if whitening is None else whitening.apply(values)
    return Candidates(np.ascontiguousarray(features), diagonal / 2)


def check_training_outputs(model: Any, Y: Any) -> tuple[Kernel, Any]:
    """Return the output kernel of a model and valid training outputs."""
    if Y is None:
        raise ValueError(
            "`Y` must hold an output for each input, got None: the model requires y "
            "to be passed, but the target y is None"
        )
    output_kernel = as_kernel(
        model.output_kernel, model.output_bandwidth, prefix="output_"
    )
    objects = as_objects(output_kernel, "Y", Y)
    if objects is not None:
        return objects
    outputs = check_outputs("Y", Y, output_kernel)
    check_spread("Y", outputs)
    return output_kernel, outputs


def warn_of_offset(kernel: Kernel, Y: Any) -> None:
    """Warn of a mean of outputs that a regression without a constant shrinks."""
    if not isinstance(kernel, LinearKernel | PolynomialKernel) or sp.issparse(Y):
        return
    spread = np.linalg.norm(Y.std(axis=0))
    if np.linalg.norm(Y.mean(axis=0)) > _LARGEST_MEAN * spread > 0:
        warn(
            "`Y` has a mean that is large beside its spread, and is shrunk to 0: the "
            f"model has no constant. With {kernel} as `output_kernel` pass "
            "Y - Y.mean(axis=0)"
        )


def default_sketch(sketch: Any, size: Any, n: int) -> Any:
    """Return the sketch of n samples or distinct outputs; by default the identity.

    If the n x n matrices do not fit into memory, the default is the largest subsample
    whose features fit.
    """
    if sketch is not None or size is not None:
        return sketch
    size = n
    while size > _LEAST_SIZE and not fits(8.0 * n * size, copies=_COPIES):
        size //= 2
    return "identity" if size == n else SubsamplingSketch(max(size, _LEAST_SIZE))


def draw_outputs(
    kernel: Kernel,
    Y: Any,
    sketch: Any,
    size: Any,
    rng: np.random.Generator,
    sample_weight: NDArray | None = None,
) -> tuple[Kernel, Sketch]:
    """Return the kernel with its parameters set from Y, and a sketch of the outputs."""
    rows = as_double(Y)
    rngs = rng.spawn(2)
    resolved = resolve(rows, kernel, rngs[0], sample_weight, "Y")
    recipe = features_recipe(sketch, size, rows.shape[0], "output_")
    return resolved, draw(rows, resolved, recipe, rngs[1], "output_")


def principal_targets(
    kernel: Kernel, Y: Any, rng: np.random.Generator, weights: NDArray | None = None
) -> NDArray:
    """Return the first principal components (n, d) of outputs, from a subset of them.

    They are computed from the kernel values with at most 100 random outputs. Weights
    count copies of an output.
    """
    n = Y.shape[0]
    rows = as_double(Y)
    sketch = SubsamplingSketch(min(n, _LANDMARKS)).draw(n, rng)
    values = SketchMap.of(kernel, rows, sketch)(rows).T
    w = row_weights(weights, values)
    values = (values - np.average(values, 0, w)) * np.sqrt(w[sketch.to_csr().indices])
    variances, axes = eigh(values.T @ (w[:, None] * values) / n)
    top = variances > _LEAST_VARIANCE * max(variances[-1], np.finfo(float).tiny)
    return values @ axes[:, top][:, -_COMPONENTS:]
