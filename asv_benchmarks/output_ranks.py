"""F1 of output sketches and of output ranks of the same size, on several splits.

Bibtex: random splits of the size of the published one, settings of ``nbsketch reproduce
sisokr``. Documents: synthetic, sketches of 100 rows, and 20 and 40 rows or directions.
"""

import numpy as np
import scipy.sparse as sp

from nbsketch.datasets import load_bibtex, make_documents
from nbsketch.reproduce.sisokr.multilabel import SETTINGS, PaperFit, evaluate, scaled

SPLITS = 5
DRAWS = 3
N_TRAIN = 4000  # documents


def bibtex(seed):
    """Return a random split of Bibtex, and the settings."""
    data = load_bibtex()
    X = sp.vstack([data.X_train, data.X_test]).tocsr()
    Y = sp.vstack([data.y_train, data.y_test]).tocsr()
    rows = np.random.default_rng(100 + seed).permutation(X.shape[0])
    train, test = np.split(rows, [data.X_train.shape[0]])
    settings = [s for s in SETTINGS if s.set == "bibtex" and "SISOKR" in s.method]
    return scaled(X[train], X[test]), (Y[train], Y[test]), settings


def documents(seed):
    """Return synthetic documents, and settings with a median bandwidth."""
    X, Y = make_documents(6000, n_words=1000, n_labels=100, random_state=seed)
    inputs = scaled(X[:N_TRAIN], X[N_TRAIN:])
    pairs = inputs[0][:500].toarray().reshape(2, 250, -1)
    square = float(np.median(np.square(pairs[0] - pairs[1]).sum(axis=1))) / 2
    common = {"alpha": 1e-5, "square": square, "output_square": 1e4, "input_size": 2000}
    settings = [PaperFit("documents", "SISOKR", output_size=100, **common)]
    for k in (20, 40):
        sketched = PaperFit("documents", f"SISOKR of {k}", output_size=k, **common)
        ranked = sketched._replace(
            method=f"SISOKR of rank {k}", output_size=100, output_rank=k
        )
        settings += [sketched, ranked]
    return inputs, (Y[:N_TRAIN], Y[N_TRAIN:]), settings


def main():
    for draw, count in ((bibtex, SPLITS), (documents, DRAWS)):
        scores = {}
        for seed in range(count):
            (X, X_test), (Y, Y_test), settings = draw(seed)
            for setting in settings:
                model = setting.model(seed, Y)
                f1 = evaluate(model, X, Y, X_test, Y_test)["f1"]
                scores.setdefault(setting.method, []).append(f1)
        for method, values in scores.items():
            print(draw.__name__, method, *(f"{value:.1f}" for value in values))


if __name__ == "__main__":
    main()
