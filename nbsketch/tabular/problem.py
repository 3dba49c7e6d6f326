"""Input of members for predictions, and their interface."""

from typing import NamedTuple

from numpy.typing import NDArray


class Points(NamedTuple):
    """Rows at which members are evaluated.

    Attributes
    ----------
    encoded : ndarray of shape (m, q)
        Encoded rows.
    rows : ndarray of shape (m, p)
        Preprocessed rows.
    training : ndarray of shape (n, p)
        Preprocessed training rows.
    """

    encoded: NDArray
    rows: NDArray
    training: NDArray


class Member:
    """A fitted function that is part of a tabular model.

    Attributes
    ----------
    scales : ndarray of shape (p,)
        Inverse length scales of its kernel.
    """

    scales: NDArray

    def predict(self, points: Points) -> NDArray:
        """Return the values (m, d) at some points."""
        raise NotImplementedError

    def n_numbers(self) -> int:
        """Return the number of floats for predictions, without the training rows."""
        raise NotImplementedError

    def summary(self) -> tuple[str, str]:
        """Return the entry of a summary: kind and description of the member."""
        raise NotImplementedError
