"""Preconditioned conjugate gradients, for blocks of right-hand sides and for one.

One search by conjugate gradients, for kernel least squares on rows or on sketches.

A system has columns of coefficients X with their own penalties. What a search asks of
it is `System`: residuals, products, a preconditioner, and two certificates, an estimate
after each step and a bound from true residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._blas import eigh
from nbsketch._validation import check_integer, check_positive, check_real
from nbsketch.solvers.solution import Solution, State

Inverse = Callable[[NDArray], NDArray]


# Eigenvalues of an output matrix below this share of the largest count as zero.
_NULL = 1e-12
# Called with passes, objective, gap and seconds after each pass; true to stop.
Callback = Callable[[int, float, float, float], Any]
# Coefficients with a larger relative gap are worse than none: early iterates of dual
# coefficients overshoot by orders of magnitude.
LARGEST_GAP = 0.1
# Most restarts from true residuals: a guard, two to four are usual near rounding.
_ROUNDS = 8


class ConjugateGradients:
    """Directions and steps for a block of columns; products are left to the caller.

    Columns have steps of their own and can be dropped one by one. The preconditioner
    may change between steps (Polak and Ribiere), as rounding in float32 makes it.

    Parameters
    ----------
    R : ndarray of shape (n, k)
        Residuals of the start.
    precondition : callable
        Called as ``precondition(R, columns)``; returns the preconditioned residuals.
    columns : ndarray of shape (k,), optional
        Numbers of the columns, handed to `precondition`. Default: 0 to k - 1.

    Attributes
    ----------
    R, D : ndarray of shape (n, k)
        Residuals and directions of the columns that are left.
    slope : ndarray of shape (k,)
        Squared norms of the residuals in the metric of the preconditioner.
    """

    def __init__(
        self,
        R: NDArray,
        precondition: Callable[[NDArray, NDArray], NDArray],
        columns: NDArray | None = None,
    ) -> None:
        self.R, self._precondition = R, precondition
        self.columns = np.arange(R.shape[1]) if columns is None else columns
        self.D, self.slope = R, np.zeros(R.shape[1])
        self._before: NDArray | None = None
        self._Z: NDArray | None = None

    @property
    def Z(self) -> NDArray:
        """The preconditioned residuals, computed when they are first asked for."""
        if self._Z is None:
            self._Z = self._precondition(self.R, self.columns)
        return self._Z

    def turn(self) -> None:
        """Set the next directions."""
        slope, D = _dots(self.R, self.Z), self.Z
        if self._before is not None:
            change = slope - _dots(self._before, self.Z)
            D = self.Z + np.maximum(change / self.slope, 0) * self.D
        self.D, self.slope = D, slope

    def step(self, product: NDArray) -> NDArray:
        """Move the residuals, given H D; return the step lengths of the solution.

        A length is 0 if no curvature is left at this precision.
        """
        curvature = _dots(self.D, product)
        sound = (self.slope > 0) & (curvature > 0)
        lengths = np.zeros(len(sound))
        np.divide(self.slope, curvature, out=lengths, where=sound)
        lengths[~np.isfinite(lengths)] = 0.0
        self._before, self._Z = self.R, None
        self.R = self.R - lengths * product
        return lengths

    def keep(self, mask: NDArray) -> None:
        """Drop the other columns."""
        if mask.all():
            return
        self.columns, self.slope = self.columns[mask], self.slope[mask]
        self.R, self.D = self.R[:, mask], self.D[:, mask]
        self._before = None if self._before is None else self._before[:, mask]
        self._Z = None if self._Z is None else self._Z[:, mask]


def conjugate_gradients(
    product: Callable[[NDArray], tuple[NDArray, NDArray]],
    inverse: Inverse,
    right: NDArray,
    tol: float,
    max_products: int,
) -> tuple[NDArray, Any, int]:
    """Solve ``H x = right`` for a positive semi-definite H.

    Parameters
    ----------
    product : callable
        Returns ``H x`` and the change of the predictions along x, a new array.
    inverse : callable
        The preconditioner, an approximate inverse of H.
    right : ndarray of shape (p,)
        Right side.
    tol : float
        Stop when the preconditioned norm of the residual is this share of the first.
    max_products : int
        Largest number of products.

    Returns
    -------
    x : ndarray of shape (p,)
        The solution.
    move : ndarray
        Change of the predictions along x; 0.0 if x is zero.
    count : int
        Number of products.
    """
    x, count = np.zeros_like(right), 0
    move: Any = 0.0
    steps = ConjugateGradients(right[:, None], lambda R, _: inverse(R[:, 0])[:, None])
    steps.turn()
    tolerance = tol**2 * steps.slope[0]
    while steps.slope[0] > tolerance and count < max_products:
        count += 1
        image, forward = product(steps.D[:, 0])
        (length,) = steps.step(image[:, None])
        if not length:
            break
        x += length * steps.D[:, 0]
        forward *= length
        move = forward if count == 1 else np.add(move, forward, out=forward)
        steps.turn()
    return x, move, count


def _dots(A: NDArray, B: NDArray) -> NDArray:
    """Return the inner products of columns."""
    return np.einsum("ij,ij->j", A, B)


class SymmetricOperator(Protocol):
    """A symmetric positive semi-definite matrix that can be multiplied and sampled.

    `nbsketch.gram.SymmetricGram` is one.
    """

    shape: tuple[int, int]
    dtype: np.dtype

    def __matmul__(self, V: NDArray) -> NDArray:
        """Return K V in float64, for V of shape (n, d)."""

    def rows(self, index: NDArray) -> NDArray:
        """Return the rows of an index, of shape (len(index), n)."""

    def diag(self) -> NDArray:
        """Return the diagonal."""

    def block(self, index: NDArray) -> NDArray:
        """Return K[index][:, index] in float64."""


class PartialOperator(SymmetricOperator, Protocol):
    """A symmetric matrix of which parts can be evaluated as well."""

    def combine(self, index: NDArray, v: NDArray) -> NDArray:
        """Return K[:, index] @ v in float64, for few columns."""

    def exact(self, index: NDArray, v: NDArray) -> NDArray:
        """Return (K v)[index] without rounding of the kernel values."""

    def take(self, index: NDArray) -> PartialOperator:
        """Return the matrix of some rows and columns as an operator."""


class ColumnRows(Protocol):
    """Rows of Z = K S^T, in blocks; `nbsketch.gram.columns.ColumnBlocks` is one."""

    shape: tuple[int, int]

    def normal(self, V: NDArray, weights: NDArray | None = None) -> NDArray:
        """Return Z^T W Z V for V of shape (s, d)."""

    def adjoint(self, U: NDArray) -> NDArray:
        """Return Z^T U for U of shape (n, d)."""

    def blocks(self) -> Iterator[NDArray]:
        """Yield the rows of Z in order. A block is valid until the next one."""


class ColumnOperator(Protocol):
    """The columns Z = K S^T of a sketch; `nbsketch.gram.SketchedColumns` is one."""

    shape: tuple[int, int]

    @property
    def active(self) -> NDArray:
        """Indices of the rows of K that S combines, its columns with a nonzero."""

    def total(self) -> NDArray:
        """Return S 1, of shape (s,)."""

    def squared_norm(self) -> float:
        """Return an upper bound of the largest eigenvalue of S S^T."""

    def core(self) -> NDArray:
        """Return S K S^T in float64."""

    def normal(self, V: NDArray, weights: NDArray | None = None) -> NDArray:
        """Return Z^T W Z V for V of shape (s, d)."""

    def adjoint(self, U: NDArray) -> NDArray:
        """Return Z^T U for U of shape (n, d)."""

    def take(self, rows: NDArray) -> ColumnRows:
        """Return the rows of an index, in ascending order."""


class StoredMatrix:
    """A matrix in memory as a `SymmetricOperator`."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = np.asarray(matrix)
        self.shape, self.dtype = self._matrix.shape, self._matrix.dtype

    def __matmul__(self, V: NDArray) -> NDArray:
        return self._matrix @ V

    def rows(self, index: NDArray) -> NDArray:
        """Return the rows of an index."""
        return self._matrix[index]

    def combine(self, index: NDArray, v: NDArray) -> NDArray:
        """Return K[:, index] @ v."""
        return self._matrix[:, index] @ v

    def exact(self, index: NDArray, v: NDArray) -> NDArray:
        """Return (K v)[index]."""
        return self._matrix[index] @ v

    def block(self, index: NDArray) -> NDArray:
        """Return K[index][:, index] in float64."""
        return self._matrix[np.ix_(index, index)].astype(np.float64)

    def take(self, index: NDArray) -> StoredMatrix:
        """Return the matrix of some rows and columns."""
        return StoredMatrix(self._matrix[np.ix_(index, index)])

    def diag(self) -> NDArray:
        """Return the diagonal."""
        return np.diagonal(self._matrix).astype(np.float64)


def as_operator(K: Any) -> Any:
    """Return an array as a `StoredMatrix`, and an operator as it is."""
    return StoredMatrix(K) if isinstance(K, np.ndarray) else K


def check_columns(Y: ArrayLike, n: int) -> NDArray:
    """Return targets of shape (n, d) in float64, for a matrix with n rows."""
    Y = np.asarray(Y, dtype=np.float64)
    if len(Y) != n:
        raise ValueError(f"`Y` must have as many rows as K, {n}, got {len(Y)}")
    return Y.reshape(n, -1)


def output_basis(output: NDArray | None, n_outputs: int) -> tuple[NDArray, NDArray]:
    """Return eigenvalues and eigenvectors of an output matrix; None is the identity."""
    if output is None:
        return np.ones(n_outputs), np.eye(n_outputs)
    values, vectors = eigh(output)
    return np.where(values > _NULL * values[-1], values, 0.0), vectors


class RotatedOutputs:
    """Targets Y V for M = V D V^T; columns with D = 0 are fitted by constants alone.

    Attributes
    ----------
    targets : ndarray of shape (n, d)
        Y V.
    used : ndarray of bool, shape (d,)
        The columns with positive eigenvalues.
    values : ndarray
        The positive eigenvalues.
    """

    def __init__(self, Y: NDArray, output: NDArray | None) -> None:
        values, self._rotation = output_basis(output, Y.shape[1])
        self.targets = Y @ self._rotation
        self.used = values > 0
        self.values = values[self.used]

    def rotate(self, coef: NDArray) -> NDArray:
        """Return coefficients of the rotated outputs that are used."""
        return (coef @ self._rotation)[:, self.used]

    def restore(
        self,
        coef: NDArray,
        intercept: NDArray,
        weights: NDArray | None,
        fit_intercept: bool,
    ) -> tuple[NDArray, NDArray, float]:
        """Return coefficients, intercepts and the loss of the columns not used."""
        A = np.zeros((len(coef), self.targets.shape[1]))
        b = np.zeros(self.targets.shape[1])
        A[:, self.used], b[self.used] = coef, intercept
        unused, n = self.targets[:, ~self.used], len(self.targets)
        weights = np.ones(n) if weights is None else weights
        if fit_intercept:
            b[~self.used] = weights @ unused / n
        loss = float((weights @ np.square(unused - b[~self.used])).sum() / (2 * n))
        return A @ self._rotation.T, self._rotation @ b, loss


class NotConvergedError(RuntimeError):
    """No coefficients were found whose objective is near the minimum."""


class ColumnGaps(NamedTuple):
    """Objective and gap of each column of coefficients."""

    objective: NDArray  # (d,)
    gap: NDArray  # (d,), from the residual
    noise: NDArray  # (d,), what rounding of the kernel values adds to the gap

    @property
    def relative_gap(self) -> NDArray:
        """Return the gap with noise over the objective, 0 where both are."""
        total = self.gap + self.noise
        with np.errstate(divide="ignore"):
            return np.divide(total, self.objective, out=total * 0, where=total > 0)


class System(Protocol):
    """Linear equations of d columns of coefficients X, of shape `shape`."""

    shape: tuple[int, int]
    weights: NDArray | None
    fit_intercept: bool

    @property
    def passes(self) -> int:
        """Passes over the kernel values that the right sides have taken."""

    @property
    def slack(self) -> float:
        """Factor by which a search goes on where a bound exceeds the estimate."""

    def project(self, X: NDArray) -> NDArray:
        """Return admissible coefficients near X."""

    def product(self, X: NDArray, columns: NDArray) -> NDArray:
        """Return the product of some columns with the matrix, one pass."""

    def curved(self, D: NDArray, product: NDArray, columns: NDArray) -> NDArray:
        """Return the change of the residuals along D, given its product."""

    def residual(self, X: NDArray, product: NDArray, columns: NDArray) -> NDArray:
        """Return the residuals of some columns."""

    def precondition(self, R: NDArray, columns: NDArray) -> NDArray:
        """Return the preconditioned residuals of some columns."""

    def estimate(
        self, X: NDArray, product: NDArray, steps: ConjugateGradients
    ) -> ColumnGaps:
        """Return the objectives and estimates of the gaps, after a step."""

    def certify(self, X: NDArray, product: NDArray, tol: float) -> ColumnGaps:
        """Return the objectives and bounds of the gaps, for true products."""

    def intercept(self, X: NDArray, product: NDArray) -> NDArray:
        """Return the best intercepts."""


class Limits(NamedTuple):
    """When to stop: relative gap, passes over the kernel values, and seconds."""

    tol: float
    passes: int
    seconds: float

    @classmethod
    def checked(cls, tol: float, max_passes: int, max_seconds: float) -> Limits:
        """Return the limits of a public solver, by the names of its arguments."""
        return cls(
            check_positive("tol", tol),
            check_integer("max_passes", max_passes, low=3),
            check_real("max_seconds", max_seconds, low=0),
        )


class ConjugateSearch:
    """Conjugate gradients until every column is certified, or the budget is spent.

    Attributes
    ----------
    X, product : ndarray of shape (p, d)
        Coefficients, and their product with the matrix.
    certificate : ColumnGaps
        From a true residual once `run` has ended.
    n_passes : int
        Passes over the kernel values.
    stopped : bool
        Whether the callback has ended the search.
    """

    def __init__(
        self,
        system: System,
        start: NDArray | None,
        limits: Limits,
        callback: Callback | None = None,
    ) -> None:
        self.system, self._limits, self._callback = system, limits, callback
        self._began, self.stopped = perf_counter(), False
        self.n_passes = system.passes
        d = system.shape[1]
        self._tol, self._stuck = np.full(d, limits.tol), np.zeros(d, dtype=bool)
        self.X, self.product = np.zeros(system.shape), np.zeros(system.shape)
        if start is not None:
            self.X = np.array(system.project(start))
            self.product = self._multiply(self.X, np.arange(d))

    def run(self) -> ColumnGaps:
        """Search, and return the certificate of X."""
        columns, before = np.arange(len(self._tol)), np.full(len(self._tol), np.inf)
        for _ in range(_ROUNDS):
            if moved := self._descend():
                self.product = self._multiply(self.X, columns)
            tol = self._limits.tol
            self.certificate = self.system.certify(self.X, self.product, tol)
            if moved:  # rounding ends the search where a restart gains nothing
                self._stuck |= ~(self.certificate.gap < before / 2)
            late = self._late(tol)
            if not late.any() or not self._has_time():
                break
            before = self.certificate.gap
            self._tol[late] /= self.system.slack
        return self.certificate

    def solution(self, rotated: RotatedOutputs, columns: Any = slice(None)) -> Solution:
        """Return some columns of coefficients as a solution."""
        gaps, system = self.certificate, self.system
        coef, intercept, unused = rotated.restore(
            self.X[:, columns], system.intercept(self.X, self.product)[columns],
            system.weights, system.fit_intercept,
        )  # fmt: skip
        worst = float(gaps.relative_gap[columns].max(initial=0))
        return Solution(
            coef=coef,
            intercept=intercept,
            dual=None,
            objective=float(gaps.objective[columns].sum()) + unused,
            gap=float((gaps.gap + gaps.noise)[columns].sum()),
            relative_gap=worst,
            n_iter=self.n_passes,
            seconds=perf_counter() - self._began,
            converged=worst <= self._limits.tol,
            state=State(coef, intercept),
        )

    def checked_solution(self, rotated: RotatedOutputs) -> Solution:
        """Run, and return the solution; raise if it is none and nobody stopped."""
        self.run()
        if not self.stopped:
            self.check_gap()
        return self.solution(rotated)

    def check_gap(self) -> None:
        """Raise an error if the largest relative gap is above 0.1."""
        worst = float(self.certificate.relative_gap.max(initial=0))
        if not worst <= LARGEST_GAP:
            raise NotConvergedError(
                f"the relative duality gap is {worst:.1e} after {self.n_passes} "
                f"passes, above {LARGEST_GAP}: no usable coefficients. Raise "
                "max_passes, max_seconds or alpha, or use float64 kernel values"
            )

    def _late(self, tol: Any) -> NDArray:
        """Return the columns that have not converged and can get better."""
        gaps = self.certificate
        coarse = gaps.gap < gaps.noise / 16
        return (gaps.relative_gap > tol) & ~coarse & ~self._stuck

    def _has_time(self) -> bool:
        # One pass is kept for the residual at the end.
        used = perf_counter() - self._began
        per_pass = used / max(1, self.n_passes)
        in_time = used + 2 * per_pass <= self._limits.seconds
        spent = self.stopped or self.n_passes + 2 > self._limits.passes
        return in_time and not spent

    def _multiply(self, V: NDArray, columns: NDArray) -> NDArray:
        self.n_passes += 1
        return self.system.product(V, columns)

    def _descend(self) -> bool:
        """Run conjugate gradients until every column stops; return if any moved."""
        live, before = np.flatnonzero(~self._stuck), self.n_passes
        R = self.system.residual(self.X[:, live], self.product[:, live], live)
        steps = ConjugateGradients(R, self.system.precondition, live)
        while True:
            self.certificate = self.system.estimate(self.X, self.product, steps)
            self._report()
            late = self._late(self._tol)[steps.columns]
            if not late.any() or not self._has_time():
                return self.n_passes > before
            steps.keep(late)
            steps.turn()
            self._step(steps)

    def _step(self, steps: ConjugateGradients) -> None:
        columns, D = steps.columns, steps.D
        product = self._multiply(D, columns)
        lengths = steps.step(self.system.curved(D, product, columns))
        self._stuck[columns[lengths == 0]] = True
        self.X[:, columns] += lengths * D
        self.product[:, columns] += lengths * product

    def _report(self) -> None:
        if self._callback is None or not self.n_passes:
            return
        gaps, seconds = self.certificate, perf_counter() - self._began
        sums = float(gaps.objective.sum()), float((gaps.gap + gaps.noise).sum())
        self.stopped |= bool(self._callback(self.n_passes, *sums, seconds))
