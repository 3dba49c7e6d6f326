"""The front page and the README show the present measurements."""

import runpy
import shutil
import sys

import pytest
from conftest import ROOT

from nbsketch.reproduce._report import read_csv, write_csv
from nbsketch.reproduce.tabular.summary import front_tables

RESULTS = ROOT / "docs" / "results"
TABLE = RESULTS / "unseen-front.csv"


def test_the_table_is_that_of_the_results(tmp_path):
    """If not: nbsketch reproduce unseen --plot-only --out docs/results."""
    table = front_tables(read_csv(RESULTS / "unseen.csv"))["front"]
    write_csv(table, tmp_path / "front.csv")
    expected = (tmp_path / "front.csv").read_text("utf-8")
    assert TABLE.read_text("utf-8") == expected


def test_the_picture_is_that_of_the_table(tmp_path, monkeypatch):
    """If not: python docs/gallery/plot_front.py docs."""
    pytest.importorskip("matplotlib").use("agg")
    for name in ("results", "_static"):
        (tmp_path / name).mkdir()
    shutil.copy(TABLE, tmp_path / "results")
    script = ROOT / "docs" / "gallery" / "plot_front.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
    runpy.run_path(str(script))
    found = (tmp_path / "_static" / "front.svg").read_text("utf-8")
    committed = (ROOT / "docs" / "_static" / "front.svg").read_text("utf-8")
    texts = [
        svg.split("<dc:description>")[1].split("</")[0] for svg in (found, committed)
    ]
    assert texts[0] == texts[1] == TABLE.read_text("utf-8").partition("\n")[2].strip()


def test_the_readme_has_the_table():
    readme = (ROOT / "README.md").read_text("utf-8")
    for line in TABLE.read_text("utf-8").splitlines()[1:]:
        assert f"| {line.replace(',', ' | ')} |" in readme
