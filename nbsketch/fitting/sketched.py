"""Sketched rows: the second step of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._rows import held_rows
from nbsketch._sketch_map import (
    SketchMap,
    draw,
    features_design,
    resolve,
    sketched_design,
)
from nbsketch._validation import random_generator
from nbsketch.fitting.inputs import (
    Inputs,
    TuningTarget,
    check_inputs,
    prepare_inputs,
    transform_rows,
)
from nbsketch.fitting.settings import SketchSettings
from nbsketch.fitting.sizes import choose_recipe
from nbsketch.kernels import PrecomputedKernel
from nbsketch.sketches import LandmarkSketch, Sketch, SketchRecipe
from nbsketch.solvers.design import Design
from nbsketch.solvers.folds import OrderEffect


class SketchedData(NamedTuple):
    """Prepared training rows, their sketch, and a random stream for the next steps."""

    inputs: Inputs
    sketch: Sketch
    sketch_map: SketchMap
    rng: np.random.Generator
    # Projection and features, if they are already computed.
    features: tuple[NDArray, Design] | None = None
    size_path: dict[str, NDArray] | None = None
    alpha: float | None = None  # the penalty, if it was chosen with the kernel
    # Whether the order of the rows contradicts the choice of the penalty.
    order: OrderEffect | None = None
    # Indices of the training rows among those given; None for all of them.
    kept: NDArray | None = None

    @property
    def expansion(self) -> SketchMap:
        """The map for other rows than the training rows."""
        return self.sketch_map.original(self.kept)

    def transform(self, rows: Any, name: str) -> Any:
        """Return other rows as prepared for the kernel; errors call them `name`."""
        return transform_rows(rows, self.inputs.scaler, self.sketch_map.kernel, name)

    def design(self, keep: bool | None = None) -> tuple[NDArray, Design]:
        """Return the projection and the features of the training rows.

        Features are stored if `keep` is true; None stores them if they are small.
        """
        if self.features is not None:
            return self.features
        return sketched_design(self.sketch_map, self.inputs.rows, keep=keep)

    def validation_design(self, rows: Any, projection: NDArray) -> Design:
        """Return the features of validation rows."""
        rows = self.transform(rows, "X_val")
        return features_design(self.expansion, projection, rows)


def draw_map(
    inputs: Inputs,
    recipe: SketchRecipe,
    rngs: Sequence[np.random.Generator],
    weights: NDArray | None = None,
) -> tuple[Sketch, SketchMap]:
    """Return a sketch of prepared rows and its map; weights are those of the rows.

    Landmarks of one's own are prepared as the rows are. Their sketch is the identity.
    """
    args = inputs.rows, inputs.kernel, inputs.bandwidth
    if not isinstance(recipe, LandmarkSketch):
        kernel, sketch = draw(*args, recipe, None, rngs, sample_weight=weights)
        return sketch, SketchMap.of(kernel, inputs.rows, sketch)
    kernel, scaler = resolve(*args, rngs[0], weights), inputs.scaler
    n_features = scaler.n_features if scaler else inputs.rows.shape[1]
    if isinstance(kernel, PrecomputedKernel):
        raise ValueError(
            "`sketch` must choose training rows for a precomputed kernel, got "
            f"{recipe!r}: pass the rows and a kernel of them"
        )
    points = recipe.points_for(inputs.rows, n_features)
    landmarks = transform_rows(points, scaler, kernel, "points")
    sketch = Sketch(sp.eye_array(recipe.size, format="csr"))
    return sketch, SketchMap(kernel, landmarks, sketch.weights)


def draw_sketch(
    X: Any,
    target: TuningTarget,
    default_size: int,
    settings: SketchSettings,
    kept: NDArray | None = None,
) -> SketchedData:
    """Prepare the rows of X, learning length scales if asked, and draw a sketch.

    `kept` are the indices of the rows among those given, None for all of them.
    """
    check_inputs(X, settings)
    # The order of the streams is part of what a random_state means.
    *rngs, fit_rng, tuning_rng = random_generator(settings.random_state).spawn(4)
    recipe = choose_recipe(settings.sketch, settings.size, X.shape[0], default_size)
    size = getattr(recipe, "size", X.shape[0])
    X = held_rows(X, recipe)
    inputs = prepare_inputs(X, settings, target, size, tuning_rng)
    sketch, sketch_map = draw_map(inputs, recipe, rngs, target.weights)
    return SketchedData(inputs, sketch, sketch_map, fit_rng, kept=kept)
