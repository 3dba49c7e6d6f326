r"""Structured prediction with kernels on inputs and outputs, each optionally sketched.

With :math:`Z = K S^T P`, :math:`P P^T = (S K S^T)^+`, and the features T (n, t) of the
outputs, the coefficients of :math:`h(x) = H^T S k_x` are

.. math:: H = P (Z^T W Z + n \alpha I)^{-1} Z^T W T,

with the diagonal matrix W of the weights, scaled to mean one. Without a sketch
:math:`H = (K + n \alpha W^{-1})^{-1} T`.

Outputs are encoded by the coordinates z(y) of :math:`\psi(y)`, their point in the
feature space of a kernel, in a sketched space. A vector h is decoded by the nearest
candidate, :math:`\arg\max_y \langle h, z(y) \rangle - k(y, y) / 2`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from nbsketch._expansion import PivotedCholesky
from nbsketch._machine.blas import eigh
from nbsketch._report.progress import report, watching
from nbsketch._report.validation import (
    check_integer,
    check_positive,
    check_rows,
    declares_parameters,
    random_generator,
    row_weights,
)
from nbsketch._sketch_map import (
    SketchMap,
    draw,
    features_recipe,
    resolve,
    sketched_design,
    spans_columns,
)
from nbsketch.estimators._base import ObjectParameters
from nbsketch.estimators._summary import summary_lines
from nbsketch.files import SaveMixin
from nbsketch.fitting import sketched
from nbsketch.fitting.callbacks import CallbackSupportMixin, watched_fit
from nbsketch.fitting.lost_columns import warn_of_lost_columns
from nbsketch.fitting.plan import Plan, is_auto
from nbsketch.kernels import Kernel, PrecomputedKernel
from nbsketch.rows.inputs import (
    TrainingRows,
    check_weights,
    checked_rows,
    compared_rows,
    is_pairwise,
    loaded,
    set_input_tags,
)
from nbsketch.solvers.exact import solve_shifted
from nbsketch.solvers.spectrum import moments
from nbsketch.structured._outputs import (
    Candidates,
    Objects,
    OneSet,
    SetPerRow,
    TargetRows,
    TopK,
    TrainingOutputs,
    as_double,
    as_objects,
    best_of,
    check_objects,
    check_training_outputs,
    choose_set,
    default_sketch,
    draw_outputs,
    one_set,
    places_of,
    principal_targets,
    scores,
    warn_of_offset,
)

# Memory of the points h(x) of samples that are decoded together.
_POINT_BYTES = 16 << 20
_FEWEST_ROWS = 64
_MOST_ROWS = 4096
# By default, length scales are not learned for more features than this, because
# features that do not affect a principal output would be dropped.
_MOST_FEATURES = 50


class OutputSpace(ObjectParameters):
    """Fitted attributes of an estimator that encode and decode outputs."""

    output_kernel_: Kernel

    def _publish(self, outputs: TrainingOutputs) -> None:
        """Set the attributes used for decoding."""
        self.output_landmarks_ = outputs.sketch_map.landmarks
        self.output_rank_ = outputs.encoded.features.shape[1]
        self.candidates_: Any = outputs.rows
        self._output_weights = outputs.sketch_map.weights
        self._whitening = outputs.whitening
        self._features: NDArray = outputs.encoded.features
        self._penalty: NDArray = outputs.encoded.penalty

    @property
    def _training(self) -> TrainingOutputs:
        """The training outputs and the space that they span."""
        rows = self.candidates_
        sketch_map = SketchMap(
            self.output_kernel_, self.output_landmarks_, self._output_weights
        )
        return TrainingOutputs(
            Objects(rows) if isinstance(rows, list) else rows,
            Candidates(self._features, self._penalty),
            sketch_map,
            self._whitening,
        )


@declares_parameters
class OutputEmbedding(SaveMixin, OutputSpace, BaseEstimator):
    r"""Kernel losses for any regressor: encode outputs as vectors and decode vectors.

    `encode` returns coordinates z(y) with :math:`\langle z(y), z(y') \rangle \approx
    k(y, y')`, exact without a sketch. A multi-output regressor (a neural network,
    boosted trees) fitted to them minimizes :math:`\|h(x) - z(y)\|^2`, and `decode`
    returns the nearest candidates of its predictions.

    Parameters
    ----------
    output_kernel : str, Kernel or callable, default="gaussian"
        Kernel of the outputs; a function ``k(A, B)`` receives two lists of objects,
        unless Y is a two-dimensional array.
    output_bandwidth : float, sequence of floats or "median", default=None
        Bandwidth of a kernel given by name. None: "median".
    sketch : str, SketchRecipe or None, default=None
        Sketch of the outputs. None: no sketch ("identity") if `size` is None as well,
        else "p-sparsified"; above the memory limit a subsample, as in
        `InputOutputKernelRegressor`.
    size : int or None, default=None
        Number of rows of a sketch given by name, an upper bound on the number of
        coordinates. None: 100, or n if n < 100.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results.

    Attributes
    ----------
    candidates_ : array, CSR array or list
        Distinct training outputs.
    output_kernel_, output_sketch_, output_landmarks_ : Kernel, Sketch, array or objects
        Kernel with its bandwidth set, drawn sketch, and the outputs of its columns.
    output_rank_ : int
        Number t of coordinates.

    Notes
    -----
    T. El Ahmad, J. Yang, P. Laforgue and F. d'Alche-Buc, "Deep sketched output kernel
    regression for structured prediction", 2024. `InputOutputKernelRegressor` uses
    kernel ridge regression instead of any regressor.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from nbsketch import OutputEmbedding
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0, X.sum(axis=1) > 0])
    >>> embedding = OutputEmbedding(random_state=0).fit(Y)
    >>> network = MLPRegressor(max_iter=1000, random_state=0)
    >>> Z = network.fit(X, embedding.encode(Y)).predict([[0.5, 0.6], [-0.7, 0.2]])
    >>> embedding.decode(Z).astype(int).tolist()
    [[1, 1, 1], [0, 1, 0]]
    """

    output_kernel: Any = field(default="gaussian", kw_only=False)
    output_bandwidth: Any = None
    sketch: Any = None
    size: int | None = None
    random_state: Any = None

    def fit(self, Y: Any) -> OutputEmbedding:
        """Draw the sketch of training outputs.

        Parameters
        ----------
        Y : array or CSR matrix of shape (n, p), or sequence of n objects
            Training outputs.
        """
        kernel, rows = check_training_outputs(self, Y)
        places = places_of(kernel, rows)
        rng = random_generator(self.random_state)
        recipe = default_sketch(self.sketch, self.size, len(places[0]))
        self.output_kernel_, self.output_sketch_ = draw_outputs(
            kernel, rows, recipe, self.size, rng
        )
        outputs, _ = TrainingOutputs.of(
            self.output_kernel_, rows, self.output_sketch_, places
        )
        self._publish(outputs.whitened())
        return self

    def encode(self, Y: Any) -> NDArray:
        """Return the coordinates z(y) of outputs, of shape (n, t).

        Parameters
        ----------
        Y : array, CSR matrix or objects
            Outputs, n of them, in the form of the training outputs.
        """
        check_is_fitted(self)
        training = self._training
        return training.encode(training.check("Y", Y)).features

    def decode(
        self, Z: ArrayLike, candidates: Any = None, *, candidate_sets: Any = None
    ) -> Any:
        """Return the best candidate for each vector.

        Parameters
        ----------
        Z : array of shape (n, t)
            Vectors predicted by a regressor.
        candidates : array, CSR matrix or objects, optional
            Outputs to choose from. None: the distinct training outputs.
        candidate_sets : sequence of n such sets, optional
            Outputs to choose from for each vector.

        Returns
        -------
        array, CSR array or list
            n outputs, of the type of the candidates.
        """
        best, sets = self._best(Z, 1, candidates, candidate_sets)
        return sets.pick(best.indices[:, 0])

    def decode_topk(
        self,
        Z: ArrayLike,
        k: int,
        candidates: Any = None,
        *,
        candidate_sets: Any = None,
    ) -> TopK:
        """Return indices and scores of the k best candidates for each vector.

        Parameters
        ----------
        Z, candidates, candidate_sets
            As in `decode`; indices refer to the candidates.
        k : int
            Number of candidates to return.

        Returns
        -------
        TopK
            ``indices`` and ``scores`` of shape (n, k), best first.
        """
        return self._best(Z, k, candidates, candidate_sets)[0]

    def _best(
        self, Z: ArrayLike, k: int, candidates: Any, candidate_sets: Any
    ) -> tuple[TopK, OneSet | SetPerRow]:
        check_is_fitted(self)
        h = as_double(check_rows("Z", Z, n_features=self.output_rank_))
        sets = choose_set(self._training, candidates, candidate_sets, len(h))
        return best_of(sets, k, [(0, h)], len(h)), sets


def _values(
    sketch_map: SketchMap, X: Any, coef: NDArray
) -> Iterator[tuple[int, NDArray]]:
    """Yield (start, h(x) of a block of samples from start on)."""
    step = int(np.clip(_POINT_BYTES // (8 * coef.shape[1]), _FEWEST_ROWS, _MOST_ROWS))
    for start in range(0, X.shape[0], step):
        yield start, sketch_map.times(X[start : start + step], coef)


@declares_parameters
class InputOutputKernelRegressor(
    SaveMixin, CallbackSupportMixin, OutputSpace, BaseEstimator
):
    r"""Structured prediction with sketched input and output kernels.

    Outputs y of any kind are points :math:`\psi(y)` of the feature space of a kernel
    :math:`k_Y`. The model combines kernel ridge regression from inputs to these points,

    .. math:: \min_h \frac{1}{2n} \sum_i w_i \|h(x_i) - \psi(y_i)\|^2
              + \frac{\alpha}{2} \|h\|^2,

    with weights :math:`w_i` of mean one, and the choice of the nearest candidate,

    .. math:: f(x) = \arg\max_y\; \langle h(x), \psi(y) \rangle - k_Y(y, y) / 2.

    A sketch of the inputs restricts the functions h and makes training fast. A sketch
    of the outputs projects the points :math:`\psi(y)` and makes inference fast.

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
    kernel, output_kernel : str, Kernel or callable, default="gaussian"
        Kernels of inputs and outputs: a name, a kernel object, or a function ``k(A,
        B)`` that returns the matrix of kernel values. A function receives arrays if the
        inputs (or outputs) are a two-dimensional array, and two lists of objects
        otherwise. "precomputed": X or Y is the Gram matrix of the training samples, and
        predictions are indices of training outputs.
    bandwidth : float, sequence of floats, "median" or "auto", default=None
        Bandwidth of an input kernel given by name, in the units of X. "auto" learns one
        length scale per feature, for dense X and the kernels "gaussian", "laplacian"
        and "matern", by ridge regression on the first principal components of the
        outputs in the feature space of their kernel; it falls back to "median" with
        fewer than 30 samples or identical outputs. None: "auto" if possible and if X
        has at most 50 features, else "median".
    output_bandwidth : float, sequence of floats or "median", default=None
        Bandwidth of an output kernel given by name, in the units of Y. None: "median".
    sketch, output_sketch : str, SketchRecipe or None, default=None
        Sketches of inputs and outputs: names or recipes. None: no sketch ("identity")
        if the size is None as well, else "p-sparsified". If the Gram matrix of the n
        inputs, or of the n distinct outputs, with four copies exceeds the memory limit
        (`nbsketch.set_memory_limit`), None uses a subsample: the largest of n/2, n/4,
        ... whose features with four copies fit, at least 100.
    size, output_size : int, default=None
        Numbers of rows of sketches given by name. None: 100, or n if n < 100.
    output_rank : int or None, default=None
        Reduced rank: predictions and outputs are projected on this number of principal
        directions of the training predictions h(x), within the space of the output
        sketch. At the same cost of prediction, this loses less accuracy than an output
        sketch of that size. None: all directions.
    alpha : float, default=1e-5
        Penalty (> 0).
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results.
    verbose : int, default=0
        If positive, display the progress, stage by stage.
    callback : callable or None, default=None
        Called as ``callback(state)`` with a `FitState` during the fit. The return value
        is ignored, because there is no model before the end. Not saved with the model.
        None: no callback.

    Attributes
    ----------
    candidates_ : array, CSR array or list
        Distinct training outputs, in order of first occurrence; with a precomputed
        kernel, the indices of all training outputs.
    coef_ : ndarray of shape (s, t)
        Coefficients H of h(x) = H^T S k_x, in the coordinates of the sketched output
        space or, without a sketch, of the candidates.
    kernel_, sketch_, landmarks_ : Kernel, Sketch, array or objects
        Input kernel with its bandwidth set, drawn sketch, and the training samples
        needed for prediction.
    output_kernel_, output_sketch_, output_landmarks_ : Kernel, Sketch, array or objects
        The same for outputs.
    scaler_ : InputScaler or None
        Transformation of the inputs; drops irrelevant features if there are more than
        50. None: inputs are used unchanged.
    length_scales_ : ndarray of shape (q,) or None
        Learned length scales in standard deviations of the features. None: not learned.
    rank_, output_rank_ : int
        Dimensions of the sketched input and output spaces.
    seconds_ : dict of str to float
        Time of each stage of `fit`.
    n_features_in_ : int
        Number of features of X, if X is an array.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid; raised before any expensive computation.

    Notes
    -----
    El Ahmad, Brogat-Motte, Laforgue and d'Alche-Buc, "Sketch In, Sketch Out:
    Accelerating both Learning and Inference for Structured Prediction with Kernels",
    AISTATS 2024, section 3; without sketches: Brouard, Szafranski and d'Alche-Buc,
    "Input Output Kernel Regression", JMLR 2016. Pivoted Cholesky decompositions replace
    the pseudo-inverses of squared sketched Gram matrices, and each distinct output is
    encoded once. The estimator is the same as in the paper.

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

    kernel: Any = field(default="gaussian", kw_only=False)
    output_kernel: Any = field(default="gaussian", kw_only=False)
    bandwidth: Any = None
    output_bandwidth: Any = None
    sketch: Any = None
    output_sketch: Any = None
    size: int | None = None
    output_size: int | None = None
    output_rank: int | None = None
    alpha: float = 1e-5
    random_state: Any = None
    verbose: int = 0
    callback: Any = None

    def fit(
        self, X: Any, Y: Any, sample_weight: Any = None
    ) -> InputOutputKernelRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, q), or sequence of n objects
            Training inputs; float32 is kept. Dask collections are loaded.
        Y : array or CSR matrix of shape (n, p), or sequence of n objects
            Training outputs.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights. Samples of weight zero are
            removed; with a precomputed output kernel, whose predictions are indices,
            they raise a ValueError.
        """
        with watched_fit(self):
            check_positive("alpha", self.alpha)
            if self.output_rank is not None:
                check_integer("output_rank", self.output_rank)
            self.seconds_: dict[str, float] = {}
            X, Y, sample_weight = loaded(X, Y=Y, sample_weight=sample_weight)
            kernel, output_kernel, rows = self._check(X, Y, sample_weight)
            places = places_of(output_kernel, rows.y)
            X = self._draw_sketches(kernel, output_kernel, rows, len(places[0]))
            with self._stage("outputs"):
                outputs, targets = TrainingOutputs.of(
                    self.output_kernel_, rows.y, self.output_sketch_, places
                )
            sketch_map = self._regress(X, targets, rows.relative_weights)
            if self.output_rank is not None:
                outputs = self._reduce(X, sketch_map, outputs, rows.relative_weights)
            self.landmarks_ = sketch_map.original(rows.kept).landmarks
            self._publish(outputs)
        return self

    def predict(
        self, X: Any, candidates: Any = None, *, candidate_sets: Any = None
    ) -> Any:
        """Return the best candidate for each sample.

        Parameters
        ----------
        X : array, CSR matrix or objects
            Inputs, n of them.
        candidates : array, CSR matrix or objects, optional
            Outputs to choose from. None: the distinct training outputs. With a
            precomputed output kernel: indices of training outputs, or the kernel values
            of new outputs with all training outputs.
        candidate_sets : sequence of n such sets, optional
            Outputs to choose from for each sample.

        Returns
        -------
        array, CSR array or list
            n outputs, of the type of the candidates.
        """
        best, sets = self._best(X, 1, candidates, candidate_sets)
        return sets.pick(best.indices[:, 0])

    def predict_topk(
        self, X: Any, k: int, candidates: Any = None, *, candidate_sets: Any = None
    ) -> TopK:
        """Return the indices and scores of the k best candidates for each sample.

        Parameters
        ----------
        X, candidates, candidate_sets
            As in `predict`; indices refer to these candidates, by default
            ``candidates_``.
        k : int
            Number of candidates to return, at most the size of the largest set.

        Returns
        -------
        TopK
            ``indices`` and ``scores`` of shape (n, k), best first; of equal scores the
            lower index comes first. Sets of fewer than k candidates are padded with -1
            and -inf.
        """
        return self._best(X, k, candidates, candidate_sets)[0]

    def summary(self) -> str:
        """Return a text summary of the fitted model, one line per property."""
        check_is_fitted(self)
        inputs, outputs = (
            "none" if S.is_identity else f"size {S.shape[0]}"
            for S in (self.sketch_, self.output_sketch_)
        )
        entries = [
            ("sketch", f"{inputs}, rank {self.rank_}, {self.sketch_.shape[1]} samples"),
            ("output kernel", type(self.output_kernel_).__name__),
            ("output sketch", f"{outputs}, rank {self.output_rank_}"),
            ("candidates", str(len(self._penalty))),
            ("alpha", f"{self.alpha:.4g}"),
        ]
        return summary_lines(self, entries)

    def decision_function(self, X: Any, candidates: Any = None) -> NDArray:
        r"""Return the scores :math:`\langle h(x), \psi(y) \rangle - k_Y(y, y) / 2`.

        Unlike `predict`, all n c scores are stored.

        Parameters
        ----------
        X : array, CSR matrix or objects
            Inputs, n of them.
        candidates : array, CSR matrix or objects, optional
            Outputs, c of them. None: the distinct training outputs.

        Returns
        -------
        ndarray of shape (n, c)
            Scores.
        """
        X = self._check_new(X)
        sets = one_set(self._training, candidates)
        return np.concatenate([scores(h, sets.encoded) for _, h in self._points(X)])

    def score(self, X: Any, y: Any) -> float:
        r"""Return the negative mean of :math:`\|h(x) - \psi(y)\|^2`, without decoding.

        Use it to compare input kernels, sketches and penalties. Scores of different
        output kernels are not comparable: score predictions instead.

        Parameters
        ----------
        X, y : array, CSR matrix or objects
            Inputs and their true outputs.

        Returns
        -------
        float
            Score, at most 0.
        """
        X, y = loaded(X, y=y)
        X = self._check_new(X)
        training = self._training
        truth = training.check("y", y)
        if truth.shape[0] != X.shape[0]:
            raise ValueError(
                f"`y` must have {X.shape[0]} outputs, got {truth.shape[0]}"
            )
        total = 0.0
        for start, h in self._points(X):
            encoded = training.encode(truth[start : start + len(h)])
            dual = h @ training.encoded.features if training.whitening is None else h
            total += np.einsum("ij,ij->", h, dual - 2 * encoded.features)
            total += 2 * encoded.penalty.sum()
        return -float(total) / X.shape[0]

    @contextmanager
    def _stage(self, name: str, n_rows: int = 0) -> Iterator[None]:
        """Report a stage of the fit, and record its time in `seconds_`."""
        start = time.perf_counter()
        report(name, n_rows=n_rows)
        yield
        report(name, rows=n_rows)
        self.seconds_[name] = time.perf_counter() - start

    def _check(
        self, X: Any, Y: Any, sample_weight: Any
    ) -> tuple[Kernel, Kernel, TrainingRows]:
        """Return both kernels and the samples of positive weight."""
        kernel = Plan(self.kernel, self.bandwidth).given_kernel
        objects = as_objects(kernel, "X", X)
        if objects is None:
            X = checked_rows(self, X, reset=True)
        else:
            self.__dict__.pop("n_features_in_", None)
            kernel, X = objects
        output_kernel, Y = check_training_outputs(self, Y)
        warn_of_offset(output_kernel, Y)
        if X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"`Y` must have an output for each of {X.shape[0]} samples of `X`, "
                f"got {Y.shape[0]}"
            )
        weights = check_weights(sample_weight, np.empty(X.shape[0]))
        rows = TrainingRows.of(X, Y, weights, pairwise=is_pairwise(self.kernel))
        if rows.kept is not None and isinstance(output_kernel, PrecomputedKernel):
            raise ValueError(
                "`sample_weight` must be positive for a precomputed `output_kernel`, "
                "got zeros: remove these samples from X and Y"
            )
        return kernel, output_kernel, rows

    def _check_new(self, X: Any) -> Any:
        """Return valid inputs for prediction."""
        check_is_fitted(self)
        (X,) = loaded(X)
        if isinstance(self.landmarks_, Objects):
            return check_objects("X", X)
        return compared_rows(self, X)

    def _draw_sketches(
        self, kernel: Kernel, output_kernel: Kernel, rows: TrainingRows, n_outputs: int
    ) -> Any:
        """Draw both sketches; return the inputs as passed to their kernel."""
        weights = rows.relative_weights
        rng, output_rng = random_generator(self.random_state).spawn(2)
        size = self.output_size
        recipe = default_sketch(self.output_sketch, size, n_outputs)
        self.output_kernel_, self.output_sketch_ = draw_outputs(
            output_kernel, rows.y, recipe, size, output_rng, weights
        )
        rngs = rng.spawn(2)
        X, kernel = self._learn(rows, kernel, rng.spawn(1)[0])
        n = X.shape[0]
        sketch = default_sketch(self.sketch, self.size, n)
        self.kernel_ = resolve(X, kernel, rngs[0], weights)
        recipe = features_recipe(sketch, self.size, n)
        self.sketch_ = draw(X, self.kernel_, recipe, rngs[1])
        return X

    def _learn(
        self, rows: TrainingRows, kernel: Kernel, rng: np.random.Generator
    ) -> tuple[Any, Kernel]:
        """Return transformed samples and their kernel; may learn length scales."""
        X = rows.X
        inputs = sketched.Inputs(X, kernel)
        learns = is_auto(self.bandwidth)
        if learns:
            sketched.check_learnable(self.kernel, X)
        elif self.bandwidth is None and sketched.is_learnable(self.kernel, X):
            learns = X.shape[1] <= _MOST_FEATURES
        if learns and X.shape[0] >= sketched.LEAST_ROWS:
            weights = rows.relative_weights
            targets = principal_targets(self.output_kernel_, rows.y, rng, weights)
            size = len(X)
            if self.size is not None:
                size = min(check_integer("size", self.size), size)
            if targets.size:  # else identical outputs
                target = sketched.TuningTarget(targets, weights)
                inputs = sketched.learn_inputs(X, target, self.kernel, size, rng)
        self.scaler_ = inputs.scaler
        self.length_scales_ = inputs.length_scales
        return inputs.rows, inputs.kernel

    def _regress(
        self, X: Any, targets: TargetRows, weights: NDArray | None
    ) -> SketchMap:
        """Set the coefficients of h and their rank; return the map of the inputs."""
        sketch_map = SketchMap.of(self.kernel_, X, self.sketch_)
        if spans_columns(self.kernel_, X, self.sketch_):
            self.sketch_, sketch_map = SketchMap.of_columns(self.kernel_, X)
        else:
            warn_of_lost_columns(self, X)
        if self.sketch_.is_identity:
            with self._stage("inputs: Gram matrix"):
                double = X if isinstance(X, Objects) else X.astype(float, copy=False)
                K = np.array(self.kernel_(double), dtype=np.float64)
            with self._stage("inputs: solve"):
                T = targets[:]
                dense = T.toarray(order="F") if sp.issparse(T) else T
                w = row_weights(weights, K)
                shift = len(K) * self.alpha
                self.coef_ = solve_shifted(K.T, dense, shift, w, self.alpha)
            self.rank_ = len(self.coef_)
            return sketch_map
        with self._stage("inputs: kernel and factor"):
            P, design = sketched_design(sketch_map, X, whiten=PivotedCholesky.of)
        with self._stage("inputs: features", len(targets.owner)):
            G, C, _ = moments(design, targets, weights, centered=False)
        with self._stage("inputs: solve"):
            W = solve_shifted(G, C, self.alpha, np.ones(len(G)), self.alpha)
            self.rank_ = design.shape[1]
            is_factor = isinstance(P, PivotedCholesky)  # else columns of X
            self.coef_ = P.lift(W, self.sketch_.shape[0]) if is_factor else P @ W
        return sketch_map

    def _reduce(
        self,
        X: Any,
        sketch_map: SketchMap,
        outputs: TrainingOutputs,
        weights: NDArray | None,
    ) -> TrainingOutputs:
        """Project h and the outputs on principal directions of the predictions."""
        with self._stage("outputs: reduced rank"):
            is_combination = outputs.whitening is None
            outputs = outputs.whitened()
            if is_combination:
                self.coef_ = self.coef_ @ outputs.encoded.features
            total: Any = 0.0
            for start, h in _values(sketch_map, X, self.coef_):
                w = 1.0 if weights is None else weights[start : start + len(h), None]
                total += h.T @ (w * h)
            directions = eigh(total)[1][:, ::-1][:, : self.output_rank]
            self.coef_ = self.coef_ @ directions
            return outputs.along(directions)

    def _points(self, X: Any) -> Iterator[tuple[int, NDArray]]:
        """Yield (start, h(x) of a block of samples from start on)."""
        sketch_map = SketchMap(self.kernel_, self.landmarks_, self.sketch_.weights)
        return _values(sketch_map, X, self.coef_)

    def _best(
        self, X: Any, k: int, candidates: Any, candidate_sets: Any
    ) -> tuple[TopK, OneSet | SetPerRow]:
        """Return the k best candidates of each sample, and the sets of candidates."""
        X = self._check_new(X)
        n = X.shape[0]
        with watching(self.verbose, None):
            report("candidates")
            sets = choose_set(self._training, candidates, candidate_sets, n)
            return best_of(sets, k, self._points(X), n), sets

    def __sklearn_tags__(self) -> Tags:
        """Return the capabilities of the estimator."""
        tags = super().__sklearn_tags__()
        set_input_tags(self, tags.input_tags)
        tags.target_tags.required = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        return tags
