"""Sums of m losses per row: data, dual points, certificate.

Arrays over the rows are term-major, (m, n): one term is contiguous. A scalar loss has m
= 1.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import check_positive
from nbsketch.losses import LogLinkLoss, Loss
from nbsketch.solvers._certified import checks
from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import RowLoss, balance, loss_sums, typical_mean
from nbsketch.solvers.solution import Certificate, State

# Below this share of changed rows, Z^T (s a) is updated instead of recomputed.
_FEW = 0.5
# Number of targets used for a starting constant; more do not improve the quantile.
_TARGETS = 10_000
# The factor T of a single output.
ONE = np.ones((1, 1))


@dataclass(frozen=True, kw_only=True)
class NewtonProblem:
    """Minimize ``sum_ij s_i psi_ij(y_ij - (Z W T)_ij - b_j) / n + (alpha / 2) |W|^2``.

    The targets `y` have the shape (n,) if the d outputs share them, else (d, n).
    `losses` holds the losses psi of all entries, with bounds of shape (m, n).

    If `ordered`, the outputs of a row must ascend: d - 1 additional terms, "gaps", have
    the residual ``f_(j+1) - f_j`` and the loss 0 if it is nonnegative, else infinity.
    The dual point of a gap, its negative multiplier, is in [-infinity, 0]. Outputs and
    gaps are the m terms; each is a combination `mix` of the outputs.

    `n` is the number of rows of the original problem, also of a problem reduced to its
    active rows.
    """

    design: Design
    weights: NDArray
    uniform: bool = False  # all weights are known to be one
    alpha: float
    fit_intercept: bool
    n: float
    y: NDArray
    losses: RowLoss
    T: NDArray
    ordered: bool = False
    loss: Loss | None = None  # of every row, if there is one

    @classmethod
    def of(
        cls,
        design: Design,
        alpha: float,
        sample_weight: ArrayLike | None,
        fit_intercept: bool,
        **fields: Any,
    ) -> Self:
        """Check the fields of all problems, and add the fields of a subclass."""
        n = design.shape[0]
        return cls(
            design=design, weights=checks.weights(sample_weight, n),
            uniform=sample_weight is None, alpha=check_positive("alpha", alpha),
            fit_intercept=bool(fit_intercept), n=float(n), **fields,
        )  # fmt: skip

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.design.shape[1]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the coefficients, the intercept and the dual point of a state."""
        d, m = self.mix.shape
        return (self.rank, len(self.T)), (d,), (len(self.weights), m)

    @property
    def is_single(self) -> bool:
        """Whether there is a single term and no factor."""
        return self.T.shape == (1, 1) and self.T[0, 0] == 1.0

    @cached_property
    def mix(self) -> NDArray:
        """Combinations (d, m) of the predicted outputs in the terms."""
        identity = np.eye(self.T.shape[1])
        gaps = identity[:, :-1] - identity[:, 1:]
        return np.hstack([identity, gaps]) if self.ordered else identity

    @cached_property
    def mixed_T(self) -> NDArray:
        """The factor T of all terms, of shape (d', m)."""
        return self.T @ self.mix

    @cached_property
    def output_losses(self) -> RowLoss:
        """The losses of the outputs, without gaps."""
        return self.losses.take(slice(len(self.mix))) if self.ordered else self.losses

    @cached_property
    def entry_weights(self) -> NDArray:
        """Weight of each entry, (m, n)."""
        m = self.mix.shape[1]
        return self.weights[None] if m == 1 else np.tile(self.weights, (m, 1))

    def take(self, rows: NDArray) -> Self:
        """Return the same problem with the sums over `rows` only."""
        return replace(
            self, design=self.design.gather(rows), y=self.y[..., rows],
            weights=self.weights[rows], losses=self.losses.take(np.s_[:, rows]),
        )  # fmt: skip

    def sample(self, rows: NDArray) -> Self:
        """Return the smaller problem of `rows`: a mean over them, same alpha."""
        part = self.take(rows)
        weights = part.weights / part.weights.mean()
        return replace(part, weights=weights, n=float(len(rows)))

    def center(self, state: State) -> NDArray:
        """Return the dual point of a state within its bounds, zeros without one."""
        if state.dual is None:
            return np.zeros((self.mix.shape[1], len(self.weights)))
        return self.bounded(np.ascontiguousarray(state.dual.T))

    def flat(self, W: NDArray, b: NDArray) -> NDArray:
        """Return one vector: W column by column, then the intercepts if fitted."""
        return np.append(W.T.ravel(), b) if self.fit_intercept else W.T.ravel()

    def split(self, flat: NDArray) -> tuple[NDArray, NDArray]:
        """Return W and b of such a vector; zero intercepts if they are not fitted."""
        (rank, width), intercepts, _ = self.shapes
        b = flat[rank * width :] if self.fit_intercept else np.zeros(intercepts)
        return flat[: rank * width].reshape(width, rank).T, b

    def weighted(self, a: NDArray) -> NDArray:
        """Return s a, which may be `a` itself."""
        return a if self.uniform else self.weights * a

    def predict(self, W: NDArray, b: NDArray) -> NDArray:
        """Return the predictions of all terms, ``(Z W T + b)^T`` mixed: (m, n)."""
        out = np.ascontiguousarray(self.design.mv(W @ self.mixed_T).T)
        if b.any():
            out += (b @ self.mix)[:, None]
        return out

    def residual(self, coef: NDArray, intercept: NDArray) -> NDArray:
        """Return the residuals of all terms, of shape (m, n)."""
        res = self.predict(coef, intercept)
        np.negative(res, out=res)
        res[: len(self.mix)] += self.y
        return res

    def slopes(
        self, t: float, res: NDArray, move: NDArray, center: NDArray, sigma: float
    ) -> tuple[float, float]:
        """Return two derivatives of the smoothed loss sum at ``res - t move``."""
        return self.losses.slopes(t, res, move, self.entry_weights, center, sigma)

    def mass(self, curvature: Any) -> NDArray:
        """Return the curvature of the loss sum for each intercept."""
        return np.square(self.mix) @ (curvature @ self.weights)

    def curved(self, curvature: Any, move: NDArray) -> NDArray:
        """Return the changes of s a for changes of the predictions."""
        return self.weights * curvature * move

    def descent(
        self, coef: NDArray, gradient: NDArray, totals: NDArray, mass: NDArray
    ) -> tuple[NDArray, float]:
        """Return the gradient of the smoothed objective, flat, and its estimated gap.

        `gradient` is ``Z^T (s a)^T``, `totals` are the sums of s a, and `mass` those of
        the curvature for each intercept.
        """
        rho = self.alpha * coef - gradient @ self.mixed_T.T / self.n
        slope = -self.mix @ totals / self.n
        gap = float(np.vdot(rho, rho)) / (2 * self.alpha)
        if self.fit_intercept:
            curvature = np.maximum(1e-300, mass / self.n)
            gap += float((slope**2 / (2 * curvature)).sum())
        return self.flat(rho, slope), gap

    def values(self, res: NDArray) -> NDArray:
        """Return the loss of each row."""
        return self.output_losses.values(res[: len(self.mix)]).sum(axis=0)

    def bounded(self, a: NDArray) -> NDArray:
        """Return `a` clipped to its bounds."""
        return self.losses.clip(a)

    def sizes(self, res: NDArray) -> NDArray:
        """Return the absolute residuals of the rows of positive weight."""
        return np.abs(res[: len(self.mix), self.weights > 0])

    def best_constant(self) -> NDArray:
        """Return the starting intercepts for zero coefficients."""
        return self.constants(
            np.broadcast_to(self.y, (len(self.mix), self.y.shape[-1]))
        )

    def constants(self, targets: NDArray) -> NDArray:
        """Return constants near the given targets (d, n) of the outputs.

        The minimizing quantile for losses of pinball type, the mean on the scale of a
        loss of means, the median for other losses, and 0 for two classes.
        """
        if isinstance(self.loss, LogLinkLoss):
            means = self.loss.targets(targets) @ self.weights / self.weights.sum()
            return np.log(means)
        counted = np.flatnonzero(self.weights > 0)
        sample = counted[:: max(1, len(counted) // _TARGETS)]
        losses = self.losses.take(np.s_[: len(targets), counted])
        out = np.zeros(len(targets))
        for j, (low, high) in enumerate(zip(losses.lo, losses.hi, strict=True)):
            if (low == low[0]).all() and (high == high[0]).all():
                width = high[0] - low[0]
                level = high[0] / width if np.isfinite(width) else 0.5
                out[j] = np.quantile(targets[j, sample], level)
        return out

    def point(
        self, res: NDArray, center: NDArray, sigma: float
    ) -> tuple[NDArray, Any, NDArray, float]:
        """Return the fields of a `RowPoint`, with a total for each term."""
        a, inside, total, young = self.losses.point(
            res, self.entry_weights, center, sigma
        )
        totals = np.array([total]) if len(a) == 1 else a @ self.weights
        young = self.young(res, a) if self.ordered else young
        return a, inside, totals, young

    def young(self, res: NDArray, a: NDArray) -> float:
        """Return the weighted sum of the Fenchel-Young terms.

        The term of a gap is the product of its multiplier and its crossing.
        """
        d = len(self.mix)
        young = self.output_losses.young(res[:d], self.entry_weights[:d], a[:d])
        if self.ordered:
            gaps = self.weights * res[d:]
            young -= float(np.vdot(a[d:], np.maximum(gaps, 0.0)))
            young -= float(np.minimum(gaps, 0.0).sum())
        return young

    def certify(
        self,
        W: NDArray,
        b: NDArray,
        res: NDArray,
        a: NDArray,
        gradient: NDArray | None = None,
        rate: Any = None,
    ) -> Certificate:
        """Return the certificate of (W, b) and a; `gradient` is ``Z^T (s a)^T``.

        `rate` is the weight of entries when a is balanced; None: entries between kinks.
        If `ordered`, b is first shifted so that no outputs of these rows cross.
        """
        if gradient is None:
            gradient = self.design.rmv(self.weighted(a).T)
        if self.fit_intercept:
            a, gradient = self._balanced(a, gradient, rate)
        if self.ordered:
            b, res = self._uncrossed(b, res)
        return self.certificate(W, b, a, gradient, self.values(res), self.young(res, a))

    def certificate(
        self,
        W: NDArray,
        b: NDArray,
        a: NDArray,
        gradient: NDArray,
        losses: NDArray,
        young: float,
    ) -> Certificate:
        """Return the certificate of (W, b) and a balanced a.

        Parameters
        ----------
        W, b, a
            The two points; they are stored and must not be modified.
        gradient : ndarray of shape (r, m)
            ``Z^T (s a)^T``.
        losses : ndarray of shape (n,)
            Loss of each row.
        young : float
            Sum of the weighted Fenchel-Young terms.
        """
        n = self.n
        loss, typical = loss_sums(losses, self.weights)
        penalty = self.alpha / 2 * float(np.vdot(W, W))
        rho = self.alpha * W - gradient @ self.mixed_T.T / n
        unbalanced = self.mix @ (a @ self.weights)  # by rounding
        gap = (young + float(np.abs(b * unbalanced).sum())) / n
        gap += float(np.vdot(rho, rho)) / (2 * self.alpha)
        return Certificate(W, b, a, loss / n + penalty, gap, typical / n + penalty)

    def spread(self, res: NDArray) -> float:
        """Return the mean size of the nonzero residuals, with outliers truncated."""
        sizes = self.sizes(res)
        sizes = sizes[sizes > 0]
        return typical_mean(sizes) if len(sizes) else 1.0

    def centered_gram(self, exact: bool) -> tuple[NDArray, NDArray, float]:
        """Return the weighted Gram matrix, the means, and the sum of the weights.

        With an intercept, the features are centered; else the means are zero.
        """
        mass = max(float(self.weights.sum()), 1e-300)
        means = self.design.rmv(self.weights) / mass * self.fit_intercept
        scale = None if self.uniform else self.weights
        gram = self.design.gram(weights=scale, exact=exact)
        gram -= mass * np.outer(means, means)
        return gram, means, mass

    def _uncrossed(self, b: NDArray, res: NDArray) -> tuple[NDArray, NDArray]:
        """Return b with its upper outputs raised until none cross, and residuals."""
        d = len(self.mix)
        counted = self.weights > 0
        raised = np.maximum(-res[d:, counted].min(axis=1), 0.0)
        shift = np.append(0.0, np.cumsum(raised))
        res = res - (shift @ self.mix)[:, None]
        np.maximum(res[d:], 0.0, out=res[d:])  # remove rounding of the sums
        return b + shift, res

    def _balanced(
        self, a: NDArray, gradient: NDArray, rate: Any
    ) -> tuple[NDArray, NDArray]:
        """Return `a` with a weighted sum of zero for every output, and its gradient."""
        d = len(self.mix)
        losses = self.losses
        if rate is None:
            rate = losses.between(a)
        goals = -self.mix[:, d:] @ (a[d:] @ self.weights)
        outputs = [
            balance(
                a[j], self.weights, losses.lo[j], losses.hi[j], rate[j], float(goals[j])
            )
            for j in range(d)
        ]
        balanced = np.vstack([*outputs, a[d:]])
        rows = np.flatnonzero((balanced != a).any(axis=0))
        if 0 < len(rows) < _FEW * a.shape[1]:
            step = self.weights[rows] * (balanced[:, rows] - a[:, rows])
            gradient = gradient + self.design.rmv(step.T, rows)
        elif len(rows):
            gradient = gradient + self.design.rmv(self.weighted(balanced - a).T)
        return balanced, gradient


def gram_of(part: NewtonProblem, rows: NDArray | None, exact: bool) -> NDArray:
    """Return the weighted Gram matrix of some rows of a problem, the intercept last.

    Unless `exact`, it is in single precision if the features are.
    """
    weights = part.weights if rows is None else part.weights[rows]
    gram = part.design.gram(rows, None if part.uniform else weights, exact=exact)
    if not part.fit_intercept:
        return gram
    out = np.empty((len(gram) + 1,) * 2)
    out[:-1, :-1] = gram
    out[:-1, -1] = out[-1, :-1] = part.design.rmv(weights, rows)
    out[-1, -1] = weights.sum()
    return out
