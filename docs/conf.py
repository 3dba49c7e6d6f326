"""How Sphinx builds this documentation; see docs/contributing.rst for the command."""

import os
import sys
from importlib.metadata import distribution
from pathlib import Path

# The figures are small: threads of BLAS would wait for each other. Before NumPy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import nbsketch

project = "nbsketch"
author = "The nbsketch developers"
copyright = author
release = version = nbsketch.__version__

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]
default_role = "autolink"
nitpicky = False

html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "logo": {"text": "nbsketch"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
toc_object_entries_show_parents = "hide"
# MathJax in one file, copied into the site: formulas need no network.
_MATHJAX = distribution("django-static-mathjax").locate_file(
    "mathjax/static/mathjax/es5/tex-svg-full.js"
)
mathjax_path = "tex-svg-full.js"
html_static_path = ["_static", str(_MATHJAX)]
html_css_files = ["site.css"]
html_title = f"nbsketch {release}"
html_sidebars = {"comparison": [], "reproduction": []}
html_show_sourcelink = False

autosummary_generate = True
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
numpydoc_show_class_members = False
numpydoc_use_plots = False

plot_formats = [("png", 110)]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_include_source = True
plot_rcparams = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 9.0,
    "legend.frameon": False,
}
plot_apply_rcparams = True


def _skip(app, what, name, obj, skip, options):
    """Leave out what scikit-learn wrote, and the fields of named tuples."""
    text = getattr(obj, "__doc__", None) or ""
    foreign = (getattr(obj, "__module__", None) or "").startswith("sklearn")
    return skip or foreign or text.startswith("Alias for field number")


def setup(app):
    """Connect the hook above."""
    app.connect("autodoc-skip-member", _skip)
