r"""The output space, as far as a sketch spans it.

:math:`z(y) = U^T R\, k_Y(Y, y)` with :math:`U U^T = (R K_Y R^T)^+` are coordinates of
:math:`\psi(y)` projected; h(x) is predicted in them, and scores are inner products.
Without a sketch h(x) is a combination of the training outputs, and
:math:`z(y) = k_Y(Y, y)`. Training outputs that are equal count as one point, whose
weights are summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch.features import SketchMap
from nbsketch.kernels import Kernel
from nbsketch.sketches import Sketch
from nbsketch.structured._decoding import Candidates
from nbsketch.structured._regression import Whitening, whitening_of
from nbsketch.structured._rows import as_double


@dataclass(frozen=True)
class OutputSpace:
    """Gives outputs their coordinates."""

    sketch_map: SketchMap
    whitening: Whitening | None  # None without a sketch

    @classmethod
    def of(
        cls, kernel: Kernel, Y: Any, sketch: Sketch, first: NDArray, owner: NDArray
    ) -> OutputSpace:
        """Return the space of training outputs with their sketch.

        `first` and `owner` are what `distinct` returns: the sketch of all outputs is
        folded into one of the distinct ones.
        """
        members = _membership(owner, len(first))
        if sketch.is_identity:
            everything = sp.eye_array(len(first), format="csr")
            return cls(SketchMap(kernel, kernel.take(Y, first), everything), None)
        weights = sketch @ members
        weights = sp.csr_array(weights) if sp.issparse(weights) else weights
        active = np.flatnonzero(abs(weights).sum(axis=0))
        landmarks = kernel.take(Y, first[active])
        sketch_map = SketchMap(kernel, landmarks, weights[:, active])
        values = sketch_map(Y[first[active]])
        return cls(sketch_map, whitening_of(values, sketch_map.weights))

    def encode(self, rows: Any, diagonal: NDArray | None = None) -> Candidates:
        """Return outputs as candidates; `diagonal` is k(y, y), where it is known."""
        rows = as_double(rows)
        values = self.sketch_map(rows)
        if self.whitening is not None:
            values = self.whitening.apply(values)
        if diagonal is None:
            diagonal = self.sketch_map.kernel.diag(rows)
        return Candidates(np.ascontiguousarray(values.T), diagonal / 2)


def target_basis(space: OutputSpace, outputs: Candidates) -> Any:
    """Return what h is to be regressed on for each distinct training output.

    Without a sketch the coefficients of the outputs themselves.
    """
    if space.whitening is None:
        return sp.eye_array(len(outputs), format="csr")
    return outputs.features


def _membership(owner: NDArray, count: int) -> sp.csr_array:
    """Return the (n, count) matrix that says which distinct output each one is."""
    n = len(owner)
    return sp.csr_array((np.ones(n), owner, np.arange(n + 1)), shape=(n, count))
