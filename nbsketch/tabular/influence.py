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

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from nbsketch.gram import CompiledForm
from nbsketch.gram.dense import upper_triangle
from nbsketch.tabular.base import Influence
from nbsketch.tabular.leaves import solve_shifted
from nbsketch.tabular.members import Training

# Rows of a leaf whose shares are computed.
_ROWS = 100


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
    solved = solve_shifted(upper_triangle(form, rows), rhs, tau, weights)
    u = solved[:, -1]
    P = solved[:, :-1] - np.outer(u, u[some] / u.sum())
    H = influence.columns(rows, rows[some])
    return np.einsum("ck,ck->k", P, H) / (P[some, place] * H[some, place])


def fitted_shares(
    form: CompiledForm,
    tau: float,
    data: Training,
    leaves: list[NDArray],
    known: NDArray,
    change: NDArray,
    residual: NDArray,
    influence: Influence,
) -> NDArray:
    """Return shares rho (m,) as a linear function of the leverage, between 0 and 1.

    The function is that of least squares for the changes of up to 100 rows of each
    leaf, whose `shares` are exact; rows of large leverage are those that no other row
    replaces. All are 1 if nothing is known.

    Parameters
    ----------
    form, tau : CompiledForm, float
        Kernel and penalty of the leaves.
    data : Training
        Rows and weights.
    leaves : list of ndarray of int
        Rows of each leaf.
    known : ndarray of int of shape (m,)
        Ascending rows of the changes.
    change : ndarray of shape (m, d)
        Left-out residuals of the base minus its residuals.
    residual : ndarray of shape (m, d)
        Left-out residuals of the base.
    influence : Influence
        Hat matrix of the base.
    """
    sizes, total = (np.linalg.norm(part, axis=1) for part in (change, residual))
    leverage = np.divide(sizes, total, out=np.zeros(len(known)), where=total > 0)
    place = np.full(len(data.rows), -1)
    place[known] = np.where(sizes > 0, np.arange(len(known)), -1)
    drawn, rho = [np.arange(0)], [np.zeros(0)]
    for index in leaves:
        some = np.flatnonzero(place[index] >= 0)
        some = some[:: max(-(-len(some) // _ROWS), 1)]
        rows, _, weights, _ = data.take(index)
        with suppress(np.linalg.LinAlgError):
            rho.append(shares(form, rows, tau, weights, some, influence))
            drawn.append(place[index[some]])
    at, found = np.concatenate(drawn), np.concatenate(rho)
    if not len(at):
        return np.ones(len(known))
    system = np.column_stack([np.ones(len(known)), leverage])
    w = (
        sizes[at]
        if data.weights is None
        else sizes[at] * data.weights[known[at]] ** 0.5
    )
    line = np.linalg.lstsq(w[:, None] * system[at], w * found, rcond=None)[0]
    return np.clip(system @ line, 0.0, 1.0)
