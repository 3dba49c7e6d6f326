"""Gram matrices that are never stored: kernel values are folded into products."""

from nbsketch.gram.columns import SketchedColumns
from nbsketch.gram.form import CompiledForm, KernelLike
from nbsketch.gram.lazy import Gram, Product, evaluate, fold
from nbsketch.gram.symmetric import SymmetricGram
from nbsketch.gram.tiles import TiledWeights

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
