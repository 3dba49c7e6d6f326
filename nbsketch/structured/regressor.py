"""Structured prediction by kernels on inputs and outputs, each sketched or not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import keeping_fitted
from nbsketch.structured._choice import one_set
from nbsketch.structured._decoding import TopK, scores
from nbsketch.structured._model import InputOutputModel


class InputOutputKernelRegressor(InputOutputModel):
    r"""Structured prediction with sketched input and output kernels.

    Outputs y of any kind are points :math:`\psi(y)` of the feature space of a kernel
    :math:`k_Y`. Kernel ridge regression from inputs to these points,

    .. math:: \min_h \frac{1}{2n} \sum_i \|h(x_i) - \psi(y_i)\|^2
              + \frac{\alpha}{2} \|h\|^2,

    is followed by the choice of the nearest candidate,

    .. math:: f(x) = \arg\max_y\; \langle h(x), \psi(y) \rangle - k_Y(y, y) / 2.

    A sketch of the inputs restricts the functions h, which makes training fast; one of
    the outputs projects the points :math:`\psi(y)`, which makes inference fast.

    ==================  ==================  ===================
    Name in the paper   `sketch`            `output_sketch`
    ==================  ==================  ===================
    IOKR                identity            identity
    SIOKR               any other           identity
    ISOKR               identity            any other
    SISOKR              any other           any other
    ==================  ==================  ===================

    Parameters
    ----------
    kernel, output_kernel : str, Kernel or callable
        Kernels of inputs and outputs: a name such as "gaussian", a kernel object or a
        function ``k(A, B)`` that returns the matrix of kernel values. A function
        compares objects of any kind, of which it gets two lists; or rows, where inputs
        or outputs are a two-dimensional array. "precomputed": X or Y is the Gram matrix
        of the training rows, and outputs are known by their indices.
    bandwidth, output_bandwidth : float, sequence of floats or "median", optional
        Bandwidths of kernels that are given by name.
    sketch, output_sketch : SketchRecipe or str
        Sketches of inputs and outputs: recipes or names.
    size, output_size : int, optional
        Numbers of rows of sketches that are given by name; 100 by default.
    alpha : float
        Positive penalty.
    random_state : None, int or Generator
        The same number gives the same model.
    verbose : int
        Whether to show progress, and what each stage has cost.

    Attributes
    ----------
    candidates_ : array, CSR array or list
        The distinct training outputs, in the order in which they first occur; for a
        precomputed kernel the indices of all.
    coef_ : ndarray of shape (s, t)
        Coefficients H of h(x) = H^T S k_x, in the coordinates of the sketched output
        space or, without a sketch, of the candidates.
    kernel_, sketch_, landmarks_ : Kernel, Sketch, rows
        The input kernel with its bandwidth set, the drawn sketch, and the training rows
        that prediction needs.
    output_kernel_, output_sketch_, output_landmarks_ : Kernel, Sketch, rows
        The same for outputs.
    rank_, output_rank_ : int
        Dimensions of the sketched input and output spaces.
    seconds_ : dict of str to float
        What each stage of `fit` has cost.
    n_features_in_ : int
        Number of features of X, where X is an array.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, before any heavy work.

    Notes
    -----
    El Ahmad, Brogat-Motte, Laforgue and d'Alche-Buc, "Sketch In, Sketch Out:
    Accelerating both Learning and Inference for Structured Prediction with Kernels",
    AISTATS 2024; without sketches: Brouard, Szafranski and
    d'Alche-Buc, "Input Output Kernel Regression", JMLR 2016. The sketched Gram matrices
    are factorized by Cholesky with pivots in the place of pseudo-inverses of their
    squares, and each distinct output is handled once; the result is that of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import InputOutputKernelRegressor, SubsamplingSketch
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0, X.sum(axis=1) > 0])
    >>> model = InputOutputKernelRegressor(
    ...     bandwidth=0.5, sketch=SubsamplingSketch(100), random_state=0
    ... ).fit(X, Y)
    >>> model.predict([[0.5, 0.6], [-0.7, 0.2]]).astype(int).tolist()
    [[1, 1, 1], [0, 1, 0]]
    """

    def __init__(
        self,
        kernel: Any = "gaussian",
        output_kernel: Any = "gaussian",
        *,
        bandwidth: Any = None,
        output_bandwidth: Any = None,
        sketch: Any = "identity",
        output_sketch: Any = "identity",
        size: int | None = None,
        output_size: int | None = None,
        alpha: float = 1e-5,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.output_kernel = output_kernel
        self.bandwidth = bandwidth
        self.output_bandwidth = output_bandwidth
        self.sketch = sketch
        self.output_sketch = output_sketch
        self.size = size
        self.output_size = output_size
        self.alpha = alpha
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, Y: Any) -> InputOutputKernelRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, q), or sequence of n objects
            Training inputs; float32 stays float32.
        Y : array or CSR matrix of shape (n, p), or sequence of n objects
            Training outputs.
        """
        with keeping_fitted(self):
            self._fit(X, Y)
        return self

    def predict(
        self, X: Any, candidates: Any = None, *, candidate_sets: Any = None
    ) -> Any:
        """Return the best candidate of each row.

        Parameters
        ----------
        X : rows or objects
            Inputs, n of them.
        candidates : rows or objects, optional
            Outputs to choose from, by default the distinct ones of training. With a
            precomputed output kernel: indices of training outputs, or the kernel values
            of new outputs with all of training.
        candidate_sets : sequence of n such sets, optional
            Outputs to choose from for each row.

        Returns
        -------
        array, CSR array or list
            n outputs, of the kind of the candidates.
        """
        best, sets = self._best(X, 1, candidates, candidate_sets)
        return sets.pick(best.indices[:, 0])

    def predict_topk(
        self, X: Any, k: int, candidates: Any = None, *, candidate_sets: Any = None
    ) -> TopK:
        """Return the places and the scores of the k best candidates of each row.

        Parameters
        ----------
        X, candidates, candidate_sets
            As in `predict`; places count in them, by default in ``candidates_``.
        k : int
            How many, at most the size of the largest set.

        Returns
        -------
        TopK
            ``indices`` and ``scores`` of shape (n, k), best first; of equal scores the
            lower index comes first. A set of fewer than k candidates leaves -1 and
            minus infinity.
        """
        return self._best(X, k, candidates, candidate_sets)[0]

    def decision_function(self, X: Any, candidates: Any = None) -> NDArray:
        r"""Return the scores :math:`\langle h(x), \psi(y) \rangle - k_Y(y, y) / 2`.

        This stores all of them, which `predict` does not.

        Parameters
        ----------
        X : rows or objects
            Inputs, n of them.
        candidates : rows or objects, optional
            Outputs, c of them, by default the distinct ones of training.

        Returns
        -------
        ndarray of shape (n, c)
            Scores.
        """
        X = self._check_new(X)
        sets = one_set(self._pool, candidates)
        blocks = [scores(h, sets.encoded) for _, h in self._points(X)]
        return np.concatenate(blocks)

    def score(self, X: Any, y: Any) -> float:
        r"""Return minus the mean of :math:`\|h(x) - \psi(y)\|^2`: no decoding.

        It can compare input kernels, sketches and penalties. Over output kernels it
        cannot, since they change the space: let predictions be scored for these.

        Parameters
        ----------
        X, y : rows or objects
            Inputs and their true outputs.

        Returns
        -------
        float
            At most 0.
        """
        X = self._check_new(X)
        pool = self._pool
        truth = pool.check("y", y)
        if truth.shape[0] != X.shape[0]:
            raise ValueError(
                f"`y` must have {X.shape[0]} outputs, got {truth.shape[0]}"
            )
        total = 0.0
        for start, h in self._points(X):
            known = pool.encode(truth[start : start + len(h)])
            dual = h if self._whitening is not None else h @ pool.encoded.features
            total += np.einsum("ij,ij->", h, dual - 2 * known.features)
            total += 2 * known.penalty.sum()
        return -float(total) / X.shape[0]
