"""Choosing sketch sizes: what is scored, how it ends, and what is refused."""

import numpy as np
import pytest
import reference
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal

from nbsketch import GaussianKernel, InputOutputKernelRegressor, PSparsifiedSketch
from nbsketch.metrics import example_f1
from nbsketch.structured import SizePath, select_input_size, select_output_size


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, size=(120, 2))
    Y = np.column_stack([X > 0, X > 0.5, X.sum(axis=1) > 0]).astype(int)
    return X[:80], Y[:80], X[80:], Y[80:]


def make(**changes):
    options = {"bandwidth": 1.0, "sketch": "subsampling", "output_sketch": "gaussian"}
    return InputOutputKernelRegressor(**options | {"random_state": 0} | changes)


def test_output_sizes_are_scored_by_a_perfect_regression(data):
    _, Y, _, Y_val = data
    kernel = GaussianKernel(1.5)
    model = make(output_kernel=kernel)
    path = select_output_size(model, Y, Y_val, [9, 2, 5, 5])
    assert path.sizes.tolist() == [2, 5, 9] and len(path.seconds) == 3
    for size, score in zip(path.sizes, path.scores, strict=True):
        fitted = make(output_kernel=kernel, output_size=int(size)).fit(data[0], Y)
        R = reference.dense_sketch(fitted.output_sketch_)
        C = fitted.candidates_
        K = reference.gaussian(Y, Y, 1.5)
        core = np.linalg.pinv(R @ K @ R.T, rcond=1e-12)
        truth, others = (R @ reference.gaussian(Y, A, 1.5) for A in (Y_val, C))
        decoded = C[(truth.T @ core @ others).argmax(axis=1)]
        assert_allclose(score, example_f1(Y_val, decoded))
    assert path.scores[0] < path.scores[-1] == 1


def test_input_sizes_are_scored_by_the_surrogate_error(data):
    model = make(output_size=5)
    path = select_input_size(model, *data, [3, 30])
    X, Y, X_val, Y_val = data
    for size, score in zip([3, 30], path.scores, strict=True):
        fitted = make(output_size=5, size=size).fit(X, Y)
        assert_allclose(score, fitted.score(X_val, Y_val), rtol=1e-12)
    assert path.scores[0] < path.scores[1] < 0


def test_the_budget_ends_the_search_but_not_before_the_first(data):
    path = select_input_size(make(), *data, [3, 30, 60], budget=1e-9)
    assert_array_equal(path.sizes, [3])
    assert path.seconds[0] > 0 and path.best() == 3


def test_a_recipe_keeps_its_other_parameters(data, monkeypatch):
    recipe = PSparsifiedSketch(3, density=0.5, law="gaussian")
    drawn = []

    def draw(self, n, rng=None, **others):
        drawn.append(self)
        return original(self, n, rng, **others)

    original = PSparsifiedSketch.draw
    monkeypatch.setattr(PSparsifiedSketch, "draw", draw)
    select_output_size(make(output_sketch=recipe), data[1], data[3], [4, 7])
    assert drawn == [PSparsifiedSketch(s, 0.5, "gaussian") for s in (4, 7)]


def test_the_best_size_is_the_smallest_that_is_nearly_best():
    sizes, seconds = np.array([10, 20, 30]), np.ones(3)
    path = SizePath(sizes, np.array([0.5, 0.995, 1.0]), seconds, "score")
    assert [path.best(), path.best(0.5), path.best(0)] == [20, 10, 30]
    errors = SizePath(sizes, np.array([-2.0, -1.005, -1.0]), seconds, "error")
    assert [errors.best(), errors.best(1), errors.best(0)] == [20, 10, 30]
    with pytest.raises(ValueError, match="`tolerance` must be"):
        path.best(-1)


def test_a_path_can_be_drawn(data):
    path = select_output_size(make(), data[1], data[3], [2, 5])
    ax = pyplot.figure().subplots()
    assert path.plot(ax=ax) is ax
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        str(size) for size in path.sizes
    ]
    assert len(ax.get_xticks(minor=True)) == 0
    pyplot.close("all")
    assert_array_equal(ax.lines[0].get_xydata(), np.column_stack([[2, 5], path.scores]))


@pytest.mark.parametrize(
    ("sizes", "changes", "message"),
    [
        ([], {}, "`sizes` must not be empty"),
        ([0], {}, "`sizes` must be in"),
        ([81], {}, r"`sizes` must be in \[1, 80\]"),
        ([5], {"output_sketch": "identity"}, "`output_sketch` must be a sketch with"),
    ],
)
def test_bad_sizes(data, sizes, changes, message):
    with pytest.raises(ValueError, match=message):
        select_output_size(make(**changes), data[1], data[3], sizes)


def test_a_bad_budget(data):
    with pytest.raises(ValueError, match="`budget` must be"):
        select_input_size(make(), *data, [5], budget=0)
