"""Kernels of the Tanimoto similarity: what two rows share, among what they have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.gram import CompiledForm
from nbsketch.kernels._kernel import Kernel
from nbsketch.kernels.products import squared_norms

# Steep enough for any bandwidth, and finite in single precision.
_STEEPEST = 1e30


@dataclass(frozen=True)
class TanimotoKernel(Kernel):
    r"""Tanimoto kernel, of sets or counts: 1 for equal rows, 0 for orthogonal ones.

    .. math:: k(x, y) =
        \frac{\langle x, y\rangle}{\|x\|^2 + \|y\|^2 - \langle x, y\rangle}

    For rows of zeros and ones it is the Jaccard index: the size of the intersection
    divided by that of the union. Two rows of zeros have similarity 1.

    Raises
    ------
    ValueError
        When called, if the squared norm of a row overflows.

    Notes
    -----
    Positive semi-definite for all real rows, negative entries included: it equals
    :math:`\sum_{j \ge 1} (\langle x, y\rangle / (\|x\|^2 + \|y\|^2))^j`, whose terms
    are products of positive semi-definite kernels, and converges as the ratio is at
    most 1/2. Ralaivola, Swamidass, Saigo and Baldi, "Graph kernels for chemical
    informatics", Neural Networks 2005 (binary rows); Tripp, Bacallado, Singh and
    Hernandez-Lobato, "Tanimoto random features for scalable molecular machine
    learning", NeurIPS 2023 (real rows).

    Examples
    --------
    >>> from nbsketch import TanimotoKernel
    >>> TanimotoKernel()([[1, 1, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]).tolist()
    [[0.5, 0.5, 0.0]]
    """

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        return CompiledForm("tanimoto", "power", np.ones(n_features))

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if the squared norm of a row is not finite."""
        super().check_domain(name, rows)
        with np.errstate(over="ignore"):
            finite = np.isfinite(squared_norms(rows)).all()
        if not finite:
            raise ValueError(
                f"`{name}` must have rows with finite squared norms for "
                f"{type(self).__name__}, got one that overflows: scale `{name}`"
            )

    def diag(self, X: ArrayLike) -> NDArray:
        """Return ones: k(x, x) = 1."""
        rows = self._check_rows("X", X)
        return np.ones(rows.shape[0], dtype=rows.dtype)


@dataclass(frozen=True)
class GaussianTanimotoKernel(TanimotoKernel):
    r"""Gaussian kernel of the distance that the Tanimoto kernel T defines.

    .. math:: k(x, y) = \exp\bigl(-(1 - T(x, y)) / \text{bandwidth}^2\bigr)

    The squared distance of two rows in the feature space of T is 2 - 2 T(x, y).

    Parameters
    ----------
    bandwidth : float
        Length in that feature space, where no two rows are further apart than
        :math:`\sqrt{8/3}`, nor those without negative entries than :math:`\sqrt{2}`.

    Raises
    ------
    ValueError
        When called, if the squared norm of a row overflows.

    Examples
    --------
    >>> from nbsketch import GaussianTanimotoKernel
    >>> kernel = GaussianTanimotoKernel(bandwidth=1.0)
    >>> kernel([[1, 1]], [[1, 1], [1, 0]]).round(4).tolist()
    [[1.0, 0.6065]]
    """

    bandwidth: float = 1.0

    def __post_init__(self) -> None:
        width = check_positive("bandwidth", self.bandwidth)
        object.__setattr__(self, "bandwidth", width)

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        rate = 1 / math.log(2) / self.bandwidth / self.bandwidth
        steepness = min(rate, _STEEPEST)
        return CompiledForm("tanimoto", "complement", np.ones(n_features), steepness)
