"""Interface of kernels for Gram matrices: a compiled form and a few methods."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit import gram as codes
from nbsketch._report.validation import check_choice

METRICS = {
    "squared": codes.SQUARED,
    "absolute": codes.ABSOLUTE,
    "product": codes.PRODUCT,
    "minimum": codes.MINIMUM,
    "tanimoto": codes.TANIMOTO,
}
PROFILES = {
    "exponential": codes.EXPONENTIAL,
    "matern-1/2": codes.MATERN_12,
    "matern-3/2": codes.MATERN_32,
    "matern-5/2": codes.MATERN_52,
    "power": codes.POWER,
    "complement": codes.COMPLEMENT,
}
# Metrics of differences, which are invariant to translations of all rows.
_INVARIANT = "squared", "absolute"
# Maximum translation in bandwidths in single precision.
_MOVED = 1e-5
# Share of the largest number of a dtype that rows, scales and kernel values may reach:
# differences and sums of rows exceed them.
_REACH = 1 / 8
# Number of rows for computing medians.
_SAMPLE = 1000


@dataclass(frozen=True, eq=False)
class CompiledForm:
    r"""A kernel for compiled code: a profile of a metric.

    .. math:: k(x, y) = \text{profile}\Bigl(\text{metric}
        \bigl(\text{scale} \circ x, \text{scale} \circ y\bigr)\Bigr)

    Parameters
    ----------
    metric : {"squared", "absolute", "product", "minimum", "tanimoto"}
        Function of the scaled features of two rows: the sum of squared differences, of
        absolute differences or of products; the product over the features of the
        smaller value; the Tanimoto similarity p / (||x||^2 + ||y||^2 - p) of the sum of
        products p.
    profile : str
        Function of the metric t that gives the kernel value:

        - "exponential": :math:`2^{-t}`;
        - "matern-1/2", "matern-3/2", "matern-5/2": :math:`e^{-u}` times 1, 1 + u and
          1 + u + u^2 / 3 for :math:`u = \sqrt{t} \log 2`;
        - "power": :math:`(t + \text{offset})^\text{degree}`;
        - "complement": :math:`2^{-\text{offset}\,(1 - t)}`.
    scale : ndarray of shape (q,)
        Factor of each feature.
    offset : float, default=0
        Parameter of "power" and "complement".
    degree : int, default=1
        Parameter of "power".

    Notes
    -----
    Rows may be sparse for the metrics "squared", "product" and "tanimoto".

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.gram import CompiledForm, evaluate
    >>> form = CompiledForm("product", "power", scale=np.ones(2), offset=1.0, degree=2)
    >>> evaluate(form, np.array([[1.0, 2.0]]), np.array([[3.0, 1.0]])).tolist()
    [[36.0]]
    """

    metric: str
    profile: str
    scale: NDArray
    offset: float = 0.0
    degree: int = 1

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        check_choice("profile", self.profile, PROFILES)


class KernelLike(Protocol):
    """The methods of a kernel that a Gram matrix calls.

    `nbsketch.kernels.Kernel` documents them and implements all but the first two.
    """

    def compiled_form(self, n_features: int) -> CompiledForm | None:
        """Return the compiled form; None if the kernel can only be called."""

    def __call__(self, X: Any, Y: Any = None) -> NDArray:
        """Return k(X, Y) of shape (n, m)."""

    def take(self, rows: Any, index: NDArray | None = None) -> Any:
        """Return the landmarks that represent the rows of an index, or all rows."""

    def check_landmarks(self, landmarks: ArrayLike, n_features: int) -> Any:
        """Return the landmarks as an array, or raise an error."""

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if the kernel is undefined for some rows."""

    def diag(self, X: Any) -> NDArray:
        """Return k(x, x) for each row x of X."""


def take_rows(kernel: Any, rows: Any, index: Any, columns: Any = None) -> Any:
    """Return a subset of rows; of kernel values also the columns (None: the same)."""
    if not getattr(kernel, "is_pairwise", False):
        return rows[index]
    return rows[index][:, index if columns is None else columns]


def rounded_rows(
    form: CompiledForm | None, X: Any, dtype: np.dtype, center: NDArray | None = None
) -> Any:
    """Return rows in a dtype, dense ones centered first if no value changes.

    float32 has seven digits, of which few are left for differences of large numbers,
    such as times in seconds since 1970. The rows are shifted by `center`, by default
    their medians, which are robust to outliers.

    Examples
    --------
    >>> from nbsketch import GaussianKernel
    >>> times = np.array([[1.6e9], [1.6e9 + 1], [1.6e9 + 3]])
    >>> rounded_rows(GaussianKernel(1.0).compiled_form(1), times, np.float32).ravel()
    array([-1.,  0.,  2.], dtype=float32)
    """
    fixed = form is None or form.metric not in _INVARIANT
    if X.dtype == dtype or sp.issparse(X) or fixed:
        return X.astype(dtype, copy=False)
    # In float64, because differences in float32 would be rounded before they are
    # stored.
    center = (middle_of(X) if center is None else center).astype(np.float64)
    return np.subtract(X, center, out=np.empty(X.shape, dtype), casting="same_kind")


def values_type(
    form: CompiledForm | None, X: Any, dtype: Any, center: NDArray | None = None
) -> np.dtype:
    """Return the dtype of kernel values: `dtype`, or float64 if the rows require it.

    They do if rows, scales or kernel values would overflow, or if rounding moves them.
    Rounding moves a row by its distance from the center times 6e-8, in bandwidths.

    Examples
    --------
    >>> from nbsketch import GaussianKernel
    >>> days = 86400.0 * np.arange(60)[:, None]
    >>> values_type(GaussianKernel(1.0).compiled_form(1), days, np.float32)
    dtype('float64')
    """
    info = np.finfo(dtype)
    limit = _REACH * float(info.max)
    largest = max(float(X.max()), -float(X.min()))
    if largest > limit:
        return np.dtype(np.float64)
    if form is None:
        return np.dtype(dtype)
    scale = float(form.scale.max(initial=0))
    square = X.shape[1] * (scale * largest) * (scale * largest)
    value = form.degree * math.log1p(square + form.offset)
    moved = 0.0
    if form.metric in _INVARIANT and not sp.issparse(X):
        center = middle_of(X) if center is None else center
        reach = np.maximum(X.max(axis=0) - center, center - X.min(axis=0))
        moved = float((reach * form.scale).max(initial=0)) * info.eps / 2
    is_exact = moved <= _MOVED and scale <= limit and value <= math.log(limit)
    return np.dtype(dtype if is_exact else np.float64)


def middle_of(X: NDArray) -> NDArray:
    """Return the medians of the columns, on a sample of the rows if there are many."""
    return np.median(X[:: max(1, len(X) // _SAMPLE)], axis=0)
