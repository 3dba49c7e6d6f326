r"""Shapley values and marginal effects of fitted models.

Shapley values of kernel expansions are exact. For

.. math:: f(x) = \sum_i \beta_i \prod_j k_j(x_j, l_{ij}) + b, \qquad
          v_x(S) = \sum_i \beta_i \prod_{j \in S} k_j(x_j, l_{ij})
                   \prod_{j \notin S} m_{ij} + b

with :math:`m_{ij}` the mean of :math:`k_j(z_j, l_{ij})` over background samples z,
features outside S are drawn independently from their background values.
With :math:`a_{ij} = k_j(x_j, l_{ij})`, the Shapley value of a product game is an
integral of a polynomial of one variable,

.. math:: \phi_j = \sum_i \beta_i\, (a_{ij} - m_{ij})
          \int_0^1 \prod_{l \ne j} \bigl(m_{il} + s\,(a_{il} - m_{il})\bigr)\,ds,

which Gauss-Legendre quadrature integrates exactly in :math:`O(n m q^2)` operations for
n samples and m landmarks; the definition sums over :math:`2^q` coalitions.

For other kernels and for tables, values are averaged over permutations of the features
in both directions (shap's permutation explainer), with absent features from complete
background samples.

Marginal effects are slopes of f, averaged with posterior standard deviations or with
standard errors clustered by groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nbsketch._expansion import compiled_form
from nbsketch._jit.shapley import mean_factors, shapley_of_products
from nbsketch.estimators._base import KernelExpansion
from nbsketch.estimators.posterior import std_of_sum
from nbsketch.kernels import LinearKernel
from nbsketch.rows.inputs import (
    check_in_memory,
    compared_rows,
    is_dask,
    is_pairwise,
    new_rows,
    row_by_row,
)
from nbsketch.rows.transform import transform_rows
from nbsketch.tabular._model import TabularModel

__all__ = ["MarginalEffects", "expected_value", "marginal_effects", "shapley_values"]

# Number of permutations (each used in both directions), and of background samples.
_PERMUTATIONS = 10
_MOST_BACKGROUND = 100
# Half of the step of a difference quotient, in standard deviations of the column: its
# truncation error is of the order of its square, its rounding error 1e-16 over it.
_STEP = 1e-3
_KINKED = "absolute", "minimum"  # metrics


class MarginalEffects(NamedTuple):
    """Slopes of a fitted function in each column.

    Attributes
    ----------
    effects : ndarray of shape (n, q) or (n, q, d)
        Slope at each sample.
    average : ndarray of shape (q,) or (q, d)
        Mean slopes over the samples.
    std : ndarray of shape (q,) or (q, d), or None
        Posterior standard deviations of the mean slopes, or their clustered standard
        errors after ``fit_posterior(X, y, groups=groups)``; None without
        ``fit_posterior``.
    """

    effects: NDArray
    average: NDArray
    std: NDArray | None


def shapley_values(
    model: KernelExpansion | TabularModel, X: Any, background: Any = None
) -> NDArray:
    r"""Return the contribution of each feature to the value f(x).

    The values of a sample add up to f(x) minus `expected_value`. f(x) is the
    prediction, with exceptions: its logarithm for a Poisson or gamma loss, the decision
    function for a kernel classifier, and the unsorted quantiles for
    `JointQuantileRegressor` (as with ``non_crossing=None``). For a tabular model f(x)
    is the prediction, or the probabilities.

    Parameters
    ----------
    model : estimator
        Fitted model. Values are exact for kernel models with the Gaussian or the
        Laplacian kernel, which are products over features. Values of other stationary
        kernels and of tabular models are sampled by the package shap, with ten
        permutations of the features in both directions. They add up to f(x), are exact
        up to interactions of two features, and have an error of order 1 / sqrt(10)
        times the higher interactions.
    X : array or data frame of shape (n, q)
        Samples to explain. For a Dask collection, exact values are lazy and keep its
        chunks.
    background : array or data frame of shape (b, q) or None, default=None
        Samples that provide the values of absent features: each feature independently
        for exact values, complete samples (at most 100, drawn) for sampled values. A
        single sample is the reference that X is compared with. None: the landmarks;
        required for tabular models: pass a subset of the training samples.

    Returns
    -------
    ndarray of shape (n, q) or (n, q, d)
        Shapley values; 0 for features that the model does not use. For tabular models
        one per column of X.

    Raises
    ------
    TypeError
        If the model is neither a sketched kernel model of dense samples nor a tabular
        model.
    ValueError
        If no background is passed for a tabular model.
    ModuleNotFoundError
        If values are sampled and shap is not installed (``pip install shap``).

    References
    ----------
    L. S. Shapley, "A Value for n-Person Games", 1953. M. Mohammadi et al., "Computing
    Exact Shapley Values in Polynomial Time for Product-Kernel Methods", arXiv
    2505.16516 (there, absent features have no factor, and elementary symmetric
    polynomials are used). S. M. Lundberg and S.-I. Lee, "A Unified Approach to
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
    >>> print(f"{total:.3f} {model.predict([[2.0, 1.0, 0.0]])[0]:.3f}")
    5.000 5.000
    """
    if _is_sampled(model):
        return _Game.of(model, background).values(X)
    means = _ProductExpansion.of(model).means(background)
    if is_dask(X):
        return row_by_row(MethodType(_values_of_rows, model), X, means)
    return _values_of_rows(model, X, means)


def _values_of_rows(model: KernelExpansion, X: ArrayLike, means: NDArray) -> NDArray:
    """Return the Shapley values of samples from the background's mean factors."""
    expansion = _ProductExpansion.of(model)
    rows = _rows(model, X)
    nodes, weights = np.polynomial.legendre.leggauss(max(1, -(-len(means.T) // 2)))
    shape = len(rows), len(expansion.used), expansion.coef.shape[1]
    out = np.empty(shape)
    model_args = *expansion.compiled, means, expansion.coef
    shapley_of_products(rows, *model_args, (nodes + 1) / 2, weights / 2, out)
    full = np.zeros((shape[0], model.n_features_in_, shape[2]))
    full[:, expansion.used] = out
    return full[:, :, 0] if model.coef_.ndim == 1 else full


def expected_value(
    model: KernelExpansion | TabularModel, background: Any = None
) -> Any:
    """Return the value of f without any feature, a float or array of shape (d,).

    It is the mean of f over independent draws of the background values of each feature,
    or over complete background samples if values are sampled; with a single background
    sample, f of this sample. f and the parameters are as in `shapley_values`: with a
    Poisson or gamma loss of a kernel model it is the mean of the logarithm, not the
    logarithm of the mean.
    """
    if _is_sampled(model):
        game = _Game.of(model, background)
        mean = game.function(game.background).mean(axis=0)
        return float(mean) if np.ndim(mean) == 0 else mean
    expansion = _ProductExpansion.of(model)
    value = expansion.means(background).prod(axis=1) @ expansion.coef
    value = value + model.intercept_
    return float(value[0]) if model.coef_.ndim == 1 else value


def marginal_effects(model: KernelExpansion, X: Any) -> MarginalEffects:
    r"""Return the slopes of f at samples, and their means with standard deviations.

    The effect of column j at a sample is :math:`\partial f / \partial x_j`, computed by
    central differences with steps of a thousandth of the column's standard deviation
    in the landmarks. If a column has only two values (in more than two samples), the
    effect is the difference of f between these values.

    With the posterior of `SketchedKernelRegressor.fit_posterior`, `std` is the standard
    deviation of :math:`v^\top f` under the Gaussian process, with v the weights of the
    differences in the mean effect. If the posterior was fitted with ``groups``, it is
    the standard error for noise that is correlated within groups, the root of

    .. math:: \frac{G}{G - 1}\, \frac{n - 1}{n - d} \sum_{g=1}^G \Bigl(\sum_{i \in g}
              l_i r_i\Bigr)^2

    with G groups, d effective degrees of freedom, residuals :math:`r_i` and the weights
    :math:`l_i` of the targets in the mean effect. It is conditional on the samples and
    does not include the bias of the penalty.

    Parameters
    ----------
    model : kernel model
        Fitted model; f is as in `shapley_values`.
    X : array or data frame of shape (n, q)
        Samples over which effects are averaged, for example the training samples.
        Standard deviations without groups take :math:`4 n^2` kernel values per column:
        pass a subset of large data.

    Returns
    -------
    MarginalEffects
        ``effects``, ``average`` and ``std``.

    Raises
    ------
    TypeError
        If the model is not a sketched kernel model of dense samples.
    ValueError
        If a column with more than two values has no slope because its kernel has kinks
        (Laplacian, Matern 1/2, Sobolev) or preprocessing uses its ranks.

    References
    ----------
    J. Hainmueller and C. Hazlett, "Kernel Regularized Least Squares", 2014; with
    sketches Q. Chang and M. Goplerud, "Generalized Kernel Regularized Least Squares",
    2024. A. C. Cameron and D. L. Miller, "A Practitioner's Guide to Cluster-Robust
    Inference", 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.explain import marginal_effects
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.uniform(-1, 1, size=300), rng.random(300) < 0.5])
    >>> y = 3 * X[:, 0] + 2 * X[:, 1] + 0.1 * rng.normal(size=300)
    >>> model = SketchedKernelRegressor("gaussian", random_state=0).fit(X, y)
    >>> found = marginal_effects(model.fit_posterior(X, y), X)
    >>> found.average.round(1).tolist(), (found.std < 0.1).tolist()
    ([3.0, 2.0], [True, True])
    """
    _check_dense(model)
    if is_pairwise(model.kernel):
        raise TypeError(
            "`model` must have a kernel of samples, got precomputed kernel values"
        )
    check_in_memory("X", X, "marginal effects")
    rows = np.array(new_rows(model, X), dtype=np.float64)
    slopes = []
    deviations = []
    for j in range(rows.shape[1]):
        contrast = _Contrast.of(model, rows, j)
        slopes.append(contrast.slopes(model))
        if hasattr(model, "posterior_"):
            deviations.append(contrast.std(model))
    effects = np.stack(slopes, axis=1)
    average = effects.mean(axis=0)
    std = np.reshape(deviations, average.shape) if deviations else None
    return MarginalEffects(effects, average, std)


class _Contrast(NamedTuple):
    """Samples with a column lowered and raised, and the divisor of the difference."""

    points: NDArray
    step: float

    @classmethod
    def of(cls, model: Any, rows: NDArray, j: int) -> _Contrast:
        """Return the contrast of column j: between its two values, or a slope."""
        n = len(rows)
        points = np.vstack([rows, rows])
        values = np.unique(rows[:, j])
        if len(values) == 2 < n:
            points[:, j] = np.repeat(values, n)
            return cls(points, 1.0)
        _check_slope(model, j)
        half = _STEP * (_deviation(model, j) or float(np.abs(values).max()) or 1.0)
        points[:, j] += np.repeat([-half, half], n)
        return cls(points, 2 * half)

    def slopes(self, model: Any) -> NDArray:
        """Return the effect at each sample, (n,) or (n, d)."""
        rows = transform_rows(self.points, model.scaler_, model.kernel_)
        low, high = np.split(model._values_of_inputs(rows), 2)
        return (high - low) / self.step

    def std(self, model: Any) -> NDArray:
        """Return the posterior standard deviation of the mean effect, (d,)."""
        n = len(self.points) // 2
        v = np.repeat([-1.0, 1.0], n) / (n * self.step)
        return std_of_sum(model, self.points, v)


def _deviation(model: Any, j: int) -> float:
    """Return the standard deviation of column j in the landmarks; 0 if unknown.

    The landmarks of a linear kernel are unit vectors.
    """
    if isinstance(model.kernel_, LinearKernel):
        return 0.0
    scaler = model.scaler_
    if scaler is None:
        return float(model.landmarks_[:, j].std())
    width = scaler.width[: len(scaler.plain)]
    places = (scaler.plain == j) & np.isfinite(width)
    return float(model.landmarks_.std(axis=0)[: len(width)][places] @ width[places])


def _check_slope(model: Any, j: int) -> None:
    """Raise an error if f has kinks in column j, where quotients depend on the step."""
    form = compiled_form(model)
    if form and (form.metric in _KINKED or form.profile == "matern-1/2"):
        raise ValueError(
            "`model` must have a smooth kernel for slopes, got "
            f"{type(model.kernel_).__name__}, which has kinks at the landmarks: fit "
            "with kernel='gaussian' or kernel='matern'"
        )
    if model.scaler_ is not None and j in model.scaler_.ranked:
        raise ValueError(
            f"`model` must be smooth in its columns for slopes, got ranks of column "
            f"{j}, which have kinks at their quantiles: fit with "
            "preprocessing='standard'"
        )


def _is_sampled(model: Any) -> bool:
    """Return whether the values of a model are sampled, not exact."""
    if isinstance(model, TabularModel):
        return True
    if not isinstance(model, KernelExpansion):
        return False
    check_is_fitted(model)
    form = compiled_form(model)
    if form is None:  # rejected by `_ProductExpansion`
        return False
    return form.profile != "exponential" or form.metric not in ("squared", "absolute")


class _Game(NamedTuple):
    """A function of encoded samples whose columns belong to features.

    Attributes
    ----------
    function : callable
        Values (m,) or (m, d) at encoded samples (m, p).
    encode : callable
        Encoding (m, p) of samples as passed by the user.
    owners : ndarray of int of shape (p,)
        Feature of each column.
    n_features : int
        Number of features.
    background : ndarray of shape (b, p)
        Encoded background samples.
    """

    function: Callable[[NDArray], NDArray]
    encode: Callable[[Any], NDArray]
    owners: NDArray
    n_features: int
    background: NDArray

    @classmethod
    def of(cls, model: Any, background: Any) -> _Game:
        """Return the game of a fitted model."""
        check_in_memory("background", background, "Shapley values")
        check_is_fitted(model)
        if isinstance(model, TabularModel):
            if background is None:
                raise ValueError(
                    "`background` must be passed for a tabular model, got None: pass "
                    "a subset of the training samples"
                )
            encode = model._encoded
            function = model._outputs
            owners = model.columns_.owners
        else:
            encode = partial(_rows, model)
            function = model._values_of_inputs
            landmarks = model.landmarks_
            owners = np.arange(landmarks.shape[1])
            owners = owners if model.scaler_ is None else model.scaler_.features
        rows = landmarks if background is None else encode(background)
        drawn = np.random.default_rng(0).permutation(len(rows))[:_MOST_BACKGROUND]
        return cls(function, encode, owners, model.n_features_in_, rows[np.sort(drawn)])

    def values(self, X: Any) -> NDArray:
        """Return Shapley values (n, q) or (n, q, d), sampled by shap."""
        if find_spec("shap") is None:
            raise ModuleNotFoundError(
                "Shapley values of this model are sampled by shap, which is not "
                "installed: `pip install shap`, or fit with kernel='gaussian' or "
                "kernel='laplacian', whose values are exact"
            )
        with warnings.catch_warnings():  # from plotting modules of shap
            warnings.simplefilter("ignore")
            from shap.explainers import PermutationExplainer

        check_in_memory("X", X, "Shapley values of this model")
        every = np.vstack([self.background, self.encode(X)])
        columns = np.arange(every.shape[1])

        def value(places: NDArray) -> NDArray:
            taken = np.asarray(places, dtype=np.intp)[:, self.owners]
            return self.function(every[taken, columns])

        used = len(self.background)
        places = np.repeat(np.arange(len(every))[:, None], self.n_features, axis=1)
        # shap's own masker takes seconds to compile in each process
        explainer = PermutationExplainer(
            value, lambda mask, x: np.where(mask, x, places[:used]), seed=0
        )
        evaluations = _PERMUTATIONS * (2 * self.n_features + 1)
        explained = explainer(places[used:], max_evals=evaluations, silent=True)
        return np.asarray(explained.values)


def _check_dense(model: Any) -> None:
    """Check that a model is a fitted kernel expansion of dense samples."""
    if not isinstance(model, KernelExpansion):
        raise TypeError(
            "`model` must be a sketched kernel model, a sum over landmarks, got "
            f"{type(model).__name__}"
        )
    check_is_fitted(model)
    if sp.issparse(model.landmarks_):
        raise TypeError("`model` must be fitted to dense samples, got sparse ones")


def _rows(model: Any, X: Any) -> NDArray:
    """Return preprocessed samples."""
    return np.ascontiguousarray(compared_rows(model, X), dtype=np.float64)


class _ProductExpansion(NamedTuple):
    """A fitted model as a sum over landmarks of products over features.

    `compiled` holds the arguments of compiled functions after the samples: the
    landmarks, the positions in `used` (the relevant features) of the preprocessed
    columns, their scales, and whether the metric is squared.
    """

    model: Any
    compiled: tuple[NDArray, NDArray, NDArray, bool]
    coef: NDArray
    used: NDArray

    @classmethod
    def of(cls, model: Any) -> _ProductExpansion:
        """Return the expansion; raise an error for other models and kernels."""
        _check_dense(model)
        landmarks = model.landmarks_
        form = compiled_form(model)
        if form is None:
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

    def means(self, background: Any) -> NDArray:
        """Return the mean factors of the background, (m, used features)."""
        check_in_memory("background", background, "Shapley values")
        landmarks = self.compiled[0]
        rows = landmarks if background is None else _rows(self.model, background)
        out = np.empty((len(landmarks), len(self.used)))
        mean_factors(rows, *self.compiled, out)
        return out
