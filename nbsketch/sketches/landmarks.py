"""Sketches that depend on the data: leverage scores and pivoted Cholesky."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nbsketch._machine.memory import fits
from nbsketch._report import fields, validation
from nbsketch.gram import SymmetricGram
from nbsketch.gram.form import take_rows
from nbsketch.kernels import as_kernel
from nbsketch.leverage import METHODS, alpha_for_dimension, ridge_leverage_scores
from nbsketch.sketches._sketch import (
    Origin,
    SizedRecipe,
    Sketch,
    draw_seed,
    rows_of_identity,
    uniforms,
)
from nbsketch.solvers._linear.cholesky import partial_cholesky

# Effective dimension at the default level, as a share of the size.
_DIMENSION_PER_ROW = 0.25
# Maximum bytes of the factor for choosing pivots if no memory limit is set.
_FACTOR_BYTES = 1e9


@dataclass(frozen=True)
class DataSketch(SizedRecipe):
    """A recipe that needs the data and the kernel, with its parameters set."""

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n samples: see `SketchRecipe.draw`.

        `X` and `kernel`, with its parameters set, are required.
        """
        n = self._check_rows(n)
        if X is None or kernel is None:
            raise TypeError(self._no_data)
        X = validation.check_rows("X", X)
        if X.shape[0] != n:
            raise ValueError(f"`X` must have n = {n} rows, got shape {X.shape}")
        return self._draw_from(n, validation.random_generator(rng), X, kernel)

    @abstractmethod
    def _draw_from(
        self, n: int, rng: np.random.Generator, X: Any, kernel: Any
    ) -> Sketch:
        """Return the sketch of these samples."""

    def draw_matrix(self, n: int, seed: int) -> Any:
        """Raise an error: a seed is not enough without data."""
        raise TypeError(self._no_data)

    @property
    def _no_data(self) -> str:
        return (
            f"`X` and `kernel` must be passed to draw a {type(self).__name__}: "
            "draw(n, rng, X=X, kernel=kernel)"
        )


@dataclass(frozen=True)
class LeverageSketch(DataSketch):
    r"""Subsampling by ridge leverage scores (ALS Nystrom).

    Row i of the sketch is :math:`e_j^\top / \sqrt{s q_j}`. The column j is drawn with
    replacement, with probability

    .. math:: q_j = \frac{\ell_j}{\sum_k \ell_k}, \qquad
        \ell_j = \bigl[K (K + n \alpha I)^{-1}\bigr]_{jj},

    so that :math:`E[S^T S] = I`. Isolated samples are drawn more often than by uniform
    subsampling.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    alpha : float or None, default=None
        Level of the scores. None: the level with an effective dimension of about s / 4.
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

    _rules = fields.rules(
        alpha=fields.optional(fields.positive), method=fields.choice(*METHODS)
    )

    def _draw_from(
        self, n: int, rng: np.random.Generator, X: Any, kernel: Any
    ) -> Sketch:
        alpha = self.alpha
        if alpha is None:
            dimension = _DIMENSION_PER_ROW * self.size
            alpha = alpha_for_dimension(X, kernel, dimension, random_state=rng)
        scores = ridge_leverage_scores(
            X, kernel, alpha, method=self.method, random_state=rng
        )
        total = scores.sum()
        shares = scores / total if total > 0 else np.full(n, 1 / n)  # a zero kernel
        return self._draw(n, Origin(self, draw_seed(rng), shares))

    def _draw(self, n: int, origin: Origin) -> Sketch:
        q: Any = origin.probabilities  # set by `draw`
        bounds = np.cumsum(q)
        places = uniforms(origin.seed, self.size)[:, 0] * bounds[-1]
        chosen = np.minimum(np.searchsorted(bounds, places, side="right"), n - 1)
        scales = 1 / np.sqrt(self.size * q[chosen])
        return Sketch(rows_of_identity(chosen, scales, n), origin)


@dataclass(frozen=True)
class RPCholeskySketch(DataSketch):
    r"""Landmarks by randomly pivoted Cholesky: s rows of :math:`\sqrt{n/s}\, I`.

    Landmarks are drawn sequentially, with probabilities proportional to the diagonal of
    K that the previous landmarks J do not explain,

    .. math:: k(x, x) - k_J(x)^\top K_{JJ}^{-1} k_J(x) .

    To span data with outliers or clusters of unequal size, it needs far fewer landmarks
    than uniform subsampling or a p-sparsified sketch, so predictions are faster.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    Chen, Epperly, Tropp and Webber, "Randomly pivoted Cholesky: practical approximation
    of a kernel matrix with few entry evaluations", 2022, Algorithm 2.1, in blocks of
    proposals: Epperly, Tropp and Webber, "Embrace rejection: kernel matrix
    approximation by accelerated randomly pivoted Cholesky", 2024. It takes :math:`n s`
    kernel values, :math:`n s^2` operations and 8 n s bytes of temporary memory. If this
    exceeds the memory limit (1e9 bytes by default), landmarks are drawn from the
    largest random subset that fits. When no sample adds to the span, the remaining
    landmarks are drawn uniformly. Unlike for other sketches, :math:`E[S^T S]` is not
    the identity.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, RPCholeskySketch
    >>> x = np.append(np.linspace(0, 1, 99), 5.0)[:, None]  # one isolated
    >>> S = RPCholeskySketch(size=5).draw(100, 0, X=x, kernel=GaussianKernel(1.0))
    >>> S.shape, 99 in S.columns
    ((5, 100), True)
    """

    grows = False

    def _draw_from(
        self, n: int, rng: np.random.Generator, X: Any, kernel: Any
    ) -> Sketch:
        seed = draw_seed(rng)
        rng = np.random.default_rng(seed)
        count = n  # of the samples whose factor fits into memory
        while count > self.size and not fits(
            8.0 * count * self.size, unasked=_FACTOR_BYTES
        ):
            count = max(self.size, count // 2)
        kernel = as_kernel(kernel)
        rows = np.arange(n)
        taken = X
        if count < n:
            rows = rng.choice(n, count, replace=False)
            taken = take_rows(kernel, X, rows)
        # In single precision, rounding would change the landmarks.
        double = np.float64
        K = SymmetricGram(kernel.resolve(X, rng), taken, dtype=double)
        _, pivots = partial_cholesky(K, self.size, rng, dtype=double, one_by_one=True)
        others = np.setdiff1d(np.arange(count), pivots)
        chosen = rows[np.concatenate([pivots, rng.permutation(others)])[: self.size]]
        scales = np.full(self.size, math.sqrt(n / self.size))
        return Sketch(rows_of_identity(chosen, scales, n), Origin(self, seed))
