"""Sub-sampling with probabilities proportional to ridge leverage scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nbsketch._validation import check_choice, check_positive, random_generator
from nbsketch.leverage import alpha_for_dimension, ridge_leverage_scores
from nbsketch.sketches._recipe import SizedRecipe, draw_seed
from nbsketch.sketches._sketch import Origin, Sketch
from nbsketch.sketches._streams import uniforms
from nbsketch.sketches.sampling import rows_of_identity

# Effective dimension at the default level, as a share of the size.
_DIMENSION_PER_ROW = 0.25

_NO_DATA = (
    "`X` and `kernel` must be given to draw a LeverageSketch: "
    "draw(n, rng, X=X, kernel=kernel)"
)


@dataclass(frozen=True)
class LeverageSketch(SizedRecipe):
    r"""Sub-sampling by ridge leverage scores (ALS Nystrom).

    Row i of the sketch is :math:`e_j^\top / \sqrt{s q_j}`, where the column j is drawn,
    with replacement, with probability

    .. math:: q_j = \frac{\ell_j}{\sum_k \ell_k}, \qquad
        \ell_j = \bigl[K (K + n \alpha I)^{-1}\bigr]_{jj},

    so that :math:`E[S^T S] = I`. Isolated rows of the data are drawn more often than by
    uniform sub-sampling.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    alpha : float or None, default=None
        Level of the scores. None: the level at which the effective dimension of the
        kernel on the data is about s / 4.
    method : {"auto", "exact", "recursive"}, default="auto"
        Algorithm for the scores: see `nbsketch.leverage.ridge_leverage_scores`.

    Notes
    -----
    Rudi, Camoriano and Rosasco, "Less is more: Nystrom computational regularization",
    NeurIPS 2015; Musco and Musco, "Recursive sampling for the Nystrom method", NeurIPS
    2017.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, LeverageSketch
    >>> x = np.append(np.linspace(0, 1, 99), 5.0)[:, None]  # one isolated
    >>> S = LeverageSketch(size=20).draw(100, 0, X=x, kernel=GaussianKernel(1.0))
    >>> S.shape, 99 in S.columns
    ((20, 100), True)
    """

    alpha: float | None = None
    method: Literal["auto", "exact", "recursive"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("method", self.method, ["auto", "exact", "recursive"])
        if self.alpha is not None:
            object.__setattr__(self, "alpha", check_positive("alpha", self.alpha))

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n rows of data: see `SketchRecipe.draw`.

        The data `X` and the `kernel`, with its parameters set, are needed.
        """
        n = self._check_rows(n)
        if X is None or kernel is None:
            raise TypeError(_NO_DATA)
        if np.shape(X)[0] != n:
            raise ValueError(f"`X` must have n = {n} rows, got shape {np.shape(X)}")
        rng = random_generator(rng)
        probabilities = self._probabilities(X, kernel, rng)
        return self._draw(n, Origin(self, draw_seed(rng), probabilities))

    def _probabilities(self, X: Any, kernel: Any, rng: np.random.Generator) -> Any:
        alpha = self.alpha
        if alpha is None:
            dimension = _DIMENSION_PER_ROW * self.size
            alpha = alpha_for_dimension(X, kernel, dimension, random_state=rng)
        scores = ridge_leverage_scores(
            X, kernel, alpha, method=self.method, random_state=rng
        )
        total = scores.sum()  # zero for a kernel that is zero on the data
        return scores / total if total > 0 else np.full(len(scores), 1 / len(scores))

    def draw_matrix(self, n: int, seed: int) -> Any:
        """Raise an error: a seed is not enough without data."""
        raise TypeError(_NO_DATA)

    def _draw(self, n: int, origin: Origin) -> Sketch:
        q: Any = origin.probabilities  # set by `draw`
        bounds = np.cumsum(q)
        places = uniforms(origin.seed, self.size)[:, 0] * bounds[-1]
        chosen = np.minimum(np.searchsorted(bounds, places, side="right"), n - 1)
        scales = 1 / np.sqrt(self.size * q[chosen])
        return Sketch(rows_of_identity(chosen, scales, n), origin)
