import numpy as np
import pytest

from nbsketch.outputs import (
    GraphOutput,
    IdentityOutput,
    MatrixOutput,
    QuantileOutput,
    as_output,
)

PATH = np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0]])
OUTPUTS = {
    "identity": (IdentityOutput(), 3),
    "quantile": (QuantileOutput((0.1, 0.5, 0.9), gamma=2.0), 3),
    "parallel": (QuantileOutput((0.1, 0.5, 0.9), gamma=0.0), 1),
    "graph": (GraphOutput(PATH, mu=0.7), 3),
    "no graph": (GraphOutput(PATH, mu=0.0), 3),
    "graph only": (GraphOutput(PATH, mu=1.0), 2),
    "matrix": (as_output(np.diag([1.0, 0.0, 2.0])), 2),
}


@pytest.mark.parametrize(("output", "rank"), OUTPUTS.values(), ids=OUTPUTS)
def test_factor_and_spectrum_give_back_the_matrix(output, rank):
    M, T = output.matrix(3), output.factor(3)
    values, vectors = output.spectrum(3)
    assert T.shape == (rank, 3)
    assert (values > 0).all() and (np.diff(values) <= 0).all()
    np.testing.assert_allclose(T.T @ T, M, atol=1e-12)
    np.testing.assert_allclose((vectors * values) @ vectors.T, M, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-12)


@pytest.mark.parametrize(("output", "rank"), OUTPUTS.values(), ids=OUTPUTS)
def test_outputs_are_values(output, rank):
    copy = eval(repr(output))
    assert copy == output and hash(copy) == hash(output)


def test_quantile_matrix():
    levels = np.array([0.2, 0.3, 0.9])
    M = QuantileOutput(levels, gamma=3.0).matrix(3)
    for j in range(3):
        for k in range(3):
            assert M[j, k] == pytest.approx(np.exp(-3 * (levels[j] - levels[k]) ** 2))


def test_graph_matrix_is_the_inverse_of_its_penalty():
    laplacian = np.diag(PATH.sum(axis=0)) - PATH
    M = GraphOutput(PATH, mu=0.3).matrix(3)
    np.testing.assert_allclose(
        M @ (0.3 * laplacian + 0.7 * np.eye(3)), np.eye(3), atol=1e-12
    )
    np.testing.assert_allclose(
        GraphOutput(PATH, mu=1.0).matrix(3), np.linalg.pinv(laplacian), atol=1e-12
    )
    loops = PATH + np.diag([1, 2, 3])
    np.testing.assert_allclose(GraphOutput(loops, 0.3).matrix(3), M, atol=1e-12)


def test_as_output():
    assert as_output(None) == as_output("identity") == IdentityOutput()
    quantiles = QuantileOutput((0.5,))
    assert as_output(quantiles) is quantiles
    assert as_output(np.eye(2)) == MatrixOutput(((1.0, 0.0), (0.0, 1.0)))
    slightly_off = np.ones((2, 2)) + np.diag([0.0, -1e-12])
    assert as_output(slightly_off).factor(2).shape == (1, 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.ones((2, 3)), "`output` must be square"),
        ([[1.0, 0.5], [0.0, 1.0]], "`output` must be symmetric"),
        (np.diag([1.0, -1.0]), "`output` must be .* positive semi-definite"),
        (np.zeros((2, 2)), "`output` must be a nonzero"),
        ("graph", "`output` must be 'identity'"),
        (np.full((2, 2), np.nan), "`output` must be finite"),
    ],
)
def test_wrong_matrices(wrong, message):
    with pytest.raises(ValueError, match=message):
        as_output(wrong)


def test_the_number_of_outputs_must_fit():
    with pytest.raises(ValueError, match=r"`output` must have 5 rows, .*, got 3"):
        GraphOutput(PATH).spectrum(5)


@pytest.mark.parametrize("levels", [(0.5, 0.1), (0.5, 0.5), (0.0, 0.5), (0.5, 1.0)])
def test_wrong_levels(levels):
    with pytest.raises(ValueError, match="`quantiles` must be strictly ascending"):
        QuantileOutput(levels)
    with pytest.raises(TypeError, match="`quantiles`"):
        QuantileOutput(())


def test_wrong_parameters():
    with pytest.raises(ValueError, match="`gamma`"):
        QuantileOutput((0.5,), gamma=-1.0)
    with pytest.raises(ValueError, match="`mu`"):
        GraphOutput(PATH, mu=1.5)
    with pytest.raises(ValueError, match="`adjacency` must be >= 0"):
        GraphOutput(-PATH)
    with pytest.raises(ValueError, match="`adjacency` must have an edge"):
        GraphOutput(np.eye(2), mu=1.0)
