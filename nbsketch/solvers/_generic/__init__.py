"""Losses given by code: problem and certificate, whitened L-BFGS, ADMM."""
