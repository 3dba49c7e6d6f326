r"""The predictor of a tabular model: a weighted sum of members.

.. math:: f(x) = \bar y + \sum_m w_m f_m(x)

with the base f_0, a ridge regression on few landmarks, and the exact solution f_m, with
the kernel of member m, on the leaf of a tree that contains x. Up to 1500 rows there is
no base and a single leaf. The weights follow Breiman, Stacked Regressions, Machine
Learning 24, 1996: with E the mean products of leave-one-out residuals

.. math:: \min_w w^T E w + \rho \min_j E_{jj} \|w\|^2
          \quad \text{such that} \quad w \ge 0,\ \textstyle\sum_j w_j = 1 .

The penalty toward equal weights, rho = 0.05, is relative to the error (equal weights:
1.04 times the error, up to 1.76).
"""

from typing import Annotated

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from nbsketch._machine.blas import one_thread
from nbsketch._report.fields import array, stored
from nbsketch.files.states import scaler
from nbsketch.rows.transform import InputScaler

# Number of training rows at which columns are permuted.
_PERMUTED = 500
_PULL = 0.05
# Weight of the constraint on the sum, as an additional least squares equation.
_SUM = 1e4


class Member:
    """A fitted function that is part of a tabular model.

    Attributes
    ----------
    scales : ndarray of shape (p,)
        Inverse length scales of its kernel.
    """

    scales: NDArray

    def predict(self, rows: NDArray, training: NDArray) -> NDArray:
        """Return the values (m, d) at preprocessed rows, given those of training."""
        raise NotImplementedError

    def summary(self) -> tuple[str, str]:
        """Return the entry of a summary: kind and description of the member."""
        raise NotImplementedError


@stored
class Machine:
    """The fitted predictor, as arrays and tuples of arrays.

    Attributes
    ----------
    scaler : InputScaler
        Preprocessing, from q features to p columns.
    low, high : ndarray of shape (q,)
        Bounds to which features are clipped.
    center, spread, y_low, y_high : ndarray of shape (d,)
        Mean and standard deviation of the targets, and bounds of predictions.
    rows : ndarray of shape (n, p)
        Preprocessed training rows.
    members : tuple of Member
        The members. The first has the length scales of the smooth kernel.
    weights : ndarray of shape (members,)
        Weights of the members.
    """

    scaler: Annotated[InputScaler, scaler("features", "p")]
    low: Annotated[NDArray, array("features")]
    high: Annotated[NDArray, array("features")]
    center: Annotated[NDArray, array("d")]
    spread: Annotated[NDArray, array("d")]
    y_low: Annotated[NDArray, array("d")]
    y_high: Annotated[NDArray, array("d")]
    rows: Annotated[NDArray, array("n p")]
    members: tuple[Member, ...]
    weights: Annotated[NDArray, array("members")]

    def __post_init__(self) -> None:
        """Check that each member has a weight."""
        if len(self.members) != len(self.weights):
            raise ValueError(
                f"`members` must have length {len(self.weights)}, got "
                f"{len(self.members)}"
            )

    @property
    def scales(self) -> NDArray:
        """Inverse length scales of the smooth kernel."""
        return self.members[0].scales

    def relevance(self) -> NDArray:
        """Return the relevance of the q features, relative to the largest.

        The inverse length scales of the columns of a feature are added as squares, and
        averaged over the members with their weights.
        """
        total = np.zeros(self.scaler.n_features)
        for member, weight in zip(self.members, self.weights, strict=True):
            squares = np.square(member.scales)
            squares = np.bincount(self.scaler.features, squares, len(total))
            total += weight * np.sqrt(squares / (squares.max() or 1.0))
        total = np.where(self.low < self.high, total, 0.0)
        return total / (total.max() or 1.0)

    def importances(self, owners: NDArray, count: int) -> NDArray:
        """Return the mean squared change of predictions when a column is permuted.

        It is the sum over the outputs, in units of their variances, at 500 training
        rows. `owners` has the column, one of `count`, of each feature.
        """
        drawn = np.random.default_rng(0).permutation(len(self.rows))[:_PERMUTED]
        rows = self.rows[drawn]
        columns = owners[self.scaler.features]
        before = self.predict(rows)
        out = np.zeros(count)
        for j in np.unique(columns):
            moved = np.where(columns == j, np.roll(rows, 1, axis=0), rows)
            change = self.predict(moved) - before
            out[j] = np.square(change / self.spread).sum(axis=1).mean()
        return out

    def prepare(self, X: NDArray) -> NDArray:
        """Return encoded rows, clipped and preprocessed."""
        clipped = np.clip(X, self.low, self.high).astype(X.dtype, copy=False)
        return self.scaler.transform(clipped)

    def predict(self, rows: NDArray) -> NDArray:
        """Return predictions at preprocessed rows, of shape (n, d)."""
        out = np.zeros((len(rows), len(self.center)))
        with one_thread():
            for member, weight in zip(self.members, self.weights, strict=True):
                if weight > 0:
                    out += weight * member.predict(rows, self.rows)
        return self.clipped(self.center + self.spread * out)

    def clipped(self, values: NDArray) -> NDArray:
        """Return values (n, d) clipped to the bounds of predictions."""
        return np.clip(values, self.y_low, self.y_high)


def stack_weights(
    residuals: NDArray, sample_weight: NDArray | None = None, tolerance: float = 0.0
) -> NDArray:
    """Return the weights of the models, (k,).

    Parameters
    ----------
    residuals : ndarray of shape (k, n, d)
        Leave-one-out residuals; rows with NaN are ignored.
    sample_weight : ndarray of shape (n,), default=None
        Sample weights. None: ones.
    tolerance : float, default=0.0
        Models are dropped one by one as long as the leave-one-out error increases by at
        most this share relative to all models.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.tabular.machine import stack_weights
    >>> good, bad = np.array([1.0, -1.0, 1.0]), np.array([9.0, 9.0, 9.0])
    >>> stack_weights(np.stack([good, bad])[:, :, None]).round(2).tolist()
    [1.0, 0.0]
    """
    left_out = np.isfinite(residuals).all(axis=(0, 2))
    residuals = residuals[:, left_out]
    w = np.ones(left_out.sum()) if sample_weight is None else sample_weight[left_out]
    E = np.einsum("n,ind,jnd->ij", w, residuals, residuals, optimize=True)
    E /= max(len(w), 1)
    used = np.arange(len(E))
    best = _least_weights(E, used)
    limit = (1 + tolerance) ** 2 * best @ E @ best
    while tolerance and len(used) > 1:
        trials = [np.delete(used, i) for i in range(len(used))]
        solved = [_least_weights(E, trial) for trial in trials]
        squares = [weights @ E @ weights for weights in solved]
        least = np.argmin(squares)
        if not squares[least] <= limit:
            break
        used = trials[least]
        best = solved[least]
    return best


def _least_weights(E: NDArray, used: NDArray) -> NDArray:
    """Return the weights of the models used, given mean products (k, k) of residuals.

    Those of other models are zero.
    """
    out = np.zeros(len(E))
    E = E[np.ix_(used, used)]
    k = len(E)
    least = E.diagonal().min()
    if k == 1 or not np.isfinite(least) or least <= 0:
        out[used[np.argmin(np.nan_to_num(E.diagonal(), nan=np.inf))]] = 1.0
        return out
    # The factor of E uses its eigenvectors, because E may be singular.
    values, vectors = np.linalg.eigh(E / least + _PULL * np.eye(k))
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    system = np.vstack([root, np.full((1, k), _SUM)])
    weights = scipy.optimize.nnls(system, np.append(np.zeros(k), _SUM))[0]
    out[used] = weights / weights.sum()
    return out
