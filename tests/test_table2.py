"""Table 2 on the real sets, against an independent dense implementation."""

import json
import os
from importlib import resources

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from nbsketch import GaussianKernel, PSparsifiedSketch, SketchedKernelRegressor
from nbsketch.metrics import arrmse
from nbsketch.reproduce._report import where
from nbsketch.reproduce.p_sparsified import table2

pytestmark = pytest.mark.skipif(
    "NBSKETCH_DATA" not in os.environ, reason="needs the data sets"
)


def dense_prediction(X, Y, X_new, S, bandwidth, alpha):
    """Minimize over g by least squares on stacked rows, from the definition."""
    gamma = 1 / (2 * bandwidth**2)
    columns = np.unique(S.indices)
    W = S[:, columns].toarray()
    KS = rbf_kernel(X, X[columns], gamma=gamma) @ W.T
    values, vectors = np.linalg.eigh(W @ KS[columns])
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    system = np.vstack([KS - KS.mean(axis=0), np.sqrt(len(X) * alpha) * root])
    sides = np.vstack([Y - Y.mean(axis=0), np.zeros((len(root), Y.shape[1]))])
    g = np.linalg.lstsq(system, sides, rcond=1e-12)[0]
    KS_new = rbf_kernel(X_new, X[columns], gamma=gamma) @ W.T
    return (KS_new - KS.mean(axis=0)) @ g + Y.mean(axis=0)


@pytest.mark.thin(every=4)
@pytest.mark.parametrize("name", table2.SETS)
def test_error_is_that_of_a_dense_implementation(name):
    shipped = resources.files("nbsketch.reproduce.p_sparsified") / "table2_tuning.json"
    setting = json.loads(shipped.read_text())[name]["20/n-SR"]
    split = table2._load(name, None)
    model = SketchedKernelRegressor(
        GaussianKernel(setting["bandwidth"]),
        sketch=PSparsifiedSketch(100),
        alpha=setting["alpha"],
        random_state=0,
    ).fit(split.X_train, split.Y_train)
    expected = dense_prediction(
        split.X_train, split.Y_train, split.X_test, model.sketch_.to_csr(), **setting
    )
    mean = split.Y_train.mean(axis=0)
    ours = arrmse(split.Y_test, model.predict(split.X_test), mean)
    # Far below the deviation over sketches, 2e-3 and more where they differ at all.
    assert abs(ours - arrmse(split.Y_test, expected, mean)) < 1e-4


# The paper has a kernel of the raw columns.
@pytest.mark.full
@pytest.mark.filterwarnings("ignore:the kernel hardly depends on columns")
@pytest.mark.parametrize(
    ("sets", "left_out", "draws"),
    [(("rf1",), (), 1), (("rf2",), (), 3), (("scm1d", "scm20d"), (table2.WITHOUT,), 1)],
    ids=["rf1", "rf2", "scm"],
)
def test_errors_are_at_most_0_03_above_the_papers_on_rf2_and_0_004_elsewhere(
    sets, left_out, draws, monkeypatch
):
    """Draws vary by 0.02 on rf2, where the mean of three counts, by 0.001 elsewhere.

    Without a sketch, the larger sets are fitted by conjugate gradients alone.
    """
    monkeypatch.setattr(table2, "_EXACT_REPLICATES", 1)
    monkeypatch.setattr(table2, "SETS", sets)
    methods = tuple(
        method
        for method in table2.ROWS
        if method not in left_out and not method.endswith(", program")
    )
    monkeypatch.setattr(table2, "ROWS", methods)
    rows = table2.run(replicates=draws)
    for row in rows:
        slack = 0.03 if row["set"] == "rf2" else 0.004
        # conjugate gradients on all rows are not in the paper
        exact = {"set": row["set"], "method": table2.WITHOUT}
        paper = row["paper"] or where(table2.PAPER, **exact)[0]["paper"]
        assert row["arrmse"] < paper + slack, row
