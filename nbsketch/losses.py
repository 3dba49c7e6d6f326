r"""Losses, each described by the four numbers of its conjugate.

A regression loss is a function psi of the residual r = y - f, a classification loss a
function of the margin m = y f with y in {-1, +1}. All except the logistic loss are
*extended linear-quadratic* (Rockafellar and Wets, "Variational Analysis", section
11.D):

.. math:: \psi^*(a) = \tfrac{\gamma}{2} a^2 + \epsilon |a|
          \quad\text{for } lo \le a \le hi, \qquad +\infty \text{ elsewhere,}

and for classification psi is evaluated at 1 - m. Solvers need only the four numbers
(gam, eps, lo, hi), so a new loss of this kind is a class with one property. Other
smooth losses are defined by a derivative: see `Loss`. Two losses are functions of a
positive mean exp(f): see `LogLinkLoss`.
"""

import copy
from abc import abstractmethod
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import kl_div

from nbsketch._report.fields import (
    Checked,
    level,
    not_negative,
    optional,
    positive,
    rules,
)
from nbsketch._report.validation import check_choice, check_no_class, meant

__all__ = [
    "ELQ",
    "EpsilonInsensitiveLoss",
    "GammaLoss",
    "HingeLoss",
    "HuberLoss",
    "LogLinkLoss",
    "LogisticLoss",
    "Loss",
    "PinballLoss",
    "PoissonLoss",
    "SquareLoss",
    "SquaredEpsilonInsensitiveLoss",
    "SquaredHingeLoss",
    "as_loss",
]

# Residuals at which a loss is compared with its declared properties.
_PROBES = np.concatenate([[0.0], *(s * np.logspace(-3, 3, 25) for s in (-1.0, 1.0))])


class ELQ(NamedTuple):
    """Conjugate ``gam a^2 / 2 + eps |a|`` on ``[lo, hi]``, infinite elsewhere."""

    gam: float
    eps: float
    lo: float
    hi: float

    def slope(self, residual: ArrayLike) -> NDArray:
        """Return psi'(r), the maximizer a of ``a r - psi*(a)`` (a subgradient)."""
        r = np.asarray(residual, dtype=float)
        excess = r - np.clip(r, -self.eps, self.eps)
        if self.gam > 0:
            return np.clip(excess / self.gam, self.lo, self.hi)
        return np.where(excess > 0, self.hi, np.where(excess < 0, self.lo, 0.0))

    def value(self, residual: ArrayLike) -> NDArray:
        """Return psi(r) = max_a ``a r - psi*(a)``."""
        r = np.asarray(residual, dtype=float)
        a = self.slope(r)
        return a * (r - self.gam / 2 * a) - self.eps * np.abs(a) + 0.0  # avoids -0

    def conjugate(self, dual: ArrayLike) -> NDArray:
        """Return psi*(a)."""
        a = np.asarray(dual, dtype=float)
        inside = (a >= self.lo) & (a <= self.hi)
        return np.where(inside, self.gam / 2 * a * a + self.eps * np.abs(a), np.inf)


class Loss(Checked):
    """Base class of losses of the residual or (`is_classification`) of the margin.

    A subclass defines itself in one of two ways; both are solved to a certified gap:

    1. Extended linear-quadratic: override the property `elq`. Everything else is
       derived, and all solvers take the loss.
    2. Smooth: override `value` and `derivative`. `solve_scalar` uses L-BFGS.

    The loss must be convex, and all methods must accept arrays. Solvers for several
    outputs and stochastic solvers require `elq`. Override `lipschitz` if it is needed.

    Attributes
    ----------
    is_classification : bool
        Class attribute: the loss is a function of the margin m = y f, not of y - f.
    is_radial : bool
        Class attribute: the loss is also defined for norms of residual vectors, so it
        is even, and nondecreasing in the size of the residual.
    """

    is_classification = False
    is_radial = False

    @property
    def elq(self) -> ELQ | None:
        """The four numbers of the conjugate; None if it has another form."""
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, for ``loss__kappa`` in a search."""
        names: Any = fields(self) if is_dataclass(self) else ()
        return {field.name: getattr(self, field.name) for field in names}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this object, like scikit-learn estimators."""
        names = self.get_params()
        for name in params:
            check_choice("a parameter of a loss", name, names)
        for name, value in params.items():
            object.__setattr__(self, name, value)
        self.__post_init__()
        return self

    def __sklearn_clone__(self) -> Self:
        """Return a copy, including losses without dataclass parameters."""
        return copy.copy(self)

    @property
    def lipschitz(self) -> float:
        """Smallest Lipschitz constant; infinite for losses with quadratic growth."""
        numbers = self.linear_quadratic()
        return max(abs(numbers.lo), abs(numbers.hi))

    @property
    def is_smooth(self) -> bool:
        """Whether the loss has a Lipschitz gradient."""
        return self._gives("derivative") if self.elq is None else self.elq.gam > 0

    def value(self, x: ArrayLike) -> NDArray:
        """Return the loss of each residual (regression) or margin (classification)."""
        return self._described().value(self._residual(x))

    def derivative(self, x: ArrayLike) -> NDArray:
        """Return the derivative of `value`; at a kink, a subgradient."""
        slope = self._described().slope(self._residual(x))
        return -slope if self.is_classification else slope

    def of_rows(self, targets: NDArray, scores: NDArray) -> NDArray:
        """Return the loss of each target (or label) at its score f."""
        if self.is_classification:
            return self.value(targets * scores)
        return self.value(targets - scores)

    def at(self, unit: float) -> Self:
        """Return the loss with thresholds that are not given in a unit of the targets.

        In ``fit`` it is their robust standard deviation: 1.4826 times the median
        distance from the medians.
        """
        return self

    def link(self, y: NDArray) -> NDArray:
        """Return targets on the scale of the score, as used by solvers."""
        return y

    def mean(self, scores: NDArray) -> NDArray:
        """Return predictions in the units of the targets."""
        return scores

    def norm_value(self, residuals: ArrayLike) -> NDArray:
        """Return the loss of the Euclidean norm of each row of `residuals` (n, d)."""
        if not self.is_radial:
            raise TypeError(self._not_radial())
        return self.value(np.linalg.norm(np.asarray(residuals, dtype=float), axis=1))

    def linear_quadratic(self) -> ELQ:
        """Return `elq`, or raise an error with the reason why it is unavailable."""
        numbers = self.elq
        if numbers is None:
            raise TypeError(
                "`loss` must be linear-quadratic for this solver, got "
                f"{self!r}: override `elq` to return the four numbers of its conjugate"
            )
        if self._gives("value"):
            expected = numbers.value(self._residual(_PROBES))
            if not np.allclose(self.value(_PROBES), expected):
                raise ValueError(
                    "`loss` must have a `value` that agrees with its `elq`, got "
                    f"{self!r} with {numbers}: override `elq` as well, to return None"
                )
        return numbers

    def check_solvable(self) -> None:
        """Raise `TypeError` if the loss is not defined for a scalar solver."""
        if self.elq is not None:
            self.linear_quadratic()
        elif not (self._gives("value") and self._gives("derivative")):
            raise TypeError(
                "`loss` must override `elq`, or `value` and `derivative` if it is "
                f"smooth, got {self!r} with neither: see nbsketch.losses.Loss"
            )

    def check_radial(self) -> Self:
        """Return the loss if it is a loss of norms, else raise an error."""
        if not self.is_radial:
            raise ValueError(self._not_radial())
        if self.elq is not None and not self._gives("value"):
            even = self.elq.lo == -self.elq.hi
        else:
            sizes = np.sort(np.abs(_PROBES))
            values = self.value(sizes)
            even = np.allclose(values, self.value(-sizes))
            even = even and bool((np.diff(values) >= -1e-12).all())
        if not even:
            raise ValueError(
                "`loss` must be even and nondecreasing in the size of the residual if "
                f"`is_radial` is True, got {self!r}, which is not"
            )
        return self

    def _not_radial(self) -> str:
        radial = [name for name, cls in LOSSES.items() if cls.is_radial]
        return f"`loss` must be one of {radial} on vectors of residuals, got {self!r}"

    def _gives(self, name: str) -> bool:
        """Return whether a subclass overrides a method."""
        return getattr(type(self), name) is not getattr(Loss, name)

    def _described(self) -> ELQ:
        """Return `elq`, or raise an error that names the methods to override."""
        if self.elq is None:
            self.check_solvable()
            raise TypeError(
                "`loss` must override the called method, which cannot be derived, got "
                f"{self!r}"
            )
        return self.elq

    def _residual(self, x: ArrayLike) -> NDArray:
        x = np.asarray(x, dtype=float)
        return 1.0 - x if self.is_classification else x


@dataclass(frozen=True)
class SquareLoss(Loss):
    """Square loss, ``r^2 / 2`` (``|r|^2 / 2`` for vectors).

    Examples
    --------
    >>> SquareLoss().value([-2.0, 0.0, 1.0])
    array([2. , 0. , 0.5])
    """

    is_radial = True

    elq = ELQ(1.0, 0.0, -np.inf, np.inf)


@dataclass(frozen=True)
class HuberLoss(Loss):
    """Huber loss: ``r^2 / 2`` if ``|r| <= kappa``, else ``kappa (|r| - kappa / 2)``.

    Parameters
    ----------
    kappa : float or None, default=None
        Threshold (> 0) beyond which the loss is linear. None: in ``fit`` the robust
        standard deviation of the targets (see `Loss.at`), elsewhere 1.

    References
    ----------
    P. J. Huber, "Robust Estimation of a Location Parameter", 1964.

    Examples
    --------
    >>> HuberLoss(kappa=1.0).value([0.5, 1.0, 3.0])
    array([0.125, 0.5  , 2.5  ])
    """

    is_radial = True
    kappa: float | None = None

    _rules = rules(kappa=optional(positive))

    def at(self, unit: float) -> Self:
        """Return the loss with kappa: that given, or the unit."""
        return self if self.kappa is not None else replace(self, kappa=unit)

    @property
    def elq(self) -> ELQ:
        """The four numbers of the conjugate."""
        kappa = 1.0 if self.kappa is None else self.kappa
        return ELQ(1.0, 0.0, -kappa, kappa)


@dataclass(frozen=True)
class _InsensitiveLoss(Loss):
    """Base of losses that are zero up to a threshold epsilon.

    Parameters
    ----------
    epsilon : float or None, default=None
        Residuals up to this size (>= 0) have zero loss. None: in ``fit`` a tenth of the
        robust standard deviation of the targets (see `Loss.at`), elsewhere 0.1.
    """

    is_radial = True
    epsilon: float | None = None

    _rules = rules(epsilon=optional(not_negative))

    def at(self, unit: float) -> Self:
        """Return the loss with epsilon: that given, or a tenth of the unit."""
        return self if self.epsilon is not None else replace(self, epsilon=unit / 10)

    @property
    def _size(self) -> float:
        return 0.1 if self.epsilon is None else self.epsilon


@dataclass(frozen=True)
class EpsilonInsensitiveLoss(_InsensitiveLoss):
    """Loss of support vector regression, ``max(|r| - epsilon, 0)``.

    Parameters
    ----------
    epsilon : float or None, default=None
        Residuals up to this size (>= 0) have zero loss; 0 gives the absolute loss.
        None: in ``fit`` a tenth of the robust standard deviation of the targets (see
        `Loss.at`), elsewhere 0.1.

    References
    ----------
    V. Vapnik, "The Nature of Statistical Learning Theory", 1995.

    Examples
    --------
    >>> EpsilonInsensitiveLoss(epsilon=0.5).value([-2.0, 0.25, 1.0])
    array([1.5, 0. , 0.5])
    """

    @property
    def elq(self) -> ELQ:
        """The four numbers of the conjugate."""
        return ELQ(0.0, self._size, -1.0, 1.0)


@dataclass(frozen=True)
class SquaredEpsilonInsensitiveLoss(_InsensitiveLoss):
    """Squared epsilon-insensitive loss, ``max(|r| - epsilon, 0)^2 / 2``.

    Parameters
    ----------
    epsilon : float or None, default=None
        Residuals up to this size (>= 0) have zero loss; 0 gives the square loss. None:
        in ``fit`` a tenth of the robust standard deviation of the targets (see
        `Loss.at`), elsewhere 0.1.

    Examples
    --------
    >>> SquaredEpsilonInsensitiveLoss(epsilon=0.5).value([-2.5, 0.25, 1.5])
    array([2. , 0. , 0.5])
    """

    @property
    def elq(self) -> ELQ:
        """The four numbers of the conjugate."""
        return ELQ(1.0, self._size, -np.inf, np.inf)


@dataclass(frozen=True)
class PinballLoss(Loss):
    """Pinball loss: ``quantile r`` if ``r >= 0``, else ``(quantile - 1) r``.

    With r = y - f, the minimizer is the conditional quantile of this level.

    Parameters
    ----------
    quantile : float, default=0.5
        Level, strictly between 0 and 1.

    References
    ----------
    R. Koenker and G. Bassett, "Regression Quantiles", 1978.

    Examples
    --------
    >>> PinballLoss(quantile=0.75).value([-2.0, 0.0, 2.0])
    array([0.5, 0. , 1.5])
    """

    quantile: float = 0.5

    _rules = rules(quantile=level)

    @property
    def elq(self) -> ELQ:
        """The four numbers of the conjugate."""
        return ELQ(0.0, 0.0, self.quantile - 1.0, self.quantile)


@dataclass(frozen=True)
class HingeLoss(Loss):
    """Hinge loss of support vector machines, ``max(1 - m, 0)`` of the margin m = y f.

    Examples
    --------
    >>> HingeLoss().value([-1.0, 0.5, 2.0])
    array([2. , 0.5, 0. ])
    """

    is_classification = True

    elq = ELQ(0.0, 0.0, 0.0, 1.0)  # of 1 - m


@dataclass(frozen=True)
class SquaredHingeLoss(Loss):
    """Squared hinge loss, ``max(1 - m, 0)^2 / 2`` of the margin m = y f.

    Examples
    --------
    >>> SquaredHingeLoss().value([-1.0, 0.0, 2.0])
    array([2. , 0.5, 0. ])
    """

    is_classification = True

    elq = ELQ(1.0, 0.0, 0.0, np.inf)  # of 1 - m


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """Logistic loss, ``log(1 + exp(-m))`` of the margin m = y f.

    The only built-in loss that is not linear-quadratic: its conjugate is an entropy.

    Examples
    --------
    >>> LogisticLoss().value([0.0, 1000.0]).round(4)
    array([0.6931, 0.    ])
    """

    is_classification = True

    lipschitz = 1.0
    is_smooth = True

    def value(self, x: ArrayLike) -> NDArray:
        """Return the loss of each margin."""
        return np.logaddexp(0.0, -np.asarray(x, dtype=float))

    def derivative(self, x: ArrayLike) -> NDArray:
        """Return the derivative of `value`: minus the probability of an error."""
        m = np.asarray(x, dtype=float)
        tail = np.exp(-np.abs(m))
        return -np.where(m > 0, tail, 1.0) / (1.0 + tail)


class LogLinkLoss(Loss):
    """Base class of losses of a positive mean exp(f): half the deviance.

    They are not functions of the residual y - f. Solvers use ``link(y)`` as targets.

    Attributes
    ----------
    power : float
        Class attribute: the variance is proportional to this power of the mean.
    """

    power: ClassVar[float]
    least: ClassVar[str]  # requirement on the targets, in words

    lipschitz = np.inf
    is_smooth = True  # for the solvers

    @abstractmethod
    def targets(self, linked: NDArray) -> NDArray:
        """Return y from ``link(y)``."""

    def mean(self, scores: NDArray) -> NDArray:
        """Return the means exp(f)."""
        return np.exp(scores)

    def check_solvable(self) -> None:
        """Raise `TypeError`: the loss has no derivative in the residual."""
        raise TypeError(
            f"`loss` must be a function of residuals here, got {self!r}, a function "
            "of targets and scores: use `of_rows`, or solve_scalar"
        )

    def _check_targets(self, y: NDArray, is_valid: NDArray) -> None:
        if not is_valid.all():
            wrong = y[~is_valid].flat[0]
            raise ValueError(
                f"`y` must be {self.least} for {self!r}, got {wrong}: drop these "
                "samples, or use another loss"
            )


@dataclass(frozen=True)
class PoissonLoss(LogLinkLoss):
    """Half the Poisson deviance of counts or rates y >= 0 with the mean exp(f).

    For counts of unequal exposure, pass rates (counts over exposure) as targets and the
    exposure as `sample_weight`; the objective then equals that of counts with the
    offset log(exposure).

    Examples
    --------
    >>> loss, y = PoissonLoss(), np.array([0.0, 1.0, 5.0])
    >>> loss.of_rows(loss.link(y), np.zeros(3)).round(3)
    array([1.   , 0.   , 4.047])
    """

    power = 1.0
    least = "nonnegative, with a positive sum,"

    def link(self, y: NDArray) -> NDArray:
        """Return ``log(y + 1/2)``, from which `targets` recovers y."""
        self._check_targets(y, (y >= 0) & y.any())
        return np.log(y + 0.5)

    def targets(self, linked: NDArray) -> NDArray:
        """Return y from ``link(y)``."""
        return np.maximum(np.exp(linked) - 0.5, 0.0)

    def of_rows(self, targets: NDArray, scores: NDArray) -> NDArray:
        """Return half the deviance of each sample, for targets ``link(y)``."""
        return kl_div(self.targets(targets), np.exp(scores))


@dataclass(frozen=True)
class GammaLoss(LogLinkLoss):
    """Half the gamma deviance of targets y > 0 with the mean exp(f).

    Examples
    --------
    >>> loss, y = GammaLoss(), np.array([0.5, 1.0, 5.0])
    >>> loss.of_rows(loss.link(y), np.zeros(3)).round(3)
    array([0.193, 0.   , 2.391])
    """

    power = 2.0
    least = "positive"

    def link(self, y: NDArray) -> NDArray:
        """Return ``log(y)``."""
        self._check_targets(y, y > 0)
        return np.log(y)

    def targets(self, linked: NDArray) -> NDArray:
        """Return y from ``link(y)``."""
        return np.exp(linked)

    def of_rows(self, targets: NDArray, scores: NDArray) -> NDArray:
        """Return half the deviance of each sample, for targets ``link(y)``."""
        return kl_div(1.0, np.exp(targets - scores))


LOSSES: dict[str, type[Loss]] = {
    "square": SquareLoss,
    "huber": HuberLoss,
    "epsilon-insensitive": EpsilonInsensitiveLoss,
    "squared-epsilon-insensitive": SquaredEpsilonInsensitiveLoss,
    "pinball": PinballLoss,
    "hinge": HingeLoss,
    "squared-hinge": SquaredHingeLoss,
    "logistic": LogisticLoss,
    "poisson": PoissonLoss,
    "gamma": GammaLoss,
}


# Names in scikit-learn.
SKLEARN_LOSSES: dict[str, Loss] = {
    "squared_error": SquareLoss(),
    "absolute_error": EpsilonInsensitiveLoss(epsilon=0.0),
    "epsilon_insensitive": EpsilonInsensitiveLoss(),
    "squared_epsilon_insensitive": SquaredEpsilonInsensitiveLoss(),
    "quantile": PinballLoss(),
    "squared_hinge": SquaredHingeLoss(),
    "log_loss": LogisticLoss(),
}


def fitted_loss(model: Any) -> Loss:
    """Return the loss of the last fit, or the parameter before the first one.

    `set_params` has no effect on a fitted model. Models of older files have no `loss_`.
    """
    return getattr(model, "loss_", None) or as_loss(model.loss)


def as_loss(loss: Any) -> Loss:
    """Return a loss from an object, or from its name in nbsketch or scikit-learn.

    Examples
    --------
    >>> as_loss("huber")
    HuberLoss(kappa=None)
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]()
    if isinstance(loss, str) and loss in SKLEARN_LOSSES:
        return copy.copy(SKLEARN_LOSSES[loss])
    check_no_class("loss", loss)
    names = [*LOSSES, *SKLEARN_LOSSES]
    raise ValueError(
        f"`loss` must be a Loss or one of {names}, got {loss!r}{meant(loss, names)}"
    )
