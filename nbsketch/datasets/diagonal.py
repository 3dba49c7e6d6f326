"""Regression problems whose smoothness and capacity are exact powers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import (
    check_integer,
    check_positive,
    check_real,
    random_generator,
)

_SIGNS = 0  # seed


@dataclass(frozen=True)
class DiagonalDesign:
    r"""Regression with a known source condition and a known capacity.

    Inputs x are uniform on [0, 1]. Their features

    .. math:: \sqrt{\mu_j}\, \varphi_j(x), \qquad \mu_j = j^{-1/\gamma}, \qquad
              \varphi_j(x) = \sqrt2 \cos(\pi j x), \qquad j = 1, \dots, J,

    have the inner products of a kernel whose integral operator L is diagonal in the
    orthonormal :math:`\varphi_j`, with the eigenvalues :math:`\mu_j`. The target is

    .. math:: f = \sum_j c_j\, \varphi_j, \qquad
              c_j \propto \pm\mu_j^{\zeta}\, j^{-1/2}, \qquad \sum_j c_j^2 = 1.

    So :math:`\gamma` is the capacity: the effective dimension grows as
    :math:`\alpha^{-\gamma}`. And :math:`\zeta` is the source: :math:`f = L^r g` with a
    square summable g for every r below it and none above, up to the number of modes.

    Parameters
    ----------
    capacity : float
        Exponent gamma in (0, 1).
    n_modes : int
        Number of modes J.

    Notes
    -----
    The random signs, always the same, keep f from having its peak at an end.

    Examples
    --------
    >>> from nbsketch.datasets import DiagonalDesign
    >>> design = DiagonalDesign(capacity=0.5, n_modes=100)
    >>> X, y = design.draw(500, source=1.0, noise=0.1, random_state=0)
    >>> X.shape, y.shape
    ((500, 100), (500,))
    >>> design.excess_risk(design.coefficients(1.0), source=1.0)
    0.0
    """

    capacity: float = 0.5
    n_modes: int = 1024

    def __post_init__(self) -> None:
        check_real(
            "capacity", self.capacity, low=0, high=1, low_open=True, high_open=True
        )
        check_integer("n_modes", self.n_modes)

    @property
    def eigenvalues(self) -> NDArray:
        """The eigenvalues mu_j of the kernel, of shape (J,)."""
        return np.arange(1.0, self.n_modes + 1) ** (-1 / self.capacity)

    def features(self, x: ArrayLike) -> NDArray:
        """Return the features of inputs x of shape (n,), of shape (n, J)."""
        modes = np.arange(1, self.n_modes + 1)
        waves = np.cos(np.pi * np.multiply.outer(np.asarray(x, dtype=float), modes))
        return waves * np.sqrt(2 * self.eigenvalues)

    def coefficients(self, source: float) -> NDArray:
        """Return w with f(x) = w^T features(x) for the target of a source, (J,)."""
        check_positive("source", source)
        signs = np.random.default_rng(_SIGNS).choice([-1.0, 1.0], self.n_modes)
        c = self.eigenvalues**source / np.sqrt(np.arange(1, self.n_modes + 1))
        return signs * c / np.linalg.norm(c) / np.sqrt(self.eigenvalues)

    def draw(
        self,
        n_samples: int,
        source: float = 1.0,
        *,
        noise: float = 0.3,
        random_state: Any = None,
    ) -> tuple[NDArray, NDArray]:
        """Draw features X of shape (n, J) and targets y = f(x) + normal noise, (n,).

        Parameters
        ----------
        n_samples : int
            Number of rows.
        source : float
            Positive exponent zeta.
        noise : float
            Standard deviation of the noise.
        random_state : None, int, numpy.random.Generator or numpy.random.RandomState
            Source of randomness. The inputs do not depend on `source` and `noise`.
        """
        n = check_integer("n_samples", n_samples)
        noise = check_real("noise", noise, low=0, high_open=True)
        rng = random_generator(random_state)
        X = self.features(rng.random(n))
        return X, X @ self.coefficients(source) + noise * rng.standard_normal(n)

    def excess_risk(self, coef: ArrayLike, source: float) -> Any:
        """Return the mean of (w^T features(x) - f(x))^2 over x, without sampling.

        Parameters
        ----------
        coef : array_like of shape (J,) or (J, k)
            Coefficients w of one function, or of several.
        source : float
            Exponent of the target f.

        Returns
        -------
        float or ndarray of shape (k,)
        """
        difference = (np.asarray(coef, dtype=float).T - self.coefficients(source)).T
        risks = self.eigenvalues @ np.square(difference)
        return float(risks) if risks.ndim == 0 else risks
