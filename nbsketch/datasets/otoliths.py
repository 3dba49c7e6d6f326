"""Images of fish otoliths, ear bones whose rings show the age."""

import csv
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import RemoteFile, Source, locate, read_lines

_SIDE = 64
_SOURCE = Source(
    "otoliths",
    "the fish otolith images of Moen et al. (2018) and Ordonez et al. (2020), reduced "
    "to 64 x 64 arrays; no public address of these arrays is known. Beside the two "
    "tables the folders hold one image for each of their rows, train/Train_fc_0.npy, "
    "train/Train_fc_1.npy, ... and test/Test_fc_0.npy, test/Test_fc_1.npy, ...",
    (RemoteFile("train/Training_info.csv"), RemoteFile("test/Testing_info.csv")),
)
_AGE = "Ground truth"


def load_otoliths(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load otoliths: the age of a fish from an image of its ear bone.

    Row i of a table belongs to the image whose name ends in ``_i.npy``, counted from
    0; the age is the column ``Ground truth``. An image is an array of 4096 numbers,
    64 x 64 or already flat, and becomes one row of X, read row by row.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``otoliths/train/Training_info.csv`` with the images
        ``otoliths/train/Train_fc_*.npy``, and ``otoliths/test/Testing_info.csv`` with
        ``otoliths/test/Test_fc_*.npy``. Searched first, then the folder in the
        environment variable NBSKETCH_DATA, then ``nbsketch`` in scikit-learn's
        data folder.
    download : bool, default=True
        Without effect: no public address of the arrays is known.

    Returns
    -------
    Dataset
        X is float32 where every image is, else float64; y holds the ages: 3945 rows
        (3780 train, 165 test), 4096 features.

    Raises
    ------
    FileNotFoundError
        If a table or an image is not found; it says what to put where.
    ValueError
        If a table has no column of ages, or an image not 4096 values.

    References
    ----------
    Moen, Handegard, Allken, Albert, Harbitz and Malde (2018), Automatic
    interpretation of otoliths using deep learning, PLOS ONE 13(12).
    Ordonez, Eikvil, Salberg, Harbitz, Murray and Kampffmeyer (2020), Explaining
    decisions of deep neural networks used for fish age prediction, PLOS ONE 15(6).

    Examples
    --------
    >>> from nbsketch.datasets import load_otoliths
    >>> load_otoliths()  # doctest: +SKIP
    Dataset('otoliths', X=(3945, 4096), y=(3945,), n_train=3780)
    """
    train_table, test_table = locate(_SOURCE, data_home, download)
    y_train, y_test = _read_ages(train_table), _read_ages(test_table)
    images = [train_table.parent / f"Train_fc_{i}.npy" for i in range(len(y_train))]
    images += [test_table.parent / f"Test_fc_{i}.npy" for i in range(len(y_test))]
    X = np.stack([_read_image(path) for path in images])
    y = np.concatenate([y_train, y_test])
    pixels = tuple(f"pixel_{i}_{j}" for i in range(_SIDE) for j in range(_SIDE))
    return Dataset("otoliths", X, y, pixels, ("age",), len(y_train))


def _read_ages(path: Path) -> NDArray:
    rows = list(csv.DictReader(read_lines(path)))
    if not rows or _AGE not in rows[0]:
        raise ValueError(f"{path} must have rows and a column named {_AGE!r}")
    return np.array([float(row[_AGE]) for row in rows])


def _read_image(path: Path) -> NDArray:
    if not path.is_file():
        raise FileNotFoundError(
            f"The image {path} of the data set 'otoliths' was not found, although the "
            "table beside it has a row for it: put all images there"
        )
    image = np.load(path)
    if image.size != _SIDE**2:
        raise ValueError(f"{path} must hold {_SIDE**2} values, got {image.shape}")
    return image.ravel().astype(np.float32 if image.dtype == np.float32 else np.float64)
