"""The command line: reproduce the papers, see a demonstration, ask for versions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path

import nbsketch

# Each experiment and the module of `nbsketch.reproduce` whose `run` does it.
_EXPERIMENTS = {
    "table1": "table1",
    "table2": "table2",
    "figure1": "figures",
    "figure2": "figures",
    "figure3": "figures",
    "figure4": "figures",
    "figure5": "figures",
    "rates": "rates",
    "satisfiability": "satisfiability",
    "table3": "table3",
    "table4": "table4",
    "pohlen": "pohlen",
    "sisokr": "sisokr",
    "tabular": "tabular",
    "tabular-quantiles": "tabular_quantiles",
}
# Options of `run`, where it takes them: what is given but not taken is an error.
_OPTIONS = ("replicates", "quick", "out", "tuning", "data_home", "plot_only")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (FileNotFoundError, ModuleNotFoundError, ValueError) as error:
        print(f"nbsketch: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nbsketch", description="Sketched kernel machines."
    )
    parser.add_argument("--version", action="version", version=nbsketch.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="fit with and without a sketch, at once")
    demo.set_defaults(run=_demo)
    _add_reproduce(commands)
    sets = commands.add_parser("datasets", help="say which data sets are at hand")
    sets.set_defaults(run=_datasets)
    info = commands.add_parser("info", help="print versions, threads and cache")
    info.set_defaults(run=_info)
    return parser


def _add_reproduce(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "reproduce", help="repeat a table, a figure or an experiment of the papers"
    )
    command.add_argument("what", choices=_EXPERIMENTS)
    command.add_argument(
        "--replicates",
        type=_positive,
        metavar="N",
        help="draws of each sketch or of the data; each experiment has its own default",
    )
    command.add_argument(
        "--quick", action="store_true", help="fewer replicates: minutes, not more"
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help='folder for the CSV, Markdown and PNG files (with a picture: "results")',
    )
    command.add_argument(
        "--tuning",
        type=Path,
        metavar="FILE",
        help="choices of bandwidth and alpha, read, and made where missing",
    )
    command.add_argument(
        "--data-home", type=Path, metavar="DIR", help="folder of the data sets"
    )
    command.add_argument(
        "--plot-only",
        action="store_true",
        help="start from the CSV file: picture and table, without measuring",
    )
    command.set_defaults(run=_reproduce)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _demo(options: argparse.Namespace) -> int:
    from nbsketch.reproduce import demo

    demo.run()
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    module = import_module(f"nbsketch.reproduce.{_EXPERIMENTS[options.what]}")
    taken = signature(module.run).parameters
    given = {name: getattr(options, name) for name in _OPTIONS}
    for name in [n for n in given if given[n] and n not in taken]:
        flag = "--" + name.replace("_", "-")
        raise ValueError(f"{flag} does not go with {options.what}")
    arguments = {name: value for name, value in given.items() if name in taken}
    if "name" in taken:  # one module, several experiments
        arguments["name"] = options.what
    module.run(**arguments)
    return 0


def _datasets(options: argparse.Namespace) -> int:
    from nbsketch import datasets

    for name in sorted(datasets.__all__):
        if name.startswith("load_"):
            try:
                data = getattr(datasets, name)(download=False)
                shape = f"{data.X.shape[0]} x {data.X.shape[1]}"
            except FileNotFoundError:
                shape = "not at hand"
            print(f"{name.removeprefix('load_'):12} {shape}")
    return 0


def _info(options: argparse.Namespace) -> int:
    from nbsketch import _info

    for name, value in _info.collect().items():
        print(f"{name:22} {value}")
    return 0
