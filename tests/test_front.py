"""The front page and the README show the present measurements."""

import os
import runpy
import shutil
import sys

import pytest
from conftest import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    """Return the picture and the table as the script makes them."""
    pytest.importorskip("matplotlib").use("agg")
    folder = tmp_path_factory.mktemp("docs")
    for name in ("results", "_static"):
        os.mkdir(folder / name)
    shutil.copy(DOCS / "results" / "unseen.csv", folder / "results")
    script, before = DOCS / "gallery" / "plot_front.py", sys.argv
    sys.argv = [str(script), str(folder)]
    try:
        runpy.run_path(str(script))
    finally:
        sys.argv = before
    names = "_static/front.svg", "results/unseen-front.csv"
    return [(folder / name).read_text("utf-8") for name in names]


def test_table_and_picture_are_those_of_the_results(front):
    """If not: python docs/gallery/plot_front.py docs, and the table of the README."""
    picture, table = front
    assert (DOCS / "results" / "unseen-front.csv").read_text("utf-8") == table
    start, end = "<dc:description>", "</dc:description>"
    expected = picture.split(start)[1].split(end)[0]
    committed = (DOCS / "_static" / "front.svg").read_text("utf-8")
    assert committed.split(start)[1].split(end)[0] == expected


def test_the_readme_has_the_table(front):
    readme = (ROOT / "README.md").read_text("utf-8")
    for line in front[0].split("<dc:description>")[1].split("</")[0].splitlines():
        assert f"| {line.replace(',', ' | ')} |" in readme
