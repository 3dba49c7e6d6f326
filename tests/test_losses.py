import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import losses
from nbsketch.losses import LOSSES, as_loss

ALL = [
    losses.SquareLoss(),
    losses.HuberLoss(kappa=1.0),
    losses.HuberLoss(kappa=0.3),
    losses.EpsilonInsensitiveLoss(epsilon=0.1),
    losses.EpsilonInsensitiveLoss(epsilon=0.0),
    losses.SquaredEpsilonInsensitiveLoss(epsilon=0.7),
    losses.PinballLoss(),
    losses.PinballLoss(quantile=0.9),
    losses.HingeLoss(),
    losses.SquaredHingeLoss(),
    losses.LogisticLoss(),
]
LINEAR_QUADRATIC = [loss for loss in ALL if loss.elq is not None]
RADIAL = [loss for loss in ALL if loss.is_radial]

residuals = np.linspace(-3.0, 3.0, 241)


def formula(loss, r):
    """The textbook definition of each loss."""
    match loss:
        case losses.SquareLoss():
            return r**2 / 2
        case losses.HuberLoss(kappa=k):
            return np.where(np.abs(r) <= k, r**2 / 2, k * (np.abs(r) - k / 2))
        case losses.EpsilonInsensitiveLoss(epsilon=e):
            return np.maximum(np.abs(r) - e, 0)
        case losses.SquaredEpsilonInsensitiveLoss(epsilon=e):
            return np.maximum(np.abs(r) - e, 0) ** 2 / 2
        case losses.PinballLoss(quantile=t):
            return np.where(r >= 0, t * r, (t - 1) * r)
        case losses.HingeLoss():
            return np.maximum(1 - r, 0)
        case losses.SquaredHingeLoss():
            return np.maximum(1 - r, 0) ** 2 / 2
        case losses.LogisticLoss():
            return np.log(1 + np.exp(-r))


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_value_is_the_textbook_formula(loss):
    assert_allclose(loss.value(residuals), formula(loss, residuals), atol=1e-14)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_derivative_matches_finite_differences_off_the_kinks(loss):
    r = residuals + 0.0137
    step = 1e-6
    slope = (loss.value(r + step) - loss.value(r - step)) / (2 * step)
    assert_allclose(loss.derivative(r), slope, atol=1e-6)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_lipschitz_constant_is_the_largest_slope(loss):
    slopes = np.abs(loss.derivative(np.linspace(-100.0, 100.0, 801)))
    if np.isfinite(loss.lipschitz):
        assert_allclose(slopes.max(), loss.lipschitz, rtol=1e-12)
    else:
        assert slopes.max() > 90


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_smooth_losses_have_a_continuous_derivative(loss):
    r = np.linspace(-2.0, 2.0, 4001)
    jump = np.abs(np.diff(loss.derivative(r))).max()
    assert (jump < 0.002) == loss.is_smooth


@pytest.mark.parametrize("loss", LINEAR_QUADRATIC, ids=repr)
def test_conjugate_is_the_supremum_over_a_grid(loss):
    r = np.linspace(-20.0, 20.0, 8001)
    psi = loss.elq.value(r)
    duals = np.linspace(max(loss.elq.lo, -5.0), min(loss.elq.hi, 5.0), 23)
    brute = np.array([np.max(a * r - psi) for a in duals])
    assert_allclose(loss.elq.conjugate(duals), brute, atol=1e-4)


@pytest.mark.parametrize("loss", LINEAR_QUADRATIC, ids=repr)
def test_fenchel_young_holds_with_equality_at_the_slope(loss):
    elq, rng = loss.elq, np.random.default_rng(0)
    a = np.clip(3 * rng.normal(size=residuals.size), elq.lo, elq.hi)
    gap = elq.value(residuals) + elq.conjugate(a) - a * residuals
    assert gap.min() >= -1e-14
    slope = elq.slope(residuals)
    gap = elq.value(residuals) + elq.conjugate(slope) - slope * residuals
    assert_allclose(gap, 0, atol=1e-14)


def test_conjugate_is_infinite_out_of_its_interval():
    elq = losses.PinballLoss(0.3).elq
    assert np.isinf(elq.conjugate([-0.71, 0.31])).all()
    assert np.isfinite(elq.conjugate([-0.7, 0.3])).all()


@pytest.mark.parametrize("loss", ALL, ids=str)
def test_the_loss_of_a_row_is_that_of_its_residual_or_margin(loss):
    y, f = np.array([[1.0, -1.0, 1.0], [0.3, -2.0, -4.0]])
    x = y * f if loss.is_classification else y - f
    assert_allclose(loss.of_rows(y, f), loss.value(x))


@pytest.mark.parametrize("loss", RADIAL, ids=repr)
def test_norm_value_is_the_loss_of_the_row_norm(loss):
    rows = np.random.default_rng(1).normal(size=(20, 3))
    assert_allclose(loss.norm_value(rows), formula(loss, np.linalg.norm(rows, axis=1)))
    assert_allclose(loss.norm_value(rows[:, :1]), loss.value(rows[:, 0]))


@pytest.mark.parametrize("loss", [losses.PinballLoss(), losses.LogisticLoss()])
def test_other_losses_refuse_vectors(loss):
    with pytest.raises(TypeError, match=r"`loss` must be one of .*'huber'"):
        loss.norm_value(np.ones((2, 2)))


def test_logistic_does_not_overflow():
    loss = losses.LogisticLoss()
    assert_allclose(loss.value([-1e4, 1e4]), [1e4, 0.0])
    assert_allclose(loss.derivative([-1e4, 1e4]), [-1.0, 0.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.HuberLoss(kappa=0), r"`kappa` .* \(0, inf\) or None, got 0"),
        (lambda: losses.HuberLoss(kappa=np.inf), "`kappa` must be"),
        (lambda: losses.EpsilonInsensitiveLoss(-1), r"`epsilon` must be .* got -1"),
        (lambda: losses.SquaredEpsilonInsensitiveLoss(np.nan), "`epsilon` must be"),
        (lambda: losses.PinballLoss(1.0), r"`quantile` must be in \(0, 1\), got 1.0"),
    ],
)
def test_parameters_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_parameters_must_be_numbers():
    with pytest.raises(TypeError, match="`quantile` must be a number"):
        losses.PinballLoss(**dict.fromkeys(["quantile"], "median"))  # type: ignore


@pytest.mark.parametrize("name", LOSSES)
def test_names(name):
    assert as_loss(name) == LOSSES[name]()


def test_as_loss_keeps_objects_and_refuses_the_rest():
    loss = losses.HuberLoss(kappa=2.0)
    assert as_loss(loss) is loss
    for wrong in ("hubert", 3):
        with pytest.raises(ValueError, match="`loss` must be a Loss or one of"):
            as_loss(wrong)
    with pytest.raises(TypeError, match="`loss` must be an object or a name"):
        as_loss(losses.HuberLoss)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_losses_are_hashable_values(loss):
    assert hash(loss) == hash(type(loss)(**vars(loss)))
