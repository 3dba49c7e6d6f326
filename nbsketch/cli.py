"""Command line: run experiments and the demo, list data sets, print versions."""

import argparse
import errno
import os
import sys
import time
import tomllib
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import nbsketch
from nbsketch.reproduce import EXPERIMENTS, options_of, run_all, run_one

_COLUMNS = 5  # of the data fitted by `warmup`
# Exit status if the reader of the output is closed: 128 plus the number of SIGPIPE.
_PIPE_CLOSED = 141
_WINDOWS = os.name == "nt"
# The fits of `warmup`, and the options of `reproduce`.
_TEXTS = tomllib.loads(Path(__file__).with_name("cli.toml").read_text("utf-8"))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help(sys.stderr)
        parser.exit(2)
    try:
        options.run(options)
        sys.stdout.flush()
    except (OSError, ModuleNotFoundError, ValueError) as error:
        if _is_pipe_closed(error):  # the reader, such as `head`, has stopped
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _PIPE_CLOSED
        print(f"nbsketch: {error}", file=sys.stderr)
        return 1
    return 0


def _is_pipe_closed(error: Exception) -> bool:
    """Return whether standard output is closed; Windows has no own error for it."""
    if not (_WINDOWS and isinstance(error, OSError)):
        return isinstance(error, BrokenPipeError)
    return error.errno in (errno.EPIPE, errno.EINVAL) and error.filename is None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nbsketch", description="Sketched kernel methods."
    )
    parser.add_argument("--version", action="version", version=nbsketch.__version__)
    commands = parser.add_subparsers(metavar="COMMAND")
    _add_reproduce(commands)
    for name, run, text in (
        ("demo", _demo, "fit a synthetic problem with and without a sketch"),
        ("warmup", _warmup, "compile what the estimators use, before the first fit"),
        ("datasets", _datasets, "list the data sets, and shapes if they are on disk"),
        ("info", _info, "print versions, number of threads and cache folder"),
    ):
        commands.add_parser(name, help=text, description=text).set_defaults(run=run)
    return parser


def _add_reproduce(commands: argparse._SubParsersAction) -> None:
    text = "repeat a table, a figure or an experiment of the papers"
    command = commands.add_parser("reproduce", help=text, description=text)
    command.add_argument(
        "what",
        choices=(*EXPERIMENTS, "all"),
        metavar="NAME",
        help=f"table, figure or experiment: {', '.join(EXPERIMENTS)}; or all of them",
    )
    command.set_defaults(run=_reproduce)
    # Each option must apply to the chosen experiment.
    command.register("type", "path", Path)
    command.register("type", "count", _positive)
    for flags, settings in _TEXTS["options"].items():
        command.add_argument(*flags.split(), **settings)


def _demo(options: argparse.Namespace) -> None:
    from nbsketch.reproduce import demo

    demo.run()


def _warmup(options: argparse.Namespace) -> None:
    """Compile the code of the estimators by small fits and predictions of each kind."""
    for fit in _TEXTS["fits"]:
        rng = np.random.default_rng(0)
        n = fit["rows"]
        X = rng.normal(size=(n, _COLUMNS))
        y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
        parameters = fit.get("parameters", {})
        model = getattr(nbsketch, fit["class"])(random_state=0, **parameters)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the random data
            model.fit(X, y > 0 if "classes" in fit else y).predict(X)
        print(f"{fit['name']:44} {time.perf_counter() - began:6.1f} s", flush=True)


def _reproduce(options: argparse.Namespace) -> None:
    given = vars(options)
    del given["run"]
    what = given.pop("what")
    if what == "all":
        failures = run_all(**given)
        if failures:
            raise ValueError(f"not run: {', '.join(failures)}; see the reasons above")
        return
    taken = options_of(what)
    for name in given:
        if given[name] and name not in taken:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} is not an option of {what}")
    run_one(what, **given)


def _datasets(options: argparse.Namespace) -> None:
    from nbsketch import datasets

    for name in sorted(datasets.__all__):
        if name.startswith("load_"):
            try:
                data = getattr(datasets, name)(download=False)
                shape = f"{data.X.shape[0]} x {data.X.shape[1]}"
            except FileNotFoundError:
                shape = "not found"
            print(f"{name.removeprefix('load_'):12} {shape}")
    hint = "Set NBSKETCH_DATA to the folder of the files; public sets are downloaded."
    print(hint, file=sys.stderr)


def _info(options: argparse.Namespace) -> None:
    from nbsketch._report import info

    for name, value in info.collect().items():
        print(f"{name:22} {value}")
