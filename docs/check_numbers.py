"""Check that numbers in sentences of the pages are those of the files of results.

Usage: python docs/check_numbers.py

`SENTENCES` has passages of the pages with ``{}`` for each number, and the values; a
number must be its value, rounded to the digits that it shows. Tables of results need no
check: the directive ``results`` makes them of the same files.
"""

import re
import sys
from functools import cache
from pathlib import Path

from nbsketch.reproduce import EXPERIMENTS, runner
from nbsketch.reproduce._report import column, log_log_slope, read_csv, where

DOCS = Path(__file__).parent
_NUMBER = r"(-?(?:\d+(?:\.\d+)?|\.\d+))"
FOURIER, ACCUMULATION = "random Fourier features", "accumulation, m = 20"
SPARSE = [f"{k}/n-SR" for k in (5, 10, 30, 50)]
REAL_SETS = "autompg", "concrete", "yacht", "airfoil"
SPARSE_JL_SETS = "sine", "concrete", "airfoil", "autompg", "yacht"


@cache
def table(name):
    """Return the rows that the page shows of an experiment."""
    rows = read_csv(DOCS / "results" / f"{name}.csv")
    is_whole = name in EXPERIMENTS and name != "sisokr_synthetic"  # single draws
    report = runner(name) if is_whole else None
    return report.summarize(rows) if getattr(report, "panels", None) else rows


def cells(name, field, /, **values):
    """Return a column of the rows that have these values."""
    return column(where(table(name), **values), field)


def cell(name, field, /, **values):
    """Return the field of the only row that has these values."""
    (found,) = cells(name, field, **values)
    return found


def figure(series, *fields, name="figure1", size=140):
    """Return fields of a series of a figure at a size."""
    return [cell(name, field, series=series, size=size) for field in fields]


def both(series, **options):
    """Return error and seconds of a series of a figure."""
    return figure(series, "error", "seconds", **options)


def exponent(sketch, product, which):
    """Return a measured exponent of Table 4."""
    (row,) = where(table("table4"), sketch=sketch, product=product)
    return float(row[which].split()[0])


def regimes(source):
    """Return the mean excess risks of the regimes at the most rows."""
    rows = read_csv(DOCS / "results" / "rates.csv")
    rows = where(rows, part="sgm", source=source, n=4096)
    return [
        column(where(rows, series=regime), "value").mean()
        for regime in ("I", "II", "III", "IV")
    ]


def cost_of_one_nonzero(set):
    """Return how much one nonzero a column adds to the error of 16, in percent."""
    one, most = (
        cell("pohlen", "error", set=set, nonzeros=nonzeros) for nonzeros in (1, 16)
    )
    return 100 * (one / most - 1)


def within_range(column):
    """Return how many targets of Table 6 have an error in the range of others."""
    return sum(row["low"] <= row[column] <= row["high"] for row in table("table6"))


def off_paper(methods, *sets):
    """Return the largest distance of the errors of targets from the published ones."""
    return max(
        abs(row[method] - row[f"{method}, paper"])
        for row in table("table6")
        for method in methods
        if row["set"] in sets
    )


def slope(part, series, source):
    """Return a measured exponent of the experiment on rates."""
    return cell("rates", "slope", part=part, series=series, source=source)


def theory(part, series, source):
    """Return an exponent of the theory."""
    return cell("rates", "theory", part=part, series=series, source=source)


def ends(values):
    """Return the least and the largest value."""
    return [min(values), max(values)]


def synthetic(field, **values):
    """Return the least cost of a method on the synthetic set."""
    return min(cells("sisokr_synthetic", field, **values))


def faster(field, **values):
    """Return how many times faster than IOKR a method is on the synthetic set."""
    return synthetic(field, name="IOKR") / synthetic(field, **values)


def pohlen(set, size, method="Gaussian"):
    """Return the error of a method on a set."""
    return cell("pohlen", "error", set=set, size=size, method=method)


def milliseconds(set, size, method="Gaussian"):
    """Return the time of a fit of a method on a set."""
    return 1000 * cell("pohlen", "seconds", set=set, size=size, method=method)


def over_exact(set, size=80):
    """Return the error of Gaussian sketches over that without a sketch."""
    return pohlen(set, size) / pohlen(set, 0, "without sketch")


def over_accumulation(name, law):
    """Return the time of p-sparsified sketches over that of accumulation, Table 2."""
    sparse, sums = (
        cell("table2", "seconds", set=name, method=method)
        for method in (f"20/n-{law}", "accumulation")
    )
    return sparse / sums


def others(field, name):
    """Return a field of the sketches of a set of Table 2."""
    return [
        row[field]
        for row in where(table("table2"), set=name)
        if "program" not in row["method"] and "without" not in row["method"]
    ]


def paper(name):
    """Return the errors that the paper has for the sketches of a set of Table 2."""
    rows = where(table("table2"), set=name)
    return [row["paper"] for row in rows if "sketch," not in row["method"]][1:5]


def above_paper(method):
    """Return how much the error of a method on rf2 is above that of the paper."""
    error, published = (
        cell("table2", field, set="rf2", method=method) for field in ("arrmse", "paper")
    )
    return error - published


BIBTEX = {"name": "sisokr", "set": "bibtex"}
BOSTON = [row for row in table("table1") if row["set"] == "boston"]
SETS = "rf1", "rf2", "scm1d", "scm20d"
EASY = "rf1", "scm1d", "scm20d"
OF_TABLE_6 = "without sketch", "20/n-SR", "20/n-SG", "accumulation", "CountSketch"


def of_dense(set):
    """Return the time of one nonzero a column over that of a Rademacher sketch."""
    one, *_, dense = cells("pohlen", "seconds", set=set, method="sparse JL")
    return one / dense


POHLEN_TIMES = [
    milliseconds(name, *which)
    for name in ("sine", "airfoil")
    for which in ((80,), (0, "without sketch"))
]
RISKS = [
    value
    for quantity in ("excess risk", "excess risk, 3 outputs")
    for value in cells("table3", "exponent", quantity=quantity)
]
BOUNDS = list(cells("table3", "stated_exponent", quantity="excess risk"))


def in_size(side, field):
    """Return the slope of a time of SISOKR in the size of a sketch."""
    rows = where(table("sisokr_synthetic"), name="SISOKR", side=side)
    return log_log_slope(column(rows, f"{side}_size"), column(rows, field))[0]


def in_rows(quantity, field="slope"):
    """Return a field of the growth with n, without and with sketches."""
    return list(cells("sisokr_rates", field, quantity=quantity))


def faster_in_rows(quantity):
    """Return how much faster sketches make the fewest rows."""
    without, with_sketches = in_rows(quantity, "first")
    return without / with_sketches


def unequal(series, field="slope", source=1.0):
    """Return a field of the dimension needed with unequal leverage scores."""
    return cell("rates", field, part="unequal", series=series, source=source)


def of_products(field):
    """Return a cost of p-sparsified sketches over that of accumulation, Table 4."""
    rows = read_csv(DOCS / "results" / "table4.csv")
    rows = where(rows, scan="n", n=10_000)
    sparse, sums = (
        column(where(rows, sketch=sketch), field)
        for sketch in ("p-SR, p = 20/n", "accumulation")
    )
    return list(sparse / sums)


NEEDED = "Gaussian", "ROS", "p-sparsified", "leverage", "sub-sampling"
UNEQUAL = "Gaussian", "ROS", "sub-sampling", "leverage"
SIZE_SLOPES = [in_size("input", "training"), in_size("output", "inference")]
CLAIMS = [
    (
        "time {} (:math:`S K`) and {} (:math:`S K S^\\top`), memory {} and {}|",
        [*of_products("seconds"), *of_products("megabytes")],
    ),
    (
        "then pivoted Cholesky ({} in {} s, from {} landmarks)",
        figure("pivoted Cholesky", "error", "seconds", "landmarks"),
    ),
    (
        "training {} without and {} with sketches, inference {} and {}. Slopes in "
        ":math:`m_X` and :math:`m_Y`: training {}, inference {}",
        [*in_rows("training"), *in_rows("inference"), *SIZE_SLOPES],
    ),
    (":math:`n^{{}}` with sketches, :math:`n^{{}}` without.", in_rows("excess")[::-1]),
    (
        "slopes of {}, {} and {} for one output, {}, {} and {} for three; stated "
        "{}, {} and {}",
        [*RISKS, *BOUNDS],
    ),
    (
        "ridge {}, {} and {}. With :math:`2 \\zeta + \\gamma` = 0.9, stated {}: "
        "ridge {}|",
        [
            *(slope("filter", "ridge", source) for source in (0.3, 0.5, 1.0)),
            theory("filter", "ridge", 0.2),
            slope("filter", "ridge", 0.2),
        ],
    ),
    (
        "Sub-sampled subspaces of equal dimension: {}; {} and {} to {}|",
        [
            slope("sgm", "II, sub-sampling", 0.5),
            slope("sgm", "I, sub-sampling", 1.0),
            *ends(
                [slope("sgm", f"{k}, sub-sampling", 1.0) for k in ("II", "III", "IV")]
            )[::-1],
        ],
    ),
    (
        "Stated {}, {}, {} and {} for :math:`\\zeta` = 0.2, 0.3, 0.5 and 1: Gaussian "
        "{}, {}, {} and {}, ROS {}, {}, {} and {}; sub-sampling {}, {}, {} and {}|",
        [
            *(theory("dimension", "ROS", source) for source in (0.2, 0.3, 0.5, 1.0)),
            *(
                slope("dimension", series, source)
                for series in ("Gaussian", "ROS", "sub-sampling")
                for source in (0.2, 0.3, 0.5, 1.0)
            ),
        ],
    ),
    (
        "slopes of the excess risk: sketches {}, as many Fourier features {}|",
        [
            cell("table3", "exponent", kernel="Gaussian", quantity=quantity)
            for quantity in ("excess risk", "excess risk, Fourier features")
        ],
    ),
    (
        "Fourier features {} in {} s, accumulation {} in {} s, p-SR of density "
        ":math:`30/n` {} in {} s, of :math:`50/n` {} in {} s, Gaussian {} in {} s.",
        [
            value
            for series in (FOURIER, ACCUMULATION, "30/n-SR", "50/n-SR", "Gaussian")
            for value in both(series)
        ],
    ),
    ("CountSketch {} in {} s, Gaussian as above", both("CountSketch")),
    (
        "over n, :math:`s = 140`: {}, {}, {}, {} in {}, {}, {}, {} s",
        [figure(s, field)[0] for field in ("error", "seconds") for s in SPARSE],
    ),
    (
        "Sub-sampling {}, then these four, Gaussian {}",
        figure("sub-sampling", "error") + figure("Gaussian", "error"),
    ),
    (
        "(:math:`p = 0.003`): {} in {} s, Gaussian {} in {} s",
        both("30/n-SR", size=100) + both("Gaussian", size=100),
    ),
    (
        "K-satisfiable in {} % of draws at :math:`s = 200`, {} % at 400",
        [
            100 * cell("satisfiability", "share", set="uniform", size=s, sketch=sketch)
            for s in (200, 400)
            for sketch in ["p-SR, p = 20/n"]
        ],
    ),
    (
        "pinball loss {} without a sketch, {} to {} with one",
        [BOSTON[0]["pinball"], *ends(column(BOSTON[1:], "pinball"))],
    ),
    (
        "{}, where the paper has {} and cites 47.4 as the best. Crossing loss {} "
        "without and {} to {} with a sketch",
        [
            *(BOSTON[0][name] for name in ("pinball", "paper", "crossing")),
            *ends(column(BOSTON[1:], "crossing")),
        ],
    ),
    (
        "errors differ by up to {}, {} to {} times faster than Cholesky",
        [
            max(
                abs(error - cell("table2", "arrmse", set=name, method="without sketch"))
                for name in EASY
                for error in others("arrmse", name)
            ),
            *ends([times for name in EASY for times in others("faster", name)]),
        ],
    ),
    (
        "rf2: {} without a sketch, {} to {} with one (the paper: {} to {})",
        [
            cell("table2", "arrmse", set="rf2", method="without sketch"),
            *ends(others("arrmse", "rf2")),
            *ends(paper("rf2")),
        ],
    ),
    (
        "Conjugate gradients on *all* rows are {} to {} times faster than",
        ends(cells("table2", "faster", method="without sketch, iterative")),
    ),
    (
        "the four densities: {}, {}, {}, {} against {}, {}, {}, {}",
        [
            figure(f"{k}/n-{law}", "error", name=name, size=100)[0]
            for name, law in (("figure2", "SG"), ("figure1", "SR"))
            for k in (5, 10, 30, 50)
        ],
    ),
    (
        "p-sparsified over accumulation, four sets: {} to {} of its time",
        ends([over_accumulation(name, law) for name in SETS for law in ("SR", "SG")]),
    ),
    (
        "on {} of {} targets, as in the paper's own table; without a sketch on {} "
        "(the paper: {}).",
        [
            within_range("20/n-SR"),
            len(table("table6")),
            within_range("without sketch"),
            within_range("without sketch, paper"),
        ],
    ),
    (
        "p-SR sketches on {} of 48 targets, as in the paper's own table",
        [within_range("20/n-SR, paper")],
    ),
    (
        ":math:`s = 140`: {} in {} s; to a certified optimum {} in {} s",
        both("30/n-SR, Adam") + both("30/n-SR"),
    ),
    (
        "Slopes of :math:`\\delta_n^2` {}, {} and {} for stated {}, {} and {}",
        [
            value
            for field in ("exponent", "stated_exponent")
            for value in cells("table3", field, quantity="delta_n^2")
        ],
    ),
    (
        "of :math:`d_n` {}, {} and {} for {}, {} and {}",
        [
            *cells("table3", "exponent", quantity="d_n"),
            *cells("table3", "stated_exponent", quantity="d_n"),
        ],
    ),
    (
        "p-SR, time against s: :math:`S K` {}, stated 2; :math:`S K S^\\top` {}, "
        "stated 3. CountSketch, memory against n: {}, stated 2.",
        [
            exponent("p-SR, p = 20/n", "S K", "time, s"),
            exponent("p-SR, p = 20/n", "S K S^T", "time, s"),
            exponent("CountSketch", "S K", "memory, n"),
        ],
    ),
    (
        "Synthetic, :math:`m_X = 100`: training {} times faster, inference {} times. "
        "Bibtex: {} and {} times.",
        [
            *(
                faster(f, name="SIOKR", input_size=100)
                for f in ("training", "inference")
            ),
            cell("sisokr", "training_faster", method="SIOKR"),
            cell("sisokr", "inference_faster", method="SIOKR"),
        ],
    ),
    (
        "Synthetic, :math:`m_Y = 200`: inference {} times faster. Bibtex: {} times, "
        "and training {} times.",
        [
            faster("inference", name="ISOKR", output_size=200),
            cell("sisokr", "inference_faster", method="ISOKR"),
            cell("sisokr", "training_faster", method="ISOKR"),
        ],
    ),
    (
        "first draw: {}, {}, {}, {}, {} for :math:`m_X` = 25 to 200; IOKR {}",
        [
            *cells(
                "sisokr_synthetic", "error", side="input", name="SISOKR", replicate=0
            )[:5],
            cell("sisokr_synthetic", "error", name="IOKR"),
        ],
    ),
    (
        "training {}, inference {} times faster; F1 {} against {}",
        [
            cell("sisokr", "training_faster", method="SISOKR"),
            cell("sisokr", "inference_faster", method="SISOKR"),
            cell("sisokr", "f1", method="SISOKR"),
            cell("sisokr", "f1", method="IOKR"),
        ],
    ),
    (
        "{} rows: {} s of training, {} s of inference, {} GiB",
        [
            cell("sisokr_large", field)
            for field in ("rows", "training", "inference", "gibibytes")
        ],
    ),
    (
        "{} against {} at size 20, {} at size 80",
        [pohlen("sine", 20)] + [pohlen("sine", s, "bootstrap") for s in (20, 80)],
    ),
    (
        "Synthetic, 1000 rows: {} and {} times, root of the excess risk {} against {}",
        [
            *(faster_in_rows(q) for q in ("training", "inference")),
            *in_rows("excess", "first")[::-1],
        ],
    ),
    (
        "(sine)|{} and {} without a sketch|Holds",
        [pohlen("sine", 20), pohlen("sine", 0, "without sketch")],
    ),
    (
        "100 rows: {} ms with a Gaussian sketch of 80 rows, {} without. Airfoil, 752 "
        "rows: {} and {} ms",
        POHLEN_TIMES,
    ),
    (
        "column: {} (sine), {} (concrete), {} (airfoil), {} (autompg), {} (yacht)",
        [of_dense(name) for name in SPARSE_JL_SETS],
    ),
    (
        "CountSketch, {} of the time of a Gaussian sketch",
        [both("CountSketch")[1] / both("Gaussian")[1]],
    ),
    ("One nonzero a column costs {} % on yacht", [cost_of_one_nonzero("yacht")]),
    (
        "autompg {}, concrete {}, yacht {}, airfoil {}; of 300 rows: concrete {}, "
        "airfoil {}, with",
        [
            *(over_exact(name) for name in REAL_SETS),
            *(over_exact(name, 300) for name in ("concrete", "airfoil")),
        ],
    ),
    (
        "Stated {}, {} and {} for :math:`\\zeta` = 0.3, 0.5 and 1; ridge {}, {} and {}",
        [f("filter", "ridge", s) for f in (theory, slope) for s in (0.3, 0.5, 1.0)],
    ),
    (
        "stated {}: iterated ridge, cutoff and Landweber {} to {}; ridge {}, of",
        [
            theory("filter", "cutoff", 1.5),
            *ends(
                [
                    slope("filter", s, 1.5)
                    for s in ("iterated ridge", "cutoff", "Landweber")
                ]
            )[::-1],
            slope("filter", "ridge", 1.5),
        ],
    ),
    (
        "stated {} and {} for :math:`\\zeta` = 0.5 and 1: Gaussian {} and {}, "
        "ROS {} and {}, p-sparsified {} and {}, leverage scores {} and {}; "
        "sub-sampling {} and {}, where {} and {}",
        [
            *(theory("projection", "Gaussian", s) for s in (0.5, 1.0)),
            *(slope("projection", series, s) for series in NEEDED for s in (0.5, 1.0)),
            *(theory("projection", "sub-sampling", s) for s in (0.5, 1.0)),
        ],
    ),
    (
        "slopes {} (Gaussian), {} (ROS), {} (sub-sampling), {} (leverage scores); "
        "stated {}, {}, {}, {}. Dimensions at 8192 rows: {}, {}, {}, {}",
        [unequal(s, f) for f in ("slope", "theory", "last") for s in UNEQUAL],
    ),
    (
        "stated {} and {} for :math:`\\zeta` = 1 and 1.5: iterated ridge {} and {}, "
        "cutoff {} and {}, Landweber {} and {}",
        [
            find("norm", series, source)
            for find, series in (
                (theory, "cutoff"),
                (slope, "iterated ridge"),
                (slope, "cutoff"),
                (slope, "Landweber"),
            )
            for source in (1.0, 1.5)
        ],
    ),
    (
        "{} for stated {}; at :math:`\\zeta = 1` regime I {} and II to IV {} to {} for "
        "stated {}",
        [
            slope("sgm", "II", 0.5),
            theory("sgm", "I", 0.5),
            slope("sgm", "I", 1.0),
            *ends([slope("sgm", regime, 1.0) for regime in ("II", "III", "IV")])[::-1],
            theory("sgm", "I", 1.0),
        ],
    ),
]
VECTOR = table("vector")
REPRODUCTION = [
    (
        "ROS sketches have the error of CountSketch ({} and {} at",
        [figure(name, "error")[0] for name in ("ROS", "CountSketch")],
    ),
    (
        "a slope of {} in place of {}, because",
        [unequal(s, source=0.5) for s in ("p-sparsified", "Gaussian")],
    ),
    (
        "directions, have {} times",
        [in_rows("excess", "last")[1] / in_rows("excess", "last")[0]],
    ),
    ("training with sketches omits kernel values (slope {})", in_rows("training")[1:]),
    (
        "{} and {} in place of {}, at {} and {} times its time; the squared "
        "epsilon-insensitive loss ({}) and the graph ({})",
        [
            *(VECTOR[i]["arrmse"] for i in (1, 2, 0)),
            *(VECTOR[i]["seconds"] / VECTOR[0]["seconds"] for i in (1, 2)),
            *(VECTOR[i]["arrmse"] for i in (3, 4)),
        ],
    ),
    (
        ":math:`n = 4096` the excess risks of the four regimes differ by {} %",
        [100 * (max(regimes(0.5)) / min(regimes(0.5)) - 1)],
    ),
    (
        "leaves gradient noise, has {} times the excess risk of regime IV",
        [regimes(1.0)[0] / regimes(1.0)[3]],
    ),
    (
        "on rf2 p-sparsified sketches differ by up to {}, accumulation is up to {} "
        "below; on the other sets errors differ by up to {}, on scm1d and scm20d by "
        "up to {}.",
        [
            off_paper(OF_TABLE_6[1:3], "rf2"),
            off_paper(["accumulation"], "rf2"),
            off_paper(OF_TABLE_6, *EASY),
            off_paper(OF_TABLE_6, "scm1d", "scm20d"),
        ],
    ),
    (
        "{} (Gaussian) to {} at :math:`s = 140` in place of {} to {}, with a "
        "deviation of {} (Gaussian)",
        [
            *ends(cells("outliers", "error", size=140)),
            *ends(cells("figure1", "error", size=140)),
            *figure("Gaussian", "error_deviation", name="outliers"),
        ],
    ),
    (
        "p-sparsified sketches are {} and {} above the published ones, and with the "
        "settings of the program {} and {}.",
        [
            above_paper(f"20/n-{law}{program}")
            for program in ("", ", program")
            for law in ("SR", "SG")
        ],
    ),
]
PIVOTED = "pivoted Cholesky"
SKETCHES = [
    (
        "its error is {} from {} landmarks; sub-sampling has {}, the p-sparsified "
        "sketch of density :math:`30/n` {} from {}.",
        [
            *figure(PIVOTED, "error", "landmarks"),
            *figure("sub-sampling", "error"),
            *figure(SPARSE[2], "error", "landmarks"),
        ],
    )
]


def million(field):
    """Return tables and LightGBM at a million samples: smooth and steps, both tasks."""
    methods = "tables", "LightGBM, 500 trees"
    return [cells("large-tables", field, method=m)[-4:] for m in methods]


def excess():
    """Return by how many percent the errors of tables are higher at a million."""
    tables, trees = million("error")
    return 100 * (tables / trees - 1)


FIT = million("fit")
INDEX = [
    (
        "At a million samples with categories, four fits take {} to {} seconds and "
        "{} GiB, three to eight times as long as LightGBM",
        (FIT[0].min(), FIT[0].max(), million("gibibytes")[0].max()),
    ),
    (
        "errors are lower by {} and {} % on smooth functions, and higher by {} and {}",
        (*-excess()[1::-1], *excess()[3:1:-1]),
    ),
]
SENTENCES = {
    "claims": CLAIMS,
    "index": INDEX,
    "reproduction": REPRODUCTION,
    "sketches": SKETCHES,
}


def shown(page):
    """Return the text of a page in one line."""
    return " ".join((DOCS / f"{page}.rst").read_text(encoding="utf-8").split())


def problems(text, sentence, values):
    """Yield what is wrong with the numbers of a sentence in a text."""
    pattern = _NUMBER.join(map(re.escape, sentence.split("{}")))
    found = re.search(pattern, text.replace(",000", "000"))
    if found is None:
        yield f"not on the page: {sentence}"
        return
    for number, value in zip(found.groups(), values, strict=True):
        unit = 10.0 ** -len(number.partition(".")[2])
        if abs(float(number) - value) > 0.5001 * unit:
            yield f"{number} is {value:.5g}: {sentence}"


def check(sentences=SENTENCES):
    """Return all numbers of the pages that are not those of the files."""
    return [
        f"{page}.rst: {problem}"
        for page, passages in sentences.items()
        for sentence, values in passages
        for problem in problems(shown(page), sentence, values)
    ]


if __name__ == "__main__":
    wrong = check()
    count = sum(map(len, SENTENCES.values()))
    print(*wrong, f"{count} sentences, {len(wrong)} problems", sep="\n")
    sys.exit(bool(wrong))
