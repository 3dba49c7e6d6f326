"""Gram matrices that are not stored: kernel values are folded into products."""

from nbsketch.gram.columns import SketchedColumns
from nbsketch.gram.form import CompiledForm, KernelLike
from nbsketch.gram.lazy import Gram, Product, TiledWeights, evaluate, fold
from nbsketch.gram.symmetric import SymmetricGram

__all__ = [
    "CompiledForm",
    "Gram",
    "KernelLike",
    "Product",
    "SketchedColumns",
    "SymmetricGram",
    "TiledWeights",
    "evaluate",
    "fold",
]
