"""Class weights, multiplied with the sample weights."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.validation import check_real, row_weights


def weights_of_classes(
    class_weight: Any, y: NDArray, weights: NDArray | None, known: NDArray | None = None
) -> NDArray | None:
    """Return the sample weights times the class weights.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weight of each class. "balanced": inversely proportional to the class
        frequencies, counted by sample weights. None: ones.
    y : ndarray of shape (n,)
        Labels.
    weights : ndarray of shape (n,) or None
        Sample weights; classes without a sample of positive weight are ignored.
    known : ndarray of shape (c,) or None
        All classes of a stream, of which y may contain only some. None: the classes in
        y.
    """
    if class_weight is None:
        return weights
    given = row_weights(weights, y)
    rows = np.flatnonzero(given)
    classes, index = np.unique(y[rows], return_inverse=True)
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(index, given[rows])
        factors = counts.sum() / (len(classes) * counts)
    else:
        factors = _class_factors(class_weight, classes, known)
    out = np.zeros(len(y))
    with np.errstate(over="ignore"):
        out[rows] = given[rows] * factors[index]
    check_sum("class_weight", out)
    if not out.any():
        raise ValueError("`class_weight` must be positive for a class, got zeros only")
    return out


def columns_of_classes(classes: NDArray) -> NDArray:
    """Return the classes with an output, by index: of two classes, only the second."""
    count = len(classes)
    if count < 2:
        raise ValueError(f"`y` must hold at least two classes, got {count} class")
    return np.array([1]) if count == 2 else np.arange(count)


def check_sum(name: str, weights: NDArray) -> None:
    """Check that the sum of weights is finite, without an overflow."""
    largest = np.finfo(np.float64).max / len(weights)
    if weights.max() > largest:
        raise ValueError(
            f"`{name}` must give weights of at most {largest:.1e}, so that their sum "
            f"is finite, got {weights.max():.1e}"
        )


def _class_factors(
    class_weight: Any, classes: NDArray, known: NDArray | None
) -> NDArray:
    """Return the class weights in a dict, 1 for missing classes.

    Keys are labels or their text, because JSON files only have text. Unknown keys raise
    an error in a stream, and if a class is missing.
    """
    if not isinstance(class_weight, dict):
        raise ValueError(
            "`class_weight` must be None, 'balanced' or a dict from labels to weights, "
            f"got {class_weight!r}"
        )
    labels = (classes if known is None else known).tolist()
    same = {text: label for label in labels for text in (str(label), _text(label))}
    factors = dict[Any, float]()
    others = []
    for key, value in class_weight.items():
        label = key if key in labels else same.get(_text(key))
        if label is None:
            others.append(key)
        elif label in factors:
            raise ValueError(
                f"`class_weight` must name each class once, got {label!r} twice"
            )
        else:
            name = f"class_weight[{key!r}]"
            factors[label] = check_real(name, value, low=0, high_open=True)
    if others and (known is not None or len(factors) < len(labels)):
        raise ValueError(
            f"`class_weight` must be of the classes {labels}, got {others}"
        )
    return np.array([factors.get(label, 1.0) for label in classes.tolist()])


def _text(label: Any) -> str:
    """Return the text of a label; whole numbers without a decimal point."""
    is_whole = isinstance(label, float) and label.is_integer()
    return str(int(label) if is_whole else label)
