"""Sets of the UCI repository for comparisons: regression and classification."""

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets._docs import Folder
from nbsketch.datasets._files import locate
from nbsketch.datasets._table_loader import (
    columns_of,
    read_columns,
    read_fields,
    table_loader,
)
from nbsketch.datasets._tables import Table
from nbsketch.datasets._uci import (
    ABALONE,
    ADULT,
    ELEVATORS,
    GERMAN,
    HORSE_COLIC,
    IONOSPHERE,
    KEGGDIRECTED,
    PARKINSONS,
    PHONEME,
    POL,
    SKILLCRAFT,
    SML,
    STOCK,
)

# Columns of horse-colic, from 0: the number of the hospital, the target, and codes of
# the lesion, which are known if the target is.
_COLIC_COLUMNS, _LESION, _COLIC_LEFT_OUT = 28, 23, (2, 23, 24, 25, 26)


def _read_colic(
    table: Table, data_home: Folder, download: bool
) -> tuple[NDArray, NDArray]:
    (path,) = locate(table.source, data_home, download)
    fields = read_fields(path, _COLIC_COLUMNS)
    inputs = np.delete(fields, _COLIC_LEFT_OUT, axis=1)
    return columns_of(table, inputs, fields[:, _LESION], path)


def _read_adult(
    table: Table, data_home: Folder, download: bool
) -> tuple[NDArray, NDArray, int]:
    """Return both files; the labels of the second end with a full stop."""
    paths = locate(table.source, data_home, download)
    train, test = (read_fields(p, len(table.feature_names) + 1) for p in paths)
    fields = np.vstack([train, test])
    labels = np.char.rstrip(fields[:, -1], ".")
    return *columns_of(table, fields[:, :-1], labels, paths[0]), len(train)


@table_loader(ELEVATORS)
def load_elevators() -> None:
    """Load elevators: the control of the elevators of an F16 aircraft.

    Returns
    -------
    Dataset
        16599 rows, 18 features, target Goal.

    References
    ----------
    Torgo, Regression data sets, LIACC, University of Porto.

    Examples
    --------
    >>> from nbsketch.datasets import load_elevators
    >>> load_elevators()  # doctest: +SKIP
    Dataset('elevators', X=(16599, 18), y=(16599,))
    """


@table_loader(POL)
def load_pol() -> None:
    """Load pol: a telecommunication problem.

    The names of the 26 features are not published.

    Returns
    -------
    Dataset
        15000 rows, 26 features, one target.

    References
    ----------
    Weiss and Indurkhya (1995), Rule-based machine learning methods for functional
    prediction, Journal of Artificial Intelligence Research 3, 383-403.

    Examples
    --------
    >>> from nbsketch.datasets import load_pol
    >>> load_pol()  # doctest: +SKIP
    Dataset('pol', X=(15000, 26), y=(15000,))
    """


@table_loader(SML)
def load_sml() -> None:
    """Load sml: an indoor climate measured every 15 minutes for 40 days.

    Rows are a time series in random order: features x2, x1, x4 and x5 are month, day,
    hour and minute. The collection does not name the features.

    Returns
    -------
    Dataset
        4137 rows, 26 features, one target.

    References
    ----------
    Zamora-Martinez et al. (2014), On-line learning of indoor temperature forecasting
    models towards energy efficiency, Energy and Buildings 83, 162-172.

    Examples
    --------
    >>> from nbsketch.datasets import load_sml
    >>> load_sml()  # doctest: +SKIP
    Dataset('sml', X=(4137, 26), y=(4137,))
    """


@table_loader(PARKINSONS)
def load_parkinsons() -> None:
    """Load parkinsons: a score of Parkinson's disease from voice recordings.

    Rows of a patient (feature subject, 42 of them) depend on each other.

    Returns
    -------
    Dataset
        5875 rows, 20 features, target total_updrs.

    References
    ----------
    Tsanas, Little, McSharry and Ramig (2010), Accurate telemonitoring of Parkinson's
    disease progression by non-invasive speech tests, IEEE Transactions on Biomedical
    Engineering 57(4), 884-893.

    Examples
    --------
    >>> from nbsketch.datasets import load_parkinsons
    >>> load_parkinsons()  # doctest: +SKIP
    Dataset('parkinsons', X=(5875, 20), y=(5875,))
    """


@table_loader(SKILLCRAFT)
def load_skillcraft() -> None:
    """Load skillcraft: how players of a real-time strategy game act.

    Returns
    -------
    Dataset
        3338 rows, 19 features, target ActionsInPAC.

    References
    ----------
    Thompson, Blair, Chen and Henrey (2013), Video game telemetry as a critical tool in
    the study of complex skill learning, PLOS ONE 8(9), e75129.

    Examples
    --------
    >>> from nbsketch.datasets import load_skillcraft
    >>> load_skillcraft()  # doctest: +SKIP
    Dataset('skillcraft', X=(3338, 19), y=(3338,))
    """


@table_loader(STOCK)
def load_stock() -> None:
    """Load stock: daily returns of the Istanbul stock exchange and of indices.

    The collection does not name the features.

    Returns
    -------
    Dataset
        536 rows, 11 features, one target.

    References
    ----------
    Akbilgic, Bozdogan and Balaban (2014), A novel hybrid RBF neural networks model as a
    forecaster, Statistics and Computing 24(3), 365-375.

    Examples
    --------
    >>> from nbsketch.datasets import load_stock
    >>> load_stock()  # doctest: +SKIP
    Dataset('stock', X=(536, 11), y=(536,))
    """


@table_loader(KEGGDIRECTED)
def load_keggdirected() -> None:
    """Load keggdirected: properties of metabolic pathways as graphs.

    Many rows are equal. The collection does not name the features.

    Returns
    -------
    Dataset
        48827 rows, 20 features, one target.

    References
    ----------
    Naeem and Asghar, KEGG Metabolic Relation Network (Directed), UCI Machine Learning
    Repository.

    Examples
    --------
    >>> from nbsketch.datasets import load_keggdirected
    >>> load_keggdirected()  # doctest: +SKIP
    Dataset('keggdirected', X=(48827, 20), y=(48827,))
    """


@table_loader(ABALONE, read_columns)
def load_abalone() -> None:
    """Load abalone: the age of sea snails, as the number of rings.

    Feature sex is a category (F, I, M); the others are lengths and weights.

    Returns
    -------
    Dataset
        4177 rows, 8 features, target rings.

    References
    ----------
    Nash et al. (1994), The population biology of abalone in Tasmania, Technical report
    48, Sea Fisheries Division.

    Examples
    --------
    >>> from nbsketch.datasets import load_abalone
    >>> load_abalone()  # doctest: +SKIP
    Dataset('abalone', X=(4177, 8), y=(4177,))
    """


@table_loader(ADULT, _read_adult)
def load_adult() -> None:
    """Load adult: whether a person of the 1994 census earns more than 50,000 dollars.

    Eight features are categories; three of them have missing values. The published
    split is the two files. It is kept for comparisons with published numbers: race, sex
    and marital status are among the features, and models learn the inequality of 1994
    from them.

    Returns
    -------
    Dataset
        48842 rows, 14 features, labels <=50K and >50K.

    References
    ----------
    Kohavi (1996), Scaling up the accuracy of naive-Bayes classifiers: a decision-tree
    hybrid, Knowledge discovery and data mining, 202-207.

    Examples
    --------
    >>> from nbsketch.datasets import load_adult
    >>> load_adult()  # doctest: +SKIP
    Dataset('adult', X=(48842, 14), y=(48842,), n_train=32561)
    """


@table_loader(GERMAN, read_columns)
def load_german() -> None:
    """Load german: good (1) and bad (2) credit risks.

    Codes such as A11 are categories. Personal status contains the sex of the applicant:
    not a model to lend by.

    Returns
    -------
    Dataset
        1000 rows, 20 features, labels 1 and 2.

    References
    ----------
    Hofmann (1994), Statlog (German Credit Data), UCI Machine Learning Repository.

    Examples
    --------
    >>> from nbsketch.datasets import load_german
    >>> load_german()  # doctest: +SKIP
    Dataset('german', X=(1000, 20), y=(1000,))
    """


@table_loader(PHONEME, read_columns)
def load_phoneme() -> None:
    """Load phoneme: nasal (0) and oral (1) vowels from five harmonics.

    Inputs are amplitudes of the first five harmonics, normalized by the energy.

    Returns
    -------
    Dataset
        5404 rows, 5 features, labels 0 and 1.

    References
    ----------
    Alinat (1993), Periodic progress report 4, ROARS project ESPRIT II 5516.

    Examples
    --------
    >>> from nbsketch.datasets import load_phoneme
    >>> load_phoneme()  # doctest: +SKIP
    Dataset('phoneme', X=(5404, 5), y=(5404,))
    """


@table_loader(HORSE_COLIC, _read_colic)
def load_horse_colic() -> None:
    """Load horse-colic: whether the lesion of a horse was surgical (1) or not (2).

    A quarter of the values is missing. The number of the hospital is left out, and so
    are three codes of the lesion, from which the label can be read.

    Returns
    -------
    Dataset
        300 rows, 23 features, labels 1 and 2.

    References
    ----------
    McLeish and Cecile (1989), Horse Colic, UCI Machine Learning Repository.

    Examples
    --------
    >>> from nbsketch.datasets import load_horse_colic
    >>> load_horse_colic()  # doctest: +SKIP
    Dataset('horse-colic', X=(300, 23), y=(300,))
    """


@table_loader(IONOSPHERE, read_columns)
def load_ionosphere() -> None:
    """Load ionosphere: good (g) and bad (b) radar returns.

    Real and imaginary parts of 17 pulses; one column is constant.

    Returns
    -------
    Dataset
        351 rows, 34 features, labels b and g.

    References
    ----------
    Sigillito, Wing, Hutton and Baker (1989), Classification of radar returns from the
    ionosphere using neural networks, Johns Hopkins APL Technical Digest 10, 262-266.

    Examples
    --------
    >>> from nbsketch.datasets import load_ionosphere
    >>> load_ionosphere()  # doctest: +SKIP
    Dataset('ionosphere', X=(351, 34), y=(351,))
    """
