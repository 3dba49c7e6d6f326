"""Sketches whose rows are multiples of rows of the identity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._validation import as_csr, check_choice, check_integer, check_rows
from nbsketch.sketches._recipe import SizedRecipe, SketchRecipe
from nbsketch.sketches._sketch import Origin, Sketch
from nbsketch.sketches._streams import integers, start_of_permutation


@dataclass(frozen=True)
class SubsamplingSketch(SizedRecipe):
    r"""Uniform sub-sampling (Nystrom): s rows of :math:`\sqrt{n/s}\, I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    replace : bool, default=False
        Whether a row may be drawn more than once.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.2. The fitted model is the
    Nystrom approximation with s uniform landmarks.

    Examples
    --------
    >>> from nbsketch import SubsamplingSketch
    >>> SubsamplingSketch(size=4).draw(100, rng=0)
    Sketch(shape=(4, 100), columns=4)
    """

    replace: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("replace", self.replace, [False, True])

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        if self.replace:
            chosen = integers(seed, self.size, 1, n)[:, 0]
        else:
            chosen = start_of_permutation(seed, self.size, n)
        scales = np.full(self.size, math.sqrt(n / self.size))
        return rows_of_identity(chosen, scales, n)


@dataclass(frozen=True)
class IdentitySketch(SketchRecipe):
    """No sketch: S = I, the exact kernel machine.

    Memory and time of a fit grow as n^2 and n^3.

    Examples
    --------
    >>> from nbsketch import IdentitySketch
    >>> IdentitySketch().draw(5)
    IdentityMatrix(shape=(5, 5), columns=5)
    """

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> IdentityMatrix:
        """Draw the sketch of n rows of data: see `SketchRecipe.draw`."""
        n = check_integer("n", n)
        return IdentityMatrix(rows_of_identity(np.arange(n), np.ones(n), n))


@dataclass(frozen=True, eq=False, repr=False)
class LandmarkSketch(SketchRecipe):
    """Landmarks of one's own, which need not be training rows.

    For estimators that are one kernel expansion, and `SketchedFeatures`. The points are
    prepared as the rows of X are: preprocessing and length scales are those of X.

    Parameters
    ----------
    points : array, data frame of numbers or sparse matrix of shape (m, q)
        Distinct landmarks, in the columns of X. Sparse ones go with sparse X.

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
        is_sparse = sp.issparse(self.points)
        given = as_csr(self.points, "points") if is_sparse else np.array(self.points)
        points = check_rows("points", given)
        object.__setattr__(self, "points", points)

    def __repr__(self) -> str:
        return f"LandmarkSketch(points=<{self.size} rows>)"

    @property
    def size(self) -> int:
        """The number of landmarks."""
        return self.points.shape[0]

    def points_for(self, X: Any, n_features: int) -> Any:
        """Return the points in the type of the rows X, which have so many features."""
        if self.points.shape[1] != n_features:
            raise ValueError(
                f"`points` must have {n_features} columns as `X`, got "
                f"{self.points.shape[1]}"
            )
        if sp.issparse(X):
            return sp.csr_array(self.points, dtype=X.dtype)
        if sp.issparse(self.points):
            raise TypeError("`points` must be dense for dense `X`, got a sparse matrix")
        return self.points.astype(X.dtype, copy=False)

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Raise an error: landmarks that are no rows are no matrix of n columns."""
        raise TypeError(
            "`sketch` must be a sketch of the training rows here, got a "
            "LandmarkSketch, which goes with estimators of one kernel expansion and "
            "SketchedFeatures: pass 'subsampling' instead"
        )


class IdentityMatrix(Sketch):
    """The identity as a sketch."""

    def __init__(self, matrix: sp.csr_array, origin: Origin | None = None) -> None:
        super().__init__(matrix, origin)
        n, m = self.shape[0], self._matrix
        diagonal = n == self.shape[1] == m.nnz and (m.indices == np.arange(n)).all()
        if not (diagonal and (m.data == 1).all()):
            raise ValueError(
                f"`matrix` must be the identity, got a matrix of shape {self.shape}"
            )

    @property
    def is_identity(self) -> bool:
        """True."""
        return True


def rows_of_identity(
    chosen: NDArray[np.int64], scales: NDArray[np.float64], n: int
) -> sp.csr_array:
    """Return the matrix with the rows ``scales[i] e_{chosen[i]}``."""
    pointers = np.arange(chosen.size + 1)
    return sp.csr_array((scales, chosen, pointers), shape=(chosen.size, n))
