"""When, where and with which versions a result was measured: NAME.json."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from shutil import which

import nbsketch
from nbsketch import _info

_VERSIONS = ("nbsketch", "python", "numba", "numpy", "scipy", "scikit-learn")


def provenance() -> dict[str, str]:
    """Return date (UTC), state of the code, command, versions, processor, threads."""
    info = _info.collect()
    today = datetime.now(UTC).date().isoformat()
    command = " ".join(["nbsketch", *sys.argv[1:]])
    return {"date": today, "commit": commit(), "command": command} | {
        name: info[name] for name in (*_VERSIONS, "processor", "threads")
    }


def commit() -> str:
    """Return the commit of a checkout, with + if files have changed; else nothing."""
    folder = Path(nbsketch.__file__).parents[1]
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"]
    if not (folder / ".git").exists() or which("git") is None:
        return ""
    return subprocess.run(git, capture_output=True, text=True).stdout.strip()


def as_sentence(known: dict[str, str]) -> str:
    """Return where a result comes from, in one sentence."""
    commit = f", commit {known['commit']}" if known.get("commit") else ""
    return (
        f"Measured on {known['date']} with nbsketch {known['nbsketch']}{commit} "
        f"(numba {known['numba']}, NumPy {known['numpy']}) on {known['processor']}, "
        f"{known['threads']} thread(s)."
    )


def write_provenance(file: Path) -> str:
    """Write `provenance` next to a result, as NAME.json; return it as a sentence."""
    known = provenance()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(known, indent=2) + "\n"
    file.with_suffix(".json").write_text(text, encoding="utf-8")
    return as_sentence(known)


def read_provenance(file: Path) -> str:
    """Return the sentence of the NAME.json next to a result; empty without one."""
    path = file.with_suffix(".json")
    if not path.exists():
        return ""
    return as_sentence(json.loads(path.read_text(encoding="utf-8")))
