"""Sketched kernel regression, scalar and vector-valued."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin

from nbsketch.estimators._base import SketchedModel, check_weights
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.objectives import Objective, RadialObjective, ScalarObjective
from nbsketch.losses import SquareLoss, as_loss
from nbsketch.outputs import IdentityOutput, as_output


class SketchedKernelRegressor(MultiOutputMixin, RegressorMixin, SketchedModel):
    r"""Sketched kernel regression.

    .. math:: \min_{f, b} \frac{1}{n} \sum_i w_i\, \ell(f(x_i) + b, y_i)
              + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j (S^T G)_j\, M k(\cdot, x_j)

    over the s rows of a random sketch S. With d columns in y the loss is one of the
    Euclidean norm of the residual, and M an output matrix that couples the outputs.

    Parameters
    ----------
    kernel : str, Kernel or callable
        "auto" (Matern 3/2 where length-scales are learned, else Gaussian), "gaussian",
        "laplacian", "matern", "polynomial", "linear", "sobolev", "tanimoto",
        "gaussian-tanimoto", "precomputed", a kernel object or a function k(X, Y).
    bandwidth : float, sequence of floats, "median" or "auto", optional
        Bandwidth of a kernel that is given by name. "auto" learns a length-scale for
        each feature of dense X, for the kernels "auto", "gaussian" and "matern" and
        from 30 rows on; with fewer it is "median". The default is "auto" for these
        kernels and dense X, "median" elsewhere.
    preprocessing : {"auto", "standard", "rank", "both"} or None
        What the kernel sees: standardized features, scores of their ranks, or both.
        "auto" is "both" where length-scales are learned, and X itself elsewhere. None
        is X itself.
    loss : str or Loss
        "square", "huber", "epsilon-insensitive", "squared-epsilon-insensitive",
        "pinball" (one target only), or a loss object with its parameters.
    sketch : str or SketchRecipe
        "p-sparsified", "gaussian", "rademacher", "subsampling", "leverage",
        "accumulation", "countsketch", "sparse-jl", "srht", "identity", or a recipe.
    size : int, AutoSize or "auto", optional
        Number of rows s of a sketch that is given by name, or how it is to be chosen.
        By default for the square loss all n up to 1500, else 1000, and for n > 50 000
        so many (at least 100) that n s^2 stays the same; for other losses 500, and
        fewer for n > 24 000.
    alpha : float, optional
        Positive penalty. By default it is chosen: for the square loss by least
        leave-one-out error, in closed form, of at most 5000 rows; for the others by the
        loss on a fifth of the rows, held out at random, along a path of penalties that
        ends where weaker ones lose. Up to 5 % of these rows, with wild targets that no
        penalty fits, do not count. scikit-learn's
        ``KernelRidge`` calls n times this its alpha.
    output : Output or array of shape (d, d), optional
        Output matrix M, positive semi-definite; the identity by default.
    fit_intercept : bool
        Whether the constant b is free; it is not penalized.
    solver : {"auto", "adam", "sgd"} or StochasticSolver
        "auto": the closed form for the square loss, a certified Newton method for the
        others. The stochastic methods are the papers' own.
    tol : float
        Stop when the objective is certified to be within this share of the minimum.
        1e-4 is enough for prediction.
    max_iter : int
        Largest number of iterations.
    random_state : None, int or Generator
        The same number gives the same model: the same sketch at any number of threads,
        and predictions that agree to rounding.
    verbose : int
        Whether to show how an iterative solver gets on.

    Attributes
    ----------
    coef_ : ndarray of shape (s,) or (s, d)
        Coefficients of the sketched kernel functions: f(x) = coef_^T S k_x.
    intercept_ : float or ndarray of shape (d,)
        The constant b.
    landmarks_ : ndarray or csr_array of shape (s', p)
        The training rows that prediction needs, as the kernel sees them; no others are
        kept.
    kernel_, sketch_ : Kernel, Sketch
        The kernel with its bandwidth set, and the drawn sketch.
    scaler_ : InputScaler or None
        What has transformed the rows, if anything.
    length_scales_ : ndarray of shape (q,) or None
        Learned length-scales, in standard deviations of the features: the longer, the
        less a feature matters. Infinite for constants.
    bandwidth_ : float, sequence of floats or None
        Bandwidth of `kernel_`: a number, or one for each column that it sees.
    size_ : int
        Number of rows s of the sketch.
    size_path_ : dict or None
        Where the sketch has grown: arrays "size", "loss" and "seconds".
    alpha_ : float
        The penalty used.
    rank_ : int
        Rank r of S K S^T, the number of features.
    objective_ : float
        Value of the objective.
    dual_gap_ : float
        Relative: the objective is at most this share above the minimum. Infinite for
        a stochastic solver.
    n_iter_ : int
        Iterations of the solver; 1 for a closed form.
    n_features_in_ : int
        Number of features q.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, "Fast Kernel Methods for Generic Lipschitz
    Losses via p-Sparsified Sketches", TMLR 2023, section 2. Weights are scaled to mean
    one, so that in the objective a row of weight two counts as the same row twice. The
    median bandwidth, the sketch and the choice of alpha look at rows, whatever their
    weights.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = SketchedKernelRegressor(size=50, random_state=0).fit(X, y)
    >>> model.predict([[0.5], [1.5]]).round(2).tolist()
    [0.48, 1.0]
    """

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        bandwidth: Any = None,
        preprocessing: str | None = "auto",
        loss: Any = "square",
        sketch: Any = "p-sparsified",
        size: Any = None,
        alpha: float | None = None,
        output: Any = None,
        fit_intercept: bool = True,
        solver: Any = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.preprocessing = preprocessing
        self.loss = loss
        self.sketch = sketch
        self.size = size
        self.alpha = alpha
        self.output = output
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> SketchedKernelRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, q)
            Training rows, dense or sparse; float32 stays float32.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,), optional
            Non-negative weights.
        """
        return self._fit(X, y, sample_weight)

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[NDArray, Objective]:
        X, y = self._check_X_y(X, y, multi_output=True, y_numeric=True)
        self._one_target = y.ndim == 1
        Y = y.reshape(len(y), -1).astype(float)
        return X, self._task(Y, check_weights(sample_weight, X))

    def _finish(self, objective: Objective) -> None:
        if self._one_target:
            self._flatten()

    def _task(self, Y: NDArray, weights: NDArray | None) -> Objective:
        loss, output = as_loss(self.loss), as_output(self.output)
        if loss.is_classification:
            raise ValueError(
                f"`loss` must be a loss of residuals, got {loss!r}: "
                "SketchedKernelClassifier has those of margins"
            )
        factor = output.factor(Y.shape[1])
        if isinstance(loss, SquareLoss):
            return LeastSquaresObjective(Y, weights, self.fit_intercept, loss, factor)
        if Y.shape[1] == 1 and isinstance(output, IdentityOutput):
            return ScalarObjective(Y, weights, self.fit_intercept, loss)
        if not loss.is_radial and Y.shape[1] == 1:
            raise ValueError(
                f"`output` must be None for one target and {loss!r}, got {output!r}"
            )
        if not loss.is_radial:
            raise ValueError(
                f"`y` must have one column for {loss!r}, got {Y.shape[1]}: "
                "it is not a loss of the norm of a residual"
            )
        return RadialObjective(Y, weights, self.fit_intercept, loss, factor)

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the predictions of the rows of X, of shape (n,) or (n, d)."""
        return self._decision(X)
