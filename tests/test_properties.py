"""Properties that hold for all inputs: hypothesis looks for a counterexample."""

import fuzz
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import nbsketch
from nbsketch.sketches import Sketch
from nbsketch.solvers import solve_scalar

# The same examples in each run; compiling takes longer than any deadline.
SETTINGS = settings(max_examples=40, deadline=None, derandomize=True)
RECIPES = {
    "p-sparsified": nbsketch.PSparsifiedSketch,
    "subsampling": nbsketch.SubsamplingSketch,
    "accumulation": nbsketch.AccumulationSketch,
    "countsketch": nbsketch.CountSketch,
    "sparse-jl": nbsketch.SparseJLSketch,
    "srht": nbsketch.SRHTSketch,
}
KERNELS = [
    nbsketch.GaussianKernel,
    nbsketch.LaplacianKernel,
    lambda width: nbsketch.MaternKernel(width, nu=1.5),
]
LOSSES = ["huber", "epsilon-insensitive", "pinball", "square"]
SEEDS = st.integers(0, 2**32 - 1)


def dense(sketch):
    return sketch @ np.eye(sketch.shape[1])


@SETTINGS
@given(st.sampled_from(list(RECIPES)), st.integers(1, 40), st.data(), SEEDS)
def test_products_with_a_sketch_are_those_of_its_matrix(name, n, data, seed):
    size = data.draw(st.integers(1, n))
    sketch = RECIPES[name](size).draw(n, rng=seed)
    S = dense(sketch)
    assert S.shape == (size, n)
    assert_allclose(S, dense(RECIPES[name](size).draw(n, rng=seed)), atol=0)
    A = np.random.default_rng(seed).normal(size=(n, 3))
    assert_allclose(sketch @ A, S @ A, atol=1e-12 * n)
    assert set(np.flatnonzero(np.abs(S).sum(axis=0))) <= set(sketch.columns)


@SETTINGS
@given(
    st.lists(st.integers(-2, 12), max_size=12),
    st.lists(st.integers(-2, 14), min_size=4, max_size=4),
    st.integers(1, 10),
)
def test_a_matrix_of_a_user_is_checked_before_it_is_used(indices, indptr, n):
    """Any arrays of CSR make a sketch that multiplies rightly, or a ValueError."""
    matrix = sp.csr_array((3, n))
    matrix.indptr, matrix.indices = np.array(indptr), np.array(indices, dtype=int)
    matrix.data = np.ones(len(indices))
    try:
        sketch = Sketch(matrix)
    except ValueError:
        return
    used = sketch.to_csr().indices
    assert 0 <= min(used, default=0) <= max(used, default=0) < n
    assert_allclose(sketch @ np.eye(n), matrix.toarray())


@SETTINGS
@given(st.sampled_from(KERNELS), st.floats(1e-3, 1e3), st.integers(1, 30), SEEDS)
def test_gram_matrices_are_symmetric_and_positive(kernel, width, n, seed):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    K = kernel(width)(X)
    assert_allclose(K, K.T, rtol=1e-12)
    assert_allclose(np.diag(K), 1.0, rtol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-12 * n


@SETTINGS
@given(st.sampled_from(LOSSES), st.floats(-6, 1), st.integers(2, 30), SEEDS)
def test_the_gap_bounds_what_any_other_point_gains(loss, log_alpha, n, seed):
    rng = np.random.default_rng(seed)
    Z, y, alpha = rng.normal(size=(n, 3)), rng.normal(size=n), 10.0**log_alpha
    rough = solve_scalar(Z, y, loss, alpha, max_iter=1)
    exact = solve_scalar(Z, y, loss, alpha, tol=1e-12)
    slack = 1e-10 * max(1.0, abs(rough.objective))
    assert rough.objective - rough.gap <= exact.objective + slack


@pytest.mark.parametrize("name", ["regressor", "srht"])
def test_no_seed_of_mutations_does_harm(name, tmp_path):
    model, X = fuzz.models()[name]()

    @SETTINGS
    @given(SEEDS)
    def check(seed):
        assert fuzz.run(model, X, 1, seed, tmp_path / "model.npz").total() == 1

    check()
