"""Sketches: recipes that can be drawn for any number of rows, and what was drawn."""

from nbsketch.sketches._sketch import DenseSketch, Sketch, SketchRecipe, SketchTranspose
from nbsketch.sketches.dense import GaussianSketch, RademacherSketch
from nbsketch.sketches.sampling import IdentitySketch, SubsamplingSketch
from nbsketch.sketches.sparsified import PSparsifiedSketch

__all__ = [
    "DenseSketch",
    "GaussianSketch",
    "IdentitySketch",
    "PSparsifiedSketch",
    "RademacherSketch",
    "Sketch",
    "SketchRecipe",
    "SketchTranspose",
    "SubsamplingSketch",
]
