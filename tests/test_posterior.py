"""Posterior standard deviations: those of a Gaussian process."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from nbsketch import (
    GaussianKernel,
    LandmarkSketch,
    MaternKernel,
    SketchedKernelRegressor,
    TabularKernelRegressor,
    load,
)
from nbsketch.estimators import posterior
from nbsketch.explain import marginal_effects
from nbsketch.outputs import MatrixOutput

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(150, 2))
Y = np.sin(X[:, 0]) + X[:, 1] / 3 + 0.2 * RNG.normal(size=150) + 5.0
NEW = RNG.uniform(-5, 5, size=(80, 2))


def gaussian_process(model, kernel, weights=None, constant=0.0):
    """Return the process with the variances of the model, of scikit-learn."""
    noise = float(model.posterior_["noise"][0])
    kernel = ConstantKernel(noise / (len(X) * model.alpha_)) * kernel
    if constant:
        kernel = kernel + ConstantKernel(constant)
    weights = np.ones(len(X)) if weights is None else weights / weights.mean()
    return GaussianProcessRegressor(kernel, alpha=noise / weights, optimizer=None)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [1e-4, 1e-2])
@pytest.mark.parametrize(
    ("kernel", "theirs"),
    [
        (GaussianKernel(1.5), RBF(1.5)),
        (MaternKernel((1.0, 2.0)), Matern((1.0, 2.0), nu=1.5)),
    ],
    ids=["gaussian", "matern"],
)
def test_exact_machines_are_the_gaussian_process(kernel, theirs, alpha, weighted):
    weights = RNG.uniform(0.5, 2.0, size=150) if weighted else None
    model = SketchedKernelRegressor(
        kernel, sketch="identity", alpha=alpha, fit_intercept=False
    ).fit(X, Y, weights)
    found, std = model.fit_posterior(X, Y, weights).predict(NEW, return_std=True)
    process = gaussian_process(model, theirs, weights).fit(X, Y)
    expected, expected_std = process.predict(NEW, return_std=True)
    assert_allclose(found, expected, atol=1e-6)
    assert_allclose(std, expected_std, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_models_of_all_rows_need_no_second_call(weighted, outputs, tmp_path):
    rows = np.vstack([X, X[:5]])  # copies are merged
    y = np.r_[Y, Y[:5]]
    targets = y.copy() if outputs == 1 else np.column_stack([y, np.exp(y)])
    weights = RNG.uniform(0.0, 2.0, size=155) if weighted else None
    model = SketchedKernelRegressor(random_state=0).fit(rows, targets, weights)
    expected = clone(model).fit(rows, targets, weights)
    expected.fit_posterior(rows, targets, weights)
    model.save(tmp_path / "model.npz")
    targets[:] = 0.0  # the model has its own
    for each in model, load(tmp_path / "model.npz"):
        found = each.predict(NEW, return_std=True)
        for a, b in zip(found, expected.predict(NEW, return_std=True), strict=True):
            assert_allclose(a, b, rtol=1e-9)
        assert_allclose(each.posterior_["noise"], expected.posterior_["noise"])


def test_the_intercept_has_a_flat_prior():
    model = SketchedKernelRegressor(GaussianKernel(1.5), sketch="identity", alpha=1e-3)
    model.fit(X, Y).fit_posterior(X, Y)
    process = gaussian_process(model, RBF(1.5), constant=1e6).fit(X, Y)
    expected = process.predict(NEW, return_std=True)
    for found, value in zip(model.predict(NEW, return_std=True), expected, strict=True):
        assert_allclose(found, value, rtol=1e-4)


def test_sketches_have_the_projected_process():
    """Of landmarks U: k - q + noise q's posterior, with q = k_U K_UU^-1 k_U."""
    kernel, U, alpha = GaussianKernel(1.5), X[:12], 1e-3
    model = SketchedKernelRegressor(
        kernel, sketch=LandmarkSketch(U), alpha=alpha, fit_intercept=False
    ).fit(X, Y)
    std = model.fit_posterior(X, Y).predict(NEW, return_std=True)[1]
    K, cross, new = kernel(U, U), kernel(X, U), kernel(NEW, U)
    q = np.einsum("ij,ji->i", new, np.linalg.solve(K, new.T))
    inner = cross.T @ cross + len(X) * alpha * K
    seen = np.einsum("ij,ji->i", new, np.linalg.solve(inner, new.T))
    noise = model.posterior_["noise"][0]
    expected = noise * ((1 - q) / (len(X) * alpha) + seen)
    assert_allclose(std**2, expected, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [1e-6, 1e-3])
def test_the_noise_is_the_larger_of_two_estimates(alpha, weighted):
    """That of the residuals and their freedom, and that of marginal likelihood."""
    w = RNG.uniform(0.2, 3.0, size=150) if weighted else np.ones(150)
    w /= w.mean()
    model = SketchedKernelRegressor(
        GaussianKernel(1.5), sketch="identity", alpha=alpha, fit_intercept=False
    ).fit(X, Y, w)
    K, noise = GaussianKernel(1.5)(X, X), 150 * alpha * np.diag(1 / w)
    hat = K @ np.linalg.inv(K + noise)
    by_residuals = w @ (Y - hat @ Y) ** 2 / (150 - np.trace(hat))
    by_likelihood = alpha * Y @ np.linalg.solve(K + noise, Y)
    found = model.fit_posterior(X, Y, w).posterior_["noise"]
    assert_allclose(found, [max(by_residuals, by_likelihood)], rtol=1e-6)
    assert (by_residuals > by_likelihood) == (alpha == 1e-6)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"size": 60}, {"kernel": "gaussian"}, {"sketch": "identity", "alpha": 1e-9}],
    ids=str,
)
def test_intervals_cover_functions_without_noise(options, weighted):
    inside = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, new = (rng.uniform(-2, 2, size=(n, 2)) for n in (80, 300))
        y, true = (
            np.column_stack([np.sin(3 * Z[:, 0]) + Z[:, 1] ** 2, 1e3 * Z[:, 0]])
            for Z in (X, new)
        )
        weights = rng.uniform(0.2, 3.0, size=80) if weighted else None
        model = SketchedKernelRegressor(random_state=seed, **options)
        model.fit(X, y, weights).fit_posterior(X, y, weights)
        mean, std = model.predict(new, return_std=True)
        inside.append(np.abs(mean - true) < 2 * std)
    assert np.mean(inside, axis=(0, 1)).min() > 0.9


@pytest.mark.parametrize("weights", [None, RNG.uniform(0.2, 3.0, size=150)])
@pytest.mark.parametrize("sketch", [None, LandmarkSketch(X[:20])], ids=["all", "some"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_rows_of_another_fit_are_refused(weights, sketch, offset):
    y = np.column_stack([Y + offset, -Y])
    model = SketchedKernelRegressor(sketch=sketch, random_state=0).fit(X, y, weights)
    assert len(model.fit_posterior(X, y, weights).posterior_["noise"]) == 2
    for others in (
        (X[::-1], y, weights),
        (X, y + 1.0, weights),
        (X, y, np.r_[np.ones(149), 100.0]),
    ):
        with pytest.raises(
            ValueError, match="must be the data of `fit`, with objective"
        ):
            model.fit_posterior(*others)


def test_constant_targets_have_no_noise():
    model = SketchedKernelRegressor().fit(X, np.full(150, 3.0))
    model.fit_posterior(X, np.full(150, 3.0))
    assert_array_equal(model.predict(NEW, return_std=True)[1], 0.0)


@pytest.mark.parametrize("options", [{}, {"size": 60}, {"kernel": "gaussian"}], ids=str)
def test_intervals_of_chosen_models_cover_the_function(options):
    inside, noise = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, new = (rng.uniform(-2, 2, size=(n, 2)) for n in (200, 300))
        y = np.sin(2 * X[:, 0]) + X[:, 1] / 2 + 0.3 * rng.normal(size=200)
        model = SketchedKernelRegressor(random_state=seed, **options).fit(X, y)
        mean, std = model.fit_posterior(X, y).predict(new, return_std=True)
        true = np.sin(2 * new[:, 0]) + new[:, 1] / 2
        inside.append(np.abs(mean - true) <= 1.96 * std)
        noise.append(model.posterior_["noise"])
    assert 0.85 <= np.mean(inside) <= 1.0
    assert np.sqrt(np.mean(noise)) == pytest.approx(0.3, rel=0.1)


def test_far_from_the_rows_is_the_prior():
    model = SketchedKernelRegressor(
        GaussianKernel(1.0), size=40, alpha=1e-3, fit_intercept=False, random_state=0
    ).fit(X, Y)
    std = model.fit_posterior(X, Y).predict([[90.0, 90.0]], return_std=True)[1]
    prior = model.posterior_["noise"] / (150 * model.alpha_)
    assert_allclose(std**2, prior)


def test_weights_count_as_copies_and_zero_as_none():
    weights = RNG.integers(0, 3, size=150)
    options = {"alpha": 1e-3, "sketch": LandmarkSketch(X[:20])}
    model = SketchedKernelRegressor(GaussianKernel(1.5), **options)
    model.fit(X, Y, weights).fit_posterior(X, Y, weights)
    kept, shift = weights > 0, model.posterior_["shift"]
    assert shift == pytest.approx(kept.sum() * 1e-3)
    alone = SketchedKernelRegressor(GaussianKernel(1.5), **options)
    alone.fit(X[kept], Y[kept], weights[kept])
    alone.fit_posterior(X[kept], Y[kept], weights[kept])
    found, expected = (m.predict(NEW, return_std=True)[1] for m in (model, alone))
    assert_allclose(found, expected, rtol=1e-6)


def test_several_outputs_share_all_but_the_noise():
    both = np.column_stack([Y, 3 * Y])
    options = {"size": 40, "alpha": 1e-3, "random_state": 0, "bandwidth": 1.5}
    model = SketchedKernelRegressor("gaussian", **options).fit(X, both)
    mean, std = model.fit_posterior(X, both).predict(NEW, return_std=True)
    assert mean.shape == std.shape == (80, 2)
    assert_allclose(std[:, 1], 3 * std[:, 0])
    alone = SketchedKernelRegressor("gaussian", **options).fit(X, Y)
    expected = alone.fit_posterior(X, Y).predict(NEW, return_std=True)[1]
    assert_allclose(std[:, 0], expected, rtol=1e-6)


def test_sparse_rows_and_single_precision():
    rows = sp.random_array((200, 30), density=0.2, rng=1, format="csr")
    y = np.asarray(rows.sum(axis=1)).ravel() + 0.1 * RNG.normal(size=200)
    options = {"bandwidth": 2.0, "alpha": 1e-3, "size": 40, "random_state": 0}
    results = [
        SketchedKernelRegressor("gaussian", preprocessing=None, **options)
        .fit(R, y)
        .fit_posterior(R, y)
        .predict(R[:50], return_std=True)[1]
        for R in (rows, rows.toarray(), rows.toarray().astype(np.float32))
    ]
    assert_allclose(results[0], results[1], rtol=1e-6)
    assert_allclose(results[2], results[1], rtol=1e-2)


def test_posteriors_are_saved_and_forgotten_by_the_next_fit(tmp_path):
    model = SketchedKernelRegressor(size=30, random_state=0).fit(X, Y)
    model.fit_posterior(X, Y).save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    for a, b in zip(
        again.predict(NEW, return_std=True),
        model.predict(NEW, return_std=True),
        strict=True,
    ):
        assert_array_equal(a, b)
    with pytest.raises(NotFittedError, match="call fit_posterior"):
        model.fit(X, Y).predict(NEW, return_std=True)


def test_what_has_no_posterior_is_refused():
    with pytest.raises(NotFittedError):
        SketchedKernelRegressor().fit_posterior(X, Y)
    robust = SketchedKernelRegressor(loss="huber", bandwidth=1.0, alpha=1e-3)
    with pytest.raises(ValueError, match="`loss` must be the square loss"):
        robust.fit(X, Y).fit_posterior(X, Y)
    with pytest.raises(ValueError, match="`loss` must be the square loss"):
        robust.predict(X, return_std=True)
    two, output = np.column_stack([Y, Y]), MatrixOutput(np.eye(2) + 1)
    with pytest.raises(ValueError, match="without an output matrix"):
        SketchedKernelRegressor(output=output).fit(X, two).fit_posterior(X, two)
    gram = GaussianKernel(1.0)(X, X)
    with pytest.raises(ValueError, match="`kernel` must be computed from samples"):
        SketchedKernelRegressor("precomputed").fit(gram, Y).fit_posterior(gram, Y)
    with pytest.raises(ValueError, match="`X` must hold the 150 samples"):
        SketchedKernelRegressor().fit(X, Y).fit_posterior(X[:90], Y[:90])
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(X, chunks=50), da.from_array(Y, chunks=50)
    with pytest.raises(TypeError, match="in memory"):
        SketchedKernelRegressor().fit(X, Y).fit_posterior(*lazy)


def test_mean_effects_have_the_deviation_of_the_gaussian_process():
    x = np.column_stack([X, X[:, 0] > 1])  # the last column has two values
    kernel, theirs = GaussianKernel([1.5, 2.5, 2.0]), RBF([1.5, 2.5, 2.0])
    options = {"sketch": "identity", "alpha": 1e-3, "fit_intercept": False}
    model = SketchedKernelRegressor(kernel, **options).fit(x, Y).fit_posterior(x, Y)
    found = marginal_effects(model, x[:40])
    process = gaussian_process(model, theirs).fit(x, Y)
    for j in range(3):
        low, high = x[:40].copy(), x[:40].copy()
        half = 1e-3 * x[:40, j].std()
        low[:, j] -= half
        high[:, j] += half
        step = 2 * half
        if j == 2:
            low[:, j], high[:, j], step = 0, 1, 1.0
        v = np.repeat([-1.0, 1.0], 40) / (40 * step)
        mean, covariance = process.predict(np.vstack([low, high]), return_cov=True)
        assert_allclose(found.average[j], v @ mean, rtol=1e-6)
        assert_allclose(found.std[j] ** 2, v @ covariance @ v, rtol=1e-4)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_errors_in_groups_are_sums_over_groups(fit_intercept, tmp_path, monkeypatch):
    """Effects are linear in y, m^T A^-1 Z^T W y: brute force over the rows' L."""
    monkeypatch.setattr(posterior, "rows_per_block", lambda *_: 64)
    rng = np.random.default_rng(1)
    groups = rng.integers(12, size=150)
    w = rng.uniform(0.5, 2.0, size=150)
    w[:5] = 0.0
    kept = w > 0
    y = np.column_stack([Y + rng.normal(size=12)[groups], -Y])
    model = SketchedKernelRegressor(
        GaussianKernel(1.5), sketch="identity", alpha=1e-3, fit_intercept=fit_intercept
    ).fit(X, y, w)
    names = np.array([f"school {g}" for g in groups])
    found = marginal_effects(model.fit_posterior(X, y, w, groups=names), NEW)
    W, x, g, n = w[kept] / w[kept].mean(), X[kept], groups[kept], int(kept.sum())
    K = GaussianKernel(1.5)(x, x)
    inverse = np.linalg.inv(K + n * 1e-3 * np.diag(1 / W))
    hat = 0.0
    if fit_intercept:  # f + b = K a + b with sum a = 0
        sums = inverse.sum(axis=1)
        hat = sums / sums.sum()  # b as a function of y
        inverse -= np.outer(sums, hat)
    hat = hat + K @ inverse
    residuals = y[kept] - hat @ y[kept]
    assert_allclose(model.predict(x), hat @ y[kept], atol=1e-6)
    factor = 12 / 11 * (n - 1) / (n - np.trace(hat))
    for j in range(2):
        half = np.zeros(2)
        half[j] = 1e-3 * NEW[:, j].std()
        differences = GaussianKernel(1.5)(NEW + half, x)
        differences = differences - GaussianKernel(1.5)(NEW - half, x)
        linear = differences.mean(axis=0) @ inverse / (2 * half[j])
        assert_allclose(found.average[j], linear @ y[kept], rtol=1e-5)
        errors = linear[:, None] * residuals
        sums = np.array([errors[g == k].sum(axis=0) for k in range(12)])
        expected = np.sqrt(factor * np.square(sums).sum(axis=0))
        assert_allclose(found.std[j], expected, rtol=1e-4)
    model.save(tmp_path / "model.npz")
    again = marginal_effects(load(tmp_path / "model.npz"), NEW)
    assert_array_equal(again.std, found.std)


def test_errors_in_groups_are_those_of_a_block_bootstrap():
    """Weights, numbers of draws of the groups, in ridge regression on the features."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(50), 6)
    treated = (rng.random(50) < 0.5)[groups]  # whole groups
    x = np.column_stack([rng.normal(size=300), treated])
    y = np.sin(x[:, 0]) + 2 * treated + rng.normal(size=50)[groups]
    y += rng.normal(size=300)
    kernel = GaussianKernel([1.5, 1.5])
    model = SketchedKernelRegressor(kernel, size=40, alpha=1e-3, random_state=0)
    model.fit(x, y)
    found = marginal_effects(model.fit_posterior(x, y, groups=groups), x).std
    independent = marginal_effects(model.fit_posterior(x, y), x).std
    assert found[1] > 1.5 * independent[1]
    L = model.landmarks_
    Z, inner = kernel(x, L), 0.3 * kernel(L, L)  # n alpha
    low, high = (np.column_stack([x[:, 0], np.full(300, v)]) for v in (0.0, 1.0))
    effect = np.r_[0.0, (kernel(high, L) - kernel(low, L)).mean(axis=0)]
    Z = np.column_stack([np.ones(300), Z])
    penalty = np.zeros((41, 41))
    penalty[1:, 1:] = inner
    means = []
    for _ in range(1000):
        w = np.bincount(rng.integers(50, size=50), minlength=50)[groups]
        coef = np.linalg.lstsq(Z.T @ (w[:, None] * Z) + penalty, Z.T @ (w * y))[0]
        means.append(effect @ coef)
    assert_allclose(found[1], np.std(means), rtol=0.1)


def test_copies_in_several_groups_count_in_each():
    """n in the penalty is that of the merged rows, whose weights have mean one."""
    rows = np.r_[np.arange(150), np.arange(10)]
    groups = np.r_[np.arange(150) % 7, np.full(10, 7)]
    kernel, U = GaussianKernel(1.5), X[:20]
    model = SketchedKernelRegressor(kernel, sketch=LandmarkSketch(U), alpha=1e-3)
    model.fit(X[rows], Y[rows]).fit_posterior(X[rows], Y[rows], groups=groups)
    assert model.n_copies_ == 10
    Z = np.column_stack([np.ones(160), kernel(X[rows], U)])
    penalty = np.zeros((21, 21))
    penalty[1:, 1:] = 160 * 1e-3 * kernel(U, U)
    inverse = np.linalg.inv(Z.T @ Z + penalty)
    hat = Z @ inverse @ Z.T
    half = np.array([1e-3 * NEW[:, 0].std(), 0.0])
    slopes = (kernel(NEW + half, U) - kernel(NEW - half, U)) / (2 * half[0])
    linear = np.r_[0.0, slopes.mean(axis=0)] @ inverse @ Z.T
    sums = np.bincount(groups, linear * (Y[rows] - hat @ Y[rows]))
    expected = 8 / 7 * 159 / (160 - np.trace(hat)) * np.square(sums).sum()
    found = marginal_effects(model, NEW).std
    assert_allclose(found[0] ** 2, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(150), "`groups` must have at least two groups, got .0."),
        (np.zeros(149), "`groups` must have shape .150,., got .149,."),
        (np.full(150, np.nan), "groups"),
    ],
)
def test_wrong_groups_are_refused(groups, message):
    model = SketchedKernelRegressor(size=20, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        model.fit_posterior(X, Y, groups=groups)
    assert not hasattr(model, "posterior_")


def test_effects_are_the_derivatives():
    model = SketchedKernelRegressor(GaussianKernel(1.5), size=30, random_state=0)
    model.fit(X, Y)
    weights = model.sketch_.weights.T @ model.coef_
    differences = model.landmarks_[None] - NEW[:, None]
    products = model.kernel_(NEW, model.landmarks_) * weights
    slopes = np.einsum("nm,nmj->nj", products, differences) / 1.5**2
    found = marginal_effects(model, NEW)
    assert_allclose(found.effects, slopes, atol=1e-5 * np.abs(slopes).max())
    assert_allclose(found.average, slopes.mean(axis=0), atol=1e-5)
    assert found.std is None


@pytest.mark.parametrize("kernel", ["laplacian", MaternKernel(nu=0.5), "sobolev"])
def test_kernels_with_kinks_have_differences_and_no_slopes(kernel):
    unit = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    x = np.column_stack([unit[:, 0], X[:, 0] > 1])
    model = SketchedKernelRegressor(kernel, size=30, random_state=0).fit(x, Y)
    with pytest.raises(ValueError, match="smooth kernel for slopes"):
        marginal_effects(model, x)
    binary = x[:, 1:]
    model.fit(binary, Y)
    effect = model.predict([[1.0]]) - model.predict([[0.0]])
    assert_allclose(marginal_effects(model, binary).average, effect)


def test_ranks_have_differences_and_no_slopes():
    x = np.column_stack([X[:, 0] > 1, X])
    options = {"size": 30, "random_state": 0}
    ranked = SketchedKernelRegressor("gaussian", preprocessing="rank", **options)
    with pytest.raises(ValueError, match="ranks of column 1"):
        marginal_effects(ranked.fit(x, Y), x)
    binary = x[:, :1]
    ranked.fit(binary, Y)
    effect = ranked.predict([[1.0]]) - ranked.predict([[0.0]])
    assert_allclose(marginal_effects(ranked, binary).average, effect)


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_smooth_kernels_have_the_slopes_of_their_predictions(nu):
    kernel = MaternKernel(nu=nu)
    model = SketchedKernelRegressor(kernel, size=30, random_state=0).fit(X, Y)
    step = np.array([1e-4, 0.0])
    slope = (model.predict(NEW + step) - model.predict(NEW - step)) / 2e-4
    found = marginal_effects(model, NEW).effects[:, 0]
    assert_allclose(found, slope, atol=1e-3 * np.abs(slope).max())


def test_effects_of_several_outputs_and_of_what_has_none():
    model = SketchedKernelRegressor(size=30, random_state=0)
    both = model.fit(X, np.column_stack([Y, -Y])).fit_posterior(X, np.c_[Y, -Y])
    found = marginal_effects(both, X)
    assert found.effects.shape == (150, 2, 2) and found.std.shape == (2, 2)
    assert_allclose(found.average[:, 0], -found.average[:, 1], rtol=1e-6)
    frame = pd.DataFrame(X, columns=["a", "b"])
    named = marginal_effects(
        SketchedKernelRegressor(random_state=0).fit(frame, Y), frame
    )
    plain = marginal_effects(SketchedKernelRegressor(random_state=0).fit(X, Y), X)
    assert_allclose(named.average, plain.average)
    with pytest.raises(TypeError, match="`model` must be a sketched kernel"):
        marginal_effects(TabularKernelRegressor().fit(X, Y), X)


@pytest.mark.parametrize("kernel", ["linear", "gaussian", MaternKernel(nu=2.5)])
@pytest.mark.parametrize("preprocessing", [None, "standard"])
def test_one_sample_has_the_slopes_that_it_has_among_others(kernel, preprocessing):
    """Years and identifiers: steps are not a share of the offset of a column."""
    shift = np.array([2000.0, 1e6])
    model = SketchedKernelRegressor(kernel, preprocessing=preprocessing, random_state=0)
    model.fit(X + shift, Y)
    expected = marginal_effects(model, X + shift).effects[:1]
    for rows in (X[:1], X[[0, 0, 0]], X[:1] + 1e-9 * np.arange(4)[:, None]):
        found = marginal_effects(model, rows + shift).effects
        assert_allclose(found[:1], expected, rtol=1e-3)


def test_two_rows_have_slopes_and_kernel_values_have_none():
    model = SketchedKernelRegressor(GaussianKernel(1.5), size=30, random_state=0)
    model.fit(X, Y)
    found = marginal_effects(model, NEW[:2])  # no column is one of two values
    assert_allclose(
        found.effects, marginal_effects(model, NEW[:9]).effects[:2], rtol=1e-4
    )
    values = SketchedKernelRegressor("precomputed", alpha=1e-3)
    values.fit(GaussianKernel(1.5)(X), Y)
    with pytest.raises(TypeError, match="kernel of samples"):
        marginal_effects(values, GaussianKernel(1.5)(X))
