r"""Exact Shapley values of kernel expansions: what each feature adds to f(x).

.. math:: f(x) = \sum_i \beta_i \prod_j k_j(x_j, l_{ij}) + b, \qquad
          v_x(S) = \sum_i \beta_i \prod_{j \in S} k_j(x_j, l_{ij})
                   \prod_{j \notin S} m_{ij} + b

with :math:`m_{ij}` the mean of :math:`k_j(z_j, l_{ij})` over background rows z:
features outside S are drawn independently of each other from their background values.
With :math:`a_{ij} = k_j(x_j, l_{ij})`, the Shapley value of a product game is an
integral of a polynomial of one variable,

.. math:: \phi_j = \sum_i \beta_i\, (a_{ij} - m_{ij})
          \int_0^1 \prod_{l \ne j} \bigl(m_{il} + s\,(a_{il} - m_{il})\bigr)\,ds,

which Gauss-Legendre quadrature gives exactly: :math:`O(n m q^2)` for n rows and m
landmarks, where the definition takes :math:`2^q` coalitions.
"""

from __future__ import annotations

from types import MethodType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nbsketch._expansion import compiled_form
from nbsketch._jit.shapley import mean_factors, shapley_of_products
from nbsketch.estimators._base import KernelExpansion
from nbsketch.rows.inputs import check_in_memory, is_dask, new_rows, row_by_row
from nbsketch.rows.transform import transform_rows

__all__ = ["expected_value", "shapley_values"]


def shapley_values(
    model: KernelExpansion, X: ArrayLike, background: ArrayLike | None = None
) -> NDArray:
    r"""Return what each feature adds to the value f(x) of rows, exactly.

    The values of a row add up to f(x) minus `expected_value`. f(x) is the prediction,
    but for a Poisson or gamma loss its logarithm, for a classifier the decision
    function, and for `JointQuantileRegressor` the quantiles before they are sorted:
    those of ``non_crossing=None``, which are the prediction where none cross.

    Parameters
    ----------
    model : estimator
        Fitted kernel machine with the Gaussian or the Laplacian kernel, which are
        products over features; also with learned length scales and preprocessing.
    X : array of shape (n, q)
        Rows to explain. Values of a Dask collection are lazy, with its chunks.
    background : array of shape (b, q) or None, default=None
        Rows whose values a feature has while it is absent, each feature by itself. One
        row: the reference that X is compared with. None: the landmarks.

    Returns
    -------
    ndarray of shape (n, q) or (n, q, d)
        Shapley values; 0 for features that the model does not use.

    Raises
    ------
    TypeError
        If the kernel is not a product over features: fit with ``kernel="gaussian"`` or
        ``kernel="laplacian"``.

    References
    ----------
    L. S. Shapley, "A Value for n-Person Games", 1953. M. Mohammadi et al., "Computing
    Exact Shapley Values in Polynomial Time for Product-Kernel Methods", arXiv
    2505.16516, which has features outside S without a factor and computes by elementary
    symmetric polynomials. S. M. Lundberg and S.-I. Lee, "A Unified Approach to
    Interpreting Model Predictions", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.explain import expected_value, shapley_values
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(500, 3))
    >>> y = X[:, 0] ** 2 + X[:, 1]                     # the third feature has no effect
    >>> model = SketchedKernelRegressor("gaussian", random_state=0).fit(X, y)
    >>> values = shapley_values(model, [[2.0, 1.0, 0.0]])
    >>> abs(values.round()).tolist()
    [[3.0, 1.0, 0.0]]
    >>> total = values.sum() + expected_value(model)
    >>> bool(abs(total - model.predict([[2.0, 1.0, 0.0]])[0]) < 1e-8)
    True
    """
    means = _ProductExpansion.of(model).means(background)
    if is_dask(X):
        return row_by_row(MethodType(_values_of_rows, model), X, means)
    return _values_of_rows(model, X, means)


def _values_of_rows(model: KernelExpansion, X: ArrayLike, means: NDArray) -> NDArray:
    """Return the Shapley values of rows, given the mean factors of the background."""
    expansion = _ProductExpansion.of(model)
    rows = expansion.rows(X)
    nodes, weights = np.polynomial.legendre.leggauss(max(1, -(-len(means.T) // 2)))
    shape = len(rows), len(expansion.used), expansion.coef.shape[1]
    out = np.empty(shape)
    model_args = *expansion.compiled, means, expansion.coef
    shapley_of_products(rows, *model_args, (nodes + 1) / 2, weights / 2, out)
    full = np.zeros((shape[0], model.n_features_in_, shape[2]))
    full[:, expansion.used] = out
    return full[:, :, 0] if model.coef_.ndim == 1 else full


def expected_value(model: KernelExpansion, background: ArrayLike | None = None) -> Any:
    """Return the value f without any feature, a float or (d,).

    The mean of f over independent draws of the background values of each feature; with
    one background row, f of this row. f and parameters as in `shapley_values`: with a
    Poisson or gamma loss the mean of the logarithm, not the logarithm of the mean.
    """
    expansion = _ProductExpansion.of(model)
    value = expansion.means(background).prod(axis=1) @ expansion.coef
    value = value + model.intercept_
    return float(value[0]) if model.coef_.ndim == 1 else value


class _ProductExpansion(NamedTuple):
    """A fitted model as a sum over landmarks of products over features.

    `compiled` is what compiled functions take after the rows: the landmarks, the places
    in `used`, the features that matter, of the columns that preprocessing makes, their
    scales, and whether the metric is squared.
    """

    model: Any
    compiled: tuple[NDArray, NDArray, NDArray, bool]
    coef: NDArray
    used: NDArray

    @classmethod
    def of(cls, model: Any) -> _ProductExpansion:
        """Return the expansion; raise an error for other models and kernels."""
        if not isinstance(model, KernelExpansion):
            raise TypeError(
                "`model` must be a sketched kernel machine, a sum over landmarks, got "
                f"{type(model).__name__}"
            )
        check_is_fitted(model)
        landmarks = model.landmarks_
        if sp.issparse(landmarks):
            raise TypeError("`model` must be fitted to dense rows, got sparse ones")
        form = compiled_form(model)
        metrics = "squared", "absolute"
        if form is None or form.profile != "exponential" or form.metric not in metrics:
            raise TypeError(
                "`model` must have a kernel that is a product over features, got "
                f"{type(model.kernel_).__name__}: fit with kernel='gaussian' or "
                "kernel='laplacian'"
            )
        columns = np.arange(landmarks.shape[1])
        owner = columns if model.scaler_ is None else model.scaler_.features
        used, features = np.unique(owner, return_inverse=True)
        coef = model.coef_.reshape(len(model.coef_), -1)
        landmarks = np.ascontiguousarray(landmarks, dtype=np.float64)
        is_squared = form.metric == "squared"
        compiled = landmarks, features.astype(np.int64), form.scale, is_squared
        return cls(
            model, compiled, np.ascontiguousarray(model.sketch_.weights.T @ coef), used
        )

    def rows(self, X: Any) -> NDArray:
        """Return rows after preprocessing."""
        model = self.model
        rows = transform_rows(new_rows(model, X), model.scaler_, model.kernel_)
        return np.ascontiguousarray(rows, dtype=np.float64)

    def means(self, background: Any) -> NDArray:
        """Return the mean factors of the background, (m, used features)."""
        check_in_memory("background", background, "Shapley values")
        landmarks = self.compiled[0]
        rows = landmarks if background is None else self.rows(background)
        out = np.empty((len(landmarks), len(self.used)))
        mean_factors(rows, *self.compiled, out)
        return out
