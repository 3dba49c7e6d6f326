"""Complexity of a kernel problem, sizes of sketches, and K-satisfiability.

All functions take the spectrum of the Gram matrix, see `spectrum`.
"""

from nbsketch.diagnostics._plot import plot_spectrum
from nbsketch.diagnostics._satisfiability import (
    Satisfiability,
    is_k_satisfiable,
    satisfiability_constant,
)
from nbsketch.diagnostics._size import SizeRecommendation, recommend_size
from nbsketch.diagnostics._spectrum import (
    Spectrum,
    critical_radius,
    effective_dimension,
    spectrum,
    statistical_dimension,
)

__all__ = [
    "Satisfiability",
    "SizeRecommendation",
    "Spectrum",
    "critical_radius",
    "effective_dimension",
    "is_k_satisfiable",
    "plot_spectrum",
    "recommend_size",
    "satisfiability_constant",
    "spectrum",
    "statistical_dimension",
]
