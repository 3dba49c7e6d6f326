"""Kernel models for tables: columns of any type, local refinement, stacking."""
