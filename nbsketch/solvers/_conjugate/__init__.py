"""Preconditioned conjugate gradients for least squares with a kernel."""
