"""Growing a drawn sketch, its tail, and what becomes of it in a file."""

import math
import pickle
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from reference import dense_sketch

from nbsketch import (
    AccumulationSketch,
    AutoSize,
    CountSketch,
    GaussianKernel,
    GaussianSketch,
    IdentitySketch,
    LeverageSketch,
    PSparsifiedSketch,
    RademacherSketch,
    SizedRecipe,
    SketchedKernelRegressor,
    SparseJLSketch,
    SRHTSketch,
    SubsamplingSketch,
)
from nbsketch.files import Decoder, Encoder
from nbsketch.files.archive import open_archive, write_archive
from nbsketch.gram import Gram
from nbsketch.sketches import DenseSketch, Sketch, TransformSketch

N = 60
X = np.random.default_rng(0).normal(size=(N, 2))
KERNEL = GaussianKernel(1.0)
# Each with the keywords of its recipe.
GROWING = [
    (PSparsifiedSketch, {}),
    (PSparsifiedSketch, {"density": 0.2, "law": "gaussian"}),
    (GaussianSketch, {}),
    (RademacherSketch, {}),
    (SubsamplingSketch, {}),
    (SubsamplingSketch, {"replace": True}),
    (AccumulationSketch, {"m": 4}),
    (LeverageSketch, {"alpha": 1e-2}),
    (SRHTSketch, {}),
    (SRHTSketch, {"transform": "dct"}),
    (SRHTSketch, {"transform": "fourier"}),
]
growing = pytest.mark.parametrize(("recipe", "options"), GROWING)


def draw(recipe, size, options, seed=0):
    return recipe(size, **options).draw(N, seed, X=X, kernel=KERNEL)


@growing
def test_growing_is_drawing_more_from_the_same_seed(recipe, options):
    S = draw(recipe, 8, options)
    assert S.can_grow
    whole = dense_sketch(draw(recipe, 20, options))
    assert_array_equal(dense_sketch(S.extend(12)), whole)
    assert_array_equal(dense_sketch(S.extend(5).extend(7)), whole)
    assert type(S.extend(1)) is type(S)


@growing
def test_old_rows_stay_up_to_their_scale(recipe, options):
    S = draw(recipe, 8, options)
    grown = S.extend(12)
    old = math.sqrt(8 / 20) * dense_sketch(S)
    assert_allclose(dense_sketch(grown)[:8], old, rtol=1e-14)
    assert_array_equal(dense_sketch(grown.tail(8)), dense_sketch(grown)[8:])


@growing
def test_products_grow_by_their_new_rows_alone(recipe, options):
    S, K = draw(recipe, 8, options), Gram(KERNEL, X)
    grown = S.extend(12)
    product = np.hstack([math.sqrt(8 / 20) * (K @ S.T), K @ grown.tail(8).T])
    assert_allclose(product, KERNEL(X) @ dense_sketch(grown).T, atol=1e-12)


def test_the_identity_is_the_mean_after_growing_too():
    draws, rng = 300, np.random.default_rng(0)
    for recipe, options in GROWING:
        if recipe is LeverageSketch:
            continue  # its scores are computed for every draw
        total, squares = np.zeros((2, 10, 10))
        for _ in range(draws):
            dense = recipe(2, **options).draw(10, rng).extend(3).to_csr().toarray()
            inner = dense.T @ dense
            total += inner
            squares += inner**2
        mean = total / draws
        error = np.sqrt(np.maximum(squares / draws - mean**2, 0) / draws)
        assert (np.abs(mean - np.eye(10)) <= 5 * error + 1e-12).all(), recipe


@growing
def test_growth_survives_pickling(recipe, options):
    S = draw(recipe, 8, options)
    again = pickle.loads(pickle.dumps(S)).extend(3)
    assert_array_equal(dense_sketch(again), dense_sketch(S.extend(3)))


@growing
def test_a_file_holds_the_sketch(recipe, options, tmp_path):
    S = draw(recipe, 8, options).extend(4)
    encoder = Encoder()
    text = encoder(S, "sketch")
    write_archive(tmp_path / "sketch.npz", encoder.arrays)
    with open_archive(tmp_path / "sketch.npz") as archive:
        again = Decoder(archive)(text, "sketch")
    assert type(again) is type(S)
    assert_array_equal(dense_sketch(again), dense_sketch(S))
    assert_array_equal(again.columns, S.columns)
    # Probabilities are as many as the rows of the data: a file is without them.
    assert again.can_grow == (recipe is not LeverageSketch)
    if again.can_grow:
        assert_array_equal(dense_sketch(again.extend(2)), dense_sketch(S.extend(2)))


def test_a_sketch_grows_to_the_number_of_rows_and_no_further():
    S = PSparsifiedSketch(5).draw(9, 0)
    assert S.extend(4).shape == (9, 9)
    with pytest.raises(ValueError, match="`rows` must be at most 4, got 5"):
        S.extend(5)
    for rows in (0, -1, 2.0, True, None):
        with pytest.raises((TypeError, ValueError), match="`rows` must be"):
            S.extend(rows)


@pytest.mark.parametrize(
    "S",
    [
        CountSketch(5).draw(9, 0),
        SparseJLSketch(5).draw(9, 0),
        IdentitySketch().draw(9),
        Sketch(SubsamplingSketch(5).draw(9, 0).to_csr()),
        DenseSketch(np.ones((5, 9))),
        GaussianSketch(5).draw(9, 0).tail(2),
        SRHTSketch(5).draw(9, 0).tail(2),
        PSparsifiedSketch(5).draw(9, 0).tail(2),
    ],
    ids=repr,
)
def test_what_cannot_grow_says_so(S):
    assert not S.can_grow
    with pytest.raises(TypeError, match=r"a \w+( drawn by .*)? cannot grow"):
        S.extend(1)


@pytest.mark.parametrize("recipe", [PSparsifiedSketch, GaussianSketch, SRHTSketch])
def test_tails(recipe, rng):
    S = recipe(5).draw(40, 0)
    A = rng.standard_normal((40, 3))
    for start in (0, 2, 4):
        tail = S.tail(start)
        assert tail.shape == (5 - start, 40)
        assert_array_equal(dense_sketch(tail), dense_sketch(S)[start:])
        assert_allclose(tail @ A, (S @ A)[start:], atol=1e-14)
    for start in (-1, 5, 1.0, None):
        with pytest.raises((TypeError, ValueError), match="`start` must be"):
            S.tail(start)
    assert isinstance(SRHTSketch(5).draw(40, 0).tail(1), TransformSketch)


@dataclass(frozen=True)
class PairSketch(SizedRecipe):
    """A sketch of a user: each row is the difference of two random rows."""

    def draw_matrix(self, n, seed):
        rows = [np.random.default_rng([seed, i]) for i in range(self.size)]
        pairs = [rng.choice(n, 2, replace=False) for rng in rows]  # not sorted
        values = np.tile([1.0, -1.0], self.size) * math.sqrt(n / (2 * self.size))
        arrays = (values, np.ravel(pairs), 2 * np.arange(self.size + 1))
        return sp.csr_array(arrays, shape=(self.size, n))


@dataclass(frozen=True)
class UniformSketch(SizedRecipe):
    """A dense sketch of a user, with a parameter, drawn anew for each size."""

    bound: float = math.sqrt(3)
    grows: ClassVar[bool] = False

    def draw_matrix(self, n, seed):
        entries = np.random.default_rng(seed).uniform(-1, 1, (self.size, n))
        return self.bound / math.sqrt(self.size) * entries


class TestRecipesOfUsers:
    def test_a_drawn_sketch_grows(self):
        S = PairSketch(8).draw(N, 0)
        assert S.can_grow and type(S) is Sketch
        assert (np.diff(S.weights.indices.reshape(-1, 2)) > 0).all()
        whole = dense_sketch(PairSketch(20).draw(N, 0))
        assert_array_equal(dense_sketch(S.extend(12)), whole)
        assert_array_equal(dense_sketch(S.extend(5).extend(7)), whole)
        old = math.sqrt(8 / 20) * dense_sketch(S)
        assert_allclose(whole[:8], old, rtol=1e-14)

    def test_a_dense_sketch_whose_rows_are_dependent_cannot_grow(self):
        S = UniformSketch(8).draw(N, 0)
        assert type(S) is DenseSketch and not S.can_grow
        assert_array_equal(S.weights, UniformSketch(8).draw(N, 0).weights)
        with pytest.raises(TypeError, match=r"drawn by UniformSketch\(.*cannot grow"):
            S.extend(1)

    @pytest.mark.parametrize("recipe", [PairSketch(5), UniformSketch(5, 2.0)])
    def test_the_size_is_chosen_from_the_one_given(self, recipe):
        rng = np.random.default_rng(0)
        rows = rng.uniform(-3, 3, size=(400, 2))
        y = np.sin(2 * rows[:, 0]) * rows[:, 1]
        options = {"bandwidth": 1.0, "random_state": 0, "size": "auto"}
        model = SketchedKernelRegressor(sketch=recipe, **options).fit(rows, y)
        sizes = model.size_path_["size"].tolist()
        assert sizes == [min(5 * 2**k, 400) for k in range(len(sizes))]
        assert len(sizes) > 2
        chosen = model.size_path_["loss"].argmin()
        assert model.sketch_.shape[0] == model.size_ == sizes[chosen] > 5
        assert model.sketch_.origin.recipe == replace(recipe, size=sizes[chosen])
        assert model.score(rows, y) > 0.9

    def test_a_size_beyond_the_largest_is_kept(self):
        rows = np.random.default_rng(0).normal(size=(100, 2))
        rule = AutoSize(start=5, max_size=10)
        model = SketchedKernelRegressor(sketch=PairSketch(20), size=rule, bandwidth=1.0)
        assert model.fit(rows, rows[:, 0]).size_path_["size"].tolist() == [20]

    def test_a_matrix_of_another_shape_is_an_error(self):
        @dataclass(frozen=True)
        class Wrong(SizedRecipe):
            def draw_matrix(self, n, seed):
                return np.ones((self.size + 1, n))

        words = r"`draw_matrix` of Wrong must return a matrix of shape \(3, 60\), got"
        with pytest.raises(ValueError, match=words):
            Wrong(3).draw(N)

    def test_the_method_is_needed(self):
        class Empty(SizedRecipe):
            pass

        with pytest.raises(TypeError, match="draw_matrix"):
            Empty(3)
