r"""Output matrices, which couple the outputs of a vector-valued problem.

For the decomposable kernel K(x, x') = k(x, x') M with a symmetric positive
semi-definite M (d x d), the prediction is ``Z W T`` for any T with ``T^T T = M``, and
the penalty is ``alpha / 2 |W|_F^2``. Solvers need only T. The null space of M is
dropped, so W has as many columns as M has rank.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.fields import Checked, not_negative, plain, rules
from nbsketch._report.validation import check_matrix, check_no_class, check_real

__all__ = [
    "GraphOutput",
    "IdentityOutput",
    "MatrixOutput",
    "Output",
    "QuantileOutput",
    "as_output",
]

# Eigenvalues below this fraction of the largest count as zero.
_CUT = 1e-12
# Relative tolerance for asymmetry and negative eigenvalues.
_SLACK = 1e-8


def check_levels(name: str, levels: ArrayLike) -> tuple[float, ...]:
    """Return quantile levels as a tuple; they must ascend strictly in (0, 1)."""
    array = np.asarray(levels)
    if array.dtype.kind not in "fiu" or array.ndim != 1 or array.size == 0:
        got = f"{array.tolist()!r:.60}"
        raise TypeError(f"`{name}` must be a sequence of numbers, got {got}")
    inside = (array > 0).all() and (array < 1).all()
    if not (inside and (np.diff(array) > 0).all()):
        raise ValueError(
            f"`{name}` must be strictly ascending in (0, 1), got {array.tolist()}"
        )
    return tuple(array.astype(float).tolist())


class Output(Checked):
    """Base class of output matrices.

    Subclasses define `size` and `_matrix`.

    Examples
    --------
    >>> output = MatrixOutput([[2.0, 2.0], [2.0, 2.0]])
    >>> values, vectors = output.spectrum(2)
    >>> values.round(12), vectors.shape
    (array([4.]), (2, 1))
    >>> T = output.factor(2)
    >>> (T.T @ T).round(12)
    array([[2., 2.],
           [2., 2.]])
    """

    @property
    def size(self) -> int | None:
        """Number of outputs d; None for any number."""
        raise NotImplementedError

    def _matrix(self, n_outputs: int) -> NDArray:
        raise NotImplementedError

    def matrix(self, n_outputs: int) -> NDArray:
        """Return M of shape (n_outputs, n_outputs)."""
        if self.size not in (None, n_outputs):
            raise ValueError(
                f"`output` must have {n_outputs} rows, one per column of y, got "
                f"{self.size}"
            )
        return self._matrix(n_outputs)

    def spectrum(self, n_outputs: int) -> tuple[NDArray, NDArray]:
        """Return positive eigenvalues (d',), descending, and eigenvectors (d, d')."""
        values, vectors = np.linalg.eigh(self.matrix(n_outputs))
        kept = np.flatnonzero(values > _CUT * values[-1])[::-1]
        return values[kept], vectors[:, kept]

    def factor(self, n_outputs: int) -> NDArray:
        """Return T of shape (d', n_outputs), of full row rank, with ``T^T T = M``."""
        values, vectors = self.spectrum(n_outputs)
        return np.sqrt(values)[:, None] * vectors.T


@dataclass(frozen=True)
class IdentityOutput(Output):
    """Identity output matrix, M = I: outputs are coupled only through the loss.

    Examples
    --------
    >>> IdentityOutput().matrix(2)
    array([[1., 0.],
           [0., 1.]])
    """

    size = None  # any number of outputs

    def _matrix(self, n_outputs: int) -> NDArray:
        return np.eye(n_outputs)


@dataclass(frozen=True)
class QuantileOutput(Output):
    r"""Output matrix of a Gaussian kernel on quantile levels; couples quantile curves.

    :math:`M_{jl} = \exp(-\gamma (\tau_j - \tau_l)^2)`.

    Parameters
    ----------
    quantiles : sequence of float
        Levels tau, strictly ascending in (0, 1).
    gamma : float, default=1.0
        Coupling (>= 0). At 0 all quantile curves are parallel and differ only in their
        intercepts, so they do not cross. Larger values make them more independent.

    References
    ----------
    M. Sangnier, O. Fercoq, F. d'Alche-Buc, "Joint quantile regression in vector-valued
    RKHSs", NeurIPS 2016.

    Examples
    --------
    >>> QuantileOutput(quantiles=(0.25, 0.75), gamma=4.0).matrix(2).round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    """

    quantiles: tuple[float, ...]
    gamma: float = 1.0

    _rules = rules(quantiles=plain(check_levels), gamma=not_negative)

    @property
    def size(self) -> int:
        """Number of levels."""
        return len(self.quantiles)

    def _matrix(self, n_outputs: int) -> NDArray:
        levels = np.array(self.quantiles)
        return np.exp(-self.gamma * np.subtract.outer(levels, levels) ** 2)


@dataclass(frozen=True)
class GraphOutput(Output):
    r"""Graph-regularized output matrix: outputs joined by an edge are similar.

    :math:`M = (\mu L + (1 - \mu) I)^{-1}`, where L is the Laplacian of the graph; the
    pseudo-inverse at mu = 1.

    Parameters
    ----------
    adjacency : array_like of shape (d, d)
        Symmetric matrix of nonnegative edge weights. The diagonal has no effect.
    mu : float, default=0.5
        Strength of the coupling in [0, 1]; 0 gives the identity.

    References
    ----------
    T. Evgeniou, C. A. Micchelli, M. Pontil, "Learning multiple tasks with kernel
    methods", JMLR 2005.

    Examples
    --------
    >>> GraphOutput(adjacency=[[0, 1], [1, 0]], mu=0.5).matrix(2).round(3)
    array([[1.333, 0.667],
           [0.667, 1.333]])
    """

    adjacency: tuple[tuple[float, ...], ...]
    mu: float = 0.5

    def __post_init__(self) -> None:
        adjacency = _check_symmetric("adjacency", self.adjacency)
        if adjacency.min() < 0:
            raise ValueError(f"`adjacency` must be >= 0, got {adjacency.min():g}")
        mu = check_real("mu", self.mu, low=0, high=1)
        if mu == 1 and np.count_nonzero(adjacency - np.diag(adjacency.diagonal())) == 0:
            raise ValueError("`adjacency` must have an edge when mu=1, got none")
        object.__setattr__(self, "adjacency", _as_tuples(adjacency))
        object.__setattr__(self, "mu", mu)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.adjacency)

    def _matrix(self, n_outputs: int) -> NDArray:
        weights = np.array(self.adjacency)
        laplacian = np.diag(weights.sum(axis=1)) - weights
        penalty = self.mu * laplacian + (1 - self.mu) * np.eye(n_outputs)
        return np.linalg.pinv(penalty, rcond=_CUT, hermitian=True)


@dataclass(frozen=True)
class MatrixOutput(Output):
    """Output matrix M given as an array.

    Parameters
    ----------
    values : array_like of shape (d, d)
        The matrix M, nonzero and possibly singular.

    Examples
    --------
    >>> MatrixOutput([[2.0, 1.0], [1.0, 2.0]]).size
    2
    """

    values: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        matrix = _check_symmetric("output", self.values)
        eigenvalues = np.linalg.eigvalsh(matrix)
        largest = np.abs(eigenvalues).max()
        if largest == 0 or eigenvalues[0] < -_SLACK * largest:
            raise ValueError(
                "`output` must be a nonzero positive semi-definite matrix, got an "
                f"eigenvalue of {eigenvalues[0]:g}"
            )
        object.__setattr__(self, "values", _as_tuples(matrix))

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.values)

    def _matrix(self, n_outputs: int) -> NDArray:
        return np.array(self.values)


def as_output(output: Any) -> Output:
    """Return an Output for an Output, None or "identity", or a PSD matrix.

    Examples
    --------
    >>> as_output(None)
    IdentityOutput()
    >>> as_output([[2.0, 1.0], [1.0, 2.0]])
    MatrixOutput(values=((2.0, 1.0), (1.0, 2.0)))
    """
    if isinstance(output, Output):
        return output
    if output is None or (isinstance(output, str) and output == "identity"):
        return IdentityOutput()
    if isinstance(output, str):
        raise ValueError(
            "`output` must be 'identity', an Output or a positive semi-definite "
            f"matrix, got {output!r}"
        )
    check_no_class("output", output)
    return MatrixOutput(output)


def _check_symmetric(name: str, value: ArrayLike) -> NDArray:
    matrix = check_matrix(name, value).astype(float)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"`{name}` must be square, got shape {matrix.shape}")
    asymmetry = np.abs(matrix - matrix.T).max()
    if asymmetry > _SLACK * np.abs(matrix).max():
        raise ValueError(f"`{name}` must be symmetric, got asymmetry {asymmetry:g}")
    return (matrix + matrix.T) / 2


def _as_tuples(matrix: NDArray) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, matrix.tolist()))
