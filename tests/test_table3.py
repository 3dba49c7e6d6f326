"""Table 3: growth of the critical radius and of the statistical dimension."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import cli
from nbsketch.reproduce import _figures, _report, experiment
from nbsketch.reproduce.p_sparsified import table3

ORDERS = {"radius": -0.75, "dimension": 0.25, "risk": -0.5, "vector_risk": -1.0}
ORDERS["fourier_risk"] = -0.25  # of the Gaussian kernel


def power_laws(sizes=(100, 1000, 10_000), factors=(1.0, 2.0)):
    """Return rows of exact power laws, a factor for each replicate."""
    return [
        {
            "kernel": kernel,
            "n": n,
            "replicate": i,
            **{name: factor * n**power for name, power in ORDERS.items()},
        }
        for kernel in table3.CASES
        for i, factor in enumerate(factors)
        for n in sizes
    ]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(table3, "ROWS", [[], [100, 200, 400]])
    monkeypatch.setattr(table3, "LANDMARKS", 150)
    monkeypatch.setattr(table3, "_TEST_ROWS", 200)
    monkeypatch.setattr(table3, "_TEST_NOISES", 100)
    monkeypatch.setattr(_figures, "DPI", 100)


def test_power_laws_are_recovered():
    table = table3.summarize(power_laws())
    assert len(table) == 5 * len(table3.CASES) + 1
    powers = {
        "delta_n^2": -0.75,
        "d_n": 0.25,
        "learning rate": -0.375,
        "excess risk": -0.5,
        "excess risk, 3 outputs": -1.0,
        "excess risk, Fourier features": -0.25,
    }
    for row in table:
        assert_allclose(row["exponent"], powers[row["quantity"]])
        assert row["half_width"] < 1e-12
    sobolev, dimension, rate, *risks = table[-5:]
    for risk in risks:  # the theorems bound risks by the rate
        assert risk["stated_exponent"] == rate["stated_exponent"]
    assert dimension["stated_size"] == "n^(1/3) / p^2"
    assert_allclose(rate["stated_exponent"], -1 / 3)
    assert_allclose(sobolev["stated_exponent"], -2 / 3)
    # measured over stated: n^(-3/4 + 2/3) from 100 to 10,000
    assert_allclose(sobolev["drift"], 100 ** (-0.75 + 2 / 3))
    assert_allclose(sobolev["first"], 1.5 * 100**-0.75)


def test_stated_orders_of_logarithms_are_fitted_as_they_are():
    gaussian = table3.summarize(power_laws())[0]
    n = np.array([100.0, 1000.0, 10_000.0])
    slope = np.polyfit(np.log(n), np.log(np.sqrt(np.log(n)) / n), 1)[0]
    assert_allclose(gaussian["stated_exponent"], slope)
    assert -1 < slope < -0.9


def test_intervals_are_those_of_the_mean_slope():
    rows = power_laws()
    for row in rows:
        row["radius"] *= row["n"] ** (0.1 * row["replicate"])
    table = table3.summarize(rows)
    assert_allclose(table[0]["exponent"], -0.7)
    # two slopes 0.1 apart: t quantile 12.7 times the standard error 0.05
    assert_allclose(table[0]["half_width"], 12.706 * 0.05, rtol=1e-3)
    assert table3.summarize(power_laws(factors=(1.0,)))[0]["half_width"] is None


def test_small_measurement_has_the_stated_growth(tiny, tmp_path, capsys):
    command = ["reproduce", "table3", "--quick", "--replicates", "2", "--out"]
    assert cli.main([*command, str(tmp_path)]) == 0
    assert "Sobolev" in capsys.readouterr().out
    rows = _report.read_csv(tmp_path / "table3.csv")
    assert len(rows) == len(table3.CASES) * 3 * 2
    table = table3.summarize(rows)
    for row in table:
        if "risk" in row["quantity"]:
            assert row["exponent"] < row["stated_exponent"] + 0.2
            assert 0 < row["last"] < row["first"]
        elif row["quantity"] != "d_n":
            assert abs(row["exponent"] - row["stated_exponent"]) < 0.15
            assert row["last"] < row["first"]
        else:
            assert 0 <= row["exponent"] < 0.5
            assert 1 <= row["first"] <= row["last"] < 20
    picture = (tmp_path / "table3.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 30_000
    assert (tmp_path / "table3.md").read_text("utf-8").startswith("# table3")


@pytest.mark.parametrize("risk", table3.OUTPUTS)
def test_excess_risk_is_that_over_the_regression_function(risk):
    kernel = table3.CASES["Gaussian"].kernel
    X = np.random.default_rng(0).uniform(size=(300, 1))
    advice = table3.recommend_size(X, kernel, guarantee="satisfiable", noise=0.3)

    def at(alpha):
        found = advice._replace(alpha=alpha)
        return table3.excess_risk(X, kernel, risk, found, seed=0)

    # a function of norm 1 is nearly found, and 0 is far from it
    assert 0 < at(advice.alpha) < 0.1 * at(1e6)


@pytest.mark.full
def test_from_the_file_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "save_panels", lambda *arguments: None)
    table = table3.run(replicates=1, quick=True, out=tmp_path)
    monkeypatch.setattr(experiment, "measure_all", None)
    assert table3.run(out=tmp_path, plot_only=True) == table
