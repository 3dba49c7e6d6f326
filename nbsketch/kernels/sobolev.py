"""The kernel of a Sobolev space on the unit cube."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch.gram import CompiledForm
from nbsketch.kernels._kernel import Kernel


@dataclass(frozen=True)
class SobolevKernel(Kernel):
    r"""First-order Sobolev kernel on the unit interval, or cube.

    .. math:: k(x, y) = \prod_j \min(x_j, y_j), \qquad x, y \in [0, 1]^q

    With one feature its functions are those with f(0) = 0 and a square integrable
    derivative, and their squared norm is :math:`\int_0^1 f'(t)^2 dt`. They are zero
    where a feature is; the intercept of an estimator lifts that.

    Raises
    ------
    ValueError
        When called, if a number is outside [0, 1].

    Notes
    -----
    Yang, Pilanci and Wainwright, "Randomized sketches for kernels: fast and optimal
    nonparametric regression", Annals of Statistics 2017.

    Examples
    --------
    >>> from nbsketch import SobolevKernel
    >>> SobolevKernel()([[0.25], [0.5]], [[0.5], [1.0]]).tolist()
    [[0.25, 0.25], [0.5, 0.5]]
    """

    takes_sparse: ClassVar[bool] = False

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        return CompiledForm("minimum", "power", np.ones(n_features))

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if a number is outside [0, 1]."""
        super().check_domain(name, rows)
        low, high = rows.min(), rows.max()
        if low < 0 or high > 1:
            raise ValueError(
                f"`{name}` must be in [0, 1] for SobolevKernel, got numbers from "
                f"{low:g} to {high:g}: scale it, as scikit-learn's MinMaxScaler does"
            )

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the product of the features of each row of X."""
        return self._check_rows("X", X).prod(axis=1)
