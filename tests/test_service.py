"""The web service of the documentation: run by uvicorn, asked by another process."""

import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from numpy.testing import assert_array_equal

from nbsketch import TabularKernelRegressor

for name in "fastapi", "uvicorn":
    pytest.importorskip(name)

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "area": RNG.uniform(20, 120, 200).round(1),
        "district": RNG.choice(["center", "north"], 200),
        "floor": RNG.integers(0, 5, 200),
    }
)
TABLE.loc[::20, "area"] = np.nan
Y = 9 * TABLE["area"].fillna(70) + 200 * (TABLE["district"] == "center")


@pytest.fixture(scope="module")
def model():
    return TabularKernelRegressor(random_state=0).fit(TABLE, Y)


@pytest.fixture
def service(model, tmp_path):
    """Yield the address of the service of the page, with two processes."""
    page = (ROOT / "docs" / "deployment.rst").read_text("utf-8")
    code = re.search(r"``serve.py``:\n\n.. code-block:: python\n\n((    .*)?\n)+", page)
    text = code.group().partition("python\n\n")[2]
    (tmp_path / "serve.py").write_text(textwrap.dedent(text), "utf-8")
    model.save(tmp_path / "model.npz")
    command = [sys.executable, "-m", "uvicorn", "serve:app", "--port", "0"]
    paths = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    process = subprocess.Popen(
        [*command, "--workers", "2"],
        cwd=tmp_path, env=paths, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        log = ""
        while "startup complete" not in log and process.poll() is None:
            log += process.stderr.readline()
        address = re.search(r"running on (http://[\d.:]+)", log).group(1)
        # Startup is complete before the socket listens.
        host, port = address.removeprefix("http://").split(":")
        for _ in range(600):
            with suppress(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=60).close()
                break
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_answers_are_the_predictions_of_the_model(service, model):
    def ask(part):
        body = part.to_json(orient="records").encode()  # missing values are null
        headers = {"Content-Type": "application/json"}
        request = Request(f"{service}/predict", body, headers)
        with urlopen(request, timeout=120) as answer:
            return json.load(answer)

    parts = [TABLE[k : k + 50] for k in range(0, 200, 50)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, parts))
    for part, answer in zip(parts, answers, strict=True):
        assert_array_equal(answer["mean"], model.predict(part))
        ends = model.predict_interval(part, coverage=0.9)
        assert_array_equal(answer["interval"], ends)
