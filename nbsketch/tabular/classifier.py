"""Classification on tables."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from nbsketch._report.validation import declares_parameters, explaining, warn
from nbsketch.estimators._base import ClassifierScore, LogProbabilities
from nbsketch.rows.class_weights import columns_of_classes, weights_of_classes
from nbsketch.rows.inputs import check_weights, labels_of_rows, rowwise, table_by_row
from nbsketch.solvers.left_out import effective_number
from nbsketch.tabular._model import TabularModel
from nbsketch.tabular.calibration import N_SLOPES, calibrate, two_columns
from nbsketch.tabular.partners import fit_pool, logarithms, pooled
from nbsketch.tabular.suspects import Suspects
from nbsketch.tuning.rows import Training

# Warn of classes with fewer samples; number of them that the warning names.
_FEW_ROWS = 5
_SHOWN = 5


@declares_parameters
class TabularKernelClassifier(ClassifierScore, LogProbabilities, TabularModel):
    r"""Kernel classification for tables with mixed columns, without tuning.

    The model of `TabularKernelRegressor` is fitted to class indicators. Its scores are
    converted to probabilities by a calibration on leave-one-out scores.

    Parameters
    ----------
    partners : "auto", "large", list of classifiers or None, default="auto"
        scikit-learn estimators with `predict_proba` that are combined in a logarithmic
        pool of probabilities; see `TabularKernelRegressor`. "auto": boosted trees, for
        at least 10 samples per class; for more than two classes only if fits without
        each of two folds lower the held-out log loss by 0.5 %. "large": the same above
        65,536 samples only. None: no partners.
    class_weight : dict, "balanced" or None, default=None
        Class weights, multiplied with the sample weights. "balanced": inversely
        proportional to the class frequencies. Probabilities refer to the weighted
        samples. None: equal weights.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Samples left out together: see `TabularKernelRegressor`.
    max_seconds : float or None, default=None
        See `TabularKernelRegressor`. None: no limit.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results, independent of the number of threads.
    verbose : int, default=0
        If positive, display the progress of the fit.
    callback : callable or None, default=None
        See `TabularKernelRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Sorted class labels.
    loo_log_loss_, loo_error_ : float
        Log loss and error rate of the leave-one-out probabilities, which estimate those
        on new samples. If classes hardly overlap, the log loss is too small on average.
    columns_, feature_relevance_, feature_importances_, machine_, n_copies_,
    n_features_in_, feature_names_in_,
    n_skipped_
        As in `TabularKernelRegressor`.
    partners_ : tuple
        Fitted partners.
    partner_weights_ : ndarray
        Exponents of the kernel model and of the partners; empty without partners.
    calibration_ : Calibration
        Fitted map from scores to probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import TabularKernelClassifier
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> inside = np.linalg.norm(X, axis=1) < 1
    >>> model = TabularKernelClassifier(random_state=0).fit(X, inside)
    >>> model.predict([[0.0, 0.0], [2.0, 2.0]]).tolist()
    [True, False]
    >>> print(f"{model.predict_proba([[0.0, 0.0]])[0, 1]:.2f}")
    1.00
    """

    partners: Any = "auto"
    class_weight: Any = None

    def _checked(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[NDArray, NDArray | None]:
        with explaining({"y": y}, labels=True):
            labels = labels_of_rows("y", y)
            check_classification_targets(labels)
        if labels.dtype.kind == "O":
            labels = np.asarray(labels.tolist())
        weights = check_weights(sample_weight, X)
        return labels, weights_of_classes(self.class_weight, labels, weights)

    def _fit(self, data: Training, rng: np.random.Generator) -> Suspects:
        self.classes_, index = np.unique(data.Y, return_inverse=True)
        _warn_of_few(self.classes_, np.bincount(index))
        is_of = index[:, None] == columns_of_classes(self.classes_)
        data = data._replace(Y=is_of.astype(np.float64))
        left_out, values = self._fit_rows(data, rng, classes=index)
        scores = data.Y[left_out.drawn] - left_out.residual
        self._calibrate(scores, index[left_out.drawn], left_out.work.weights, values)
        return left_out.suspects

    @rowwise(table_by_row)
    def predict_proba(self, X: Any) -> NDArray:
        """Return the class probabilities, of shape (n, c)."""
        return self._outputs(self._encoded(X))

    def _outputs(self, encoded: NDArray) -> NDArray:
        machine = self.machine_
        scores = two_columns(machine.predict(machine.prepare(encoded)))
        chances = [self.calibration_.probabilities(scores)]
        if not self.partners_:
            return chances[0]
        chances += [partner.predict(encoded) for partner in self.partners_]
        return pooled(self.partner_weights_, logarithms(chances))

    @rowwise(table_by_row)
    def predict(self, X: Any) -> NDArray:
        """Return the most probable label for each sample of X, (n,)."""
        chances = self.predict_proba(X)  # an error if not fitted
        return self.classes_[chances.argmax(axis=1)]

    def _calibrate(
        self, scores: NDArray, index: NDArray, weights: NDArray, values: list[NDArray]
    ) -> None:
        scores = two_columns(self.machine_.clipped(scores))
        calibration = calibrate(scores, index, weights)
        left_out = np.isfinite(np.stack([scores, *values])).all(axis=(0, 2))
        chances = calibration.probabilities(scores[left_out])
        index = index[left_out]
        w = weights[left_out]
        if values:
            logs = logarithms([chances, *[part[left_out] for part in values]])
            self.partner_weights_, _ = fit_pool(logs, index, w)
            chances = pooled(self.partner_weights_, logs)
        logs = -np.log(np.maximum(chances[np.arange(len(index)), index], 1e-300))
        self.calibration_ = calibration
        # Akaike's correction, because the calibration is fitted to these samples.
        optimism = (N_SLOPES + chances.shape[1] - 1 + len(values)) / effective_number(w)
        self.loo_log_loss_ = float(np.average(logs, weights=w) + optimism)
        wrong = chances.argmax(axis=1) != index
        self.loo_error_ = float(np.average(wrong, weights=w))

    def _entries(self) -> Iterator[tuple[str, str]]:
        yield from super()._entries()
        losses = f"log loss {self.loo_log_loss_:.4g}, error {self.loo_error_:.3g}"
        yield "expected", f"{losses} on new samples, {len(self.classes_)} classes"


def _warn_of_few(classes: NDArray, counts: NDArray) -> None:
    """Warn of classes with too few samples to calibrate their probabilities."""
    rare = np.flatnonzero(counts < _FEW_ROWS)
    if len(rare):
        names = ", ".join(f"{classes[k]!s} ({counts[k]})" for k in rare[:_SHOWN])
        warn(
            f"{len(rare)} classes of `y` have fewer than {_FEW_ROWS} samples: {names}; "
            "their probabilities and `loo_log_loss_` are unreliable: add samples or "
            "merge these classes"
        )
