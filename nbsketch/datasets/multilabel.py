"""Mulan's multi-label sets: binary inputs or features of text and video, 0/1 labels."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.sparse import csr_array, vstack

from nbsketch.datasets._arff import read_arff, read_dense_arff
from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._docs import Folder, Loader, loader
from nbsketch.datasets._files import RemoteFile, Source, locate

_DOWNLOAD = "Without effect: the source is a RAR archive, which Python cannot unpack."


@dataclass(frozen=True)
class _Set:
    """Files and shape of a set; `n_train`: rows of the first file if None."""

    name: str
    files: tuple[str, ...]
    n_features: int
    n_labels: int
    is_sparse: bool = True
    n_train: int | None = None

    @property
    def source(self) -> Source:
        """Where the files come from."""
        origin = (
            "the file area of the Mulan project (mulan.sourceforge.net), archive "
            f"'datasets/{self.name}.rar', to be unpacked with a program that reads RAR"
        )
        return Source(self.name, origin, tuple(map(RemoteFile, self.files)))


def _load(known: _Set, data_home: Folder, download: bool) -> Dataset:
    tables, q = [], known.n_features
    for path in locate(known.source, data_home, download):
        names, table = (read_arff if known.is_sparse else read_dense_arff)(path)
        if table.shape[1] != q + known.n_labels:
            raise ValueError(
                f"{path} must have {q + known.n_labels} columns, got {table.shape[1]}"
            )
        tables.append(csr_array(table) if known.is_sparse else table)
    if known.is_sparse:
        whole = vstack(tables, format="csr")
        X, Y = whole[:, :q], whole[:, q:].toarray()
    else:
        whole = np.vstack(tables)
        X, Y = whole[:, :q].copy(), whole[:, q:]
    n_train = known.n_train or tables[0].shape[0]
    features, labels = tuple(names[:q]), tuple(names[q:])
    return Dataset(known.name, X, Y.astype(np.int8), features, labels, n_train)


def _loader(known: _Set, **texts: str) -> Callable[[Callable[[], None]], Loader]:
    """Return a decorator that makes the loader of a set."""
    download = (
        "Without effect: the source is a RAR archive, which Python cannot unpack."
    )
    texts = {"mismatch": "If a file does not have the expected columns.", **texts}
    return loader(known.source, partial(_load, known), download=download, **texts)


@_loader(_Set("bibtex", ("bibtex-train.arff", "bibtex-test.arff"), 1836, 159))
def load_bibtex() -> None:
    """Load bibtex: tags that users gave to publications, from the words about them.

    Returns
    -------
    Dataset
        X is a `scipy.sparse.csr_array` of zeros and ones, y a dense int8 matrix of
        zeros and ones: 7395 rows (4880 train, 2515 test), 1836 features, 159 labels.

    References
    ----------
    Katakis, Tsoumakas and Vlahavas (2008), Multilabel text classification for
    automated tag suggestion, ECML/PKDD discovery challenge.

    Examples
    --------
    >>> from nbsketch.datasets import load_bibtex
    >>> load_bibtex()  # doctest: +SKIP
    Dataset('bibtex', X=(7395, 1836), y=(7395, 159), n_train=4880)
    """


@_loader(
    _Set("bookmarks", ("bookmarks.arff",), 2150, 208, n_train=60_000),
    mismatch="If the file does not have the expected columns or not more than 60 000 "
    "rows.",
)
def load_bookmarks() -> None:
    """Load bookmarks: tags that users gave to web pages, from the words about them.

    The file has no published split: the first 60 000 rows are the training
    part, as in the literature on structured prediction.

    Returns
    -------
    Dataset
        X is a `scipy.sparse.csr_array` of zeros and ones, y a dense int8 matrix of
        zeros and ones: 87856 rows (60000 train, 27856 test), 2150 features, 208
        labels.

    References
    ----------
    Katakis, Tsoumakas and Vlahavas (2008), Multilabel text classification for
    automated tag suggestion, ECML/PKDD discovery challenge.

    Examples
    --------
    >>> from nbsketch.datasets import load_bookmarks
    >>> load_bookmarks()  # doctest: +SKIP
    Dataset('bookmarks', X=(87856, 2150), y=(87856, 208), n_train=60000)
    """


@_loader(
    _Set("mediamill", ("mediamill-train.arff", "mediamill-test.arff"), 120, 101, False)
)
def load_mediamill() -> None:
    """Load mediamill: concepts in video shots, from features of the images.

    Returns
    -------
    Dataset
        X is a dense float matrix, y a dense int8 matrix of zeros and ones: 43907 rows
        (30993 train, 12914 test), 120 features, 101 labels.

    References
    ----------
    Snoek, Worring, van Gemert, Geusebroek and Smeulders (2006), The challenge problem
    for automated detection of 101 semantic concepts in multimedia, ACM Multimedia.

    Examples
    --------
    >>> from nbsketch.datasets import load_mediamill
    >>> load_mediamill()  # doctest: +SKIP
    Dataset('mediamill', X=(43907, 120), y=(43907, 101), n_train=30993)
    """
