"""Kernels whose features are not centered: offsets and large bandwidths."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import (
    GaussianKernel,
    JointQuantileRegressor,
    PinballLoss,
    PolynomialKernel,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SpectralFilterRegressor,
    TabularKernelRegressor,
)
from nbsketch.fitting import penalty as penalties
from nbsketch.fitting.objectives import ScalarObjective, regression_objective
from nbsketch.fitting.penalty import AlphaPath, LeftOutErrors
from nbsketch.solvers.design import ArrayDesign

MARGINS = ["hinge", "squared-hinge", "logistic"]
RESIDUALS = ["huber", "pinball", "squared-epsilon-insensitive", "poisson", "gamma"]


def line(n=100):
    return np.linspace(0, 1, n)[:, None]


def error(loss, fit, X):
    """Return the mean squared error relative to the variance of the targets."""
    y = 3 * line(len(X))[:, 0]
    y = np.exp(y) if loss in ("poisson", "gamma") else y
    return np.mean((fit(X, y) - y) ** 2) / np.var(y)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", MARGINS)
@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_offsets_do_not_end_in_one_class(loss, offset):
    X, y = line() + offset, line()[:, 0] > 0.5
    model = SketchedKernelClassifier("linear", loss=loss, random_state=0).fit(X, y)
    assert model.score(X, y) == 1.0


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", RESIDUALS)
@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_offsets_do_not_end_in_a_constant(loss, offset):
    model = SketchedKernelRegressor("linear", loss=loss, random_state=0)
    fit = lambda X, y: model.fit(X, y).predict(X)  # noqa: E731
    assert error(loss, fit, line() + offset) < 0.01


def test_offsets_of_joint_quantiles():
    model = JointQuantileRegressor((0.4, 0.5), kernel="linear", random_state=0)
    fit = lambda X, y: model.fit(X, y).predict(X)[:, 1]  # noqa: E731
    assert error("joint", fit, line() + 1e5) < 1e-4


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", ["logistic", "huber"])
@pytest.mark.parametrize("kernel", ["linear", "polynomial", "precomputed"])
def test_offsets_on_all_rows_by_the_dual(loss, kernel):
    X = line(510) + 1e3  # more rows than are solved in the primal
    y = 3 * line(510)[:, 0]
    if kernel == "precomputed":
        X = X @ X.T
    elif kernel == "polynomial":
        kernel = PolynomialKernel(degree=2)
    known = {"kernel": kernel, "loss": loss, "sketch": "identity", "random_state": 0}
    if loss == "logistic":
        assert (
            SketchedKernelClassifier(**known).fit(X, y > 1.5).score(X, y > 1.5) > 0.995
        )
    else:
        assert SketchedKernelRegressor(**known).fit(X, y).score(X, y) > 0.9999


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", MARGINS)
@pytest.mark.parametrize("bandwidth", [100.0, 1000.0])
def test_large_bandwidths_do_not_end_in_one_class(loss, bandwidth):
    X, y = line(), line()[:, 0] > 0.5
    kernel = GaussianKernel(bandwidth)
    model = SketchedKernelClassifier(kernel, loss=loss, random_state=0).fit(X, y)
    assert model.score(X, y) == 1.0


@pytest.mark.parametrize("errors", [[1.0, 1.01, 1.02], [1.0, 1.0, 0.99]])
def test_a_constant_at_an_end_of_a_path_is_a_warning(errors):
    alphas = np.array([1.0, 0.1, 0.01])
    with pytest.warns(UserWarning, match="from 1.0e[+]00 to 1.0e-02 .* a constant"):
        AlphaPath(alphas, np.array(errors)).warn_of_constant()


@pytest.mark.parametrize("errors", [[1.0, 0.9, 1.0], [1.0, 0.99, 1.0], [0.0, 0.0]])
def test_other_paths_are_no_warning(errors):
    alphas = np.logspace(0, -2, len(errors))
    AlphaPath(alphas, np.array(errors)).warn_of_constant()


def test_a_second_plateau_does_not_end_a_path():
    X = line()
    y = np.sin(6 * X[:, 0])
    settings = {"bandwidth": 10.0, "loss": "huber", "random_state": 0}
    model = SketchedKernelRegressor("gaussian", **settings).fit(X, y)
    assert np.mean((model.predict(X) - y) ** 2) < 0.01  # .18 by a parabola


def waves(n=150):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(n, 1))
    return x, np.sin(2 * x[:, 0]), 0.05 * rng.normal(size=n)


@pytest.mark.parametrize("size", [None, 50])
def test_a_first_plateau_does_not_end_a_path(size):
    """The wide one of linear models, after which ridge regression predicts better."""
    X, signal, noise = waves()
    settings = {"bandwidth": 30.0, "loss": "huber", "size": size, "random_state": 0}
    model = SketchedKernelRegressor("gaussian", **settings).fit(X, signal + noise)
    assert np.mean((model.predict(X) - signal) ** 2) < 0.05  # .39 by a line


def test_a_first_plateau_does_not_end_a_path_of_labels():
    X, signal, _ = waves()
    settings = {"bandwidth": 30.0, "loss": "logistic", "random_state": 0}
    model = SketchedKernelClassifier("gaussian", **settings).fit(X, signal > 0)
    assert model.score(X, signal > 0) > 0.95  # .5 to .8


def test_a_path_of_noise_ends():
    """Ridge regression explains nothing either."""
    noise = waves()[2]
    design = ArrayDesign(np.random.default_rng(1).normal(size=(150, 60)))
    objective = ScalarObjective(noise[:, None], None, True, PinballLoss(0.5))
    path = LeftOutErrors(objective, design, np.random.default_rng(0)).path()
    assert len(path.errors) < 20 and not path.is_low


class Scripted(LeftOutErrors):
    """Paths of given errors (`design`), whose lengths are kept (`rng`).

    The objective is the best penalty of ridge regression.
    """

    def default_alphas(self):
        return 10.0 ** -np.arange(27)

    def guess(self):
        return self.objective

    def _path(self, alphas, least_count):
        errors = []
        for place in -np.log10(alphas).round().astype(int):
            errors.append(self.design[place])
            if penalties._is_over(np.array(errors), least_count):
                break
        self.rng.append(len(errors))
        return AlphaPath(alphas, np.array(errors))


HILL = [1.0] * 8 + [1.02] * 3  # over after ten, of which two have risen
VALLEY = [0.3, 0.2] + [0.4] * 14


@pytest.mark.parametrize(
    "errors, ridge, best, lengths",
    [
        (HILL + VALLEY, 1e-11, 0.2, [10, 5]),  # goes on at 30 times the best of ridge
        (HILL + [1.1] * 3 + VALLEY, 1e-24, 0.2, [10, 4]),  # at most the 15th of 19
        (HILL + VALLEY, 1e-3, 1.0, [10]),  # ridge has a stronger one
        (HILL[:10] + [1.2] + [1.1] * 16, 1e-11, 1.0, [10, 17]),  # no better there
        ([1.0] * 8 + [1.02, 0.9] + [0.8] * 17, 1e-3, 0.8, [19]),  # no two in turn
        ([1.0] * 2 + [1.02] * 7 + [0.8] * 18, 1e-3, 0.8, [19]),  # fewer than ten
        ([1.0, 0.7, 0.5, 0.6, 0.6] + [0.1] * 22, 1e-9, 0.5, [5]),  # has fallen
        ([1.0] * 27, 1e-9, 1.0, [27]),
    ],
)
def test_a_path_that_ends_on_a_plateau_goes_on_near_the_best_of_ridge(
    errors, ridge, best, lengths
):
    tried = []
    path = Scripted(ridge, errors, tried).path()
    assert path.errors.min() == best
    assert tried == lengths


def test_a_path_goes_on_while_weaker_penalties_are_no_worse():
    plateau = np.ones(15)
    assert not penalties._is_over(plateau, 10)
    assert not penalties._is_over(np.append(plateau, [1.004, 1.004]), 10)
    assert penalties._is_over(np.append(plateau, [1.02, 1.02]), 10)
    assert not penalties._is_over(np.append(plateau, [1.02, 0.9]), 10)
    fallen = np.append(plateau, [0.5, 0.4, 0.4, 0.4])
    assert not penalties._is_over(fallen[:18], 10)
    assert penalties._is_over(fallen, 10)  # beyond the first 19 it has to fall
    assert not penalties._is_over(np.append(fallen[:-1], 0.39), 10)


@pytest.mark.parametrize("loss", ["square", "huber", "absolute_error"])
@pytest.mark.parametrize("offset, scale", [(1.7e12, 0.1), (1e15, 50.0)])
def test_tables_of_targets_with_a_large_offset(loss, offset, scale):
    x = np.linspace(0, 3, 90)[:, None]
    y = offset + scale * np.sin(2 * x[:, 0])
    model = TabularKernelRegressor(loss=loss, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.999
    model.fit(x, np.full(90, offset / 3))
    assert model.predict(x) == pytest.approx(offset / 3, rel=1e-14)


@pytest.mark.parametrize("settings", [{}, {"cv": 4}])
def test_an_offset_of_the_targets_does_not_change_left_out_errors(settings):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 2))
    Y = np.sin(2 * X) + 0.1 * rng.normal(size=(100, 2))
    for targets in (Y, Y[:, 0]):
        model = SpectralFilterRegressor(random_state=0, **settings).fit(X, targets)
        path, expected = model.path_, model.predict(X)
        moved = model.fit(X, targets + 1e9).predict(X) - 1e9
        assert_allclose(model.path_["error"], path["error"], rtol=1e-3)
        assert_allclose(moved, expected, atol=1e-5)


@pytest.mark.parametrize("loss", ["square", "huber"])
def test_an_offset_does_not_change_the_errors_of_ridge_regression(loss):
    rng = np.random.default_rng(0)
    Z = ArrayDesign(rng.normal(size=(60, 60)) * 2.0 ** -np.arange(60))
    y = Z.Z[:, :1] + 0.1 * rng.normal(size=(60, 1))
    objective = regression_objective(y, None, True, loss)
    far = replace(objective, targets=y + 1e9)
    errors = []
    for changed in (objective, far):
        left_out = LeftOutErrors(changed, Z, rng)
        path = left_out._ridge()
        args = path, path.default_alphas()[::-1]
        centered = replace(changed, targets=left_out._ridge_targets())
        errors.append(left_out._replace(objective=centered).by_ridge(*args))
        if changed.is_closed_form:
            errors.append(changed.errors_left_out(Z, None, rng).errors)
    for values in errors[1:]:
        assert_allclose(values, errors[0], rtol=1e-3)
