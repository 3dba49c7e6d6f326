"""Sketches: their law, their products, and what a recipe accepts."""

import copy
import dataclasses
import math
import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from reference import dense_sketch

from nbsketch import (
    AccumulationSketch,
    CountSketch,
    GaussianSketch,
    IdentitySketch,
    LeverageSketch,
    PSparsifiedSketch,
    RademacherSketch,
    SparseJLSketch,
    SRHTSketch,
    SubsamplingSketch,
)
from nbsketch._sketch_map import features_recipe
from nbsketch.sketches import Sketch, as_recipe

SIZED = [
    PSparsifiedSketch(5),
    PSparsifiedSketch(5, density=0.3),
    PSparsifiedSketch(5, density=0.3, law="gaussian"),
    PSparsifiedSketch(5, density=1, law="gaussian"),
    GaussianSketch(5),
    RademacherSketch(5),
    SubsamplingSketch(5),
    SubsamplingSketch(5, replace=True),
    AccumulationSketch(5),
    AccumulationSketch(5, m=2),
    CountSketch(5),
    SparseJLSketch(5),
    SparseJLSketch(5, nonzeros=2),
    SRHTSketch(5),
    SRHTSketch(5, transform="dct"),
    SRHTSketch(5, transform="fourier"),
]
RECIPES = [*SIZED, IdentitySketch()]


def name(value):
    return repr(value)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
class TestEveryRecipe:
    def test_shape(self, recipe):
        S = recipe.draw(40, 0)
        rows = getattr(recipe, "size", 40)
        assert S.shape == S.to_csr().shape == (rows, 40)
        assert S.T.shape == (40, rows) and S.T.T is S
        assert f"shape=({rows}, 40), columns={S.columns.size})" in repr(S)

    def test_squared_norm_is_a_close_bound(self, recipe):
        for size in (5, 90):  # dense, by the Lanczos method
            if hasattr(recipe, "size"):
                recipe = dataclasses.replace(recipe, size=size)
            S = recipe.draw(256, 0)
            exact = np.linalg.norm(dense_sketch(S), 2) ** 2
            assert 1 - 1e-12 <= S.squared_norm() / exact <= 1.1 * (1 + 1e-12)

    def test_csr_is_canonical(self, recipe):
        csr = recipe.draw(40, 0).to_csr()
        assert isinstance(csr, sp.csr_array) and csr.dtype == np.float64
        assert csr.indptr[0] == 0 and csr.indptr[-1] == csr.nnz == len(csr.data)
        for row in range(csr.shape[0]):
            columns = csr.indices[csr.indptr[row] : csr.indptr[row + 1]]
            assert (np.diff(columns) > 0).all()
            assert ((columns >= 0) & (columns < 40)).all()
        assert (csr.data != 0).all()

    def test_columns_are_those_with_a_nonzero(self, recipe):
        S = recipe.draw(40, 0)
        dense = dense_sketch(S)
        assert S.columns.dtype == np.int64
        assert_array_equal(S.columns, np.flatnonzero((dense != 0).any(axis=0)))
        weights = S.weights
        if not isinstance(weights, np.ndarray):
            weights = (weights if sp.issparse(weights) else weights.to_csr()).toarray()
        assert_array_equal(weights, dense[:, S.columns])

    def test_identity_is_the_mean_of_the_inner_products(self, recipe):
        n, draws = 12, 300
        rng = np.random.default_rng(1)
        total, squares = np.zeros((n, n)), np.zeros((n, n))
        for _ in range(draws):
            dense = recipe.draw(n, rng).to_csr().toarray()
            inner = dense.T @ dense
            total += inner
            squares += inner**2
        mean = total / draws
        error = np.sqrt(np.maximum(squares / draws - mean**2, 0) / draws)
        assert (np.abs(mean - np.eye(n)) <= 5 * error + 1e-12).all()

    def test_same_seed_same_bits(self, recipe):
        def bits(rng):
            csr = recipe.draw(40, rng).to_csr()
            return csr.indptr.tobytes(), csr.indices.tobytes(), csr.data.tobytes()

        assert bits(3) == bits(3) == bits(np.random.default_rng(3))
        if recipe != IdentitySketch():
            assert bits(3) != bits(4)
            rng = np.random.default_rng(3)
            assert bits(rng) != bits(rng)
            assert bits(None) != bits(None)

    def test_data_and_kernel_are_ignored(self, recipe):
        S = recipe.draw(40, 0, X=np.ones((40, 2)), kernel=None)
        assert_array_equal(dense_sketch(S), dense_sketch(recipe.draw(40, 0)))

    def test_recipes_are_values(self, recipe):
        assert eval(repr(recipe)) == recipe
        for other in (copy.deepcopy(recipe), pickle.loads(pickle.dumps(recipe))):
            assert other == recipe and hash(other) == hash(recipe)
        assert sum(recipe == other for other in RECIPES) == 1
        for field in dataclasses.fields(recipe):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(recipe, field.name, 3)

    def test_a_drawn_sketch_survives_pickling(self, recipe):
        S = recipe.draw(40, 0)
        again = pickle.loads(pickle.dumps(S))
        assert type(again) is type(S)
        assert_array_equal(again.columns, S.columns)
        assert_array_equal(dense_sketch(again), dense_sketch(S))

    @pytest.mark.parametrize("form", [np.ascontiguousarray, np.asfortranarray, list])
    def test_products_with_dense_matrices(self, recipe, form, rng, dtype, tol):
        S = recipe.draw(40, 0)
        dense, A = dense_sketch(S), rng.standard_normal((40, 3)).astype(dtype)
        assert_allclose(S @ form(A), dense @ A, atol=10 * tol)
        assert_allclose(form(A.T) @ S.T, A.T @ dense.T, atol=10 * tol)
        assert (S @ A).dtype == (A.T @ S.T).dtype == dtype

    @pytest.mark.thin
    @pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array])
    def test_products_with_sparse_matrices(self, recipe, form, rng, dtype, tol):
        S = recipe.draw(40, 0)
        A = rng.standard_normal((40, 3)) * (rng.random((40, 3)) < 0.2)
        dense, A = dense_sketch(S), A.astype(dtype)
        right, left = S @ form(A), form(A.T) @ S.T
        assert sp.issparse(right) == sp.issparse(left) == sp.issparse(S.weights)
        assert right.dtype == left.dtype == dtype
        if sp.issparse(right):
            right, left = right.toarray(), left.toarray()
        assert_allclose(right, dense @ A, atol=10 * tol)
        assert_allclose(left, A.T @ dense.T, atol=10 * tol)

    @pytest.mark.thin
    def test_products_with_vectors(self, recipe, rng, dtype, tol):
        S = recipe.draw(40, 0)
        dense, v = dense_sketch(S), rng.standard_normal(40).astype(dtype)
        for product in (S @ v, v @ S.T):
            assert product.dtype == dtype
            assert_allclose(product, dense @ v, atol=10 * tol)
        ones = np.ones(40, dtype=np.int32)
        assert_allclose(S @ ones, dense.sum(axis=1), atol=1e-12)

    def test_products_want_matching_shapes(self, recipe):
        S = recipe.draw(40, 0)
        for wrong in (np.ones(39), np.ones((3, 40)), np.ones((40, 3, 2)), 2.0):
            with pytest.raises(ValueError, match=r"`A` in S @ A must have 40 rows"):
                S @ wrong
        for wrong in (np.ones(39), np.ones((40, 3)), np.ones((2, 3, 40))):
            with pytest.raises(
                ValueError, match=r"`A` in A @ S.T must have 40 columns"
            ):
                wrong @ S.T

    @pytest.mark.thin
    @pytest.mark.parametrize("n", [0, -1, 2.0, True, "9", None])
    def test_number_of_rows_is_checked(self, recipe, n):
        with pytest.raises((TypeError, ValueError), match="`n` must be"):
            recipe.draw(n)


@pytest.mark.parametrize("recipe", SIZED, ids=name)
class TestEverySizedRecipe:
    def test_size_is_at_most_the_number_of_rows(self, recipe):
        assert recipe.draw(5, 0).shape == (5, 5)
        with pytest.raises(ValueError, match=r"`size` must be at most .* 4, got 5"):
            recipe.draw(4)

    @pytest.mark.thin
    @pytest.mark.parametrize("size", [0, -1, 2.0, True, "9", None])
    def test_size_is_checked(self, recipe, size):
        with pytest.raises((TypeError, ValueError), match="`size` must be"):
            dataclasses.replace(recipe, size=size)

    def test_size_may_be_a_numpy_integer(self, recipe):
        other = dataclasses.replace(recipe, size=np.int32(5))
        assert other == recipe and type(other.size) is int


@pytest.mark.parametrize("density", [0, 0.0, -0.1, 1.1, math.nan, math.inf])
def test_density_is_a_probability(density):
    with pytest.raises(ValueError, match=r"`density` must be in \(0, 1\] or None, got"):
        PSparsifiedSketch(3, density=density)


@pytest.mark.parametrize("density", ["0.5", True, [0.5], 1j])
def test_density_is_a_number(density):
    with pytest.raises(TypeError, match=r"`density` must be a number"):
        PSparsifiedSketch(3, density=density)


@pytest.mark.parametrize("law", ["Rademacher", "", None, 0])
def test_law_is_known(law):
    with pytest.raises(ValueError, match="`law` must be one of"):
        PSparsifiedSketch(3, law=law)


@pytest.mark.parametrize("replace", ["yes", None, 1])
def test_replace_is_a_bool(replace):
    with pytest.raises(ValueError, match="`replace` must be one of"):
        SubsamplingSketch(3, replace=replace)


@pytest.mark.parametrize("p", [0.004, 0.1])
def test_active_columns_are_binomial(p):
    n, s, draws = 1000, 30, 400
    rng = np.random.default_rng(0)
    recipe = PSparsifiedSketch(s, density=p)
    counts = np.array([recipe.draw(n, rng).columns.size for _ in range(draws)])
    active = 1 - (1 - p) ** s
    variance = n * active * (1 - active)
    assert abs(counts.mean() - n * active) <= 5 * math.sqrt(variance / draws)
    # The standard error of the variance of nearly normal numbers.
    assert abs(counts.var() / variance - 1) <= 5 * math.sqrt(2 / draws)


@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
def test_scale_of_the_entries(law):
    data = PSparsifiedSketch(50, density=0.25, law=law).draw(2000, 0).to_csr().data
    normal = data * math.sqrt(50 * 0.25)
    if law == "rademacher":
        assert_allclose(np.abs(normal), 1, rtol=1e-15)
    assert abs(np.mean(normal)) <= 5 / math.sqrt(normal.size)
    assert abs(np.mean(normal**2) - 1) <= 5 * math.sqrt(2 / normal.size)


def test_default_density_is_twenty_entries_a_row():
    counts = np.diff(PSparsifiedSketch(1000).draw(50_000, 0).to_csr().indptr)
    assert abs(counts.mean() - 20) <= 5 * math.sqrt(20 / 1000)
    assert PSparsifiedSketch(10).draw(15, 0).to_csr().nnz == 150


def test_density_one_is_the_rademacher_sketch_in_law():
    dense = dense_sketch(PSparsifiedSketch(9, density=1.0).draw(50, 0))
    assert_allclose(np.abs(dense), 1 / 3, rtol=1e-15)
    other = dense_sketch(RademacherSketch(9).draw(50, 0))
    assert_allclose(np.abs(other), 1 / 3, rtol=1e-15)


def test_gaussian_sketch_is_normal():
    entries = 4 * dense_sketch(GaussianSketch(16).draw(2000, 0)).ravel()
    assert abs(entries.mean()) <= 5 / math.sqrt(entries.size)
    assert abs((entries**2).mean() - 1) <= 5 * math.sqrt(2 / entries.size)
    assert abs((entries**4).mean() - 3) <= 5 * math.sqrt(96 / entries.size)


def test_dense_sketches_are_p_sparsified_ones_without_zeros():
    for recipe, law in [(GaussianSketch(9), "gaussian"), (RademacherSketch(9), None)]:
        full = PSparsifiedSketch(9, density=1.0, law=law or "rademacher")
        dense = dense_sketch(full.draw(300, 3))
        assert_allclose(dense_sketch(recipe.draw(300, 3)), dense, rtol=1e-14)


def test_subsampling_takes_rows_of_the_identity():
    dense = dense_sketch(SubsamplingSketch(10).draw(40, 0))
    assert_array_equal(np.sort(dense, axis=1)[:, -2:], np.tile([0.0, 2.0], (10, 1)))
    assert (dense.sum(axis=0) <= 2).all()
    # Without replacement and of full size it is a permutation, so nothing is lost.
    full = dense_sketch(SubsamplingSketch(40).draw(40, 0))
    assert_array_equal(full.T @ full, np.eye(40))


def test_subsampling_with_replacement_repeats_rows():
    S = SubsamplingSketch(40, replace=True).draw(40, 0)
    assert S.columns.size < 40 and S.weights.shape == (40, S.columns.size)


def test_the_identity_is_the_identity():
    S = IdentitySketch().draw(7)
    assert_array_equal(dense_sketch(S), np.eye(7))
    assert S.is_identity
    assert not any(recipe.draw(7, 0).is_identity for recipe in SIZED)


# Fewer nonzeros than a 64th of the columns, about as many, and more.
@pytest.mark.parametrize("nonzeros", [1, 99, 100, 101, 3000])
def test_columns_by_sorting_and_by_marking(nonzeros, rng):
    n = 6400
    rows, columns = rng.integers(4, size=nonzeros), rng.integers(n, size=nonzeros)
    matrix = sp.csr_array((np.ones(nonzeros), (rows, columns)), shape=(4, n))
    S = Sketch(matrix)
    assert S.columns.dtype == np.int64
    assert_array_equal(S.columns, np.unique(columns))
    assert_array_equal(S.weights.toarray(), matrix.toarray()[:, S.columns])


def test_a_sketch_without_nonzeros():
    S = PSparsifiedSketch(3, density=1e-300).draw(20, 0)
    assert S.columns.size == 0 and S.weights.shape == (3, 0)
    assert_array_equal(S @ np.ones((20, 2)), np.zeros((3, 2)))


@pytest.mark.parametrize(
    "recipe",
    [
        PSparsifiedSketch(100),
        PSparsifiedSketch(100, law="gaussian"),
        SubsamplingSketch(100),
        SubsamplingSketch(100, replace=True),
        AccumulationSketch(100),
    ],
    ids=name,
)
def test_memory_does_not_grow_with_the_number_of_rows(recipe):
    assert recipe.draw(1000, 0).columns.size >= 50  # compiles
    tracemalloc.start()
    try:
        S = recipe.draw(10**8, 0)
        assert 90 <= S.columns.size <= 3000 and S.weights.shape[1] == S.columns.size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


def test_recipes_by_name():
    assert as_recipe("p-sparsified", 7, 50) == PSparsifiedSketch(7)
    assert as_recipe("gaussian", 7, 50) == GaussianSketch(7)
    assert as_recipe("rademacher", 7, 50) == RademacherSketch(7)
    assert as_recipe("subsampling", 7, 50) == SubsamplingSketch(7)
    assert as_recipe("identity", None, 50) == IdentitySketch()
    assert as_recipe("leverage", 7, 50) == LeverageSketch(7)
    assert as_recipe("accumulation", 7, 50) == AccumulationSketch(7, m=30)
    assert as_recipe("countsketch", 7, 50) == CountSketch(7)
    assert as_recipe("sparse-jl", 7, 50) == SparseJLSketch(7)
    assert as_recipe("srht", 7, 50) == SRHTSketch(7, transform="hadamard")
    recipe = PSparsifiedSketch(7)
    assert as_recipe(recipe, None, 50) is recipe


def test_size_of_a_named_recipe_is_at_most_the_number_of_rows():
    assert features_recipe("gaussian", None, 50).size == 50
    assert features_recipe("gaussian", None, 10_000).size == 100


def test_errors_of_recipes():
    with pytest.raises(ValueError, match=r"`sketch` must be one of .* got 'nystrom'"):
        as_recipe("nystrom", 7, 50)
    with pytest.raises(TypeError, match="`sketch` must be a name or a SketchRecipe"):
        as_recipe(7, None, 50)
    with pytest.raises(TypeError, match=r"got a class: write PSparsifiedSketch\("):
        as_recipe(PSparsifiedSketch, None, 50)
    with pytest.raises(ValueError, match="`size` must be None for sketch='identity'"):
        as_recipe("identity", 7, 50)
    with pytest.raises(ValueError, match="`size` requires the name of a sketch"):
        as_recipe(PSparsifiedSketch(7), 7, 50)
    with pytest.raises(ValueError, match="`size` must be at least 1, got 0"):
        as_recipe("gaussian", 0, 50)
