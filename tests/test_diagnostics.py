"""Spectra, the dimensions read off them, K-satisfiability, recommended sizes."""

import math
import tracemalloc

import numpy as np
import pytest
import reference
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal

from nbsketch import (
    GaussianKernel,
    GaussianSketch,
    IdentitySketch,
    LaplacianKernel,
    LinearKernel,
    PolynomialKernel,
    PrecomputedKernel,
    PSparsifiedSketch,
    RademacherSketch,
    SketchedKernelRegressor,
    SubsamplingSketch,
    cli,
    plots,
)
from nbsketch.diagnostics import (
    Spectrum,
    critical_radius,
    effective_dimension,
    is_k_satisfiable,
    plot_spectrum,
    recommend_size,
    satisfiability_constant,
    spectrum,
    statistical_dimension,
)
from nbsketch.reproduce import _report
from nbsketch.reproduce.p_sparsified import satisfiability

KERNELS = [
    GaussianKernel(1.5),
    LaplacianKernel((1.0, 2.0)),
    PolynomialKernel(degree=2),
    LinearKernel(),
]
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
NOISES = (0.01, 0.3, 1.0, 5.0)


def points(n=120, q=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, q))


def spectrum_of(values, n=None, missing=0.0):
    """Return a spectrum with given eigenvalues."""
    values = np.asarray(values, dtype=float)
    return Spectrum(values, n or values.size, missing, None, LinearKernel())


def brownian(X, Y):
    return np.minimum(X, Y.T)


# the spectrum -----------------------------------------------------------------------


@kernels
def test_exact_spectrum(kernel):
    X = points()
    K = reference.kernel_matrix(kernel, X, X)
    mu = spectrum(X, kernel)
    assert (mu.n, mu.missing, mu.is_exact, mu.kernel) == (120, 0, True, kernel)
    desired = np.linalg.svd(K / 120, compute_uv=False)
    assert_allclose(mu.values, desired, rtol=0, atol=1e-14 * desired[0])
    assert (mu.values >= 0).all()
    product = mu.vectors @ (120 * mu.values[:, None] * mu.vectors.T)
    assert_allclose(product, K, rtol=0, atol=1e-13 * abs(K).max() * 120)


def test_eigenvalues_of_brownian_motion():
    n = 200
    X = np.arange(1, n + 1)[:, None] / n
    mu = spectrum(X, brownian)
    angles = (2 * np.arange(1, n + 1) - 1) * math.pi / (4 * n + 2)
    assert_allclose(mu.values, 1 / (2 * n * np.sin(angles)) ** 2, rtol=1e-10)


@kernels
def test_landmarks_bracket_the_spectrum(kernel):
    X = points()
    exact = spectrum(X, kernel)
    mu = spectrum(X, kernel, size=15, random_state=0)
    assert mu.vectors is None and not mu.is_exact and mu.n == 120
    assert mu.values.size <= 15 and (np.diff(mu.values) <= 0).all()
    slack = 1e-13 * exact.values[0]
    lost = exact.values[: mu.values.size] - mu.values
    assert (lost >= -slack).all()
    total = lost.sum() + exact.values[mu.values.size :].sum()
    assert_allclose(mu.missing, total, rtol=0, atol=100 * slack)


@kernels
def test_all_rows_as_landmarks_are_exact(kernel):
    X = points()
    exact = spectrum(X, kernel)
    almost = spectrum(X, kernel, size=119, random_state=0)
    found = almost.values.size
    spread = exact.values[found:].sum() + 2 / 120 * exact.values[0]
    assert_allclose(almost.values, exact.values[:found], rtol=0, atol=spread)
    assert spectrum(X, kernel, size=120).is_exact


def test_the_default_is_exact_for_few_rows_only():
    X = points(2001, 1)
    assert spectrum(X[:300]).is_exact
    mu = spectrum(X, bandwidth=1.0, random_state=0)
    assert mu.values.size <= 1000 and not mu.is_exact
    again = spectrum(X, bandwidth=1.0, random_state=0)
    assert_array_equal(again.values, mu.values)
    other = spectrum(X, bandwidth=1.0, random_state=1)
    assert_allclose(other.values[:5], mu.values[:5], rtol=1e-6)


def test_many_rows_take_little_memory():
    X = points(30_000, 3)
    spectrum(X[:500], bandwidth=1.0, size=20)
    tracemalloc.start()
    spectrum(X, bandwidth=1.0, size=50, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6  # K would take 7.2e9


def test_a_gram_matrix_and_a_function_have_spectra():
    X = points()
    desired = spectrum(X, GaussianKernel(1.5)).values
    K = GaussianKernel(1.5)(X)
    given = spectrum(K, PrecomputedKernel()).values
    assert_allclose(given, desired, rtol=0, atol=1e-14)
    function = spectrum(X, GaussianKernel(1.5).__call__).values
    assert_allclose(function, desired, rtol=0, atol=1e-14)
    named = spectrum(X, "gaussian", bandwidth=1.5).values
    assert_allclose(named, desired, rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [80, 20])
def test_sparse_rows_are_dense_rows_with_zeros(size):
    X = reference.sparse_array((80, 30), 0.1, 0)
    options = {"bandwidth": 2.0, "size": size, "random_state": 0}
    dense, sparse = (spectrum(rows, **options) for rows in (X.toarray(), X))
    assert_allclose(sparse.values, dense.values, rtol=0, atol=1e-13)
    assert_allclose(sparse.missing, dense.missing, rtol=0, atol=1e-12)


def test_single_precision_is_raised():
    X = points().astype(np.float32)
    mu = spectrum(X, GaussianKernel(1.5))
    assert_array_equal(mu.values, spectrum(X.astype(float), GaussianKernel(1.5)).values)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 121}, ValueError, r"`size` must be in \[1, 120\], got 121"),
        ({"size": 0}, ValueError, "`size` must be in"),
        ({"kernel": "nothing"}, ValueError, "`kernel` must be one of"),
        ({"kernel": "precomputed"}, ValueError, "must be the square Gram matrix"),
        ({"bandwidth": -1.0}, ValueError, "`bandwidth` must be"),
    ],
    ids=str,
)
def test_wrong_arguments_of_the_spectrum(options, error, message):
    with pytest.raises(error, match=message):
        spectrum(points(), **options)
    with pytest.raises(ValueError, match="`X` must be finite"):
        spectrum([[np.nan]])


@pytest.mark.parametrize("size", [40, 10])
@pytest.mark.parametrize("function", [lambda X, Y: -X @ Y.T, lambda X, Y: 0 * X @ Y.T])
def test_no_spectrum_of_what_is_no_kernel(function, size):
    with pytest.raises(ValueError, match="`kernel` must be positive semi-definite"):
        spectrum(points(40), function, size=size, random_state=0)


# dimensions -------------------------------------------------------------------------


@kernels
def test_effective_dimension_is_a_trace(kernel):
    X = points()
    K = reference.kernel_matrix(kernel, X, X)
    mu = spectrum(X, kernel)
    for alpha in (1e-4, 1e-2, 1.0):
        desired = np.trace(K @ np.linalg.inv(K + 120 * alpha * np.eye(120)))
        assert_allclose(effective_dimension(mu, alpha), desired, rtol=1e-9)


@kernels
@pytest.mark.parametrize("noise", NOISES)
def test_critical_radius_by_bisection(kernel, noise):
    mu = spectrum(points(), kernel)
    desired = reference.critical_radius(mu.values, noise)
    assert_allclose(critical_radius(mu, noise=noise), desired, rtol=1e-12)
    # d_n is the index, from one, of the first eigenvalue that is not above
    above = [j for j in range(120) if mu.values[j] <= desired**2]
    expected = above[0] + 1 if above else 120
    assert statistical_dimension(mu, noise=noise) == expected


@pytest.mark.parametrize(
    ("values", "noise", "radius", "dimension"),
    [
        # flat: sqrt(mu) = delta^2 / noise
        ([0.25] * 4, 2.0, 1.0, 1),
        # one above: (delta^2 + 0) / 2 = delta^4
        ([4.0, 0.0], 1.0, math.sqrt(0.5), 2),
        # all above: delta^2 = delta^4 / noise^2, and no eigenvalue is below
        ([9.0, 8.0, 7.0], 2.0, 2.0, 3),
        ([1.0], 1.0, 1.0, 1),
    ],
)
def test_dimensions_by_hand(values, noise, radius, dimension):
    mu = spectrum_of(values)
    assert_allclose(critical_radius(mu, noise=noise), radius)
    assert statistical_dimension(mu, noise=noise) == dimension


def test_units_do_not_matter():
    mu = spectrum(points(), GaussianKernel(1.5))
    scaled = spectrum_of(9 * mu.values)
    # a kernel of nine times the size and three times the noise
    assert_allclose(
        critical_radius(scaled, noise=1.5), 3 * critical_radius(mu, noise=0.5)
    )
    assert statistical_dimension(scaled, noise=1.5) == statistical_dimension(
        mu, noise=0.5
    )
    assert_allclose(effective_dimension(scaled, 9e-3), effective_dimension(mu, 1e-3))


@kernels
def test_dimensions_by_landmarks_are_upper_bounds(kernel):
    X = points()
    exact = spectrum(X, kernel)
    mu = spectrum(X, kernel, size=12, random_state=1)
    for number in (1e-3, 1e-1, 1.0):
        low = float(np.sum(mu.values / (mu.values + number)))
        found, true = (
            effective_dimension(mu, number),
            effective_dimension(exact, number),
        )
        assert low - 1e-9 <= true <= found + 1e-9
        true = critical_radius(exact, noise=number)
        assert true <= (1 + 1e-6) * critical_radius(mu, noise=number)


def test_dimensions_by_landmarks_approach_the_exact_ones():
    X = np.random.default_rng(0).uniform(size=(800, 1))
    kernel = LaplacianKernel(0.5)
    exact = spectrum(X, kernel)
    errors = []
    for size in (50, 150, 400):
        mu = spectrum(X, kernel, size=size, random_state=0)
        ratio = effective_dimension(mu, 1e-4) / effective_dimension(exact, 1e-4)
        errors.append(ratio - 1)
        assert_allclose(critical_radius(mu), critical_radius(exact), rtol=0.02)
        assert abs(statistical_dimension(mu) - statistical_dimension(exact)) <= 1
    assert errors[0] > errors[1] > errors[2] > 0
    assert errors[2] < 0.05


def test_what_is_missing_is_spread_evenly():
    mu = spectrum_of([0.5, 0.1], n=6, missing=0.2)
    values, counts = mu.levels()
    assert_allclose(values, [0.5, 0.1, 0.05])
    assert_array_equal(counts, [1, 1, 4])
    whole = spectrum_of([0.5, 0.1, 0.05, 0.05, 0.05, 0.05])
    for noise in NOISES:
        assert_allclose(
            critical_radius(mu, noise=noise), critical_radius(whole, noise=noise)
        )
        assert statistical_dimension(mu, noise=noise) == statistical_dimension(
            whole, noise=noise
        )
    assert_allclose(effective_dimension(mu, 0.1), effective_dimension(whole, 0.1))
    # more than the smallest that was found: the levels still descend
    assert_allclose(
        spectrum_of([0.5, 0.1], n=3, missing=0.2).levels()[0], [0.5, 0.2, 0.1]
    )


@pytest.mark.parametrize("wrong", [0, -1.0, math.inf, math.nan])
def test_wrong_numbers(wrong):
    mu = spectrum(points(10))
    with pytest.raises(ValueError, match="`alpha` must be in"):
        effective_dimension(mu, wrong)
    with pytest.raises(ValueError, match="`noise` must be in"):
        critical_radius(mu, noise=wrong)
    with pytest.raises(ValueError, match="`noise` must be in"):
        statistical_dimension(mu, noise=wrong)


# K-satisfiability -------------------------------------------------------------------

RECIPES = [
    PSparsifiedSketch(40, density=0.7),
    PSparsifiedSketch(40),
    GaussianSketch(40),
    SubsamplingSketch(40),
    IdentitySketch(),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=repr)
def test_norms_are_those_of_the_definition(recipe):
    X = points()
    kernel = GaussianKernel(1.5)
    mu = spectrum(X, kernel)
    sketch = recipe.draw(120, 0)
    verdict = is_k_satisfiable(sketch, mu, noise=0.1)
    K = reference.kernel_matrix(kernel, X, X)
    distortion, leakage = reference.satisfiability_norms(
        K, reference.dense_sketch(sketch), verdict.dimension
    )
    assert_allclose(verdict.distortion, distortion, rtol=1e-9, atol=1e-12)
    assert_allclose(verdict.leakage, leakage, rtol=1e-7)
    assert verdict.radius == critical_radius(mu, noise=0.1)
    assert verdict.dimension == statistical_dimension(mu, noise=0.1) > 5
    constant = 2 * (1 + math.sqrt(math.log(5))) + 1
    assert_allclose(verdict.leakage_bound, constant * verdict.radius)
    within = distortion <= 0.5 and leakage <= verdict.leakage_bound
    assert verdict.satisfied == within


def test_the_identity_keeps_everything():
    mu = spectrum(points(), GaussianKernel(1.5))
    verdict = is_k_satisfiable(IdentitySketch().draw(120), mu)
    assert verdict.satisfied and verdict.distortion < 1e-12
    assert_allclose(verdict.leakage**2, mu.values[verdict.dimension])


def test_a_sketch_can_fail_by_either_norm():
    mu = spectrum(points(), GaussianKernel(1.5))
    few = is_k_satisfiable(SubsamplingSketch(2).draw(120, 0), mu)
    assert not few.satisfied and few.distortion > 0.5
    # orthonormal on the leading directions and a thousand times too large elsewhere
    d = statistical_dimension(mu)
    scale = np.where(np.arange(120) < d, 1.0, 1e3)
    sketch = type(GaussianSketch(1).draw(120))(mu.vectors.T * scale[:, None])
    verdict = is_k_satisfiable(sketch, mu)
    assert not verdict.satisfied and verdict.distortion < 1e-10
    assert verdict.leakage > verdict.leakage_bound


def test_the_density_sets_the_constant_alone():
    mu = spectrum(points())
    sketch = PSparsifiedSketch(60, density=0.25).draw(120, 0)
    one, other = (is_k_satisfiable(sketch, mu, density=p) for p in (1.0, 0.25))
    assert (one.distortion, one.leakage) == (other.distortion, other.leakage)
    growth = satisfiability_constant(0.25) / satisfiability_constant(1.0)
    assert_allclose(other.leakage_bound, growth * one.leakage_bound)
    assert_allclose(satisfiability_constant(0.25), 4 * (1 + math.log(5) ** 0.5) + 1)


def test_large_sketches_are_satisfiable_and_small_ones_not():
    mu = spectrum(np.random.default_rng(0).uniform(size=(400, 1)), bandwidth=0.3)
    for family in (GaussianSketch, RademacherSketch):
        shares = [
            np.mean(
                [is_k_satisfiable(family(s).draw(400, i), mu)[0] for i in range(20)]
            )
            for s in (6, 240)
        ]
        assert shares == [0, 1]


def test_wrong_arguments_of_the_verdict():
    mu = spectrum(points(), size=20)
    sketch = GaussianSketch(5).draw(120, 0)
    with pytest.raises(ValueError, match=r"`spectrum` must be exact .* size=120"):
        is_k_satisfiable(sketch, mu)
    with pytest.raises(ValueError, match="`sketch` must have 119 columns"):
        is_k_satisfiable(sketch, spectrum(points(119)))
    with pytest.raises(ValueError, match="`density` must be in"):
        is_k_satisfiable(sketch, spectrum(points()), density=0)


# the size ---------------------------------------------------------------------------


def test_practice_is_twice_the_effective_dimension():
    mu = spectrum(points(), GaussianKernel(1.5))
    advice = recommend_size(mu, alpha=1e-3)
    assert advice.effective_dimension == effective_dimension(mu, 1e-3)
    assert advice.size == math.ceil(2 * advice.effective_dimension)
    assert (advice.density, advice.guarantee) == (20 / 120, "practice")
    assert (advice.alpha, advice.spectrum) == (1e-3, mu)


def test_satisfiable_sizes_grow_with_the_statistical_dimension():
    mu = spectrum(points(400), GaussianKernel(3.0))
    advice = recommend_size(mu, guarantee="satisfiable", noise=0.5)
    d = statistical_dimension(mu, noise=0.5)
    assert advice.statistical_dimension == d
    assert (advice.size, advice.density) == (math.ceil(12 * d / 0.49), 0.7)
    assert_allclose(advice.alpha, advice.radius**2)
    sparse = recommend_size(mu, guarantee="satisfiable", density=0.01, noise=0.5)
    assert (sparse.size, sparse.density) == (400, 0.01)  # the bound exceeds n


def test_satisfiable_sizes_are():
    mu = spectrum(np.random.default_rng(0).uniform(size=(500, 1)), bandwidth=0.3)
    size, p = recommend_size(mu, guarantee="satisfiable")[:2]
    recipe = PSparsifiedSketch(size, density=p)
    verdicts = [is_k_satisfiable(recipe.draw(500, i), mu, density=p) for i in range(20)]
    assert size < 250
    assert sum(verdict.satisfied for verdict in verdicts) >= 18


def test_theory_has_the_constant_of_the_proof():
    mu = spectrum(points(400), GaussianKernel(3.0))
    advice = recommend_size(mu, guarantee="theory")
    assert (advice.size, advice.density) == (400, 0.7)  # the bound exceeds n
    large = Spectrum(mu.values, 10**6, mu.missing, None, mu.kernel)
    d = statistical_dimension(large)
    assert recommend_size(large, guarantee="theory").size == math.ceil(5120 * d / 0.49)


def test_the_size_of_practice_loses_little(rng):
    X = rng.uniform(-1, 1, size=(700, 3))
    f = np.sin(3 * X[:, 0]) + X[:, 1] ** 2
    y = f[:400] + 0.2 * rng.standard_normal(400)

    def error(sketch, seed=0):
        model = SketchedKernelRegressor(
            bandwidth=1.0, sketch=sketch, alpha=1e-4, random_state=seed
        ).fit(X[:400], y)
        return math.sqrt(np.mean((model.predict(X[400:]) - f[400:]) ** 2))

    advice = recommend_size(X[:400], GaussianKernel(1.0), 1e-4)
    assert 20 < advice.size < 200
    exact = error(IdentitySketch())
    sketched = [
        error(PSparsifiedSketch(advice.size, advice.density), seed) for seed in range(5)
    ]
    assert np.mean(sketched) < 1.05 * exact


def test_the_size_of_rows_and_of_their_spectrum():
    X = points(300)
    advice = recommend_size(X, "laplacian", 1e-2, random_state=0)
    again = recommend_size(spectrum(X, "laplacian", random_state=0), alpha=1e-2)
    assert advice[:-1] == again[:-1]
    assert recommend_size(X, alpha=1e-2).spectrum.kernel == GaussianKernel().resolve(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "`alpha` must be in"),
        ({"density": 1.5}, "`density` must be in"),
        ({"guarantee": "none"}, "`guarantee` must be one of .*'satisfiable'"),
        ({"noise": -1.0}, "`noise` must be in"),
        ({"kernel": "gaussian"}, "`kernel` must be None for a spectrum"),
    ],
    ids=str,
)
def test_wrong_arguments_of_the_size(options, message):
    with pytest.raises(ValueError, match=message):
        recommend_size(spectrum(points(20)), **options)


# the picture ------------------------------------------------------------------------


def test_plot():
    mu = spectrum(points(), GaussianKernel(1.5))
    _, (left, right) = pyplot.subplots(1, 2)
    assert plot_spectrum(mu, ax=left) is left
    plot_spectrum(mu, size=40, noise=0.1, ax=right)
    pyplot.close("all")
    drawn, radius, dimension = left.lines
    found = mu.values[mu.values > 1e-12 * mu.values[0]]
    assert_array_equal(drawn.get_ydata(), found)
    assert_array_equal(drawn.get_xdata(), np.arange(1, len(found) + 1))
    assert_allclose(radius.get_ydata(), critical_radius(mu) ** 2)
    assert_array_equal(dimension.get_xdata(), statistical_dimension(mu))
    assert_array_equal(right.lines[3].get_xdata(), 40)
    assert left.get_xscale() == left.get_yscale() == "log"
    with pytest.raises(ValueError, match="`size` must be at least 1"):
        plot_spectrum(mu, size=0)


def test_a_plot_makes_its_own_axes():
    ax = plot_spectrum(spectrum(points(20)))
    assert pyplot.get_fignums() == [ax.figure.number]
    pyplot.close("all")


def test_no_matplotlib_is_said(monkeypatch):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="nbsketch\\[plot\\]"):
        plot_spectrum(spectrum(points(10)))


# shares of draws --------------------------------------------------------------------


def test_shares_of_draws(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(satisfiability, "N_ROWS", 100)
    monkeypatch.setattr(satisfiability, "SIZES", [(), (5, 100)])
    command = ["reproduce", "satisfiability", "--quick", "--out", str(tmp_path)]
    assert cli.main([*command, "--replicates", "3"]) == 0
    assert "accumulation" in capsys.readouterr().out
    rows = _report.read_csv(tmp_path / "satisfiability.csv")
    families = satisfiability.SKETCHES
    assert len(rows) == 2 * len(families) * 2
    for row in rows:
        assert row["draws"] == 3
        assert row["share"] <= min(row["distortion"], row["leakage"])
        if row["size"] == 5:
            assert row["share"] == 0
    # all rows, each once: an orthogonal matrix
    every = [
        row for row in rows if (row["sketch"], row["size"]) == ("sub-sampling", 100)
    ]
    assert [row["share"] for row in every] == [1, 1]
    picture = (tmp_path / "satisfiability.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 30_000
    monkeypatch.setattr(satisfiability, "measure", None)
    assert satisfiability.run(out=tmp_path, plot_only=True) == rows
