"""Structured prediction: outputs of any kind that have a kernel."""

from nbsketch.structured._outputs import TopK
from nbsketch.structured.regressor import InputOutputKernelRegressor
from nbsketch.structured.sizes import (
    SizePath,
    select_input_size,
    select_output_size,
)

__all__ = [
    "InputOutputKernelRegressor",
    "SizePath",
    "TopK",
    "select_input_size",
    "select_output_size",
]
