"""The check of the built site finds what is wrong with one."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "check_site.py"
GOOD = {
    "index.html": '<a href="a.html#part">A</a><link rel="stylesheet" href="s.css?v=1">',
    "a.html": '<h1 id="part"></h1><a href="sub/b.html">B</a><a href="#part">up</a>',
    "sub/b.html": '<a href="../a.html">A</a><a href="https://example.org/x">out</a>',
    "s.css": "body { background: url('picture.png') }",
}


@pytest.fixture
def site():
    spec = importlib.util.spec_from_file_location("check_site", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(site, folder, **changes):
    for name, text in (GOOD | changes).items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return site.check(folder, {"B": "sub/b.html"})[0]


def test_a_good_site(site, tmp_path):
    assert check(site, tmp_path) == []


@pytest.mark.parametrize(
    ("page", "text", "problem"),
    [
        ("a.html", '<a href="c.html">C</a>', "no such file"),
        ("sub/b.html", '<a href="../a.html#other">A</a>', "no such anchor"),
        ("sub/b.html", '<script src="https://example.org/x.js"></script>', "loads"),
        ("sub/b.html", '<img src="//example.org/x.png">', "loads"),
        ("sub/b.html", '<img src="missing.png">', "no such file"),
        ("s.css", "@import 'https://example.org/font.css';", "loads"),
        ("a.html", '<h1 id="part"></h1>', "no clicks"),
    ],
)
def test_problems_are_found(site, tmp_path, page, text, problem):
    assert any(problem in line for line in check(site, tmp_path, **{page: text}))


def test_pages_too_many_clicks_away(site, tmp_path):
    steps = {f"{k}.html": f'<a href="{k + 1}.html">next</a>' for k in range(3)}
    steps["index.html"] = '<a href="0.html">start</a>'
    steps["3.html"] = '<a href="a.html">A</a>'
    (line,) = check(site, tmp_path, **steps)
    assert "clicks from the front page" in line


def test_the_user_guide_is_short():
    """At most 22 pages and 25,000 words: measurements belong to the design notes."""
    text = (FILE.parent / "user_guide.rst").read_text("utf-8")
    pages = re.findall(r"^   (\w+)$", text, re.M)
    words = sum(
        len((FILE.parent / f"{p}.rst").read_text("utf-8").split()) for p in pages
    )
    assert len(pages) <= 22 and words <= 25_000


@pytest.mark.parametrize("book", ["user_guide", "design_notes"])
def test_the_table_of_a_book_has_its_pages(book):
    text = (FILE.parent / f"{book}.rst").read_text("utf-8")
    pages = re.findall(r"^   (\w+)$", text, re.M)
    assert pages and all(f":doc:`{page}`" in text for page in pages)


def test_the_extra_of_the_documentation_has_what_the_gallery_imports():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["docs"]
    installed = {re.match(r"[\w-]+", line)[0] for line in lines}
    installed |= {"nbsketch", "sklearn"} | sys.stdlib_module_names
    for path in (ROOT / "docs" / "gallery").glob("*.py"):
        imported = re.findall(r"(?m)^(?:import|from) (\w+)", path.read_text("utf-8"))
        assert set(imported) <= installed, path
