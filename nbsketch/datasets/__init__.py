"""Data sets of the papers and others, each as a `Dataset`, and synthetic ones.

A ``load_`` function searches for files in ``data_home=``, in the folder of the
environment variable NBSKETCH_DATA, and in ``nbsketch`` in scikit-learn's data folder.
If they are not found, it downloads them, if possible and not forbidden by
``download=False``. A folder has one folder for each set, as in ``rf1/rf1-train.arff``;
text files may be gzipped. Importing this module imports neither scikit-learn nor numba.
"""

from nbsketch.datasets import mulan, tables
from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import Loader
from nbsketch.datasets.synthetic import (
    DiagonalDesign,
    make_documents,
    make_friedman_outliers,
)

# The loader of each set of the table file: load_abalone, load_adult, ....
_LOADERS = {
    loader.__name__: loader for loader in (tables.LOADERS | mulan.LOADERS).values()
}
globals().update(_LOADERS)
__all__ = [
    "Dataset",
    "DiagonalDesign",
    "make_documents",
    "make_friedman_outliers",
    *sorted(_LOADERS),
]


def __getattr__(name: str) -> Loader:
    """Refuse other names; it tells type checkers that there are loaders."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
