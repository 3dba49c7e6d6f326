"""Sketched kernel regression, scalar and vector-valued."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin

from nbsketch._validation import check_choice, check_positive
from nbsketch.estimators._base import SketchedModel, check_weights, keeping_fitted
from nbsketch.estimators._square import fit_square
from nbsketch.features import draw
from nbsketch.outputs import as_output


class SketchedKernelRegressor(MultiOutputMixin, RegressorMixin, SketchedModel):
    r"""Sketched kernel regression.

    .. math:: \min_{f, b} \frac{1}{n} \sum_i w_i\, \ell(f(x_i) + b, y_i)
              + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j (S^T G)_j\, M k(\cdot, x_j)

    over the s rows of a random sketch S, with :math:`\ell` half the squared Euclidean
    distance and an output matrix M (y with d columns).

    Parameters
    ----------
    kernel : str, Kernel or callable
        "gaussian", "laplacian", "matern", "polynomial", "linear", "precomputed", a
        kernel object or a function k(X, Y).
    bandwidth : float, sequence of floats or "median", optional
        Bandwidth of a kernel that is given by name; "median" by default.
    loss : {"square"}
        Loss.
    sketch : str or SketchRecipe
        "p-sparsified", "gaussian", "rademacher", "subsampling", "identity", or a
        recipe.
    size : int, optional
        Number of rows s of a sketch that is given by name; 100 by default, or the
        number of rows of X if that is smaller.
    alpha : float, optional
        Positive penalty. By default the one of least leave-one-out error, in closed
        form. scikit-learn's ``KernelRidge`` calls n times this its alpha.
    output : Output or array of shape (d, d), optional
        Output matrix M, positive semi-definite; the identity by default.
    fit_intercept : bool
        Whether the constant b is free; it is not penalised.
    random_state : None, int or Generator
        The same number gives the same model, at any number of threads.

    Attributes
    ----------
    coef_ : ndarray of shape (s,) or (s, d)
        Coefficients of the sketched kernel functions: f(x) = coef_^T S k_x.
    intercept_ : float or ndarray of shape (d,)
        The constant b.
    landmarks_ : ndarray of shape (s', q)
        The training rows that prediction needs; no others are kept.
    kernel_, sketch_ : Kernel, Sketch
        The kernel with its bandwidth set, and the drawn sketch.
    alpha_ : float
        The penalty used.
    rank_ : int
        Rank r of S K S^T, the number of features.
    objective_ : float
        Value of the objective.
    dual_gap_ : float
        Relative: the objective is at most this share above the minimum.
    n_iter_ : int
        Iterations of the solver; 1 for a closed form.
    n_features_in_ : int
        Number of features q.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, "Fast Kernel Methods for Generic Lipschitz
    Losses via p-Sparsified Sketches", TMLR 2023, section 2. Weights are scaled to mean
    one, so that a row of weight two counts as the same row twice.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = SketchedKernelRegressor(size=50, random_state=0).fit(X, y)
    >>> model.predict([[0.0], [1.5]]).round(2).tolist()
    [0.0, 1.0]
    """

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        bandwidth: Any = None,
        loss: Any = "square",
        sketch: Any = "p-sparsified",
        size: int | None = None,
        alpha: float | None = None,
        output: Any = None,
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.loss = loss
        self.sketch = sketch
        self.size = size
        self.alpha = alpha
        self.output = output
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> SketchedKernelRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, q)
            Training rows; float32 stays float32.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,), optional
            Non-negative weights.
        """
        with keeping_fitted(self):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> SketchedKernelRegressor:
        X, y = self._check_X_y(X, y, multi_output=True, y_numeric=True)
        Y = y.reshape(len(y), -1).astype(float)
        weights = check_weights(sample_weight, X)
        check_choice("loss", self.loss, ["square"])
        check_choice("fit_intercept", self.fit_intercept, [False, True])
        alpha = None if self.alpha is None else check_positive("alpha", self.alpha)
        output = None
        if self.output is not None:
            output = as_output(self.output).matrix(Y.shape[1])
        kernel, sketch = draw(
            X, self.kernel, self.bandwidth, self.sketch, self.size, self.random_state
        )
        fit = fit_square(
            X,
            Y,
            kernel,
            sketch,
            alpha,
            output=output,
            sample_weight=weights,
            fit_intercept=self.fit_intercept,
        )
        self._set_fit(fit, kernel, sketch, X, flat=y.ndim == 1)
        return self

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the predictions of the rows of X, of shape (n,) or (n, d)."""
        return self._decision(X)
