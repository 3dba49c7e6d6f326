"""Sketches: recipes, and the random matrices drawn from them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import inf, log1p, sqrt
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._jit import csr
from nbsketch._jit.threads import run_slices
from nbsketch._machine.memory import fits
from nbsketch._report.fields import (
    choice,
    count,
    named_object,
    optional,
    positive,
    register,
    rules,
    share,
)
from nbsketch._report.validation import check_integer, check_rows, random_generator
from nbsketch.gram import SymmetricGram
from nbsketch.gram.form import take_rows
from nbsketch.kernels import as_kernel
from nbsketch.leverage import METHODS, alpha_for_dimension, ridge_leverage_scores
from nbsketch.sketches._sketch import (
    DenseSketch,
    Origin,
    SizedRecipe,
    Sketch,
    SketchRecipe,
    draw_seed,
    integers,
    rows_of_identity,
    signs,
    start_of_permutation,
    uniforms,
)
from nbsketch.sketches.srht import SRHTSketch, TransformSketch
from nbsketch.solvers._linear.cholesky import partial_cholesky

__all__ = [
    "AccumulationSketch",
    "CountSketch",
    "DenseSketch",
    "GaussianSketch",
    "IdentitySketch",
    "LandmarkSketch",
    "LeverageSketch",
    "PSparsifiedSketch",
    "RPCholeskySketch",
    "RademacherSketch",
    "SRHTSketch",
    "SizedRecipe",
    "Sketch",
    "SketchRecipe",
    "SparseJLSketch",
    "SubsamplingSketch",
    "TransformSketch",
    "as_recipe",
]

# Approximate time of one random number on one thread.
_SECONDS_PER_ENTRY = 2e-8
_LAWS = {"rademacher": csr.RADEMACHER, "gaussian": csr.GAUSSIAN}
# Mean number of nonzeros per row, as in the experiments of the paper.
_NONZEROS_PER_ROW = 20
# Recommended by Martinsson and Tropp, 2020, section 9.2.
_NONZEROS = 8
# Effective dimension at the default level, as a share of the size.
_DIMENSION_PER_ROW = 0.25
# Maximum bytes of the factor for choosing pivots if no memory limit is set.
_FACTOR_BYTES = 1e9


@dataclass(frozen=True)
class DenseRecipe(SizedRecipe):
    """Base of sketches with independent entries of a law, scaled by the size."""

    _law: ClassVar[int]

    def draw_matrix(self, n: int, seed: int) -> NDArray:
        """Return the matrix for a seed: see `SizedRecipe.draw_matrix`."""
        entries = np.empty((self.size, n))
        args = np.uint64(seed), self._law, 1 / sqrt(self.size), entries
        run_slices(csr.fill_dense, self.size, n * _SECONDS_PER_ENTRY, *args)
        return entries


@dataclass(frozen=True)
class GaussianSketch(DenseRecipe):
    r"""Gaussian sketch: independent entries :math:`S_{ij} \sim N(0, 1/s)`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017. All columns of the Gram matrix are
    used, tile by tile, and s n entries are stored.

    Examples
    --------
    >>> from nbsketch import GaussianSketch
    >>> GaussianSketch(size=3).draw(100, rng=0)
    DenseSketch(shape=(3, 100), columns=100)
    """

    _law = csr.GAUSSIAN


@dataclass(frozen=True)
class RademacherSketch(DenseRecipe):
    r"""Rademacher sketch: independent entries :math:`S_{ij} = \pm 1/\sqrt{s}`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    Equal to the p-SR sketch with p = 1. All columns of the Gram matrix are used, tile
    by tile, and s n entries are stored.

    Examples
    --------
    >>> from nbsketch import RademacherSketch
    >>> RademacherSketch(size=4).draw(100, rng=0)
    DenseSketch(shape=(4, 100), columns=100)
    """

    _law = csr.RADEMACHER


@dataclass(frozen=True)
class PSparsifiedSketch(SizedRecipe):
    r"""p-sparsified sketch, p-SR or p-SG.

    .. math:: S_{ij} = \frac{1}{\sqrt{s p}} B_{ij} R_{ij}

    with independent B ~ Bernoulli(p) and R Rademacher (p-SR) or standard normal (p-SG);
    :math:`E[S^T S] = I`. Only s' columns have a nonzero: :math:`S = S_{SG} S_{SS}`, a
    small dense sketch after a subsampling sketch.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    density : float in (0, 1] or None, default=None
        Probability p of a nonzero. None: min(1, 20/n), about 20 nonzeros per row, so
        that s' is about 20 s at most.
    law : {"rademacher", "gaussian"}, default="rademacher"
        Distribution of the nonzeros.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, "Fast Kernel Methods for Generic Lipschitz
    Losses via p-Sparsified Sketches", TMLR 2023, section 3. The matrix is written
    directly in CSR form in O(s + nnz) time and memory, independent of n.

    Examples
    --------
    >>> from nbsketch import PSparsifiedSketch
    >>> S = PSparsifiedSketch(size=50).draw(100_000_000, rng=0)
    >>> S.shape, 800 < S.columns.size < 1200
    ((50, 100000000), True)
    """

    density: float | None = None
    law: Literal["rademacher", "gaussian"] = "rademacher"

    _rules = rules(density=optional(share), law=choice(*_LAWS))

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix for a seed: see `SizedRecipe.draw_matrix`."""
        p = min(1.0, _NONZEROS_PER_ROW / n) if self.density is None else self.density
        log_absent = log1p(-p) if p < 1 else -inf
        pointers = np.zeros(self.size + 1, dtype=np.int64)
        law = np.uint64(seed), n, log_absent
        csr.count_entries(*law, pointers[1:])
        np.cumsum(pointers, out=pointers)
        columns = np.empty(pointers[-1], np.int64)
        values = np.empty(pointers[-1])
        scale = 1 / sqrt(self.size * p)
        csr.fill_entries(*law, _LAWS[self.law], scale, pointers, columns, values)
        return sp.csr_array((values, columns, pointers), shape=(self.size, n))


@dataclass(frozen=True)
class CountSketch(SizedRecipe):
    r"""CountSketch: one entry :math:`\pm 1` per column, in a random row.

    Rows and signs are independent and uniform; :math:`E[S^T S] = I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    Clarkson and Woodruff, "Low-rank approximation and regression in input sparsity
    time", J. ACM 2017. All columns of the Gram matrix are used, tile by tile, at little
    more than the cost of the kernel values. The rows are dependent, so the sketch
    cannot grow.

    Examples
    --------
    >>> from nbsketch import CountSketch
    >>> S = CountSketch(size=10).draw(100, rng=0)
    >>> S, S.to_csr().nnz
    (Sketch(shape=(10, 100), columns=100), 100)
    """

    grows = False

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix for a seed: see `SizedRecipe.draw_matrix`."""
        return _draw_columns(self.size, n, 1, seed)


@dataclass(frozen=True)
class SparseJLSketch(SizedRecipe):
    r"""Sparse Johnson-Lindenstrauss sketch: c nonzeros per column.

    The entries are :math:`\pm 1/\sqrt{c}` with independent signs, in c distinct rows
    drawn uniformly; :math:`E[S^T S] = I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    nonzeros : int or None, default=None
        Number c of nonzeros per column, at most s. None: min(8, s). 1 gives
        `CountSketch`, s gives `RademacherSketch`.

    Notes
    -----
    Kane and Nelson, "Sparser Johnson-Lindenstrauss transforms", J. ACM 2014, the graph
    construction. To preserve lengths up to a factor 1 + e with probability 1 - d, s of
    order log(1/d) / e^2 and c of order e s suffice. In practice a constant c suffices;
    8 is recommended by Martinsson and Tropp, "Randomized numerical linear algebra",
    Acta Numerica 2020, section 9.2. All columns of the Gram matrix are used, tile by
    tile. The rows are dependent, so the sketch cannot grow.

    Examples
    --------
    >>> from nbsketch import SparseJLSketch
    >>> S = SparseJLSketch(size=10, nonzeros=3).draw(100, rng=0)
    >>> S, S.to_csr().nnz
    (Sketch(shape=(10, 100), columns=100), 300)
    """

    nonzeros: int | None = None
    grows = False
    _rules = rules(nonzeros=optional(count))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nonzeros is not None:
            check_integer("nonzeros", self.nonzeros, high=self.size)

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix for a seed: see `SizedRecipe.draw_matrix`."""
        c = min(_NONZEROS, self.size) if self.nonzeros is None else self.nonzeros
        return _draw_columns(self.size, n, c, seed)


def _draw_columns(size: int, n: int, c: int, seed: int) -> sp.csr_array:
    rows = np.empty((n, c), dtype=np.int32)
    csr.fill_distinct(np.uint64(seed), size, np.full(size, -1), rows)
    values = signs(seed, n, c) / sqrt(c)
    columns = values.ravel(), rows.ravel(), np.arange(n + 1) * c
    return sp.csr_array(sp.csc_array(columns, shape=(size, n)))


@dataclass(frozen=True)
class SubsamplingSketch(SizedRecipe):
    r"""Uniform subsampling (Nystrom): s rows of :math:`\sqrt{n/s}\, I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    replace : bool, default=False
        Whether a row may be drawn more than once.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.2. The fitted model is the
    Nystrom approximation with s uniformly drawn landmarks.

    Examples
    --------
    >>> from nbsketch import SubsamplingSketch
    >>> SubsamplingSketch(size=4).draw(100, rng=0)
    Sketch(shape=(4, 100), columns=4)
    """

    replace: bool = False

    _rules = rules(replace=choice(False, True))

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix for a seed: see `SizedRecipe.draw_matrix`."""
        if self.replace:
            chosen = integers(seed, self.size, 1, n)[:, 0]
        else:
            chosen = start_of_permutation(seed, self.size, n)
        return rows_of_identity(chosen, sqrt(n / self.size), n)


@dataclass(frozen=True)
class IdentitySketch(SketchRecipe):
    """Identity sketch, S = I: the exact kernel method.

    Memory and time of a fit grow like n^2 and n^3.

    Examples
    --------
    >>> from nbsketch import IdentitySketch
    >>> IdentitySketch().draw(5)
    IdentityMatrix(shape=(5, 5), columns=5)
    """

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> IdentityMatrix:
        """Draw the sketch of n samples: see `SketchRecipe.draw`."""
        n = check_integer("n", n)
        return IdentityMatrix(rows_of_identity(np.arange(n), 1.0, n))


@dataclass(frozen=True, eq=False, repr=False)
class LandmarkSketch(SketchRecipe):
    """Landmarks given by the user, which need not be training samples.

    For estimators with a single kernel expansion, and for `SketchedFeatures`. The
    points are transformed like X, with its preprocessing and length scales.

    Parameters
    ----------
    points : array, data frame of numbers or sparse matrix of shape (m, q)
        Distinct landmarks, with the columns of X. Sparse points require sparse X.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import LandmarkSketch, SketchedKernelRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> grid = np.linspace(-3, 3, 13)[:, None]
    >>> model = SketchedKernelRegressor(sketch=LandmarkSketch(grid), bandwidth=1.0)
    >>> model.fit(X, np.sin(X[:, 0])).predict([[0.5], [1.5]]).round(2).tolist()
    [0.48, 1.0]
    """

    points: Any

    def __post_init__(self) -> None:
        given = self.points if sp.issparse(self.points) else np.array(self.points)
        object.__setattr__(self, "points", check_rows("points", given))

    def __repr__(self) -> str:
        return f"LandmarkSketch(points=<{self.size} rows>)"

    @property
    def size(self) -> int:
        """Number of landmarks."""
        return self.points.shape[0]

    def points_for(self, X: Any, n_features: int) -> Any:
        """Return the checked points in the dtype and form of X."""
        points = self.points
        if points.shape[1] != n_features:
            raise ValueError(
                f"`points` must have {n_features} columns as `X`, got {points.shape[1]}"
            )
        if sp.issparse(X):
            return sp.csr_array(points, dtype=X.dtype)
        if sp.issparse(points):
            raise TypeError("`points` must be dense for dense `X`, got a sparse matrix")
        return points.astype(X.dtype, copy=False)

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Raise an error: these landmarks define no matrix of n columns."""
        raise TypeError(
            "`sketch` must be a sketch of the training samples here, got a "
            "LandmarkSketch, which is for estimators with one kernel expansion and "
            "SketchedFeatures: pass 'subsampling' instead"
        )


@register
class IdentityMatrix(Sketch):
    """The identity as a sketch."""

    is_identity = True

    def __init__(self, matrix: sp.csr_array, origin: Origin | None = None) -> None:
        super().__init__(matrix, origin)
        n = self.shape[0]
        m = self.matrix
        diagonal = n == self.shape[1] == m.nnz and (m.indices == np.arange(n)).all()
        if not (diagonal and (m.data == 1).all()):
            raise ValueError(
                f"`matrix` must be the identity, got a matrix of shape {self.shape}"
            )


@dataclass(frozen=True)
class AccumulationSketch(SizedRecipe):
    r"""Accumulation of m subsampling sketches with random signs.

    .. math:: S_{i \cdot} = \sqrt{\frac{n}{s m}} \sum_{t=1}^m r_{it}\, e_{j_{it}}^\top

    with independent signs r and uniform columns j, so that :math:`E[S^T S] = I`. Values
    at the same entry are added.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    m : int, default=30
        Number of subsampling sketches: at most m nonzeros per row. m = 1 is subsampling
        with replacement; a large m is close to a Gaussian sketch.

    Notes
    -----
    Y. Chen and Y. Yang, "Accumulations of projections: a unified framework for random
    sketches in kernel ridge regression", AISTATS 2021, section 3, with uniform
    probabilities. Tables 1, 2 and 6 of El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023,
    have m = 20.

    Examples
    --------
    >>> from nbsketch import AccumulationSketch
    >>> S = AccumulationSketch(size=50, m=10).draw(100_000_000, rng=0)
    >>> S.shape, 490 < S.columns.size <= 500
    ((50, 100000000), True)
    """

    m: int = 30

    _rules = rules(m=count)

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix for a seed: see `SizedRecipe.draw_matrix`."""
        size = self.size
        shape = size, self.m
        columns = integers(seed, *shape, n).ravel()
        values = signs(seed, *shape).ravel().astype(np.float64)
        pointers = np.arange(size + 1) * self.m
        matrix = sp.csr_array((values, columns, pointers), shape=(size, n))
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        matrix.data *= sqrt(n / (size * self.m))
        return matrix


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
        X = check_rows("X", X)
        if X.shape[0] != n:
            raise ValueError(f"`X` must have n = {n} rows, got shape {X.shape}")
        return self._draw_from(n, random_generator(rng), X, kernel)

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

    _rules = rules(alpha=optional(positive), method=choice(*METHODS))

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
        size = self.size
        seed = draw_seed(rng)
        rng = np.random.default_rng(seed)
        count = n  # of the samples whose factor fits into memory
        while count > size and not fits(8.0 * count * size, unasked=_FACTOR_BYTES):
            count = max(size, count // 2)
        kernel = as_kernel(kernel)
        rows = np.arange(n)
        taken = X
        if count < n:
            rows = rng.choice(n, count, replace=False)
            taken = take_rows(kernel, X, rows)
        # In single precision, rounding would change the landmarks.
        double = np.float64
        K = SymmetricGram(kernel.resolve(X, rng), taken, dtype=double)
        _, pivots = partial_cholesky(K, size, rng, dtype=double, one_by_one=True)
        others = np.setdiff1d(np.arange(count), pivots)
        chosen = rows[np.concatenate([pivots, rng.permutation(others)])[:size]]
        matrix = rows_of_identity(chosen, sqrt(n / size), n)
        return Sketch(matrix, Origin(self, seed))


_BY_NAME: dict[str, type[SketchRecipe]] = {
    "p-sparsified": PSparsifiedSketch,
    "gaussian": GaussianSketch,
    "rademacher": RademacherSketch,
    "subsampling": SubsamplingSketch,
    "leverage": LeverageSketch,
    "rpcholesky": RPCholeskySketch,
    "accumulation": AccumulationSketch,
    "countsketch": CountSketch,
    "sparse-jl": SparseJLSketch,
    "srht": SRHTSketch,
    "identity": IdentitySketch,
}


def as_recipe(
    sketch: Any, size: int | None, n: int, *, prefix: str = ""
) -> SketchRecipe:
    """Return the recipe of a sketch of n samples from an object, or a name and a size.

    `prefix` is prepended to both argument names in error messages: ``"output_"``.
    """
    family = _BY_NAME.get(sketch) if isinstance(sketch, str) else None
    if family is not None and issubclass(family, SizedRecipe):
        check_integer(f"{prefix}size", size)
    recipe = named_object("sketch", sketch, _BY_NAME, SketchRecipe, prefix, size=size)
    if isinstance(recipe, SizedRecipe):
        recipe.check_size(n, f"{prefix}size")
    return recipe
