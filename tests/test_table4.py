"""Table 4: growth of time and memory of sketched products."""

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose

from nbsketch import GaussianKernel, cli
from nbsketch.reproduce import _figures, _report, experiment
from nbsketch.reproduce.p_sparsified import table4
from nbsketch.reproduce.p_sparsified.table4 import FAMILIES


@pytest.fixture
def tiny(monkeypatch):
    grid = {"rows": (200, 300, 400), "size": 10, "sizes": (5, 10, 15), "n": 200}
    monkeypatch.setattr(table4, "GRIDS", [{}, {"columns": grid, "all": grid}])
    monkeypatch.setattr(table4, "_SHORTEST", 1e-3)
    monkeypatch.setattr(_figures, "DPI", 60)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_products_are_what_they_are_called(name):
    X = np.random.default_rng(0).normal(size=(150, table4.N_FEATURES))
    sketch = FAMILIES[name].recipe(12).draw(150, 0)
    width = np.sqrt(2 * table4.N_FEATURES)
    K = reference.kernel_matrix(GaussianKernel(width), X, X)
    S = reference.dense_sketch(sketch)
    found = {
        product: table4._product(product, X, sketch)() for product in table4.PRODUCTS
    }
    assert_allclose(found["S K"], S @ K, rtol=0, atol=1e-10)
    assert_allclose(found["S K S^T"], S @ K @ S.T, rtol=0, atol=1e-9)


def test_power_laws_are_recovered():
    rows = [
        {
            "sketch": name,
            "product": product,
            "scan": scan,
            "n": n,
            "s": s,
            "seconds": 1e-6 * n**2 * s**0.5,
            "megabytes": n * s,
        }
        for name in FAMILIES
        for product in table4.PRODUCTS
        for scan, points in (
            ("n", [(n, 7) for n in (100, 200, 400)]),
            ("s", [(100, s) for s in (10, 30, 70)]),
        )
        for n, s in points
    ]
    table = table4.summarize(rows)
    assert len(table) == 2 * len(FAMILIES)
    first = table[0]
    assert first["time, n"] == "2.00 ± 0.00 [1; 1]"
    assert first["time, s"] == "0.50 ± 0.00 [1; 1]"
    assert first["memory, n"] == first["memory, s"] == "1.00 ± 0.00 [1; 1]"
    found = {row["sketch"]: row["time, s"] for row in table if row["product"] == "S K"}
    assert found["p-SR, p = 20/n"] == "0.50 ± 0.00 [1; 2]"  # ours; the paper's
    assert found["SRHT"] == "0.50 ± 0.00 [0]"  # not in the paper
    assert table[1]["time, s"].endswith("[2; 2]")


def test_interval_of_a_slope():
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    exponent, half_width = _report.log_log_slope(x, x * [1.1, 1, 1, 1.1])
    fit, covariance = np.polyfit(np.log(x), np.log(x * [1.1, 1, 1, 1.1]), 1, cov=True)
    assert_allclose(exponent, fit[0])
    assert_allclose(half_width, 4.3027 * np.sqrt(covariance[0, 0]), rtol=1e-4)
    assert _report.log_log_slope(x, np.ones(4)) == (0, 0)


def test_memory_and_time_of_a_call(monkeypatch):
    assert_allclose(table4._peak(lambda: np.ones(10**6)), 8, rtol=0.01)
    # Only calls advance the clock; the first one compiles, a later one is disturbed.
    durations = [5.0, 0.1, 0.9, *[0.1] * 100]
    clock, calls = [0.0], []

    def call():
        clock[0] += durations[len(calls)]
        calls.append(None)

    monkeypatch.setattr(table4, "_SHORTEST", 1.0)
    monkeypatch.setattr(table4.time, "process_time", lambda: clock[0])
    assert_allclose(table4._seconds(call, replicates=2), 0.1)
    assert len(calls) in (2 + 2 * 9, 2 + 2 * 10)  # short ones are repeated


def test_small_measurement(tiny, tmp_path, capsys):
    command = ["reproduce", "table4", "--quick", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    assert "SRHT" in capsys.readouterr().out
    rows = _report.read_csv(tmp_path / "table4.csv")
    assert len(rows) == len(FAMILIES) * 2 * 6
    assert all(row["seconds"] >= 0 and row["megabytes"] > 0 for row in rows)
    # at least the result itself
    assert all(
        row["megabytes"] >= 8e-6 * row["s"] * row["n"]
        for row in rows
        if row["product"] == "S K"
    )
    picture = (tmp_path / "table4.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


def test_from_the_file_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "save_panels", lambda *arguments: None)
    table = table4.run(quick=True, out=tmp_path)
    monkeypatch.setattr(experiment, "measure_all", None)
    assert table4.run(out=tmp_path, plot_only=True) == table
