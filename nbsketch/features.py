"""Features of a sketch as a transformer."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from nbsketch._expansion import expansion_of
from nbsketch._rows import (
    checked_rows,
    is_pairwise,
    model_dtype,
    takes_sparse,
    training_rows,
)
from nbsketch._sketch_map import SketchMap, draw, sketched_design
from nbsketch._validation import keeping_fitted, random_generator
from nbsketch.distributed.checks import held_rows
from nbsketch.distributed.collections import is_dask
from nbsketch.distributed.lazy import row_by_row
from nbsketch.fitting.inputs import (
    Inputs,
    TuningTarget,
    as_targets,
    check_learnable,
    is_auto,
    learn_inputs,
    summary_lines,
)
from nbsketch.fitting.sizes import features_recipe
from nbsketch.persistence import SaveMixin


class SketchedFeatures(
    SaveMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Features whose inner products approximate a kernel through a sketch.

    .. math:: z(x) = D_r^{-1/2} U_r^T S k_x, \qquad S K S^T = U D U^T,

    keeping the r eigenvalues above 1e-12 times the largest. If none is dropped, a
    Cholesky factor is used instead of eigenvectors, which only rotates z. A linear
    model on z is the sketched kernel machine: use it as a transformer in a pipeline.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="gaussian"
        "gaussian", "laplacian", "matern", "polynomial", "linear", "sobolev",
        "tanimoto", "gaussian-tanimoto", "precomputed", a kernel object or a function
        k(X, Y).
    bandwidth : float, sequence of floats, "median", "auto" or None, default=None
        Bandwidth of a kernel given by name. "auto" learns one length scale per feature
        by ridge regression to the `y` of `fit`, for dense X and the kernels "gaussian",
        "laplacian" and "matern"; with fewer than 30 rows it is "median". None:
        "median".
    sketch : str, SketchRecipe or None, default=None
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "accumulation", "countsketch", "sparse-jl", "srht", "identity", or a recipe.
        None: "p-sparsified".
    size : int or None, default=None
        Number of rows s of a sketch given by name. None: 100, or the number of rows of
        X if that is smaller.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible features.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its bandwidth set.
    sketch_ : Sketch
        The drawn sketch.
    landmarks_ : ndarray or csr_array of shape (s', q)
        The rows of X on which the features depend.
    scaler_ : InputScaler or None
        Transformation of the rows; it drops features that do not matter, if there are
        more than 50. None: rows are used unchanged.
    length_scales_ : ndarray of shape (q,) or None
        Learned length scales in standard deviations of the features; infinite for
        constants. None: not learned.
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
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        bandwidth: Any = None,
        sketch: Any = None,
        size: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.sketch = sketch
        self.size = size
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> SketchedFeatures:
        """Draw the sketch and compute the projection.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, q)
            Rows.
        y : array of shape (n,) or (n, d) or None, default=None
            Targets for ``bandwidth="auto"``, not used otherwise. Texts, booleans and
            integers with at most 20 values are labels of classes.
        """
        with keeping_fitted(self):
            self._fit(X, y, keep=False)
        return self

    def fit_transform(self, X: ArrayLike, y: Any = None) -> NDArray:
        """Fit and return the features of X: cheaper than `fit` and `transform`."""
        if is_dask(X):
            return self.fit(X, y).transform(X)
        with keeping_fitted(self):
            return self._fit(X, y, keep=True).Z

    def _fit(self, X: Any, y: Any, keep: bool) -> Any:
        X, y = training_rows(self, X, y, uses_targets=is_auto(self.bandwidth))
        rngs = random_generator(self.random_state).spawn(2)
        recipe = features_recipe(self.sketch, self.size, X.shape[0])
        X = held_rows(X, recipe)
        inputs = Inputs(X, self.kernel, self.bandwidth)
        if is_auto(self.bandwidth):
            check_learnable(self.kernel, X)
            target = TuningTarget(as_targets(y, len(X)))
            size = getattr(recipe, "size", len(X))
            known = self.kernel, size, rngs[0].spawn(1)[0]
            inputs = learn_inputs(X, target, *known)
        X = inputs.rows
        self.scaler_, self.length_scales_ = inputs.scaler, inputs.length_scales
        kernel, sketch = draw(X, inputs.kernel, inputs.bandwidth, recipe, None, rngs)
        sketch_map = SketchMap.of(kernel, X, sketch)
        self.projection_, design = sketched_design(
            sketch_map, X, sketch.columns, keep=keep
        )
        self.kernel_, self.sketch_ = kernel, sketch
        self.landmarks_ = sketch_map.landmarks
        self.rank_ = self._n_features_out = design.shape[1]
        return design

    def transform(self, X: ArrayLike) -> NDArray:
        """Return the features of the rows of X, of shape (n, r)."""
        if is_dask(X):
            return row_by_row(self.transform, X)
        check_is_fitted(self)
        rows = checked_rows(self, X, dtype=model_dtype(self.landmarks_))
        rows = rows if self.scaler_ is None else self.scaler_.transform(rows)
        self.kernel_.check_domain("X", rows)
        parts = (self.kernel_, self.landmarks_, self.sketch_.weights)
        return expansion_of(self, *parts, self.projection_)(rows, rows.dtype)

    def summary(self) -> str:
        """Return what the fit has chosen, one line each."""
        check_is_fitted(self)
        size, n = self.sketch_.shape
        landmarks = f"{self.landmarks_.shape[0]} landmarks"
        found = f"size {size} of {n} rows, rank {self.rank_}, {landmarks}"
        return summary_lines(self, [("sketch", found)])

    def __sklearn_tags__(self) -> Tags:
        """Say what the transformer can do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_pairwise(self.kernel)
        tags.input_tags.sparse = takes_sparse(self.kernel)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
