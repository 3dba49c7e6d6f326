r"""Spectral filters: regularized inverses of the covariance of features.

With the covariance :math:`Z^T Z / n = V \operatorname{diag}(u) V^T`, a filter
:math:`G_a` gives the solution

.. math:: w = V\, G_a(u)\, V^T Z^T y / n .

For :math:`a \to 0` it tends to 1 / u, and it is bounded by a multiple of 1 / a. Its
*qualification* is the largest q with :math:`|1 - u\, G_a(u)|\, u^q \le c\, a^q`. The
filter *saturates*: targets smoother than q are not learned faster.

Lin and Cevher, "Convergences of Regularized Algorithms and Stochastic Gradient Methods
with Random Projections", JMLR 2020, section 2.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report import fields

# Length of the path of parameters, and its ends relative to the largest eigenvalue.
PATH_LENGTH = 53
_LOWEST = -12
_HIGHEST = 1
# Allowance for rounding of a product of a step and an eigenvalue.
_ROUNDING = 1e-9


class Filter(fields.Checked, ABC):
    """A function of the spectrum. Override `values` and `qualification`."""

    @property
    @abstractmethod
    def qualification(self) -> float:
        """Smoothness of the target up to which the filter does not saturate."""

    @abstractmethod
    def values(self, u: ArrayLike, a: ArrayLike) -> NDArray:
        """Return G_a(u) for eigenvalues u >= 0 and parameters a > 0, broadcast."""

    def resolve(self, top: float) -> Self:
        """Return the filter with defaults set from the largest eigenvalue."""
        return self

    def alphas(self, top: float, count: int = PATH_LENGTH) -> NDArray:
        """Return a path of parameters for a largest eigenvalue, strongest first."""
        return top * np.logspace(_HIGHEST, _LOWEST, count)

    def n_iter(self, a: float) -> int:
        """Return the number of iterations that corresponds to the parameter."""
        return 1


@dataclass(frozen=True)
class RidgeFilter(Filter):
    """Ridge (Tikhonov) regularization: G_a(u) = 1 / (u + a). Qualification 1.

    Examples
    --------
    >>> from nbsketch import RidgeFilter
    >>> RidgeFilter().values([0.0, 0.75], 0.25).tolist()
    [4.0, 1.0]
    """

    qualification = 1.0

    def values(self, u: ArrayLike, a: ArrayLike) -> NDArray:
        """Return 1 / (u + a): see `Filter.values`."""
        return 1 / np.add(u, a, dtype=float)


@dataclass(frozen=True)
class IteratedRidgeFilter(Filter):
    r"""Iterated ridge: :math:`G_a(u) = (1 - (a / (u + a))^t) / u`. Qualification t.

    The sum of t ridge regressions, each fitted to the residuals of the previous ones.

    Parameters
    ----------
    order : int, default=2
        Number t of regressions; 1 is `RidgeFilter`.

    Examples
    --------
    >>> from nbsketch import IteratedRidgeFilter
    >>> IteratedRidgeFilter(order=2).values([0.0, 0.75], 0.25).tolist()
    [8.0, 1.25]
    """

    order: int = 2

    _rules = fields.rules(order=fields.count)

    @property
    def qualification(self) -> float:
        """The order."""
        return float(self.order)

    def values(self, u: ArrayLike, a: ArrayLike) -> NDArray:
        """Return (1 - (a / (u + a))^t) / u: see `Filter.values`."""
        u = np.asarray(u, dtype=float)
        decay = self.order * np.log1p(u / a)
        return _over(-np.expm1(-decay), u, limit=np.divide(self.order, a))

    def n_iter(self, a: float) -> int:
        """Return the order."""
        return self.order


@dataclass(frozen=True)
class CutoffFilter(Filter):
    """Spectral cutoff: G_a(u) = 1 / u if u > a, else 0. Any qualification.

    Least squares on the principal components of the features with variance above a.

    Examples
    --------
    >>> from nbsketch import CutoffFilter
    >>> CutoffFilter().values([0.1, 0.5], 0.25).tolist()
    [0.0, 2.0]
    """

    qualification = math.inf

    def values(self, u: ArrayLike, a: ArrayLike) -> NDArray:
        """Return 1 / u where u > a, else 0: see `Filter.values`."""
        u = np.asarray(u, dtype=float)
        return _over(u > a, u, limit=0.0)


@dataclass(frozen=True)
class LandweberFilter(Filter):
    r"""Gradient descent: :math:`G_a(u) = (1 - (1 - \eta u)^T) / u`, T = 1 / (eta a).

    T steps of size eta on half the mean squared error, starting from zero. Any
    qualification; T is rounded to an integer (at least 1) and may be very large,
    because the filter is evaluated in closed form.

    Parameters
    ----------
    step : float or None, default=None
        Step size eta, at most 1 / (largest eigenvalue of the covariance). None: this
        bound.

    Examples
    --------
    >>> from nbsketch import LandweberFilter
    >>> LandweberFilter(step=1.0).values([0.0, 0.5], 1 / 2).tolist()  # two steps
    [2.0, 1.5]
    """

    step: float | None = None

    _rules = fields.rules(step=fields.optional(fields.positive))

    qualification = math.inf

    def resolve(self, top: float) -> Self:
        """Return the filter with its step set: see `Filter.resolve`."""
        if self.step is None:
            return replace(self, step=1 / top)
        if self.step * top > 1 + _ROUNDING:
            raise ValueError(
                "`step` must be at most 1 over the largest eigenvalue of the "
                f"covariance of the features, {1 / top:.6g}, got {self.step}"
            )
        return self

    def values(self, u: ArrayLike, a: ArrayLike) -> NDArray:
        """Return (1 - (1 - eta u)^T) / u: see `Filter.values`."""
        u = np.asarray(u, dtype=float)
        eta = self._step()
        steps = self._steps(a)
        with np.errstate(divide="ignore"):  # log(0) if one step is enough
            decay = steps * np.log1p(-np.minimum(eta * u, 1.0))
        return _over(-np.expm1(decay), u, limit=eta * steps)

    def alphas(self, top: float, count: int = PATH_LENGTH) -> NDArray:
        """Return a path that starts at one step: see `Filter.alphas`."""
        return self.alpha(np.unique(np.rint(np.logspace(0, -_LOWEST, count))))

    def alpha(self, n_steps: Any) -> Any:
        """Return the parameter a = 1 / (eta T) of a number of steps T."""
        return 1 / (self._step() * n_steps)

    def n_iter(self, a: float) -> int:
        """Return the number of steps T."""
        return int(self._steps(a))

    def _steps(self, a: ArrayLike) -> Any:
        return np.maximum(np.rint(1 / (self._step() * np.asarray(a))), 1.0)

    def _step(self) -> float:
        if self.step is None:
            raise ValueError(
                "`step` must be a number before the filter can be evaluated, got None: "
                "filter.resolve(largest_eigenvalue) sets it"
            )
        return self.step


def _over(numerator: NDArray, u: NDArray, limit: ArrayLike) -> NDArray:
    """Return numerator / u, or its limit at u = 0."""
    positive = u > 0
    return np.where(positive, numerator / np.where(positive, u, 1.0), limit)


_BY_NAME: dict[str, type[Filter]] = {
    "ridge": RidgeFilter,
    "iterated-ridge": IteratedRidgeFilter,
    "cutoff": CutoffFilter,
    "landweber": LandweberFilter,
}


def as_filter(filter: Any, **parameters: Any) -> Filter:
    """Return a filter from an object, or from a name and parameters that are not None.

    Parameters
    ----------
    filter : str or Filter
        "ridge", "iterated-ridge", "cutoff", "landweber", or an object.
    **parameters
        `order` of "iterated-ridge", `step` of "landweber".
    """
    return fields.named_object("filter", filter, _BY_NAME, Filter, **parameters)
