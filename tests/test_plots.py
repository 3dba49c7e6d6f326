"""Plots: what is drawn is what the model predicts, on the axes that were passed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nbsketch import (
    AutoSize,
    JointQuantileRegressor,
    SketchedKernelRegressor,
    SpectralFilterRegressor,
    plots,
)
from nbsketch.model_selection import CrossValidation

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(300, 1))
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=300)


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.fixture(scope="module")
def quantiles():
    levels = (0.1, 0.5, 0.9)
    model = JointQuantileRegressor(levels, bandwidth=1.0, size=20, random_state=0)
    return model.fit(X, Y)


def test_quantiles_are_bands_around_the_middle_level(quantiles, ax):
    assert plots.plot_quantiles(quantiles, X, Y, ax=ax) is ax
    points, middle = ax.lines
    assert_array_equal(points.get_ydata(), Y)
    order = np.argsort(X[:, 0])
    assert_array_equal(middle.get_ydata(), quantiles.predict(X)[order, 1])
    (band,) = ax.collections
    edges = band.get_paths()[0].vertices[:, 1]
    assert edges.min() == quantiles.predict(X)[:, 0].min()
    assert edges.max() == quantiles.predict(X)[:, 2].max()
    assert ax.get_legend_handles_labels()[1] == ["target", "0.1 to 0.9", "0.5"]


def test_intervals_are_those_of_the_model(quantiles, ax):
    plots.plot_intervals(quantiles, X, Y, coverage=0.8, ax=ax)
    intervals = quantiles.predict_interval(X, coverage=0.8)
    inside = (intervals[:, 0] <= Y) & (intervals[:, 1] >= Y)
    assert ax.get_title().startswith(f"Empirical coverage {inside.mean():.1%}")
    drawn = np.array([path.vertices[:, 1] for path in ax.collections[0].get_paths()])
    assert drawn.shape == (60, 2)
    assert {tuple(row) for row in drawn} <= {tuple(row) for row in intervals}
    assert sum(len(line.get_ydata()) for line in ax.lines) == 60


@pytest.mark.parametrize("name", ["predict_interval", "quantiles_"])
def test_models_without_intervals_are_told(name, ax):
    plot = plots.plot_quantiles if name == "quantiles_" else plots.plot_intervals
    model = SketchedKernelRegressor(bandwidth=1.0, alpha=1e-2).fit(X, Y)
    with pytest.raises(TypeError, match=f"`model` must have `{name}`, got Sketched"):
        plot(model, X, Y, ax=ax)


def test_sizes_are_the_path_of_the_fit(ax):
    rule = AutoSize(start=5, max_size=40, tol=0.0)
    model = SketchedKernelRegressor(size=rule, bandwidth=1.0, random_state=0).fit(X, Y)
    plots.plot_sizes(model, ax=ax)
    assert_array_equal(ax.lines[0].get_xdata(), model.size_path_["size"])
    assert_array_equal(ax.lines[0].get_ydata(), model.size_path_["loss"])
    assert ax.lines[1].get_xdata()[0] == model.size_
    fixed = SketchedKernelRegressor(size=5, bandwidth=1.0).fit(X, Y)
    with pytest.raises(ValueError, match='fitted with size="auto"'):
        plots.plot_sizes(fixed)


def test_penalties_of_a_cross_validation_mark_the_least(ax):
    errors = np.array([[[3.0], [2.0]], [[1.0], [4.0]]])
    found = CrossValidation(np.array([0.5, 1.0]), np.array([1e-2, 1e-4]), errors)
    plots.plot_penalties(found, ax=ax)
    first, second, mark = ax.lines
    assert_array_equal(first.get_data(), [[1e-4, 1e-2], [2.0, 3.0]])
    assert second.get_label() == "bandwidth 1"
    assert_array_equal(mark.get_data(), [[1e-2], [1.0]])


def test_penalties_of_a_filter_are_its_path(ax):
    model = SpectralFilterRegressor(bandwidth=1.0, size=20, random_state=0).fit(X, Y)
    plots.plot_penalties(model, ax=ax)
    assert ax.lines[-1].get_xdata()[0] == pytest.approx(model.alpha_)
    with pytest.raises(ValueError, match="`result` must be the result of"):
        plots.plot_penalties(model.set_params(alpha=1.0).fit(X, Y))


def test_shapley_values_are_drawn_where_they_are(ax):
    values = X * [1.0, 3.0] + [0.0, 1.0]
    plots.plot_shapley_summary(values, np.hstack([X, -X]), ["a", "b"], ax=ax)
    first, second = ax.collections
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["b", "a"]
    assert_allclose(np.sort(first.get_offsets()[:, 0]), np.sort(values[:, 1]))
    assert_allclose(np.sort(second.get_offsets()[:, 0]), np.sort(values[:, 0]))
    assert abs(first.get_offsets()[:, 1]).max() <= 0.5
    with pytest.raises(ValueError, match="`values` must have the shape of X"):
        plots.plot_shapley_summary(values, X)


def test_shapley_values_of_a_row_are_bars(ax):
    plots.plot_shapley_row([1.0, -3.0, 0.5], 2.0, ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [-3.0, 1.0, 0.5]
    assert ax.get_title() == "f(x) = 0.5 = 2 + sum of values"


def test_dependence_is_of_one_feature(ax):
    plots.plot_shapley_dependence(np.sin(X), X, ax=ax)
    assert_array_equal(ax.lines[0].get_data(), [X[:, 0], np.sin(X[:, 0])])
    with pytest.raises(ValueError, match="`feature` must be"):
        plots.plot_shapley_dependence(X, X, 1, ax=ax)


def test_displays_keep_what_they_draw_and_draw_it_again(quantiles, ax):
    from matplotlib import pyplot

    shown = plots.QuantileDisplay.from_estimator(quantiles, X, Y, ax=ax)
    assert shown.ax_ is ax
    assert_array_equal(shown.quantiles, quantiles.predict(X))
    given = plots.QuantileDisplay.from_predictions(
        X[:, 0], shown.quantiles, shown.levels, Y
    )
    for mine, theirs in zip(given.ax_.lines, ax.lines, strict=True):
        assert_array_equal(mine.get_ydata(), theirs.get_ydata())
    ends = quantiles.predict_interval(X, coverage=0.8)
    intervals = plots.IntervalDisplay.from_predictions(Y, ends, coverage=0.8)
    first = intervals.ax_
    assert intervals.plot().ax_ is not first
    assert intervals.ax_.get_title() == first.get_title()
    for drawn in (given, intervals):
        pyplot.close(drawn.ax_.figure)
    pyplot.close(first.figure)


def test_displays_name_what_has_another_shape():
    with pytest.raises(ValueError, match="`intervals` must have shape"):
        plots.IntervalDisplay.from_predictions(Y, Y, coverage=0.8)
    draw = plots.QuantileDisplay.from_predictions
    with pytest.raises(ValueError, match="`quantiles` must have shape"):
        draw(Y, X, [0.1, 0.9])
    with pytest.raises(ValueError, match="`y` must have shape"):
        draw(Y[:2], np.eye(2), [0.1, 0.9], Y)


def test_without_axes_a_new_figure(quantiles):
    from matplotlib import pyplot

    before = len(pyplot.get_fignums())
    ax = plots.plot_quantiles(quantiles, X)
    assert len(pyplot.get_fignums()) == before + 1
    pyplot.close(ax.figure)


def test_dollars_in_names_are_drawn_as_they_are(ax):
    names = ["price $_{", "$a$b_{", "x"]
    values = np.array([[1.0, -2.0, 0.5]] * 3)
    for plot in (
        lambda ax: plots.plot_shapley_row(values[0], 0.0, names, ax=ax),
        lambda ax: plots.plot_shapley_summary(values, values, names, ax=ax),
        lambda ax: plots.plot_shapley_dependence(values, values, 1, names, ax=ax),
    ):
        ax.clear()
        plot(ax)
        ax.figure.canvas.draw()
        texts = [ax.get_xlabel(), *(t.get_text() for t in ax.get_yticklabels())]
        assert r"\$a\$b_{" in texts


def test_dollars_in_columns_are_drawn_as_they_are(ax):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"$a$b_{": X[:, 0], "$c$d_{": Y})
    learned = SketchedKernelRegressor(size=30, random_state=0).fit(table, Y)
    plots.plot_length_scales(learned, ax=ax)
    ax.figure.canvas.draw()
    assert r"\$c\$d_{" in [text.get_text() for text in ax.get_yticklabels()]
