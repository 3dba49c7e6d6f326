"""Experiments of Pohlen, Random Sketches for Kernel Regression (2015)."""
