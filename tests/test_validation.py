"""Checks of arguments: what passes, what it becomes, and what an error says."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from nbsketch._report.validation import (
    check_choice,
    check_integer,
    check_matrix,
    check_positive,
    check_real,
    random_generator,
)


@pytest.mark.parametrize(
    "value", [1, 0.5, np.float32(0.5), np.int64(1), Fraction(1, 2)]
)
def test_real_returns_a_python_float(value):
    number = check_real("p", value, low=0, high=1)
    assert type(number) is float and number == value


@pytest.mark.parametrize("value", [True, np.True_, "1", None, 1j, [1.0], np.ones(1)])
def test_real_wants_a_number(value):
    with pytest.raises(TypeError, match=r"`p` must be a number in \[0, 1\], got"):
        check_real("p", value, low=0, high=1)


@pytest.mark.parametrize("value", [-1e-300, 1 + 1e-15, math.nan, math.inf, -math.inf])
def test_real_stays_in_its_interval(value):
    with pytest.raises(ValueError, match=r"`p` must be in \[0, 1\], got"):
        check_real("p", value, low=0, high=1)


def test_ends_of_an_interval_are_in_or_out():
    assert check_real("p", 0, low=0, high=1) == 0
    assert check_real("p", 1, low=0, high=1) == 1
    assert check_real("p", math.inf) == math.inf
    with pytest.raises(ValueError, match=r"\(0, 1\], got 0$"):
        check_real("p", 0, low=0, high=1, low_open=True)
    with pytest.raises(ValueError, match=r"\[0, 1\), got 1$"):
        check_real("p", 1, low=0, high=1, high_open=True)


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_positive(value):
    assert check_positive("width", 5e-324) == 5e-324
    with pytest.raises(ValueError, match=r"`width` must be in \(0, inf\), got"):
        check_positive("width", value)


@pytest.mark.parametrize("value", [1, np.int8(1), np.uint64(1)])
def test_integer_returns_a_python_int(value):
    number = check_integer("size", value)
    assert type(number) is int and number == 1


@pytest.mark.parametrize("value", [1.0, True, np.True_, "1", None, np.float64(1)])
def test_integer_wants_an_integer(value):
    with pytest.raises(TypeError, match="`size` must be an integer at least 1, got"):
        check_integer("size", value)


def test_integer_stays_in_its_interval():
    assert check_integer("size", 0, low=0, high=3) == 0
    assert check_integer("size", 3, low=0, high=3) == 3
    with pytest.raises(ValueError, match=r"`size` must be in \[0, 3\], got 4"):
        check_integer("size", 4, low=0, high=3)
    with pytest.raises(ValueError, match="`size` must be at least 1, got 0"):
        check_integer("size", 0)


@pytest.mark.parametrize("value", ["c", None, 1, ["a"], True])
def test_choice(value):
    assert check_choice("law", "a", {"a": 1, "b": 2}) == "a"
    with pytest.raises(ValueError, match=r"`law` must be one of \['a', 'b'\], got"):
        check_choice("law", value, {"a": 1, "b": 2})


def test_choice_distinguishes_true_from_one():
    assert check_choice("replace", True, [False, True]) is True
    assert check_choice("replace", np.True_, [False, True]) is True
    with pytest.raises(ValueError, match="`replace`"):
        check_choice("replace", 1, [False, True])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float64),
        (np.int32, np.float64),
        (np.uint8, np.float64),
        (bool, np.float64),
    ],
)
def test_matrix_is_c_ordered_floats(given, kept):
    values = np.asfortranarray(np.arange(6).reshape(2, 3).astype(given))
    matrix = check_matrix("X", values)
    assert matrix.dtype == kept and matrix.flags.c_contiguous
    assert_array_equal(matrix, values)


def test_matrix_in_order_is_not_copied(dtype):
    values = np.ones((2, 3), dtype)
    assert check_matrix("X", values) is values


@pytest.mark.parametrize("value", [[["a"]], [[1j]], [[None]], None])
def test_matrix_wants_real_numbers(value):
    with pytest.raises(TypeError, match="`X` must hold real numbers, got dtype"):
        check_matrix("X", value)


@pytest.mark.parametrize("value", [[1.0], [[[1.0]]], 1.0, np.ones((0, 2)), [[]]])
def test_matrix_has_two_dimensions_and_is_not_empty(value):
    with pytest.raises(ValueError, match="`X` must be a non-empty 2-dimensional"):
        check_matrix("X", value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_matrix_is_finite(value, dtype):
    with pytest.raises(ValueError, match="`X` must be finite, got NaN or infinity"):
        check_matrix("X", np.array([[0.0, value]], dtype))


def test_matrix_has_the_columns_asked_for():
    assert check_matrix("X", [[1.0, 2.0]], n_features=2).shape == (1, 2)
    with pytest.raises(
        ValueError, match=r"`X` must have 3 columns, got shape \(1, 2\)"
    ):
        check_matrix("X", [[1.0, 2.0]], n_features=3)


def test_generators():
    generator = np.random.default_rng(3)
    assert random_generator(generator) is generator
    assert random_generator(3).integers(2**60) == generator.integers(2**60)
    old = [random_generator(np.random.RandomState(seed)).random() for seed in (0, 0, 1)]
    assert old[0] == old[1] != old[2]
    assert random_generator(None).random() != random_generator(None).random()
