"""What a structured predictor does behind its public methods: checks, fit, decoding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from nbsketch._validation import check_integer, check_positive, random_generator
from nbsketch.features import SketchMap, draw, is_pairwise, model_dtype
from nbsketch.kernels import Kernel, PrecomputedKernel, as_kernel
from nbsketch.persistence import SaveMixin
from nbsketch.structured._choice import OneSet, Pool, SetPerRow, choose_set
from nbsketch.structured._decoding import Candidates, TopK
from nbsketch.structured._outputs import OutputSpace, target_basis
from nbsketch.structured._regression import Whitening, fit_gram, fit_sketched
from nbsketch.structured._rows import (
    Objects,
    as_double,
    as_given,
    check_objects,
    check_outputs,
    distinct,
    object_kernel,
)
from nbsketch.structured._stages import Stages

# Memory of the points h(x) of the rows that are decoded together.
_POINT_BYTES = 64 << 20
_FEWEST_ROWS, _MOST_ROWS = 64, 4096


class InputOutputModel(SaveMixin, BaseEstimator):
    """Base of `InputOutputKernelRegressor`: all but its documented face."""

    def _fit(self, X: Any, Y: Any) -> None:
        alpha = check_positive("alpha", self.alpha)
        stages = Stages(check_integer("verbose", self.verbose, low=0))
        kernel, X = self._check_X(X)
        output_kernel, Y = self._check_Y("Y", Y)
        if X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"`Y` must have an output for each of {X.shape[0]} rows of `X`, "
                f"got {Y.shape[0]}"
            )
        inputs, outputs = random_generator(self.random_state).spawn(2)
        self._draw_outputs(output_kernel, Y, outputs)
        self.kernel_, self.sketch_ = draw(
            X, kernel, None, self.sketch, self.size, inputs.spawn(2)
        )
        owner, basis = self._fit_outputs(Y, stages)
        self._fit_inputs(X, owner, basis, alpha, stages)
        self.seconds_ = stages.seconds

    def _check_X(self, X: Any) -> tuple[Kernel, Any]:
        """Return the input kernel and the training inputs that it compares."""
        kernel = as_kernel(self.kernel, self.bandwidth)
        if (of_objects := object_kernel(kernel, X)) is not None:
            self.__dict__.pop("n_features_in_", None)
            return of_objects, check_objects("X", X)
        return kernel, self._validated(X, reset=True, dtype=[np.float64, np.float32])

    def _validated(self, X: Any, *, reset: bool, dtype: Any) -> Any:
        return validate_data(
            self, X, reset=reset, dtype=dtype, order="C", accept_sparse="csr"
        )

    def _check_Y(self, name: str, Y: Any) -> tuple[Kernel, Any]:
        """Return the output kernel and the training outputs that it compares."""
        if Y is None:
            raise ValueError(
                f"`{name}` must hold an output for each input: the model requires y to "
                "be passed, but the target y is None"
            )
        with _naming_outputs():
            kernel = as_kernel(self.output_kernel, self.output_bandwidth)
        if (of_objects := object_kernel(kernel, Y)) is not None:
            return of_objects, check_objects(name, Y)
        return kernel, check_outputs(name, Y, kernel)

    def _draw_outputs(self, kernel: Kernel, Y: Any, rng: np.random.Generator) -> None:
        sketch, size = self.output_sketch, self.output_size
        with _naming_outputs():
            self.output_kernel_, self.output_sketch_ = draw(
                as_double(Y), kernel, None, sketch, size, rng.spawn(2)
            )

    def _fit_outputs(self, Y: Any, stages: Stages) -> tuple[NDArray, Any]:
        """Return which distinct output each row has, and what to regress on."""
        rows, kernel = as_double(Y), self.output_kernel_
        precomputed = isinstance(kernel, PrecomputedKernel)
        everything = np.arange(Y.shape[0])
        with stages.stage("outputs"), _naming_outputs():
            first, owner = (everything, everything) if precomputed else distinct(Y)
            space = OutputSpace.of(kernel, rows, self.output_sketch_, first, owner)
            encoded = space.encode(rows[first], kernel.diag(rows[first]))
        self.output_landmarks_ = space.sketch_map.landmarks
        self.output_rank_ = encoded.features.shape[1]
        self.candidates_: Any = first if precomputed else as_given(Y[first])
        self._output_weights = space.sketch_map.weights
        self._whitening = space.whitening
        self._features, self._penalty = encoded.features, encoded.penalty
        return owner, target_basis(space, encoded)

    def _fit_inputs(
        self, X: Any, owner: NDArray, basis: Any, alpha: float, stages: Stages
    ) -> None:
        """Learn the coefficients of h."""
        sketch_map = SketchMap.of(self.kernel_, X, self.sketch_)
        self.landmarks_ = sketch_map.landmarks
        if self.sketch_.is_identity:
            with stages.stage("inputs: Gram matrix"):
                K = np.array(self.kernel_(X), dtype=np.float64)
            with stages.stage("inputs: solve"):
                self.coef_, self.rank_ = fit_gram(K, basis[owner], alpha), len(K)
            return

        def targets(rows: slice) -> Any:
            return basis[owner[rows]]

        columns = self.sketch_.columns
        self.coef_, self.rank_ = fit_sketched(
            sketch_map, X, columns, targets, alpha, stages
        )

    def _best(
        self, X: Any, k: int, candidates: Any, candidate_sets: Any
    ) -> tuple[TopK, OneSet | SetPerRow]:
        """Return the best candidates of each row, and what they are taken from."""
        X = self._check_new(X)
        n = X.shape[0]
        stages = Stages(self.verbose)
        with stages.stage("candidates"):
            sets = choose_set(self._pool, candidates, candidate_sets, n)
        k = check_integer("k", k, high=sets.largest)
        best = TopK.empty(n, k)
        with stages.stage("decoding", n) as show:
            for start, h in self._points(X):
                part = slice(start, start + len(h))
                sets.keep_best(h, start, best.rows(part))
                show(part.stop)
        return best, sets

    def _points(self, X: Any) -> Iterator[tuple[int, NDArray]]:
        """Yield (start, h(x) of the rows from there on), block by block."""
        sketch_map = SketchMap(self.kernel_, self.landmarks_, self.sketch_.weights)
        rows = _POINT_BYTES // (8 * self.coef_.shape[1])
        step = int(np.clip(rows, _FEWEST_ROWS, _MOST_ROWS))
        for start in range(0, X.shape[0], step):
            yield start, sketch_map.times(X[start : start + step], self.coef_)

    def _check_new(self, X: Any) -> Any:
        check_is_fitted(self)
        if isinstance(self.landmarks_, Objects):
            return check_objects("X", X)
        return self._validated(X, reset=False, dtype=model_dtype(self.landmarks_))

    @property
    def _pool(self) -> Pool:
        """The training outputs and the space that they span."""
        outputs = self.candidates_
        return Pool(
            Objects(outputs) if isinstance(outputs, list) else outputs,
            Candidates(self._features, self._penalty),
            OutputSpace(
                SketchMap(
                    self.output_kernel_, self.output_landmarks_, self._output_weights
                ),
                None if self._whitening is None else Whitening(*self._whitening),
            ),
            isinstance(self.output_kernel_, PrecomputedKernel),
        )

    def __sklearn_tags__(self) -> Tags:
        """Say what the estimator can do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_pairwise(self.kernel)
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        return tags


@contextmanager
def _naming_outputs() -> Iterator[None]:
    """Let errors name the arguments of the output side."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError):
            raise
        text = re.sub(r"`(kernel|bandwidth|sketch|size)`", r"`output_\1`", str(error))
        text = re.sub(r"\b(kernel|sketch)=", r"output_\1=", text)
        raise type(error)(text.replace("`X`", "`Y`")) from error
