"""Scripted experiments: the tables and figures of the papers, and comparisons.

``nbsketch reproduce NAME`` runs one experiment. The file ``experiments.toml`` has their
texts; `EXPERIMENTS` gives the module of each name, which is imported on demand. Each
module has a callable ``run``, an `Experiment` or a function, which prints its table and
returns the rows of the table, a list of dicts. It takes those of the following
parameters that apply, all optional and by keyword:

replicates : int
    Number of draws of the sketches, data or splits. Default: that of the experiment.
quick : bool, default=False
    Whether to use fewer replicates and smaller problems.
out : Path
    Folder for NAME.csv (all digits), NAME.json (date, versions, processor, threads),
    NAME.md (the table with notes) and, for an experiment with a figure, NAME.png.
    If missing, only experiments with a figure write files, into the folder "results".
tuning : Path
    JSON file of hyperparameters: read if it exists, and completed by cross-validation.
    Default: the hyperparameters in the package.
data_home : Path
    Folder of the data sets, see `nbsketch.datasets`.
plot_only : bool, default=False
    Whether to make table and figure from NAME.csv, without measuring.
sets, methods : sequence of str
    Names of the data sets and methods to measure. Default: all.

A module with several experiments has a dictionary ``RUNS``. The command rejects options
that an experiment does not take. ``nbsketch reproduce all`` runs every experiment.
"""

import tomllib
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any


def read_toml(name: str) -> dict[str, Any]:
    """Return the content of a file of this package."""
    return tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))


ENTRIES = read_toml("experiments.toml")
# Name of each experiment: its module in this package.
EXPERIMENTS = {name: e["module"] for name, e in ENTRIES.items() if "module" in e}


def runner(name: str) -> Callable[..., list[dict[str, Any]]]:
    """Import the module of an experiment and return its callable.

    Examples
    --------
    >>> from nbsketch.reproduce import runner
    >>> runner("table3").name
    'table3'
    """
    module = import_module(f"{__name__}.{EXPERIMENTS[name]}")
    return module.RUNS[name] if hasattr(module, "RUNS") else module.run


def options_of(name: str) -> set[str]:
    """Return the names of the options of an experiment."""
    run = runner(name)
    return getattr(run, "options", None) or set(signature(run).parameters)


def run_all(**options: Any) -> dict[str, str]:
    """Run every experiment with the options that it takes.

    Returns
    -------
    dict
        Message of each experiment that could not run because its data set or a package
        is missing.
    """
    failures = {}
    for name in EXPERIMENTS:
        print(f"== {name}\n")
        try:
            run_one(name, **options)
        except (FileNotFoundError, ModuleNotFoundError) as error:
            failures[name] = str(error)
            print(f"{name} was left out. {error}\n")
    return failures


def run_one(name: str, **options: Any) -> list[dict[str, Any]]:
    """Run an experiment with the options that it takes."""
    taken = options_of(name)
    if options.get("out"):
        # An OSError comes before hours of measurement, not afterwards.
        folder = Path(options["out"])
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    return runner(name)(**{key: options[key] for key in options if key in taken})
