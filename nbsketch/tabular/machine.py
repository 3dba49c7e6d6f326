r"""The predictor of a table: a weighted sum of a global base and of members.

.. math:: f(x) = \bar y + (1 - v)\, g(x) + \sum_m w_m f_m(x)

with g a ridge on few landmarks and f_m the exact solution on the leaf of a tree that x
falls in, with the kernel of member m, fitted to the residuals of g or, for the
members whose weights add up to v, to the targets. Up to 1500 rows there is no base, and
a single leaf. The weights are those of Breiman, Stacked Regressions, Machine Learning
24, 1996: with E the mean products of left-out residuals

.. math:: \min_w w^T E w + \rho \min_j E_{jj} \|w\|^2
          \quad \text{such that} \quad w \ge 0,\ \textstyle\sum_j w_j = 1 .

The pull toward equal weights, rho = 0.05, is relative to the error (equal weights: 1.04
of the error, up to 1.76).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch._fields import array, check_fields, stored
from nbsketch.persistence.states import scaler
from nbsketch.tabular.members import Member
from nbsketch.tabular.ridge import LandmarkFunction
from nbsketch.tabular.scales import SMOOTH, form_of
from nbsketch.tuning import InputScaler

_PULL = 0.05
# The constraint on the sum, as one more equation of least squares.
_SUM = 1e4


@stored
class Machine:
    """The fitted predictor: what prediction needs, as arrays and tuples of arrays.

    Attributes
    ----------
    scaler : InputScaler
        Preprocessing, from q features to p columns.
    low, high : ndarray of shape (q,)
        Limits to which features are clipped.
    center, spread, y_low, y_high : ndarray of shape (d,)
        Mean and standard deviation of the targets, and limits of predictions.
    rows : ndarray of shape (n, p)
        Preprocessed training rows.
    base : LandmarkFunction or None
        The global model.
    base_scales : ndarray of shape (p,)
        Its inverse length scales.
    members : tuple of Member
        The members.
    weights : ndarray of shape (members,)
        Weights of the members; the base has the rest.
    """

    scaler: Annotated[InputScaler, scaler("features", "p")]
    low: Annotated[NDArray, array("features")]
    high: Annotated[NDArray, array("features")]
    center: Annotated[NDArray, array("d")]
    spread: Annotated[NDArray, array("d")]
    y_low: Annotated[NDArray, array("d")]
    y_high: Annotated[NDArray, array("d")]
    rows: Annotated[NDArray, array("n p")]
    base: LandmarkFunction | None
    base_scales: Annotated[NDArray, array("p", positive=True)]
    members: tuple[Member, ...]
    weights: Annotated[NDArray, array("members")]

    def __post_init__(self) -> None:
        """Check that each member has a weight."""
        check_fields(self)
        if len(self.members) != len(self.weights):
            raise ValueError(
                f"`members` must have length {len(self.weights)}, got "
                f"{len(self.members)}"
            )

    @property
    def base_weight(self) -> float:
        """Weight of the base by itself; zero without one."""
        return 0.0 if self.base is None else max(1 - float(self.weights.sum()), 0.0)

    @property
    def _weight_without_base(self) -> float:
        """Weight of the members that the base is not added to."""
        pairs = zip(self.members, self.weights.tolist(), strict=True)
        return sum(weight for member, weight in pairs if not member.is_on_base)

    def relevance(self) -> NDArray:
        """Return the relevance of the q features, relative to the largest.

        Inverse length scales of the columns of a feature are added as squares. They are
        those of the base and of the members without it, averaged by their weights.
        """
        parts = [(self.base_scales, 1 - self._weight_without_base)]
        pairs = zip(self.members, self.weights.tolist(), strict=True)
        parts += [(m.scales, weight) for m, weight in pairs if not m.is_on_base]
        total = np.zeros(self.scaler.n_features)
        for inverse, weight in parts:
            squares = np.bincount(self.scaler.features, inverse**2, len(total))
            total += weight * np.sqrt(squares / (squares.max() or 1.0))
        total = np.where(self.low < self.high, total, 0.0)
        return total / (total.max() or 1.0)

    def n_numbers(self) -> int:
        """Return how many numbers predictions need."""
        base = 0 if self.base is None else self.base.landmarks.size
        return self.rows.size + base + sum(2 * m.tree.coef.size for m in self.members)

    def prepare(self, X: NDArray) -> NDArray:
        """Return rows of X clipped to their limits and preprocessed."""
        X = np.clip(X, self.low, self.high).astype(X.dtype, copy=False)
        return self.scaler.transform(X)

    def predict(self, X: NDArray) -> NDArray:
        """Return predictions of shape (n, d)."""
        with one_thread():
            rows = self.prepare(X)
            out = np.zeros((len(rows), len(self.center)))
            if self.base is not None:
                values = self.base.predict(form_of(SMOOTH, self.base_scales), rows)
                out += (1 - self._weight_without_base) * values
            for member, weight in zip(self.members, self.weights, strict=True):
                if weight > 0:
                    out += weight * member.predict(self.rows, rows)
        return np.clip(self.center + self.spread * out, self.y_low, self.y_high)


def stack_weights(
    residuals: NDArray, sample_weight: NDArray | None = None
) -> NDArray[np.float64]:
    """Return the weights of the models, (k,).

    Parameters
    ----------
    residuals : ndarray of shape (k, n, d)
        Left-out residuals; a row with NaN does not count.
    sample_weight : ndarray of shape (n,), default=None
        Weights of the rows. None: ones.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tabular.machine import stack_weights
    >>> good, bad = np.array([1.0, -1.0, 1.0]), np.array([9.0, 9.0, 9.0])
    >>> stack_weights(np.stack([good, bad])[:, :, None]).round(2).tolist()
    [1.0, 0.0]
    """
    k = len(residuals)
    left_out = np.isfinite(residuals).all(axis=(0, 2))
    residuals = residuals[:, left_out]
    w = np.ones(left_out.sum()) if sample_weight is None else sample_weight[left_out]
    E = np.einsum("n,ind,jnd->ij", w, residuals, residuals, optimize=True) / max(
        len(w), 1
    )
    least = float(E.diagonal().min(initial=np.inf))
    if k == 1 or not np.isfinite(least) or least <= 0:
        best = np.argmin(np.nan_to_num(E.diagonal(), nan=np.inf))
        return np.eye(k)[best] if k else np.ones(0)
    # The factor of E by its eigenvectors: E may be singular.
    values, vectors = np.linalg.eigh(E / least + _PULL * np.eye(k))
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    system = np.vstack([root, np.full((1, k), _SUM)])
    weights = scipy.optimize.nnls(system, np.append(np.zeros(k), _SUM))[0]
    return weights / weights.sum()
