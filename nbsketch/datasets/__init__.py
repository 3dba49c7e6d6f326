"""Data sets of the papers and others, each as a `Dataset`, and synthetic ones.

A ``load_`` function searches for files in ``data_home=``, in the folder of the
environment variable NBSKETCH_DATA, and in ``nbsketch`` in scikit-learn's data folder.
If they are not found, it downloads them, if possible and not forbidden by
``download=False``. A folder has one folder for each set, as in ``rf1/rf1-train.arff``;
text files may be gzipped. Importing this module imports neither scikit-learn nor numba.
"""

from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets.mulan import (
    load_bibtex,
    load_bookmarks,
    load_mediamill,
    load_rf1,
    load_rf2,
    load_scm1d,
    load_scm20d,
)
from nbsketch.datasets.otoliths import load_otoliths
from nbsketch.datasets.synthetic import (
    DiagonalDesign,
    make_documents,
    make_friedman_outliers,
)
from nbsketch.datasets.tables import (
    load_abalone,
    load_adult,
    load_airfoil,
    load_autompg,
    load_boston,
    load_california,
    load_concrete,
    load_elevators,
    load_german,
    load_horse_colic,
    load_ionosphere,
    load_keggdirected,
    load_parkinsons,
    load_phoneme,
    load_pol,
    load_powerplant,
    load_skillcraft,
    load_sml,
    load_stock,
    load_yacht,
)

__all__ = [
    "Dataset",
    "DiagonalDesign",
    "load_abalone",
    "load_adult",
    "load_airfoil",
    "load_autompg",
    "load_bibtex",
    "load_bookmarks",
    "load_boston",
    "load_california",
    "load_concrete",
    "load_elevators",
    "load_german",
    "load_horse_colic",
    "load_ionosphere",
    "load_keggdirected",
    "load_mediamill",
    "load_otoliths",
    "load_parkinsons",
    "load_phoneme",
    "load_pol",
    "load_powerplant",
    "load_rf1",
    "load_rf2",
    "load_scm1d",
    "load_scm20d",
    "load_skillcraft",
    "load_sml",
    "load_stock",
    "load_yacht",
    "make_documents",
    "make_friedman_outliers",
]
