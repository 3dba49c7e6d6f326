"""Data sets of the papers and others, each as a `Dataset`, and synthetic problems.

A ``load_`` function searches the folder ``data_home=``, the folder in the environment
variable NBSKETCH_DATA, and ``nbsketch`` in scikit-learn's data folder. Missing files
are downloaded if possible, unless ``download=False``. Each data set has its own folder,
as in ``rf1/rf1-train.arff``; text files may be gzipped. Importing this module imports
neither scikit-learn nor numba.
"""

from nbsketch.datasets import mulan, tables
from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import Loader
from nbsketch.datasets.synthetic import (
    DiagonalDesign,
    make_documents,
    make_friedman_outliers,
)

# Loaders of the sets in the table file: load_abalone, load_adult, ....
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
    """Raise an error for other names; tells type checkers that loaders exist."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
