"""Check a built site without a network: links, resources, clicks from the front page.

Usage: python docs/check_site.py docs/_build/html
"""

import re
import sys
from collections import deque
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

# What a reader looks for, and the page that has it.
WANTED = {
    "a robust fit": "robust.html",
    "80 % intervals": "quantiles.html",
    "probabilities of three classes": "classification.html",
    "a fit of ten million rows": "large_data.html",
    "Table 2": "reproduction.html",
    "quantiles for a time series": "dependent_rows.html",
    "5 GB of Parquet": "large_data.html",
    "how sure a prediction is": "conformal.html",
    "a service with a model": "deployment.html",
    "how to cite": "faq.html",
}
MOST_CLICKS = 2
_LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "srcset")}
_NOT_LOADED = {"canonical", "next", "prev", "index", "search", "author", "help"}
_IN_CSS = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class Page(HTMLParser):
    """Links, loaded resources and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.resources, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Note what a tag links to, loads or names."""
        known = {name: value or "" for name, value in attributes}
        self.anchors |= {known[key] for key in ("id", "name") if key in known}
        if tag == "a" and known.get("href"):
            self.links.append(known["href"])
        if known.get("rel") in _NOT_LOADED:
            return
        self.resources += [
            part.split()[0]
            for kind, key in _LOADED
            if tag == kind and known.get(key)
            for part in known[key].split(",")
            if not known[key].startswith("data:")
        ]


def is_external(address):
    """Return whether an address leaves the site."""
    return bool(urlsplit(address).netloc)


def read_site(folder):
    """Return the pages of a site by their resolved paths, not those of the theme."""
    return {
        path.resolve(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.html"))
        if "_static" not in path.parts
    }


def target_of(page, address):
    """Return the file and the anchor of an address on a page."""
    path, anchor = urldefrag(address)
    file = page.parent / unquote(urlsplit(path).path) if path else page
    return file.resolve(), unquote(anchor)


def broken_links(pages):
    """Yield a line for each link within the site that leads nowhere."""
    for page, content in pages.items():
        for address in content.links + content.resources:
            if urlsplit(address).scheme or is_external(address):
                continue
            file, anchor = target_of(page, address)
            if not file.exists():
                yield f"{page.name}: {address}: no such file"
            elif anchor and file in pages and anchor not in pages[file].anchors:
                yield f"{page.name}: {address}: no such anchor"


def external_resources(folder, pages):
    """Yield a line for each thing that a page or style would load from a network."""
    for page, content in pages.items():
        for address in filter(is_external, content.resources):
            yield f"{page.name}: loads {address}"
    for path in folder.rglob("*.css"):
        for address in _IN_CSS.findall(path.read_text(encoding="utf-8")):
            yield f"{path.name}: loads {address}"


def clicks(pages, start):
    """Return the least number of clicks from a page to each page of the site."""
    found, queue = {start: 0}, deque([start])
    while queue:
        page = queue.popleft()
        for address in pages[page].links:
            file, _ = target_of(page, address)
            if not is_external(address) and file in pages and file not in found:
                found[file] = found[page] + 1
                queue.append(file)
    return found


def far_pages(folder, pages, wanted):
    """Yield a line for each wanted page that is too many clicks away."""
    found = clicks(pages, (folder / "index.html").resolve())
    for what, name in wanted.items():
        count = found.get((folder / name).resolve())
        if count is None or count > MOST_CLICKS:
            yield f"{what}: {name} is {count or 'no'} clicks from the front page"


def check(folder, wanted=WANTED):
    """Return all that is wrong with a site, and its number of pages."""
    pages = read_site(folder)
    wrong = [*broken_links(pages), *external_resources(folder, pages)]
    return wrong + list(far_pages(folder, pages, wanted)), len(pages)


if __name__ == "__main__":
    wrong, count = check(Path(sys.argv[1]))
    print(*wrong, f"{count} pages, {len(wrong)} problems", sep="\n")
    sys.exit(bool(wrong))
