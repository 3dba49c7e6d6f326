"""Sources and columns of the tables of two public collections of UCI's sets."""

from nbsketch.datasets._files import RemoteFile, Source
from nbsketch.datasets._tables import Table

_CENTERED = (
    "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets/"
)
_PLAIN = "https://raw.githubusercontent.com/jbrownlee/Datasets/master/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"


def _centered(
    name: str, title: str, names: tuple[str, ...], target: str, sha256: str
) -> Table:
    """Return a set of numbers of which the collection has centered the columns."""
    origin = (
        f"the UCI repository or LIACC, {title}; as one CSV file of centered columns: "
        f"{name}/data.csv.gz of the GitHub repository treforevans/uci_datasets"
    )
    file = RemoteFile("data.csv", f"{_CENTERED}{name}/data.csv.gz", sha256)
    note = (
        "The file is of a collection that has centered all columns; this changes "
        "neither splits nor errors of methods that standardize."
    )
    return Table(Source(name, origin, (file,)), names, target, ",", note=note)


def _plain(
    name: str,
    title: str,
    names: tuple[str, ...],
    target: str,
    sha256: str,
    *,
    categories: tuple[str, ...] = (),
    has_labels: bool = True,
) -> Table:
    """Return a set of text and numbers in a CSV file without header."""
    origin = (
        f"the UCI repository, {title}; as {name}.csv of the GitHub repository "
        "jbrownlee/Datasets"
    )
    file = RemoteFile(f"{name}.csv", f"{_PLAIN}{name}.csv", sha256)
    source = Source(name, origin, (file,))
    return Table(
        source, names, target, ",", categories=categories, has_labels=has_labels
    )


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(1, count + 1))


ELEVATORS = _centered(
    "elevators",
    "elevators (Torgo's collection)",
    (
        "climbRate", "Sgz", "p", "q", "curRoll", "absRoll", "diffClb", "diffRollRate",
        "diffDiffClb", "SaTime1", "SaTime2", "SaTime3", "SaTime4", "diffSaTime1",
        "diffSaTime2", "diffSaTime3", "diffSaTime4", "Sa",
    ),
    "Goal",
    "f9c478c8660cc92453acbf652310740975afed544ca8c0e81145cec18dbc3ea9",
)  # fmt: skip
POL = _centered(
    "pol",
    "pole telecommunication (Torgo's collection)",
    _numbered(26),
    "pol",
    "1f4370e9c9448dc537601710d8744d3ea8f5532b93512288c27abb50120f367c",
)
SML = _centered(
    "sml",
    "SML2010",
    _numbered(26),
    "sml",
    "99779d3b2243216cf4f9c57d879b778fd2fad3c79b942f6841a266bc5d2692e3",
)
PARKINSONS = _centered(
    "parkinsons",
    "Parkinsons Telemonitoring",
    (
        "subject", "age", "sex", "test_time", "jitter_percent", "jitter_abs",
        "jitter_rap", "jitter_ppq5", "jitter_ddp", "shimmer", "shimmer_db",
        "shimmer_apq3", "shimmer_apq5", "shimmer_apq11", "shimmer_dda", "nhr", "hnr",
        "rpde", "dfa", "ppe",
    ),
    "total_updrs",
    "514813c9ae91ea070cb6eafcac612db990ea26cf631eb29e9457fbdd4a75f4bd",
)  # fmt: skip
SKILLCRAFT = _centered(
    "skillcraft",
    "SkillCraft1 Master Table",
    (
        "GameID", "LeagueIndex", "Age", "HoursPerWeek", "TotalHours", "APM",
        "SelectByHotkeys", "AssignToHotkeys", "UniqueHotkeys", "MinimapAttacks",
        "MinimapRightClicks", "NumberOfPACs", "GapBetweenPACs", "ActionLatency",
        "TotalMapExplored", "WorkersMade", "UniqueUnitsMade", "ComplexUnitsMade",
        "ComplexAbilitiesUsed",
    ),
    "ActionsInPAC",
    "a32ce28e909aa6977b902bf5688b7c9c44a731d90ef800aa8aa72349b71e5786",
)  # fmt: skip
STOCK = _centered(
    "stock",
    "Istanbul Stock Exchange",
    _numbered(11),
    "stock",
    "04c991f98ba1dea7f82bf69214e8d305d6e83fb0bffb79bd25db08b212231450",
)
KEGGDIRECTED = _centered(
    "keggdirected",
    "KEGG Metabolic Relation Network (Directed)",
    _numbered(20),
    "keggdirected",
    "6609d9b0fb55fecdcf1241087b84129e73fc3dbf083ddd0c13659d4b20add90f",
)
ABALONE = _plain(
    "abalone",
    "Abalone",
    (
        "sex", "length", "diameter", "height", "whole_weight", "shucked_weight",
        "viscera_weight", "shell_weight",
    ),
    "rings",
    "eb2de13be807e9bb9ec4128b9c89b98ab23d7739121cfd17b7dde69b46ba7bf6",
    categories=("sex",),
    has_labels=False,
)  # fmt: skip
GERMAN = _plain(
    "german",
    "Statlog (German Credit Data)",
    (
        "checking_status", "duration", "credit_history", "purpose", "credit_amount",
        "savings_status", "employment", "installment_rate", "personal_status",
        "other_parties", "residence_since", "property", "age", "other_payment_plans",
        "housing", "existing_credits", "job", "num_dependents", "telephone",
        "foreign_worker",
    ),
    "class",
    "ec12a88b9fc14d74ba646ea0410cf7ff4533bec2eb61652f8ad76796bbfec017",
    categories=(
        "checking_status", "credit_history", "purpose", "savings_status", "employment",
        "personal_status", "other_parties", "property", "other_payment_plans",
        "housing", "job", "telephone", "foreign_worker",
    ),
)  # fmt: skip
PHONEME = _plain(
    "phoneme",
    "phoneme (ELENA project)",
    tuple(f"harmonic_{j}" for j in range(1, 6)),
    "oral",
    "eacbb9f7a2b2135d067bff28ed7b9adb760f61f5e91f375f91e22e7e42ace24d",
)
IONOSPHERE = _plain(
    "ionosphere",
    "Ionosphere",
    tuple(f"pulse_{j}_{part}" for j in range(1, 18) for part in ("real", "imaginary")),
    "class",
    "fd6dd7864b55d56dac0a1e6e24af9ccc35bf2555ac79af8ab9f3d1daa065ab83",
)
# The file has 28 columns: horse_colic.py leaves out 4 and takes the 24th as the target.
HORSE_COLIC = _plain(
    "horse-colic",
    "Horse Colic",
    (
        "surgery", "age", "rectal_temperature", "pulse", "respiratory_rate",
        "temperature_of_extremities", "peripheral_pulse", "mucous_membranes",
        "capillary_refill_time", "pain", "peristalsis", "abdominal_distension",
        "nasogastric_tube", "nasogastric_reflux", "nasogastric_reflux_ph",
        "rectal_examination", "abdomen", "packed_cell_volume", "total_protein",
        "abdominocentesis_appearance", "abdominocentesis_protein", "outcome",
        "pathology_data",
    ),
    "surgical_lesion",
    "6ea4b4e9819f56dd021bea06d4a56c711825d0e6e33bc0cfc183f054fc4256d6",
    categories=(
        "surgery", "age", "temperature_of_extremities", "peripheral_pulse",
        "mucous_membranes", "capillary_refill_time", "pain", "peristalsis",
        "abdominal_distension", "nasogastric_tube", "nasogastric_reflux",
        "rectal_examination", "abdomen", "abdominocentesis_appearance", "outcome",
        "pathology_data",
    ),
)  # fmt: skip
ADULT = Table(
    Source(
        "adult",
        "the UCI repository, Adult, files adult.data and adult.test, renamed",
        (
            RemoteFile(
                "adult-train.csv",
                _UCI + "adult/adult.data",
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            RemoteFile(
                "adult-test.csv",
                _UCI + "adult/adult.test",
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        ),
    ),
    (
        "age", "workclass", "fnlwgt", "education", "education_num", "marital_status",
        "occupation", "relationship", "race", "sex", "capital_gain", "capital_loss",
        "hours_per_week", "native_country",
    ),
    "income",
    delimiter=",",
    categories=(
        "workclass", "education", "marital_status", "occupation", "relationship",
        "race", "sex", "native_country",
    ),
    has_labels=True,
)  # fmt: skip
