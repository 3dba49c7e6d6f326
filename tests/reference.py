"""Brute force: what the library must return, by explicit formulas on dense arrays."""

import math

import numpy as np

from nbsketch import (
    CallableKernel,
    GaussianKernel,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    PrecomputedKernel,
)


def differences(X, Y, bandwidth):
    """Return (x_i - y_j) / bandwidth, of shape (n, m, q), in float64."""
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    return (X[:, None, :] - Y[None, :, :]) / np.asarray(bandwidth)


def gaussian(X, Y, bandwidth):
    return np.exp(-0.5 * (differences(X, Y, bandwidth) ** 2).sum(axis=2))


def laplacian(X, Y, bandwidth):
    return np.exp(-np.abs(differences(X, Y, bandwidth)).sum(axis=2))


def matern(X, Y, bandwidth, nu):
    t = np.sqrt((differences(X, Y, bandwidth) ** 2).sum(axis=2))
    if nu == 0.5:
        return np.exp(-t)
    if nu == 1.5:
        return (1 + math.sqrt(3) * t) * np.exp(-math.sqrt(3) * t)
    if nu == 2.5:
        return (1 + math.sqrt(5) * t + 5 * t**2 / 3) * np.exp(-math.sqrt(5) * t)
    return np.exp(-(t**2) / 2)


def polynomial(X, Y, degree, scale, offset):
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    return (scale * (X[:, None, :] * Y[None, :, :]).sum(axis=2) + offset) ** degree


def kernel_matrix(kernel, X, Y):
    """Return k(X, Y) in float64 by the formula of the kernel."""
    match kernel:
        case GaussianKernel():
            return gaussian(X, Y, kernel.bandwidth)
        case LaplacianKernel():
            return laplacian(X, Y, kernel.bandwidth)
        case MaternKernel():
            return matern(X, Y, kernel.bandwidth, kernel.nu)
        case PolynomialKernel():
            return polynomial(X, Y, kernel.degree, kernel.scale, kernel.offset)
        case LinearKernel():
            return polynomial(X, Y, 1, 1.0, 0.0)
        case CallableKernel():
            return np.asarray(kernel.function(X, Y), dtype=np.float64)
        case PrecomputedKernel():
            return np.asarray(X, dtype=np.float64)[:, Y]
    raise NotImplementedError(f"no formula for {kernel!r}")


def dense_sketch(sketch):
    """Return the (s, n) matrix of a sketch, entry by entry from its CSR arrays."""
    csr = sketch.to_csr()
    matrix = np.zeros(sketch.shape)
    for i in range(sketch.shape[0]):
        for entry in range(csr.indptr[i], csr.indptr[i + 1]):
            matrix[i, csr.indices[entry]] += csr.data[entry]
    return matrix


def sketched_columns(K, S):
    """Return K S^T for dense K (n, m) and S (s, m), one landmark at a time."""
    product = np.zeros((K.shape[0], S.shape[0]))
    for j in range(K.shape[1]):
        product += np.outer(K[:, j], S[:, j])
    return product


def sketched_core(K, S):
    """Return S K S^T for dense K (n, n) and S (s, n)."""
    return sketched_columns(sketched_columns(K, S).T, S)
