"""What members are given for predictions, and their one contract."""

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
        Preprocessed rows of the fit.
    """

    encoded: NDArray
    rows: NDArray
    training: NDArray


class Member:
    """A fitted function that is part of a machine.

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
        """Return how many numbers predictions need, beside the rows of the fit."""
        raise NotImplementedError

    def summary(self) -> tuple[str, str]:
        """Return the entry of a summary: the kind of the member, and what it is."""
        raise NotImplementedError
