"""How Sphinx builds this documentation; see docs/contributing.rst for the command."""

import os
import sys
from importlib.metadata import distribution
from pathlib import Path

# The figures are small: threads of BLAS would wait for each other. Before NumPy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import nbsketch

project = "nbsketch"
author = "The nbsketch developers"
copyright = author
release = version = nbsketch.__version__

extensions = [
    "numpydoc",
    "results",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
# Functions in the settings of the gallery cannot be pickled, which is no matter.
suppress_warnings = ["config.cache"]
exclude_patterns = ["_build", "_templates", "gallery", "results", "auto_results"]
default_role = "autolink"
nitpicky = False

html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "logo": {
        "text": "nbsketch",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
    },
    "navbar_align": "left",
    "header_links_before_dropdown": 5,
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
html_favicon = "_static/logo.svg"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
html_title = f"nbsketch {release}"
html_sidebars = {"comparison": [], "reproduction": []}
html_show_sourcelink = False

autosummary_generate = True
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
numpydoc_show_class_members = False
numpydoc_use_plots = False


def _draw_style(gallery_conf, name):
    """Give every example the same look."""
    import matplotlib

    matplotlib.rcParams.update(
        {
            "axes.spines.right": False,
            "axes.spines.top": False,
            "font.size": 9.0,
            "legend.frameon": False,
        }
    )


sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "reset_modules": ("matplotlib", _draw_style),
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": "",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e6,
    "image_srcset": ["2x"],
    "remove_config_comments": True,
    "backreferences_dir": None,
    "write_computation_times": False,
    "abort_on_example_error": True,
}


def _skip(app, what, name, obj, skip, options):
    """Leave out what scikit-learn wrote, and the fields of named tuples."""
    text = getattr(obj, "__doc__", None) or ""
    foreign = (getattr(obj, "__module__", None) or "").startswith("sklearn")
    return skip or foreign or text.startswith("Alias for field number")


def setup(app):
    """Connect the hook above."""
    app.connect("autodoc-skip-member", _skip)
