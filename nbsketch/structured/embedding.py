r"""Encode outputs of any kind as vectors for any regressor, and decode predictions.

Outputs are encoded by the coordinates z(y) of :math:`\psi(y)`, their point in the
feature space of a kernel, in a sketched space. A vector h is decoded by the nearest
candidate, :math:`\arg\max_y \langle h, z(y) \rangle - k(y, y) / 2`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from nbsketch._report import validation
from nbsketch._sketch_map import SketchMap
from nbsketch.estimators._base import ObjectParameters
from nbsketch.files import SaveMixin
from nbsketch.kernels import Kernel
from nbsketch.structured import _outputs
from nbsketch.structured._outputs import Objects, TopK, TrainingOutputs


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
            _outputs.Candidates(self._features, self._penalty),
            sketch_map,
            self._whitening,
        )


@validation.declares_parameters
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
        kernel, rows = _outputs.check_training_outputs(self, Y)
        places = _outputs.places_of(kernel, rows)
        rng = validation.random_generator(self.random_state)
        recipe = _outputs.default_sketch(self.sketch, self.size, len(places[0]))
        self.output_kernel_, self.output_sketch_ = _outputs.draw_outputs(
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
    ) -> tuple[TopK, _outputs.OneSet | _outputs.SetPerRow]:
        check_is_fitted(self)
        vectors = validation.check_rows("Z", Z, n_features=self.output_rank_)
        h = _outputs.as_double(vectors)
        sets = _outputs.choose_set(self._training, candidates, candidate_sets, len(h))
        return _outputs.best_of(sets, k, [(0, h)], len(h)), sets
