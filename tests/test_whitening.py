"""The projection that whitens a sketched kernel, by Cholesky and by eigenvalues."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch._expansion import PivotedCholesky, project, projection


def positive(size, rank, top=1.0, bottom=1e-3, seed=0):
    """Return a matrix with `rank` eigenvalues spread from bottom to top."""
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    values = np.r_[np.zeros(size - rank), np.geomspace(bottom, top, rank)]
    return (vectors * values) @ vectors.T


def is_triangular(P):
    return P.shape[0] == P.shape[1] and not np.tril(P, -1).any()


@pytest.mark.parametrize("size", [1, 2, 30])
def test_a_matrix_of_full_rank_is_whitened_by_its_cholesky_factor(size):
    C = positive(size, size)
    P = projection(C)
    assert P.dtype == np.float64 and is_triangular(P)
    assert_allclose(P.T @ C @ P, np.eye(size), atol=1e-10)


@pytest.mark.parametrize("rank", [1, 3, 19])
def test_a_singular_matrix_is_cut(rank):
    C = positive(20, rank)
    P = projection(C)
    assert P.shape == (20, rank)
    assert_allclose(P @ P.T, np.linalg.pinv(C, rcond=1e-10), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("bottom", "rank"), [(1e-7, 8), (1e-11, 8), (1e-13, 7)])
def test_the_cut_is_relative_to_the_largest_eigenvalue(bottom, rank):
    # diagonal, so that rounding does not move the eigenvalues
    C = 5.0 * np.diag(np.r_[bottom, np.geomspace(0.1, 1, 7)])
    assert projection(C).shape[1] == rank


def test_a_matrix_that_is_not_finite_is_an_error():
    with pytest.raises(ValueError, match="infs or NaNs"):
        projection(np.full((3, 3), np.nan))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rank", [12, 11])
@pytest.mark.parametrize("n", [0, 1, 1024, 2500])
def test_products(n, rank, dtype):
    P = projection(positive(12, rank))
    B = np.random.default_rng(1).normal(size=(12, n)).astype(dtype)
    Z = project(B, P)
    assert Z.dtype == np.float64 and Z.flags.c_contiguous
    assert_allclose(Z, B.T.astype(np.float64) @ P, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rank", [1, 4, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cholesky_with_pivots_is_a_factor_of_the_pseudo_inverse(rng, rank, dtype):
    B = rng.normal(size=(9, rank))
    C = B @ B.T
    P = PivotedCholesky.of(C)
    dense = P.lift(np.eye(P.rank), 9)
    assert P.rank == rank
    # P P^T is an inverse of C on its range.
    assert_allclose(C @ dense @ dense.T @ C, C, atol=1e-8)
    product = (C @ rng.normal(size=(9, 5))).astype(dtype)
    expected = product.T.astype(np.float64) @ dense
    assert_allclose(project(product, P), expected, rtol=1e-8, atol=1e-8)


def test_cholesky_with_pivots_refuses_zeros():
    with pytest.raises(ValueError, match="must not be zero on all samples"):
        PivotedCholesky.of(np.zeros((3, 3)))
