"""Regression sets with one target and no published split."""

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets._docs import Folder
from nbsketch.datasets._files import fetch_through_sklearn, locate
from nbsketch.datasets._table_loader import table_loader
from nbsketch.datasets._tables import (
    AIRFOIL,
    AUTOMPG,
    BOSTON,
    CALIFORNIA,
    CONCRETE,
    POWERPLANT,
    YACHT,
    Table,
)
from nbsketch.datasets._text import parse_rows, read_lines


def _read_autompg(
    table: Table, data_home: Folder, download: bool
) -> tuple[NDArray, NDArray]:
    (path,) = locate(table.source, data_home, download)
    fields = [line.split()[:8] for line in read_lines(path)]
    lines = [" ".join(row) for row in fields if "?" not in row]
    rows = parse_rows(lines, path, 8)
    return rows[:, 1:], rows[:, 0]


def _read_california(
    table: Table, data_home: Folder, download: bool
) -> tuple[NDArray, NDArray]:
    try:
        (path,) = locate(table.source, data_home, download)
    except FileNotFoundError as missing:
        if not download:
            raise
        return _fetch_california(missing)
    lines = read_lines(path)[table.n_header_lines :]
    return _derive_california(parse_rows(lines, path, 9, table.delimiter))


def _derive_california(table: NDArray) -> tuple[NDArray, NDArray]:
    """Return scikit-learn's features and target from the columns of the file."""
    longitude, latitude, age, rooms, bedrooms, people, households, income, value = (
        table.T
    )
    shares = [rooms / households, bedrooms / households, people, people / households]
    X = np.column_stack([income, age, *shares, latitude, longitude])
    return X, value / 100_000


def _fetch_california(missing: FileNotFoundError) -> tuple[NDArray, NDArray]:
    """Return what scikit-learn downloads; raise `missing` if it fails."""
    from sklearn.datasets import fetch_california_housing

    bunch = fetch_through_sklearn(fetch_california_housing, missing)
    return bunch.data, bunch.target


@table_loader(BOSTON)
def load_boston() -> None:
    """Load boston: the median value of homes in 506 tracts of Boston.

    The papers' set for joint quantile regression, with random splits of 70 % and 30 %.
    It is kept to reproduce them, not to be learned from: its column B encodes the
    prejudice that the share of Black residents lowers the value of a home, which is
    why scikit-learn no longer offers it.

    Returns
    -------
    Dataset
        506 rows, 13 features, target MEDV in thousands of dollars.

    References
    ----------
    Harrison and Rubinfeld (1978), Hedonic housing prices and the demand for clean
    air, Journal of Environmental Economics and Management 5(1), 81-102.

    Examples
    --------
    >>> from nbsketch.datasets import load_boston
    >>> load_boston()  # doctest: +SKIP
    Dataset('boston', X=(506, 13), y=(506,))
    """


@table_loader(CONCRETE)
def load_concrete() -> None:
    """Load concrete: the compressive strength of concrete from its mixture.

    Seven amounts in kg per cubic meter and the age in days; the strength is in MPa.

    Returns
    -------
    Dataset
        1030 rows, 8 features, target compressive_strength.

    References
    ----------
    Yeh (1998), Modeling of strength of high-performance concrete using artificial
    neural networks, Cement and Concrete Research 28(12), 1797-1808.

    Examples
    --------
    >>> from nbsketch.datasets import load_concrete
    >>> load_concrete()  # doctest: +SKIP
    Dataset('concrete', X=(1030, 8), y=(1030,))
    """


@table_loader(AIRFOIL)
def load_airfoil() -> None:
    """Load airfoil: the noise of airfoil sections in a wind tunnel.

    Inputs are in Hz, degrees, m, m/s and m; the target is in decibel.

    Returns
    -------
    Dataset
        1503 rows, 5 features, target sound_pressure_level.

    References
    ----------
    Brooks, Pope and Marcolini (1989), Airfoil self-noise and prediction, NASA
    reference publication 1218.

    Examples
    --------
    >>> from nbsketch.datasets import load_airfoil
    >>> load_airfoil()  # doctest: +SKIP
    Dataset('airfoil', X=(1503, 5), y=(1503,))
    """


@table_loader(
    AUTOMPG, _read_autompg, "Without effect: no checksum of the file is known."
)
def load_autompg() -> None:
    """Load autompg: the fuel consumption of cars, in miles per gallon.

    The target is the first column of the file and the name of the car its last, which
    is left out. Rows whose horsepower is missing are left out too: the original file
    has 398 rows, 6 of them such.

    Returns
    -------
    Dataset
        392 rows, 7 features, target mpg.

    References
    ----------
    Quinlan (1993), Combining instance-based and model-based learning, International
    conference on machine learning, 236-243.

    Examples
    --------
    >>> from nbsketch.datasets import load_autompg
    >>> load_autompg()  # doctest: +SKIP
    Dataset('autompg', X=(392, 7), y=(392,))
    """


@table_loader(YACHT)
def load_yacht() -> None:
    """Load yacht: the resistance of sailing yachts from the shape of the hull.

    All inputs are ratios; the target is the residuary resistance per unit weight of
    displacement.

    Returns
    -------
    Dataset
        308 rows, 6 features, target residuary_resistance.

    References
    ----------
    Gerritsma, Onnink and Versluis (1981), Geometry, resistance and stability of the
    Delft systematic yacht hull series, International Shipbuilding Progress 28(328).

    Examples
    --------
    >>> from nbsketch.datasets import load_yacht
    >>> load_yacht()  # doctest: +SKIP
    Dataset('yacht', X=(308, 6), y=(308,))
    """


@table_loader(POWERPLANT)
def load_powerplant() -> None:
    """Load powerplant: the output of a power plant from the weather.

    Inputs are in degrees Celsius, cm Hg, millibar and per cent; the target is the
    hourly output in MW. Unlike the archive at UCI, the rows come once, not in five
    shuffled copies.

    Returns
    -------
    Dataset
        9568 rows, 4 features, target energy_output.

    References
    ----------
    Tufekci (2014), Prediction of full load electrical power output of a base load
    operated combined cycle power plant using machine learning methods, International
    Journal of Electrical Power and Energy Systems 60, 126-140.

    Examples
    --------
    >>> from nbsketch.datasets import load_powerplant
    >>> load_powerplant()  # doctest: +SKIP
    Dataset('powerplant', X=(9568, 4), y=(9568,))
    """


@table_loader(
    CALIFORNIA,
    _read_california,
    "Whether to download the set through scikit-learn if none of these "
    "folders has the file.",
)
def load_california() -> None:
    """Load california: the median value of homes in California, block by block.

    Features and target are those of scikit-learn: the rooms, bedrooms and people of a
    block are divided by its households, and the target is in units of 100 000
    dollars.

    Returns
    -------
    Dataset
        20640 rows, 8 features, target MedHouseVal.

    References
    ----------
    Pace and Barry (1997), Sparse spatial autoregressions, Statistics and Probability
    Letters 33(3), 291-297.

    Examples
    --------
    >>> from nbsketch.datasets import load_california
    >>> load_california()  # doctest: +SKIP
    Dataset('california', X=(20640, 8), y=(20640,))
    """
