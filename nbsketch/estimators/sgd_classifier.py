"""Classification by stochastic gradients on a sketched subspace, and on streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if

from nbsketch._rows import model_dtype
from nbsketch._validation import keeping_fitted
from nbsketch.distributed.checks import labels_of
from nbsketch.distributed.collections import is_dask
from nbsketch.estimators._classes import OneVsRest
from nbsketch.estimators._descent import DescentModel, streams
from nbsketch.fitting.weights import TrainingRows


class SketchedSGDClassifier(OneVsRest, DescentModel):
    r"""Sketched kernel classification by stochastic gradients, for large data, streams.

    .. math:: w_{t+1} = w_t + \eta \Bigl( \frac1b \sum_{i \in B_t}
              -\ell'(y_i f_t(x_i))\, y_i\, z(x_i) - \alpha w_t \Bigr), \qquad w_1 = 0,

    with labels y in {-1, +1}, a loss :math:`\ell` of the margin and
    :math:`f_t(x) = z(x)^T w_t + b_t`. More than two classes are one such problem for
    each class against the rest; they share the features, the batches and the steps.

    Parameters
    ----------
    kernel, bandwidth, preprocessing, sketch, size
        As in `SketchedSGDRegressor`; length scales are learned by default.
    loss : {"hinge", "squared-hinge", "logistic"} or Loss, default="hinge"
        Loss of the margin. The logistic loss gives probabilities.
    method, step, batch_size, n_epochs, regime, source, capacity
        As in `SketchedSGDRegressor`. `step` is :math:`\eta \kappa^2` times the greatest
        curvature of the loss (1/4 for the logistic loss; 1 for the hinge loss, which
        has none).
    alpha, average, early_stopping, validation_fraction, cv, fit_intercept
        As in `SketchedSGDRegressor`.
    class_weight : None, "balanced" or dict, default=None
        Weights of the classes, which multiply the sample weights. "balanced": n divided
        by the number of classes and by the number of rows of the class; not for
        streams, whose classes are not counted beforehand. A dict maps labels to
        weights; labels that are not in it have weight 1. None: equal weights.
    random_state, verbose, callback
        As in `SketchedSGDRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels.
    coef_ : ndarray of shape (s,) or (s, c)
        Coefficients of the sketched kernel functions; (s, c) for c > 2 classes.
    intercept_ : float or ndarray of shape (c,)
        The constant b.
    landmarks_, kernel_, sketch_, scaler_, length_scales_, bandwidth_, size_, rank_
        As in `SketchedSGDRegressor`.
    alpha_, n_steps_, n_iter_, path_, n_features_in_
        As in `SketchedSGDRegressor`; losses are summed over the classes.

    Notes
    -----
    The steps are those of Lin and Cevher, JMLR 2020, and of Adam, with losses of
    margins instead of the square loss.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedSGDClassifier
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> inside = np.linalg.norm(X, axis=1) < 1
    >>> model = SketchedSGDClassifier(size=50, random_state=0)
    >>> for chunk in np.split(np.arange(2000), 4):
    ...     model = model.partial_fit(X[chunk], inside[chunk])
    >>> model.predict([[0.0, 0.0], [2.0, 2.0]]).tolist()
    [True, False]
    """

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        bandwidth: Any = None,
        preprocessing: str | None = "auto",
        loss: Any = "hinge",
        sketch: Any = None,
        size: Any = None,
        method: str = "projected",
        step: float | None = None,
        batch_size: int | None = None,
        n_epochs: int | None = None,
        regime: str | None = None,
        source: float = 0.5,
        capacity: float = 1.0,
        alpha: float | None = None,
        average: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        cv: Any = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        random_state: Any = None,
        verbose: int = 0,
        callback: Any = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.preprocessing = preprocessing
        self.loss = loss
        self.sketch = sketch
        self.size = size
        self.method = method
        self.step = step
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.regime = regime
        self.source = source
        self.capacity = capacity
        self.alpha = alpha
        self.average = average
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.cv = cv
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    @available_if(streams)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> SketchedSGDClassifier:
        """Pass once over rows of a stream, in their order; they are not kept.

        See `SketchedSGDRegressor.partial_fit`.

        Parameters
        ----------
        X : array of shape (m, q)
            Rows; batches are consecutive, the last one may be shorter. Chunks of a Dask
            array or data frame are read one by one, as in one call for each.
        y : array of shape (m,)
            Labels.
        classes : array of shape (c,) or None, default=None
            All labels of the stream, in the first call. None: those of `y`. A row of
            another label is an error later.
        sample_weight : array of shape (m,) or None, default=None
            Numbers of visits of the rows; a fractional part is the probability of one
            more visit. None: one visit each.
        """
        with keeping_fitted(self):
            if classes is None and is_dask(y) and not hasattr(self, "coef_"):
                classes = labels_of(y)
            self._announce(classes)
            return self._pass_over(X, y, sample_weight)

    @available_if(streams)
    def partial_fit_chunks(
        self, chunks: Iterable[tuple], classes: ArrayLike | None = None
    ) -> SketchedSGDClassifier:
        """Pass once over the chunks of an iterator: `partial_fit` of each, in order.

        See `SketchedSGDRegressor.partial_fit_chunks`; `classes` as in `partial_fit`.
        """
        with keeping_fitted(self):
            self._announce(classes)
            return self._pass_chunks(chunks)

    def _announce(self, classes: Any) -> None:
        """Set the labels of a stream that begins; compare those of one that goes on."""
        if not hasattr(self, "coef_"):
            self.__dict__.pop("classes_", None)
            if classes is not None:
                self._set_classes(np.asarray(classes))
        elif classes is not None and set(classes) != set(self.classes_):
            raise ValueError(
                f"`classes` must be {self.classes_.tolist()} as in earlier calls, got "
                f"{list(classes)}"
            )

    def _check_stream(self) -> None:
        super()._check_stream()
        if isinstance(self.class_weight, str):
            raise ValueError(
                "`class_weight` must be None or a dict in partial_fit, got "
                f"{self.class_weight!r}: the classes of a stream cannot be counted"
            )

    def _new_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        self.__dict__.pop("classes_", None)
        return self._first_rows(X, y, sample_weight)

    def _first_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        rows = self._check_training(X, y, sample_weight)
        if not hasattr(self, "classes_"):
            self._set_classes(rows.y)
        self._one_target = len(self.classes_) == 2
        return rows._replace(y=self._signs(rows.y))

    def _next_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        options = {"dtype": model_dtype(self.landmarks_), "reset": False}
        rows = self._check_training(X, y, sample_weight, **options)
        return rows._replace(y=self._signs(rows.y))

    def _validation(
        self, X: Any, Y: NDArray, X_val: Any, y_val: Any
    ) -> tuple[Any, NDArray] | None:
        signs = None if y_val is None else self._signs(column_or_1d(y_val), "y_val")
        return super()._validation(X, Y, X_val, signs)

    def _objective(self, Y: NDArray, weights: NDArray | None) -> Any:
        return self._margin_objective(Y, weights)
