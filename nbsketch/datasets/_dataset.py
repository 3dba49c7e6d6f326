"""Return value of the loaders: data, names and the published split."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.validation import check_real, random_generator


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set with its names and, if available, its published split.

    Parameters
    ----------
    name : str
        Short name, as in ``load_<name>``.
    X : ndarray, scipy.sparse.csr_array or DataFrame of shape (n_samples, n_features)
        Inputs; the training samples of a published split come first.
    y : ndarray of shape (n_samples,) or (n_samples, n_targets), or Series
        Targets.
    feature_names : tuple of str
        One name per column of `X`.
    target_names : tuple of str
        One name per column of `y`; a single name if `y` is 1-dimensional.
    n_train : int or None, default=None
        Number of training samples; None for a set without a published split.

    Raises
    ------
    ValueError
        If the parts are inconsistent.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.datasets import Dataset
    >>> data = Dataset("toy", np.eye(5), np.arange(5.0), tuple("abcde"), ("t",), 3)
    >>> data
    Dataset('toy', X=(5, 5), y=(5,), n_train=3)
    >>> data.X_train.shape, data.y_test
    ((3, 5), array([3., 4.]))
    >>> (X, y), (X_new, y_new) = data.random_split(0, (0.6, 0.4))
    >>> X.shape, X_new.shape
    ((3, 5), (2, 5))
    """

    name: str
    X: Any
    y: Any
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    n_train: int | None = None

    def __post_init__(self) -> None:
        y = self.y
        n_samples, n_features = self.X.shape
        n_targets = 1 if y.ndim == 1 else y.shape[1]
        if len(y) != n_samples:
            raise ValueError(f"`y` must have {n_samples} rows, got {len(y)}")
        if (len(self.feature_names), len(self.target_names)) != (n_features, n_targets):
            raise ValueError(
                f"`feature_names` and `target_names` must have {n_features} and "
                f"{n_targets} names, got {len(self.feature_names)} and "
                f"{len(self.target_names)}"
            )
        if self.n_train is not None and not 0 < self.n_train < n_samples:
            raise ValueError(
                f"`n_train` must be in [1, {n_samples - 1}], got {self.n_train}"
            )

    def __repr__(self) -> str:
        split = "" if self.n_train is None else f", n_train={self.n_train}"
        return f"Dataset({self.name!r}, X={self.X.shape}, y={self.y.shape}{split})"

    @property
    def X_train(self) -> Any:
        """Inputs of the published training part, (n_train, n_features)."""
        return self.X[: self._boundary()]

    @property
    def y_train(self) -> Any:
        """Targets of the published training part, (n_train,) or (n_train, d)."""
        return self.y[: self._boundary()]

    @property
    def X_test(self) -> Any:
        """Inputs of the published test part, (n_samples - n_train, n_features)."""
        return self.X[self._boundary() :]

    @property
    def y_test(self) -> Any:
        """Targets of the published test part."""
        return self.y[self._boundary() :]

    def random_split(
        self, rng: Any = None, fractions: Sequence[float] = (0.7, 0.3)
    ) -> tuple[tuple[Any, Any], ...]:
        """Split the samples at random, ignoring the published split.

        With ``F_j`` the sum of the first j fractions, part j has the samples ``round(n
        F_{j-1})`` to ``round(n F_j)`` of one random permutation.

        Parameters
        ----------
        rng : None, int, numpy.random.Generator or numpy.random.RandomState
            Random numbers of the permutation. None: a new permutation in each call.
        fractions : sequence of float, default=(0.7, 0.3)
            Share of each part, in (0, 1]. Samples beyond their sum are not used.

        Returns
        -------
        tuple of (X, y) pairs
            One pair per fraction.

        Raises
        ------
        ValueError
            If a fraction is outside (0, 1], if they sum to more than 1, or if a part
            would be empty.

        Examples
        --------
        >>> import numpy as np
        >>> from nbsketch.datasets import Dataset
        >>> data = Dataset("toy", np.zeros((10, 1)), np.arange(10), ("x",), ("t",))
        >>> [len(y) for X, y in data.random_split(0, (0.5, 0.3, 0.2))]
        [5, 3, 2]
        """
        sizes = [
            check_real("fractions", f, low=0, high=1, low_open=True) for f in fractions
        ]
        if sum(sizes) > 1 + 1e-9:
            raise ValueError(f"`fractions` must sum to at most 1, got {fractions!r}")
        n_samples = self.X.shape[0]
        cuts = np.rint(n_samples * np.cumsum([0.0, *sizes])).astype(int)
        if np.diff(cuts).min(initial=n_samples) == 0:
            raise ValueError(
                f"`fractions` must leave no part of the {n_samples} samples empty, "
                f"got {fractions!r}"
            )
        parts = np.split(random_generator(rng).permutation(n_samples), cuts)[1:-1]
        return tuple((_rows(self.X, part), _rows(self.y, part)) for part in parts)

    def _boundary(self) -> int:
        if self.n_train is None:
            raise ValueError(
                f"{self.name} has no published split: use random_split(rng, fractions)"
            )
        return self.n_train


def _rows(data: Any, index: NDArray) -> Any:
    """Return a subset of an array, a sparse matrix or a data frame by position."""
    return data.iloc[index] if hasattr(data, "iloc") else data[index]
