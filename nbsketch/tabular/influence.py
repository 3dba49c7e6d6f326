r"""How much of the base's dependence on a row is left after the leaves.

Without row i the base is :math:`g - H_{\cdot i} w_i \epsilon_i`, for its hat matrix
:math:`H W` and its left-out residual :math:`\epsilon_i`, so that the leaves are fitted
to targets that are larger by :math:`H_{\cdot i} w_i \epsilon_i`. With P of the leaf
(`nbsketch.tabular.leaves`), the residual of row i without it is then

.. math:: \frac{(P r)_i}{P_{ii}} + \rho_i H_{ii} w_i \epsilon_i,
          \qquad \rho_i = \frac{(P H)_{ii}}{P_{ii} H_{ii}}.

The share :math:`\rho_i` is near one if the leaves smooth, and near zero if they nearly
interpolate a smooth function: other rows of the leaf replace what the base has lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch.gram import CompiledForm, evaluate
from nbsketch.tabular.base import Influence
from nbsketch.tabular.leaves import solve_shifted
from nbsketch.tabular.members import Training

# Rows of a leaf whose shares are computed.
_ROWS = 50


def shares(
    form: CompiledForm,
    rows: NDArray,
    tau: float,
    weights: NDArray | None,
    some: NDArray,
    influence: Influence,
) -> NDArray:
    """Return the shares rho of the rows `some` (k,) of a leaf.

    Parameters
    ----------
    form : CompiledForm
        Kernel of the leaf with its length scales.
    rows : ndarray of shape (c, p)
        Rows of the leaf.
    tau : float
        Penalty.
    weights : ndarray of shape (c,) or None
        Positive weights. None: ones.
    some : ndarray of int of shape (k,)
        Places in the leaf.
    influence : Influence
        Hat matrix of the base.
    """
    rhs = np.zeros((len(rows), len(some) + 1))
    place = np.arange(len(some))
    rhs[some, place] = rhs[:, -1] = 1.0
    solved = solve_shifted(evaluate(form, rows, rows), rhs, tau, weights)
    u = solved[:, -1]
    P = solved[:, :-1] - np.outer(u, u[some] / u.sum())
    H = influence.columns(rows, rows[some])
    return np.einsum("ck,ck->k", P, H) / (P[some, place] * H[some, place])


def mean_share(
    form: CompiledForm,
    tau: float,
    data: Training,
    leaves: list[NDArray],
    known: NDArray,
    change: NDArray,
    influence: Influence,
) -> float:
    """Return the share rho that fits the changes of some leaves best.

    It is the mean of `shares` of up to 50 rows of each leaf, with the squares of the
    changes as weights, between 0 and 1; 1 if nothing is known.

    Parameters
    ----------
    form, tau : CompiledForm, float
        Kernel and penalty of the leaves.
    data : Training
        Rows and weights.
    leaves : list of ndarray of int
        Rows of each leaf.
    known : ndarray of int of shape (m,)
        Ascending rows whose changes are known.
    change : ndarray of shape (m, d)
        Left-out residuals of the base minus its residuals.
    influence : Influence
        Hat matrix of the base.
    """
    squares = np.zeros(len(data.rows))
    squares[known] = np.square(change).sum(axis=1)
    total = weight = 0.0
    for index in leaves:
        some = np.flatnonzero(squares[index] > 0)
        some = some[:: max(-(-len(some) // _ROWS), 1)]
        rows, _, weights, _ = data.take(index)
        try:
            rho = shares(form, rows, tau, weights, some, influence)
        except np.linalg.LinAlgError:
            continue
        w = squares[index[some]] * (1.0 if weights is None else weights[some])
        total, weight = total + w @ rho, weight + w.sum()
    return float(np.clip(total / weight, 0.0, 1.0)) if weight > 0 else 1.0
