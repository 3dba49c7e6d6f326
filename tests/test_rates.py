"""Diagonal designs, and the measurement of rates on tiny settings."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nbsketch import (
    LinearKernel,
    PSparsifiedSketch,
    SpectralFilterRegressor,
    SubsamplingSketch,
    cli,
)
from nbsketch.datasets import DiagonalDesign
from nbsketch.reproduce import experiment, rates
from nbsketch.reproduce._report import log_log_slope
from nbsketch.solvers.filters import RidgeFilter

MODES = 40


@pytest.fixture
def small(monkeypatch):
    """Shrink the design to few modes."""
    design = DiagonalDesign(capacity=0.5, n_modes=MODES)
    monkeypatch.setattr(rates, "DESIGN", design)
    monkeypatch.setattr(rates, "_SPARE", 2)
    return design


# the design -------------------------------------------------------------------------


def midpoints(n=4 * MODES):
    """Return nodes on which means of products of two modes are exact."""
    return (np.arange(n) + 0.5) / n


@pytest.mark.parametrize("capacity", [0.3, 0.5, 0.9])
def test_covariance_of_the_features_is_diagonal(capacity):
    design = DiagonalDesign(capacity, MODES)
    X = design.features(midpoints())
    assert_allclose(design.eigenvalues, np.arange(1, MODES + 1) ** (-1 / capacity))
    assert_allclose(X.T @ X / len(X), np.diag(design.eigenvalues), atol=1e-13)


@pytest.mark.parametrize("source", [0.3, 1.0, 1.5])
def test_target(source):
    design = DiagonalDesign(0.5, MODES)
    f = design.features(midpoints()) @ design.coefficients(source)
    assert_allclose(np.mean(f**2), 1.0)
    c = design.coefficients(source) * np.sqrt(design.eigenvalues)
    g = c / design.eigenvalues**source  # f = L^source g but for the logarithm
    assert_allclose(g**2 * np.arange(1, MODES + 1), g[0] ** 2)
    assert set(np.sign(c)) == {-1, 1}


def test_effective_dimension_has_the_capacity():
    u = DiagonalDesign(0.5, 10_000).eigenvalues
    alphas = np.array([1e-3, 1e-5])
    dimensions = (u[:, None] / (u[:, None] + alphas)).sum(axis=0)
    slope = np.diff(np.log(dimensions)) / np.diff(np.log(alphas))
    assert_allclose(slope, -0.5, atol=0.01)


def test_excess_risk_is_the_mean_square_of_the_difference():
    design = DiagonalDesign(0.5, MODES)
    w = np.random.default_rng(0).normal(size=(MODES, 3))
    X = design.features(midpoints())
    f = X @ design.coefficients(1.0)
    desired = np.square(X @ w - f[:, None]).mean(axis=0)
    assert_allclose(design.excess_risk(w, 1.0), desired)
    assert_allclose(design.excess_risk(w[:, 0], 1.0), desired[0])
    assert isinstance(design.excess_risk(w[:, 0], 1.0), float)


def test_draws():
    design = DiagonalDesign(n_modes=MODES)
    X, y = design.draw(2000, 1.0, noise=0.5, random_state=1)
    noise = y - X @ design.coefficients(1.0)
    assert_allclose([noise.mean(), noise.std()], [0, 0.5], atol=0.04)
    same, clean = design.draw(2000, 0.5, noise=0.0, random_state=1)
    assert_array_equal(same, X)
    assert_allclose(clean, X @ design.coefficients(0.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiagonalDesign(capacity=1.0), r"`capacity` must be in \(0, 1\)"),
        (lambda: DiagonalDesign(n_modes=0), "`n_modes` must be at least 1"),
        (lambda: DiagonalDesign().coefficients(0.0), "`source` must be in"),
        (lambda: DiagonalDesign().draw(0), "`n_samples` must be at least 1"),
        (lambda: DiagonalDesign().draw(5, noise=-1.0), "`noise` must be in"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# risks ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rates.FILTERS)
@pytest.mark.parametrize("size", [None, 12])
def test_risks_are_means_over_the_noise_of_those_of_the_estimator(small, name, size):
    n, k = 50, 30
    sample = rates.DesignSample.draw(n, np.random.default_rng(0))
    alpha = rates._ALPHAS[k]
    recipe = SubsamplingSketch(size or n)
    model = SpectralFilterRegressor(
        LinearKernel(),
        filter=rates.FILTERS[name],
        sketch=recipe,
        alpha=alpha,
        fit_intercept=False,
        random_state=0,
    ).fit(sample.X, np.eye(n))
    # coefficients of the features for any targets: a linear map of them
    map_ = model.landmarks_.T @ model.sketch_.weights.T @ model.coef_
    basis, _ = np.linalg.qr(model.landmarks_.T)
    found = rates.filter_risks(
        sample, {"": rates.FILTERS[name]}, basis if size else None
    )[""][k]
    variance = rates.NOISE**2 * small.eigenvalues @ np.square(map_).sum(axis=1)
    for j, source in enumerate(rates.SOURCES):
        bias = small.excess_risk(map_ @ sample.targets[:, j], source)
        assert_allclose(found[j], bias + variance, rtol=1e-6)


def test_projections_are_nested_and_span_the_sketch(small):
    sample = rates.DesignSample.draw(30, np.random.default_rng(0))
    recipe = PSparsifiedSketch(10, density=0.3)
    basis = rates.projection(sample, recipe, np.random.default_rng(1))
    S = recipe.draw(30, np.random.default_rng(1))
    rows = S @ sample.X
    for size in (1, 4, 10):
        some = basis[:, :size]
        assert_allclose(some.T @ some, np.eye(size), atol=1e-12)
        assert_allclose(rows[:size] @ some @ some.T, rows[:size], atol=1e-12)


def test_rows_that_add_nothing_are_no_directions(small):
    sample = rates.DesignSample.draw(6, np.random.default_rng(0))
    sample = sample._replace(X=np.repeat(sample.X[:3], 2, axis=0))
    recipe = SubsamplingSketch(6)
    basis = rates.projection(sample, recipe, np.random.default_rng(0))
    norms = np.linalg.norm(basis, axis=0)
    assert_allclose(norms, norms.round(), atol=1e-12)
    assert_allclose(norms.sum(), 3)
    kept = basis[:, norms > 0.5]
    ridge = {"": RidgeFilter()}
    risks = rates.filter_risks(sample, ridge, basis)[""]
    assert_allclose(risks, rates.filter_risks(sample, ridge, kept)[""])


def test_rows_after_one_that_adds_nothing_are_spanned(small):
    design = rates.UnequalDesign(0.5, MODES)
    sample = rates.DesignSample.draw(40, np.random.default_rng(0), design)
    recipe = SubsamplingSketch(40)
    basis = rates.projection(sample, recipe, np.random.default_rng(0))
    assert_allclose(sample.X @ basis @ basis.T, sample.X, atol=1e-12)


def test_unequal_design_has_the_same_eigenvalues_and_other_scores(small):
    n = 50_000
    X = rates.UnequalDesign(0.5, MODES).features((np.arange(n) + 0.5) / n)
    values = small.eigenvalues
    assert_allclose(X.T @ X / n, np.diag(values), atol=1e-3)
    assert_allclose(np.square(X).sum(axis=1), values.sum())
    scores = np.square(X) @ (1 / (values + 1e-3))
    assert scores.max() > 300 * scores.min()
    even = np.square(small.features(midpoints())) @ (1 / (values + 1e-3))
    assert even.max() < 10 * even.min()


def test_first_crossing():
    sizes, values = np.array([2, 4, 8]), np.array([8.0, 2.0, 1.0])
    assert_allclose(rates.first_crossing(sizes, values, 4.0), 2 * 2**0.5)
    assert rates.first_crossing(sizes, values, 9.0) == 2
    assert_allclose(rates.first_crossing(sizes, values, 1.0), 8)
    assert rates.first_crossing(sizes, values, 0.5) is None


# slopes and tables ------------------------------------------------------------------


def test_slope_of_a_power():
    n = np.array([10.0, 20.0, 80.0])
    slope = log_log_slope(n, n**-0.7 * np.array([[1.0], [3.0], [5.0]]))
    assert_allclose(slope, (-0.7, 0.0))
    assert log_log_slope(n, n[None] ** -0.7)[1] is None


def test_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    n = 2.0 ** np.arange(6)
    slopes = [
        log_log_slope(n, np.exp(0.3 * rng.normal(size=(5, 6))) / n) for _ in range(400)
    ]
    hits = np.mean([abs(slope + 1) <= width for slope, width in slopes])
    assert 0.93 < hits < 0.97


def test_exponents_of_theory():
    assert_allclose(rates.theory("filter", "cutoff", 1.5), -3 / 3.5)
    assert_allclose(rates.theory("filter", "ridge", 1.5), -2 / 2.5)
    assert_allclose(rates.theory("filter", "ridge", 0.3), -0.6 / 1.1)
    assert_allclose(rates.theory("filter", "iterated ridge", 1.5), -3 / 3.5)
    assert_allclose(rates.theory("sgm", "II", 0.5), -1 / 1.5)
    assert_allclose(rates.theory("norm", "cutoff", 1.0), -1 / 2.5)
    assert_allclose(rates.theory("filter", "ridge", 0.2), -0.4)  # 2 zeta + gamma < 1
    assert_allclose(rates.theory("dimension", "Gaussian", 0.5), -2)
    assert_allclose(rates.theory("norm projection", "ROS", 1.5), 2 * 0.5 / 3.5)
    assert_allclose(rates.theory("norm projection", "sub-sampling", 1.0), 1 / 2.5)


def test_dimensions_of_theory_depend_on_the_sketch():
    """Corollaries 3 to 5 of Lin and Cevher: plain Nystrom needs more landmarks."""
    for source in rates.SOURCES:
        found = {s: rates.theory("projection", s, source) for s in rates.SKETCHES}
        factor = max(1, source)  # the second case of the corollaries
        decay = max(1, 2 * source + 0.5)
        sufficient = factor * 0.5 / decay
        assert_allclose(found.pop("sub-sampling"), factor / decay)
        assert len(found) == 3
        assert_allclose(list(found.values()), sufficient)


def test_measured_slopes_are_near_theory(monkeypatch):
    monkeypatch.setattr(rates, "DESIGN", DiagonalDesign(0.5, 256))
    sizes, slopes = np.array([128, 256, 512, 1024]), {}
    for name in ("ridge", "Landweber"):
        filters = {name: rates.FILTERS[name]}
        curves = [
            [
                rates.filter_risks(
                    rates.DesignSample.draw(n, np.random.default_rng([seed, n])),
                    filters,
                )[name].min(axis=0)
                for seed in range(5)
            ]
            for n in sizes
        ]
        for j, source in list(enumerate(rates.SOURCES))[2:]:  # 0.2, 0.3: more modes
            slope = log_log_slope(sizes, np.array(curves)[:, :, j].T)[0]
            slopes[name, source] = slope
            # 0.06 apart where the ridge saturates, 0.13 between sources
            assert_allclose(slope, rates.theory("filter", name, source), atol=0.05)
    saturation = slopes["ridge", 1.5] - slopes["Landweber", 1.5]
    assert 0.03 < saturation < 0.09  # 0.857 - 0.8 in theory


def test_distances_in_the_norm_of_the_space():
    """Of one fit with noise: the variance beside the squared bias, by hand."""
    sample = rates.DesignSample.draw(50, np.random.default_rng(0))
    found = rates.filter_risks(sample, {"": rates.FILTERS["ridge"]}, power=0.0)[""]
    alpha, k = rates._ALPHAS[20], rates.SOURCES.index(1.0)
    inverse = np.linalg.inv(sample.gram + alpha * np.eye(len(sample.gram)))
    bias = inverse @ sample.cross[:, k] - rates.DESIGN.coefficients(1.0)
    noise = rates.NOISE**2 / 50 * np.trace(inverse @ sample.gram @ inverse)
    assert_allclose(found[20, k], bias @ bias + noise, rtol=1e-6)


def test_added_risks_vanish_on_all_directions(small, monkeypatch):
    """A projection adds what it loses: nothing if it spans the rows."""
    monkeypatch.setattr(rates, "_FIXED_ROWS", 60)
    monkeypatch.setattr(rates, "_FIXED_DIMENSIONS", (3, 12, 60))
    sample = rates.DesignSample.draw(60, np.random.default_rng(0))
    exact = rates.filter_risks(sample, rates.FILTERS)["ridge"]
    found = {}
    for size, name, source, value in rates._added(
        sample, exact, np.random.default_rng(1)
    ):
        found[name, source, size] = value
    assert len(found) == 4 * 4 * 3
    for name in rates.SKETCHES:
        for k, source in enumerate((0.2, 0.3, 0.5, 1.0)):
            least = exact.min(axis=0)[k]
            few, some, all_rows = (found[name, source, m] for m in (3, 12, 60))
            assert few > some > -0.1 * least  # a projection shrinks as well
            assert abs(all_rows) < 1e-6 * least


def test_run(small, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(rates, "SIZES", [[32, 64]])
    monkeypatch.setattr(rates, "_FIXED_ROWS", 64)
    drawn = []
    monkeypatch.setattr(
        experiment, "save_panels", lambda panels, *_: drawn.extend(panels)
    )
    table = rates.run(replicates=2, out=tmp_path)
    printed = capsys.readouterr().out
    assert "cutoff" in printed and "p-sparsified" in printed
    keys = [(row["part"], row["series"], row["source"]) for row in table]
    parts = [part for part, _, _ in keys]
    assert len(set(keys)) == len(keys)
    assert parts.count("filter") == 4 * 5 and parts.count("sgm") == 2 * 4 * 2
    # four sketches, sources up to 1, if the dimensions add to the risk
    assert 0 < parts.count("dimension") <= 4 * 4
    # sources 1 and 1.5, for which ridge regression is not qualified
    assert parts.count("norm") == 4 + 3
    # few rows, not always enough; most for smooth targets
    projected = {source for part, _, source in keys if part == "projection"}
    assert {0.5, 1.0, 1.5} <= projected <= {*rates.SOURCES}
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".json", ".md"}
    unequal = {source for part, _, source in keys if part == "unequal"}
    added = {source for part, _, source in keys if part == "dimension"}
    normed = {source for part, _, source in keys if part == "norm projection"}
    assert normed == {1.0, 1.5}
    assert len(drawn) == 5 + 2 + len(projected) + 2 + len(unequal) + 2 + len(added)
    assert [curve.label for curve in drawn[0].curves][-1] == "theory"
    panel = {panel.title: panel for panel in drawn}["Projection, zeta = 0.5"]
    lines = {curve.label: curve for curve in panel.curves}
    for label, sketch in (
        ("theory, sub-sampling", "sub-sampling"),
        ("theory", "leverage"),
    ):
        slope = log_log_slope(lines[label].x, lines[label].y)[0]
        assert_allclose(slope, rates.theory("projection", sketch, 0.5))
    assert all(row["slope"] < 0 for row in table if row["part"] == "filter")
    risks = {key: row["last"] for key, row in zip(keys, table, strict=True)}
    for regime in rates.REGIMES:
        ratio = risks["sgm", regime, 0.5] / risks["filter", "Landweber", 0.5]
        assert 0.3 < ratio < 3
    assert rates.run(out=tmp_path, plot_only=True) == table


def test_sizes_where_no_dimension_is_enough_are_left_out():
    values = [
        {"part": "projection", "series": "s", "source": 0.5, "n": n, "value": value}
        for n, value in [
            (8, 3.0),
            (8, 4.0),
            (16, None),
            (16, 9.0),
            (32, 6.0),
            (32, 8.0),
        ]
    ]
    ((_, (sizes, curves)),) = rates._curves(values)
    assert_array_equal(sizes, [8, 32])
    assert_array_equal(curves, [[3, 6], [4, 8]])


def test_command(monkeypatch, capsys):
    asked = {}

    def run(replicates, quick, out, plot_only):
        asked.update(replicates=replicates, quick=quick, out=out, plot_only=plot_only)

    monkeypatch.setattr(rates, "run", run)
    assert cli.main(["reproduce", "rates", "--quick", "--replicates", "1"]) == 0
    assert asked == {"replicates": 1, "quick": True, "out": None, "plot_only": False}
    assert cli.main(["reproduce", "rates", "--tuning", "x"]) == 1
    assert "--tuning is not an option of rates" in capsys.readouterr().err
