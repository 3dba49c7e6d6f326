"""Sketches: recipes, and the random matrices that they draw."""

from typing import Any

from nbsketch._validation import check_choice, check_integer
from nbsketch.sketches._sketch import DenseSketch, SizedRecipe, Sketch, SketchRecipe
from nbsketch.sketches.entries import (
    CountSketch,
    GaussianSketch,
    PSparsifiedSketch,
    RademacherSketch,
    SparseJLSketch,
)
from nbsketch.sketches.sampling import (
    AccumulationSketch,
    IdentitySketch,
    LandmarkSketch,
    LeverageSketch,
    SubsamplingSketch,
)
from nbsketch.sketches.srht import SRHTSketch, TransformSketch

__all__ = [
    "AccumulationSketch",
    "CountSketch",
    "DenseSketch",
    "GaussianSketch",
    "IdentitySketch",
    "LandmarkSketch",
    "LeverageSketch",
    "PSparsifiedSketch",
    "RademacherSketch",
    "SRHTSketch",
    "SizedRecipe",
    "Sketch",
    "SketchRecipe",
    "SparseJLSketch",
    "SubsamplingSketch",
    "TransformSketch",
    "as_recipe",
]

_BY_NAME: dict[str, type[SketchRecipe]] = {
    "p-sparsified": PSparsifiedSketch,
    "gaussian": GaussianSketch,
    "rademacher": RademacherSketch,
    "subsampling": SubsamplingSketch,
    "leverage": LeverageSketch,
    "accumulation": AccumulationSketch,
    "countsketch": CountSketch,
    "sparse-jl": SparseJLSketch,
    "srht": SRHTSketch,
    "identity": IdentitySketch,
}


def as_recipe(
    sketch: Any, size: int | None, n: int, *, prefix: str = ""
) -> SketchRecipe:
    """Return the recipe of a sketch of n rows from an object, or a name and a size.

    `prefix` is that of the two argument names in error messages, such as ``"output_"``.
    """
    recipe = _as_recipe(sketch, size, prefix)
    if isinstance(recipe, SizedRecipe):
        recipe.check_size(n, f"{prefix}size")
    return recipe


def _as_recipe(sketch: Any, size: Any, prefix: str) -> SketchRecipe:
    name = f"{prefix}sketch"
    if isinstance(sketch, str):
        family = _BY_NAME[check_choice(name, sketch, _BY_NAME)]
        if issubclass(family, SizedRecipe):
            return family(check_integer(f"{prefix}size", size))
        if size is not None:
            raise ValueError(
                f"`{prefix}size` has no meaning for {name}={sketch!r}, got {size}"
            )
        return family()
    if not isinstance(sketch, SketchRecipe):
        raise TypeError(f"`{name}` must be a name or a SketchRecipe, got {sketch!r}")
    if size is not None:
        raise ValueError(
            f"`{prefix}size` goes with the name of a sketch, got {name}={sketch!r}: "
            "set the size of the object instead"
        )
    return sketch
