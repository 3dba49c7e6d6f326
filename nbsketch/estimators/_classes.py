"""What classifiers share: labels as signs, losses of margins, predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from nbsketch._faults import explaining
from nbsketch.distributed.collections import is_dask
from nbsketch.distributed.lazy import row_by_row
from nbsketch.estimators._scores import ClassifierScore
from nbsketch.fitting.objectives import ScalarObjective
from nbsketch.fitting.weights import weights_of_classes
from nbsketch.losses import LogisticLoss, Loss, as_loss


def _has_probabilities(model: Any) -> bool:
    if isinstance(as_loss(model.loss), LogisticLoss):
        return True
    raise AttributeError("predict_proba needs loss='logistic'")


class OneVsRest(ClassifierScore):
    """Mixin of the kernel machines for classes: one column for each against the rest.

    Two classes have one column, positive for the second.
    """

    loss: Any
    class_weight: Any
    fit_intercept: bool

    def _weigh(self, y: NDArray, weights: NDArray | None) -> NDArray | None:
        """Return sample weights times the weights of the classes."""
        with explaining({"y": y}, text_in=("y",)):
            check_classification_targets(y)
        return weights_of_classes(self._class_weight(y), y, weights)

    def _class_weight(self, y: NDArray) -> Any:
        """Return the weights of the classes in y, which may lack some known ones."""
        given, known = self.class_weight, getattr(self, "classes_", None)
        if known is None or not isinstance(given, dict):
            return given
        if others := given.keys() - set(known.tolist()):
            raise ValueError(
                f"`class_weight` must be of the classes {known.tolist()}, got "
                f"{sorted(others, key=str)}"
            )
        present = set(np.unique(y).tolist())
        return {label: value for label, value in given.items() if label in present}

    def _set_classes(self, y: NDArray) -> None:
        """Set `classes_` to the distinct labels."""
        self.classes_ = np.unique(y)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"`y` must hold at least two classes, got {count} class")

    def _signs(self, y: NDArray, name: str = "y") -> NDArray:
        """Return -1 or 1 for each row and class, one column for two classes.

        Errors call the labels `name`.
        """
        known = self.classes_
        if not np.isin(y, known).all():
            others = np.setdiff1d(y, known)[:5].tolist()
            hint = ": name all classes of a stream in its first call"
            raise ValueError(
                f"`{name}` must hold the classes {known.tolist()}, got {others}"
                + hint * (name == "y")
            )
        index, count = np.searchsorted(known, y), len(known)
        columns = np.array([1]) if count == 2 else np.arange(count)
        return np.where(index[:, None] == columns, 1.0, -1.0)

    def _margin_loss(self) -> Loss:
        """Return the loss, checked."""
        loss = as_loss(self.loss)
        if not loss.is_classification:
            raise ValueError(f"`loss` must be a loss of margins, got {loss!r}")
        return loss

    def _margin_objective(
        self, signs: NDArray, weights: NDArray | None
    ) -> ScalarObjective:
        loss = self._margin_loss()
        return ScalarObjective(signs, weights, self.fit_intercept, loss)

    def decision_function(self, X: ArrayLike) -> NDArray:
        """Return f(X) + b: (n,) for two classes, positive for the second, or (n, c)."""
        if is_dask(X):
            return row_by_row(self.decision_function, X)
        return self._decision(X)

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the label of each row of X, of shape (n,)."""
        if is_dask(X):
            return row_by_row(self.predict, X)
        scores = self._decision(X)
        index = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index.astype(np.intp)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: ArrayLike) -> NDArray:
        """Return the probability of each class, of shape (n, c).

        More than two classes: one-vs-rest probabilities, normalized to sum to one.
        """
        if is_dask(X):
            return row_by_row(self.predict_proba, X)
        chances = expit(self._decision(X))
        if chances.ndim == 1:
            return np.column_stack([1 - chances, chances])
        # If every class has probability 0, return the uniform distribution.
        chances = np.maximum(chances, np.finfo(chances.dtype).tiny)
        return chances / chances.sum(axis=1, keepdims=True)
