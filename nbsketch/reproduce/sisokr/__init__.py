"""Experiments of the Sketch In, Sketch Out paper (El Ahmad et al., AISTATS 2024)."""
