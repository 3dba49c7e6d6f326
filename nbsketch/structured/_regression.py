r"""Ridge regression from a sketched input space to the features of outputs.

With :math:`Z = K S^T P`, :math:`P P^T = (S K S^T)^+`, and the features T (n, t) of the
outputs, the coefficients of :math:`h(x) = H^T S k_x` are

.. math:: H = P (Z^T W Z + n \alpha I)^{-1} Z^T W T,

with the diagonal matrix W of the weights, of mean one; without a sketch
:math:`H = W^{1/2} (W^{1/2} K W^{1/2} + n \alpha I)^{-1} W^{1/2} T`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._expansion import PivotedCholesky
from nbsketch._progress import Display, bar, report
from nbsketch._sketch_map import SketchMap, sketched_design
from nbsketch.kernels import Kernel
from nbsketch.sketches import Sketch
from nbsketch.solvers.design import Design
from nbsketch.solvers.exact import solve_positive
from nbsketch.solvers.spectrum import moments
from nbsketch.structured._outputs import TargetRows
from nbsketch.structured._rows import Objects


class Stages:
    """Timer of stages; displays them on standard error if `verbose`.

    Attributes
    ----------
    seconds : dict of str to float
        Time of each stage.
    """

    def __init__(self, verbose: int = 0) -> None:
        self.seconds: dict[str, float] = {}
        self._verbose = bool(verbose)

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        """Time a stage; yield a function that takes the amount done out of `total`."""
        start, display = time.perf_counter(), Display(patient=True)
        report(name, n_rows=total)

        def show(done: int) -> None:
            report(name, rows=done, n_rows=total)
            if self._verbose and total:
                spent = time.perf_counter() - start
                left = spent * (total - done) / max(done, 1)
                display.update(bar(done / total, f"{done / total:4.0%} {name}", left))

        yield show
        self.seconds[name] = time.perf_counter() - start
        if self._verbose:
            display.end(f"{name}: {self.seconds[name]:.2f} s")


class Regression(NamedTuple):
    """The fitted function h(x) = H^T S k_x."""

    sketch_map: SketchMap
    coef: NDArray  # H, (s, t)
    rank: int  # of the sketched kernel


def fit_regression(
    kernel: Kernel,
    X: Any,
    sketch: Sketch,
    targets: TargetRows,
    alpha: float,
    stages: Stages,
    weights: NDArray | None = None,
) -> Regression:
    """Return h for n training inputs.

    Parameters
    ----------
    kernel : Kernel
        Input kernel, all its parameters set.
    X : rows or Objects
        Training inputs.
    sketch : Sketch of shape (s, n)
        Sketch of the inputs.
    targets : TargetRows of shape (n, t)
        Features of the outputs.
    alpha : float
        Positive penalty.
    stages : Stages
        Timer of the stages.
    weights : ndarray of shape (n,) or None, default=None
        Positive weights of mean one. None: equal weights.
    """
    sketch_map = SketchMap.of(kernel, X, sketch)
    if sketch.is_identity:
        coef = _solve_exact(kernel, X, targets, alpha, stages, weights)
        return Regression(sketch_map, coef, len(coef))
    with stages.stage("inputs: kernel and factor"):
        whitening, design = sketched_design(sketch_map, X, whiten=PivotedCholesky.of)
    with stages.stage("inputs: features", targets.shape[0]) as show:
        reported = _ReportedDesign(design, show)
        G, C, _ = moments(reported, targets, weights, centered=False)
    with stages.stage("inputs: solve"):
        W = _solve(G, C, alpha, alpha)
        return Regression(
            sketch_map, whitening.lift(W, sketch.shape[0]), whitening.rank
        )


def _solve_exact(
    kernel: Kernel,
    X: Any,
    targets: TargetRows,
    alpha: float,
    stages: Stages,
    weights: NDArray | None,
) -> NDArray:
    """Return H of shape (n, t) without a sketch."""
    with stages.stage("inputs: Gram matrix"):
        rows: Any = X if isinstance(X, Objects) else X.astype(np.float64, copy=False)
        K = np.array(kernel(rows), dtype=np.float64)
    with stages.stage("inputs: solve"):
        T = targets[:]
        dense = T.toarray(order="F") if sp.issparse(T) else T
        if weights is None:
            return _solve(K.T, dense, len(K) * alpha, alpha)
        roots = np.sqrt(weights)[:, None]
        K *= roots
        K *= roots.T
        return roots * _solve(K.T, roots * dense, len(K) * alpha, alpha)


def _solve(G: NDArray, C: NDArray, ridge: float, alpha: float) -> NDArray:
    """Return (G + ridge I)^-1 C; both are overwritten."""
    G[np.diag_indices_from(G)] += ridge
    return solve_positive(G, C, alpha)


class _ReportedDesign(Design):
    """A design that reports the number of rows that have been read."""

    def __init__(self, design: Design, show: Callable[[int], None]) -> None:
        self._design, self._show = design, show
        self.shape, self.dtype = design.shape, design.dtype

    def blocks(self) -> Iterator[tuple[int, int, NDArray]]:
        """Yield (start, stop, Z[start:stop]) in order, covering all rows."""
        for start, stop, block in self._design.blocks():
            yield start, stop, block
            self._show(stop)
