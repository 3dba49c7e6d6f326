"""What the package does on macOS and Windows, simulated on the system of the tests.

The available memory of other systems and of containers is in `test_large_data`.
"""

import errno
import hashlib
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import nbsketch
from nbsketch import cli
from nbsketch._jit import threads
from nbsketch._report import info
from nbsketch.datasets import _files
from nbsketch.reproduce import _report
from nbsketch.solvers import scratch
from nbsketch.solvers.design import ArrayDesign

ELSEWHERE = """
import os, sys, tempfile
from pathlib import Path

for name in ("fork", "register_at_fork", "sysconf", "sched_getaffinity", "link"):
    if hasattr(os, name):
        delattr(os, name)
sys.modules["resource"] = sys.modules["fcntl"] = None
read_text, exists = Path.read_text, Path.exists

def is_linux(path):
    return str(path).startswith(("/proc", "/sys"))

def read(path, *args, **options):
    if is_linux(path):
        raise FileNotFoundError(path)
    return read_text(path, *args, **options)

Path.read_text = read
Path.exists = lambda path: not is_linux(path) and exists(path)
tempfile.TemporaryFile = tempfile.NamedTemporaryFile
folder = os.environ["TMPDIR"]

import numpy as np
import nbsketch
from nbsketch._report import info

X = np.random.default_rng(0).uniform(-2, 2, size=(300, 2))
y = np.sin(X[:, 0])
model = nbsketch.SketchedKernelRegressor(
    loss="huber", bandwidth=1.0, size=20, alpha=1e-4, random_state=0
)
in_memory = model.fit(X, y).predict(X)
assert nbsketch.get_memory_limit() == 2 << 30
nbsketch.set_memory_limit(1000)
assert abs(model.fit(X, y).predict(X) - in_memory).max() < 1e-3
path = Path(folder) / "model.npz"
for _ in range(2):
    model.save(path)
assert (nbsketch.load(path).predict(X) == model.predict(X)).all()
assert info.collect()["processor"]
print(sorted(os.listdir(folder)))
"""


def test_a_system_without_what_linux_has(run_python, tmp_path):
    assert run_python(ELSEWHERE, TMPDIR=str(tmp_path)) == "['model.npz']"


def test_the_processor_is_named_by_any_system(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda path: False)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert info.processor() == "arm"
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert info.processor() == platform.machine()


def test_peak_memory_of_other_systems(monkeypatch):
    resource = pytest.importorskip("resource")
    peak = _report.peak_memory()
    usage = type("Usage", (), {"ru_maxrss": 3 << 30})
    monkeypatch.setattr(resource, "getrusage", lambda who: usage)
    monkeypatch.setattr(sys, "platform", "darwin")  # which counts bytes
    assert peak > 0 and _report.peak_memory() == 3
    monkeypatch.setitem(sys.modules, "resource", None)  # Windows
    assert _report.peak_memory() is None


def test_a_forked_process_has_one_thread(monkeypatch):
    monkeypatch.setattr(threads, "_PROCESS", -1)
    assert threads.thread_limit() == 1


def test_scratch_files_have_a_name_on_windows(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", tempfile.NamedTemporaryFile)
    Z = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    design = scratch.ScratchDesign(ArrayDesign(Z))
    assert len(list(tmp_path.iterdir())) == 1
    assert (np.vstack([block.copy() for _, _, block in design.blocks()]) == Z).all()
    assert (design.gather(np.array([3, 4, 9])).collect() == Z[[3, 4, 9]]).all()
    assert (design.collect() == Z).all()
    del design
    assert not list(tmp_path.iterdir())


def test_scratch_files_go_where_the_system_wants_them(monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(scratch.os, "access", lambda path, mode: False)
    assert scratch.scratch_folder() == tempfile.gettempdir()


def refuse(path, target):
    raise PermissionError(
        errno.EACCES, "Access is denied", str(path), None, str(target)
    )


def test_a_model_file_that_is_open_stays_as_it_is(monkeypatch, tmp_path):
    model = nbsketch.SketchedKernelRegressor()
    path = tmp_path / "model.npz"
    model.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(Path, "replace", refuse)  # Windows
    with pytest.raises(PermissionError, match=r"model\.npz"):
        model.save(path)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == before


def test_a_downloaded_file_that_is_read_stays_as_it_is(monkeypatch, tmp_path):
    content = b"1,2"
    monkeypatch.setattr(_files, "_cache_folder", lambda: tmp_path)
    monkeypatch.setattr(_files, "fetch", lambda url: content)
    digest = hashlib.sha256(content).hexdigest()
    file = _files.RemoteFile("a.csv", url="https://host/a.csv", sha256=digest)
    path = _files._download("set", file)
    monkeypatch.setattr(Path, "replace", refuse)  # Windows
    assert _files._download("set", file) == path == tmp_path / "set" / "a.csv"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "windows, error, status",
    [
        (False, BrokenPipeError(errno.EPIPE, "Broken pipe"), 141),
        (False, OSError(errno.EINVAL, "Invalid argument"), 1),
        (True, BrokenPipeError(errno.EPIPE, "Broken pipe"), 141),
        (True, OSError(errno.EINVAL, "Invalid argument"), 141),
        (True, OSError(errno.EINVAL, "Invalid argument", "a?.csv"), 1),
        (True, ValueError("no"), 1),
    ],
)
def test_a_closed_pipe_is_no_error(monkeypatch, windows, error, status):
    def fail(options):
        raise error

    monkeypatch.setattr(cli, "_WINDOWS", windows)
    monkeypatch.setattr(cli, "_datasets", fail)
    monkeypatch.setattr(cli.os, "dup2", lambda *files: None)
    assert cli.main(["datasets"]) == status
