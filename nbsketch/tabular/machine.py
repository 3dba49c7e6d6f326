r"""The predictor of a table: a global base, members that correct it, and a stack.

.. math:: f(x) = \bar y + (1 - v - u)\, g(x)
          + \sum_m w_m \frac{1}{T} \sum_t f_{m,t}(x) + u\, r(x)

with g a ridge on few landmarks and f_{m, t} the exact solution on the leaf of tree t
that x falls in, with the kernel of member m, fitted to the residuals of g or, for the
members whose weights add up to v, to the targets; r is a global ridge on more
landmarks, for smooth targets. Up to 1500 rows there is no base, and a single leaf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch.tabular.base import Base
from nbsketch.tabular.members import Member, form_of, predict_member
from nbsketch.tabular.metric import Global
from nbsketch.tabular.scales import SMOOTH
from nbsketch.tuning import InputScaler


class Machine(NamedTuple):
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
    base : Base or None
        The global model.
    base_scales : ndarray of shape (p,)
        Its inverse length scales.
    members : tuple of Member
        The members.
    weights : ndarray of shape (members,)
        Weights of the members; if they and that of the global ridge add up to less
        than one, the base has the rest.
    ridge : Global or None
        The global ridge.
    """

    scaler: InputScaler
    low: NDArray
    high: NDArray
    center: NDArray
    spread: NDArray
    y_low: NDArray
    y_high: NDArray
    rows: NDArray
    base: Base | None
    base_scales: NDArray
    members: tuple[Member, ...]
    weights: NDArray
    ridge: Global | None

    @classmethod
    def of(cls, parts: tuple[Any, ...]) -> Machine:
        """Return the machine with these parts, plain tuples if it was loaded."""
        found = cls(*parts)
        base = None if found.base is None else Base(*found.base)
        ridge = None if found.ridge is None else Global.of(found.ridge)
        members = tuple(map(Member.of, found.members))
        return found._replace(base=base, members=members, ridge=ridge)

    @property
    def rest(self) -> float:
        """Weight of the base by itself; zero without one."""
        others = 0.0 if self.ridge is None else self.ridge.weight
        known = float(self.weights.sum()) + others
        return 0.0 if self.base is None else max(1 - known, 0.0)

    @property
    def _weight_without_base(self) -> float:
        """Weight of the parts that the base is not added to."""
        pairs = zip(self.members, self.weights.tolist(), strict=True)
        targets = sum(weight for member, weight in pairs if not member.is_on_base)
        return targets + (0.0 if self.ridge is None else self.ridge.weight)

    def relevance(self) -> NDArray:
        """Return the relevance of the q features, relative to the largest.

        Inverse length scales of the columns of a feature are added as squares. They are
        those of the base, of the members without it, and of the global ridge, averaged
        by their weights.
        """
        known = [(self.base_scales, 1 - self._weight_without_base)]
        pairs = zip(self.members, self.weights.tolist(), strict=True)
        known += [(m.scales, weight) for m, weight in pairs if not m.is_on_base]
        if self.ridge is not None:
            known.append((self.ridge.slopes(), self.ridge.weight))
        total = np.zeros(self.scaler.n_features)
        for inverse, weight in known:
            squares = np.bincount(self.scaler.features, inverse**2, len(total))
            total += weight * np.sqrt(squares / (squares.max() or 1.0))
        total = np.where(self.low < self.high, total, 0.0)
        return total / (total.max() or 1.0)

    def n_numbers(self) -> int:
        """Return how many numbers predictions need."""
        trees = [tree for member in self.members for tree in member.trees]
        base = 0 if self.base is None else self.base.landmarks.size
        base += 0 if self.ridge is None else self.ridge.base.landmarks.size
        return self.rows.size + base + sum(2 * tree.coef.size for tree in trees)

    def prepare(self, X: NDArray) -> NDArray:
        """Return rows of X clipped to their limits and preprocessed."""
        return self.scaler.transform(clipped(X, self.low, self.high))

    def predict(self, X: NDArray) -> NDArray:
        """Return predictions of shape (n, d)."""
        with one_thread():
            return self._predict(X)

    def _predict(self, X: NDArray) -> NDArray:
        rows = self.prepare(X)
        out = np.zeros((len(rows), len(self.center)))
        if self.base is not None:
            values = self.base.predict(form_of(SMOOTH, self.base_scales), rows)
            out += (1 - self._weight_without_base) * values
        if self.ridge is not None:
            out += self.ridge.weight * self.ridge.predict(SMOOTH, rows)
        for member, weight in zip(self.members, self.weights, strict=True):
            if weight > 0:
                out += weight * predict_member(member, self.rows, rows)
        return np.clip(self.center + self.spread * out, self.y_low, self.y_high)


def clipped(X: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """Return rows with each feature between its limits, in their type."""
    return np.clip(X, low, high).astype(X.dtype, copy=False)
