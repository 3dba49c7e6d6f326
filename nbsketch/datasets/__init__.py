"""Data sets of the papers and others, each as a `Dataset`, and synthetic ones.

A ``load_`` function searches for files in ``data_home=``, in the folder of the
environment variable NBSKETCH_DATA, and in ``nbsketch`` in scikit-learn's data folder.
If they are not found, it downloads them, if possible and not forbidden by
``download=False``. A folder has one folder for each set, as in ``rf1/rf1-train.arff``;
text files may be gzipped. Importing this module imports neither scikit-learn nor numba.
"""

from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets.mulan import label_loader, target_loader
from nbsketch.datasets.otoliths import load_otoliths
from nbsketch.datasets.synthetic import (
    DiagonalDesign,
    make_documents,
    make_friedman_outliers,
)
from nbsketch.datasets.tables import table_loader

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

load_abalone = table_loader("abalone")
load_adult = table_loader("adult")
load_airfoil = table_loader("airfoil")
load_autompg = table_loader("autompg")
load_bibtex = label_loader("bibtex")
load_bookmarks = label_loader("bookmarks")
load_boston = table_loader("boston")
load_california = table_loader("california")
load_concrete = table_loader("concrete")
load_elevators = table_loader("elevators")
load_german = table_loader("german")
load_horse_colic = table_loader("horse-colic")
load_ionosphere = table_loader("ionosphere")
load_keggdirected = table_loader("keggdirected")
load_mediamill = label_loader("mediamill")
load_parkinsons = table_loader("parkinsons")
load_phoneme = table_loader("phoneme")
load_pol = table_loader("pol")
load_powerplant = table_loader("powerplant")
load_rf1 = target_loader("rf1")
load_rf2 = target_loader("rf2")
load_scm1d = target_loader("scm1d")
load_scm20d = target_loader("scm20d")
load_skillcraft = table_loader("skillcraft")
load_sml = table_loader("sml")
load_stock = table_loader("stock")
load_yacht = table_loader("yacht")
