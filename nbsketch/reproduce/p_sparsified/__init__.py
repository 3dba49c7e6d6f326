"""Experiments of the p-sparsified sketches paper (El Ahmad et al., TMLR 2023)."""
