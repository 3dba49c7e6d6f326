"""Transformers to kernel features: sketched features and random Fourier features."""

import math
from abc import abstractmethod
from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from nbsketch import kernels
from nbsketch._expansion import expansion_of
from nbsketch._machine.memory import slices
from nbsketch._report.validation import (
    as_labels,
    as_numbers,
    check_finite,
    check_integer,
    check_unmasked,
    declares_parameters,
    keeping_fitted,
    random_generator,
)
from nbsketch._sketch_map import features_recipe, sketched_design
from nbsketch.estimators._base import ObjectParameters
from nbsketch.estimators._summary import summary_lines
from nbsketch.files import SaveMixin
from nbsketch.fitting import sketched
from nbsketch.fitting.lost_columns import warn_of_lost_columns
from nbsketch.fitting.plan import Plan, is_auto
from nbsketch.rows.inputs import (
    checked_rows,
    compared_rows,
    is_dask,
    partitioned_rows,
    row_by_row,
    rowwise,
    set_input_tags,
)
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.scratch import rows_per_block

# Integers with at most this many values are class labels.
_MOST_CLASSES = 20


@declares_parameters
class KernelFeatures(
    SaveMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ObjectParameters,
    BaseEstimator,
):
    """Base class of transformers to kernel features, with their parameters."""

    kernel: Any = field(default="gaussian", kw_only=False)
    bandwidth: Any = None
    size: int | None = None
    random_state: Any = None

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Draw the random numbers, and learn length scales for ``bandwidth="auto"``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, q)
            Samples.
        y : array of shape (n,) or (n, d) or None, default=None
            Targets for ``bandwidth="auto"``, ignored otherwise. Strings, booleans and
            integers with at most 20 values are class labels.
        """
        with keeping_fitted(self):
            self._fit(X, y)
        return self

    @abstractmethod
    def _fit(self, X: Any, y: Any) -> Any:
        """Fit to unchecked samples and targets."""

    def _training_rows(self, X: Any, y: Any) -> Any:
        """Return checked X, and y; Dask targets are computed with X if used."""
        if is_auto(self.bandwidth) and is_dask(X) and is_dask(y):
            return partitioned_rows(self, X, reset=True, y=y)
        return checked_rows(self, X, reset=True), y

    def _learn_inputs(
        self, X: Any, y: Any, size: int, rng: np.random.Generator
    ) -> sketched.Inputs:
        """Set the transformation of samples; return the inputs with the kernel."""
        target = None
        if is_auto(self.bandwidth):
            sketched.check_learnable(self.kernel, X)
            (rng,) = rng.spawn(1)
            target = sketched.TuningTarget(as_targets(y, len(X)))
        plan = Plan(self.kernel, self.bandwidth, preprocessing=None)
        inputs = sketched.prepare_inputs(X, plan, target, size, rng)
        self.scaler_ = inputs.scaler
        self.length_scales_ = inputs.length_scales
        return inputs

    def __sklearn_tags__(self) -> Tags:
        """Return the capabilities of the transformer."""
        tags = super().__sklearn_tags__()
        set_input_tags(self, tags.input_tags)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@declares_parameters
class SketchedFeatures(KernelFeatures):
    r"""Features whose inner products approximate a kernel through a sketch.

    .. math:: z(x) = D_r^{-1/2} U_r^T S k_x, \qquad S K S^T = U D U^T,

    keeping the r eigenvalues above 1e-12 times the largest. If none is dropped, a
    Cholesky factor is used instead of eigenvectors, which only rotates z. A linear
    model on z is equivalent to the sketched kernel model: use it in a pipeline.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="gaussian"
        "gaussian", "laplacian", "matern", "polynomial", "linear", "sobolev",
        "tanimoto", "gaussian-tanimoto", "precomputed", a kernel object or a function
        k(X, Y).
    bandwidth : float, sequence of floats, "median", "auto" or None, default=None
        Bandwidth of a kernel given by name. "auto" learns one length scale per feature
        by ridge regression on the `y` of `fit`, for dense X and the kernels "gaussian",
        "laplacian" and "matern"; with fewer than 30 samples it falls back to "median".
        None: "median".
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "rpcholesky", "accumulation", "countsketch", "sparse-jl", "srht", "identity", or
        a recipe. None: "p-sparsified".
    size : int or None, default=None
        Number of rows s of a sketch given by name. None: min(n, 100).
    random_state : None, int or Generator, default=None
        Pass an int for reproducible features.

    Attributes
    ----------
    kernel_ : Kernel
        Kernel with its bandwidth set.
    sketch_ : Sketch
        The drawn sketch.
    landmarks_ : ndarray or csr_array of shape (s', q)
        Samples of X on which the features depend.
    scaler_ : InputScaler or None
        Transformation of the samples; drops irrelevant features if there are more than
        50. None: samples are used unchanged.
    length_scales_ : ndarray of shape (q,) or None
        Learned length scales in standard deviations of the features; infinite for
        constant features. None: not learned.
    projection_ : ndarray of shape (s, r)
        P with :math:`z(x) = P^T S k_x`.
    rank_ : int
        Number of features r.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from nbsketch import SketchedFeatures
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 1))
    >>> y = np.sin(X[:, 0])
    >>> features = SketchedFeatures(bandwidth=1.0, size=30, random_state=0)
    >>> model = make_pipeline(features, Ridge(alpha=1e-3)).fit(X, y)
    >>> print(f"{model.score(X, y):.3f}")
    1.000
    """

    sketch: Any = None

    @rowwise(lambda method, X, y=None: method.__self__.fit(X, y).transform(X))
    def fit_transform(self, X: ArrayLike, y: Any = None) -> NDArray:
        """Fit and return the features of X: cheaper than `fit` and `transform`."""
        with keeping_fitted(self):
            design = self._fit(X, y, keep=None)
        # Graded features may be X itself, which the user may modify later.
        is_own = isinstance(design, ArrayDesign) and not design.is_graded
        return design.Z if is_own else self.transform(X)

    def _fit(self, X: Any, y: Any, keep: bool | None = False) -> Any:
        X, y = self._training_rows(X, y)
        rngs = random_generator(self.random_state).spawn(2)
        recipe = features_recipe(self.sketch, self.size, X.shape[0])
        X = sketched.held_rows(X, recipe)
        inputs = self._learn_inputs(X, y, getattr(recipe, "size", X.shape[0]), rngs[0])
        self.sketch_, sketch_map = sketched.draw_map(inputs, recipe, rngs)
        self.projection_, design = sketched_design(sketch_map, inputs.rows, keep=keep)
        self.kernel_ = sketch_map.kernel
        self.landmarks_ = sketch_map.landmarks
        self.rank_ = self._n_features_out = design.shape[1]
        if not sketch_map.is_columns:
            warn_of_lost_columns(self, inputs.rows)
        return design

    @rowwise(row_by_row)
    def transform(self, X: ArrayLike) -> NDArray:
        """Return the features of X, of shape (n, r)."""
        check_is_fitted(self)
        rows = compared_rows(self, X)
        return expansion_of(self, self.projection_)(rows, rows.dtype)

    def summary(self) -> str:
        """Return a text summary of the fitted transformer, one line per property."""
        check_is_fitted(self)
        size, n = self.sketch_.shape
        landmarks = f"{self.landmarks_.shape[0]} landmarks"
        sizes = f"size {size} of {n} samples, rank {self.rank_}, {landmarks}"
        return summary_lines(self, [("sketch", sizes)])


@declares_parameters
class RandomFourierFeatures(KernelFeatures):
    r"""Random Fourier features of a Gaussian, Laplacian or Matern kernel.

    .. math:: z(x) = \sqrt{2 / D} \, \bigl(\cos w_1^T x, \dots, \cos w_{D/2}^T x,
        \sin w_1^T x, \dots, \sin w_{D/2}^T x\bigr)

    where the D/2 frequencies w are drawn independently from the spectral density of the
    kernel, so that :math:`E[z(x)^T z(y)] = k(x, y)`.

    Parameters
    ----------
    kernel : {"gaussian", "laplacian", "matern"} or Kernel, default="gaussian"
        Kernel of one of these three families, by name or as an object.
    bandwidth : float, sequence of floats, "median", "auto" or None, default=None
        Bandwidth of a kernel given by name. "auto" learns one length scale per feature
        by ridge regression on the `y` of `fit`, for dense X and the kernels "gaussian",
        "laplacian" and "matern"; with fewer than 30 samples it falls back to "median".
        None: "median".
    size : int, default=100
        Number of features D, even: features are pairs of cosine and sine.
    random_state : None, int or Generator, default=None
        Randomness of the frequencies. Pass an int for reproducible results.

    Attributes
    ----------
    kernel_ : Kernel
        Kernel with its bandwidth set.
    frequencies_ : ndarray of shape (p, D/2)
        The frequencies, one per column.
    scaler_ : InputScaler or None
        Transformation of the samples; drops irrelevant features if there are more than
        50. None: samples are used unchanged.
    length_scales_ : ndarray of shape (q,) or None
        Learned length scales in standard deviations of the features; infinite for
        constant features. None: not learned.

    Notes
    -----
    Rahimi and Recht, NeurIPS 2007. In units of the bandwidths, the frequencies are
    standard normal for the Gaussian kernel, independent Cauchy for the Laplacian, and
    multivariate Student with 2 nu degrees of freedom for the Matern kernel (Rasmussen
    and Williams 2006, section 4.2.1).

    Pairs of cosine and sine are used instead of cosines with random phases: z(x) has
    norm 1, and the variance of an inner product at the difference :math:`\Delta`,
    :math:`(1 + k(2 \Delta) - 2 k(\Delta)^2) / D`, is smaller for these kernels
    (Sutherland and Schneider, UAI 2015).

    The features do not depend on the data (except through a median bandwidth); they are
    the baseline for sketches, which do.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, RandomFourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> features = RandomFourierFeatures(bandwidth=2.0, size=4000, random_state=0)
    >>> Z = features.fit_transform(X)
    >>> print(f"{abs(Z @ Z.T - GaussianKernel(2.0)(X)).max():.2f}")
    0.02
    """

    size: int = 100

    def _fit(self, X: Any, y: Any) -> None:
        X, y = self._training_rows(X, y)
        X = sketched.held_rows(X)
        size = check_integer("size", self.size, low=2)
        if size % 2:
            raise ValueError(
                f"`size` must be even (pairs of cosine and sine), got {size}"
            )
        # Two streams: the frequencies do not depend on the choice of the bandwidth.
        kernel_rng, rng = random_generator(self.random_state).spawn(2)
        inputs = self._learn_inputs(X, y, size, kernel_rng)
        X = inputs.rows
        kernel: Any = inputs.kernel
        unit = _unit_frequencies(kernel, rng, (size // 2, X.shape[1]))
        self.kernel_ = kernel.resolve(X, kernel_rng)
        frequencies = (unit / self.kernel_.bandwidth).T
        self.frequencies_ = np.ascontiguousarray(frequencies, dtype=X.dtype)
        self._n_features_out = size
        warn_of_lost_columns(self, X)

    @rowwise(row_by_row)
    def transform(self, X: ArrayLike) -> NDArray:
        """Return the features of X, of shape (n, D)."""
        check_is_fitted(self)
        W = self.frequencies_
        rows = checked_rows(self, X, dtype=W.dtype)
        rows = rows if self.scaler_ is None else self.scaler_.transform(rows)
        n = rows.shape[0]
        half = W.shape[1]
        Z = np.empty((n, 2 * half), dtype=W.dtype)
        for block in slices(n, rows_per_block(half, W.dtype)):
            phases = rows[block] @ W
            np.cos(phases, out=Z[block, :half])
            np.sin(phases, out=Z[block, half:])
        Z *= 1 / math.sqrt(half)
        return Z

    def summary(self) -> str:
        """Return a text summary of the fitted transformer, one line per property."""
        check_is_fitted(self)
        return summary_lines(self, [("features", str(self._n_features_out))])

    def __sklearn_tags__(self) -> Tags:
        """Declare sparse input, which is only multiplied by the frequencies."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not is_auto(self.bandwidth)
        return tags


def _unit_frequencies(
    kernel: kernels.Kernel, rng: np.random.Generator, shape: tuple[int, int]
) -> NDArray:
    """Draw frequencies of a kernel with unit bandwidths, one per row."""
    if isinstance(kernel, kernels.LaplacianKernel):
        return rng.standard_cauchy(shape)
    if isinstance(kernel, kernels.GaussianKernel):
        return rng.standard_normal(shape)
    if isinstance(kernel, kernels.MaternKernel):
        normal = rng.standard_normal(shape)
        if math.isinf(kernel.nu):
            return normal
        # Chi-squared with 2 nu degrees of freedom over 2 nu, one per row.
        shared = rng.standard_gamma(kernel.nu, (len(normal), 1)) / kernel.nu
        return normal / np.sqrt(shared)
    raise ValueError(
        "`kernel` must be a Gaussian, Laplacian or Matern kernel, got "
        f"{kernel!r}: use SketchedFeatures for other kernels"
    )


def as_targets(y: Any, n: int) -> NDArray:
    """Return targets (n, d) of ridge regression for numbers or labels.

    Strings, booleans and integers with at most 20 values are class labels, with one
    indicator per class.
    """
    if y is None:
        raise ValueError(
            "`y` must be passed for bandwidth='auto', got None: pass targets, or "
            "bandwidth='median'"
        )
    check_unmasked("y", y)
    values = np.asarray(y)
    if values.dtype.kind == "O":
        values = np.asarray(as_labels("y", y).tolist())
        if values.dtype.kind == "O":
            values = np.asarray(as_numbers(values))
    if values.ndim not in (1, 2) or len(values) != n:
        raise ValueError(f"`y` must have shape ({n},) or ({n}, d), got {values.shape}")
    classes = np.unique(values) if values.dtype.kind in "OUSbiu" else np.empty(0)
    is_label = values.dtype.kind not in "iu" or len(classes) <= _MOST_CLASSES
    if values.ndim == 1 and len(classes) and is_label:
        return (values[:, None] == classes).astype(float)
    targets = values.reshape(n, -1).astype(float)
    check_finite("y", targets.reshape(values.shape))
    return targets
