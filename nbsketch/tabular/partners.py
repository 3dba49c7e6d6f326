r"""Partners of the kernel model: estimators fitted on folds, and their combination.

A partner is fitted without each of up to five folds. The mean of these fits predicts,
and their predictions of the folds are held-out predictions. For regression they are
stacked with the kernel model by least squares, in the units of the target. For classes
they are pooled,

.. math:: \log p_k = t_0 \log p_{0,k} + \dots + t_m \log p_{m,k} - \text{const},
          \qquad t \ge 0,

with the t of minimal held-out log loss; stacking squares had up to 69 % larger log
loss.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from nbsketch._jit.threads import thread_limit
from nbsketch._report.fields import Scope, integer, stored
from nbsketch._report.progress import seconds_left
from nbsketch.tabular.calibration import calibrate, least_log_loss
from nbsketch.tuning.rows import Training

_FOLDS = 5
# Fewer rows are fitted with one OpenMP thread: on busy processors several threads wait
# for each other, which slowed a fit of 240 rows from half a second to 45.
_PARALLEL_ROWS = 10_000
# Number of folds that decide whether the others are fitted.
_TRIAL_FOLDS = 2
# Minimum relative decrease of the log loss by a partner in these folds: 0.6 of the time
# of trees is saved if they lower it by less than 0.01 (blobs, digits, libras: 13 to 17
# of 20 draws), never if they lower it by more (flags, hpc, leaves of trees: 0 of 20).
_GAIN = 0.005
# Minimum probability; the penalty of the weights of a pool.
_LEAST = 1e-6
_PENALTY = 1e-4


def _fits(name: str, value: Any, scope: Scope) -> None:
    """Accept a list of lists of equal length."""
    is_nested = isinstance(value, list) and all(isinstance(fit, list) for fit in value)
    if not is_nested or len(set(map(len, value))) > 1:
        raise ValueError(f"`{name}` must be lists of equal length, got {value!r:.60}")


@stored
class Partner:
    """Fits of an estimator without each fold.

    Attributes
    ----------
    fits : list of list of estimators
        For each fold, one estimator per output, or the classifier.
    classes : int
        Number of classes; 0 for regression.
    """

    fits: Annotated[list[list[Any]], _fits]
    classes: Annotated[int, integer()]

    @property
    def name(self) -> str:
        """The class of the estimator."""
        return type(self.fits[0][0]).__name__

    def predict(self, rows: NDArray) -> NDArray:
        """Return the means over the fits, (n, d), at encoded rows."""
        return np.mean([self._values(fit, rows) for fit in self.fits], axis=0)

    def _values(self, fit: list[Any], rows: NDArray) -> NDArray:
        if not self.classes:
            return np.column_stack([model.predict(rows) for model in fit])
        out = np.zeros((len(rows), self.classes))
        out[:, fit[0].classes_] = fit[0].predict_proba(rows)
        return out


def check_partners(partners: Any, classification: bool) -> list[Any]:
    """Return partners as a list, or raise an error for unusable ones.

    The list is empty for names.
    """
    is_named = isinstance(partners, str) and partners in ("auto", "large")
    given = [] if partners is None or is_named else partners
    kind = "classifiers" if classification else "regressors"
    names = "None, 'auto', 'large'"
    expected = f"`partners` must be {names} or a list of scikit-learn {kind}"
    if not isinstance(given, list | tuple):
        raise TypeError(f"{expected}, got {given!r:.60}")
    is_kind = is_classifier if classification else is_regressor
    for model in given:
        methods = ("fit", "get_params") + ("predict_proba",) * classification
        if isinstance(model, type) or not all(hasattr(model, name) for name in methods):
            raise TypeError(f"{expected} with {', '.join(methods)}, got {model!r:.60}")
        if not is_kind(model):
            raise TypeError(f"{expected}, got {model!r:.60}")
    return list(given)


def folds_of(data: Training, classes: int, rng: np.random.Generator) -> list[NDArray]:
    """Return the rows of each fold: whole blocks, or random rows of each class.

    Folds that would leave training rows of a single class are dropped. Arguments are
    those of `fit_partner`.
    """
    n = len(data.Y)
    strata = data.Y[:, 0]
    if data.labels is None:
        order = rng.permutation(n)
        if classes:
            order = order[np.argsort(strata[order], kind="stable")]
        place = np.empty(n, dtype=np.intp)
        place[order] = np.arange(n) % _FOLDS
    else:
        place = np.where(data.labels >= 0, data.labels % _FOLDS, -1)
    folds = [np.flatnonzero(place == k) for k in range(_FOLDS)]
    folds = [fold for fold in folds if 0 < len(fold) < n]
    if not classes:
        return folds
    return [fold for fold in folds if np.ptp(np.delete(strata, fold))]


def fit_partner(
    estimator: Any,
    data: Training,
    folds: Sequence[NDArray],
    classes: int,
    is_worth: Callable[[NDArray], bool] | None = None,
) -> tuple[Partner, NDArray]:
    """Return a partner and its held-out predictions (n, d); NaN in no fold.

    A fold is fitted if the remaining time exceeds that of the longest fold before.
    `is_worth` gets the predictions of two folds; if it returns false, no fits are kept.

    Targets are (n, d) or classes (n, 1).
    """
    rows, Y, *_ = data
    left_out = np.full((len(Y), classes or Y.shape[1]), np.nan)
    fits = list[list[Any]]()
    longest = 0.0
    for fold in folds:
        before = seconds_left()
        if fits and before < longest:
            break
        kept = np.setdiff1d(np.arange(len(Y)), fold)
        fits.append([])
        threads = thread_limit() if len(kept) >= _PARALLEL_ROWS else 1
        with threadpool_limits(threads, user_api="openmp"):
            for y in Y.T:
                options = _options(estimator, data, y, kept, fold)
                fits[-1].append(clone(estimator).fit(rows[kept], y[kept], **options))
        left_out[fold] = Partner(fits[-1:], classes).predict(rows[fold])
        if np.isfinite(before):
            longest = max(longest, before - seconds_left())
        if is_worth and len(fits) == _TRIAL_FOLDS and not is_worth(left_out):
            fits.clear()
            break
    return Partner(fits, classes), left_out


def _options(
    estimator: Any, data: Training, y: NDArray, kept: NDArray, fold: NDArray
) -> dict[str, Any]:
    """Return additional arguments of a fit; early stopping uses the fold."""
    options = dict[str, Any]()
    if np.ptp(data.weights) > 0:
        if not has_fit_parameter(estimator, "sample_weight"):
            name = type(estimator).__name__
            raise ValueError(
                f"`partners` must take sample_weight in fit, which was passed, but "
                f"{name} does not: remove it, or the weights"
            )
        options["sample_weight"] = data.weights[kept]
    stops = getattr(estimator, "early_stopping", True) is True
    if stops and has_fit_parameter(estimator, "X_val"):
        present = np.isin(y[fold], y[kept])
        if not is_classifier(estimator) or present.all():
            options |= {"X_val": data.rows[fold], "y_val": y[fold]}
    return options


def lowers_log_loss(
    scores: NDArray, values: NDArray, classes: NDArray, weights: NDArray
) -> bool:
    """Return whether a partner lowers the held-out log loss on its folds.

    Parameters
    ----------
    scores, values : ndarray of shape (n, c)
        Leave-one-out scores of the kernel model, and probabilities of the partner; rows
        with NaN are ignored.
    classes : ndarray of int of shape (n,)
        Class of each row.
    weights : ndarray of shape (n,)
        Sample weights.
    """
    calibration = calibrate(scores, classes, weights)
    logs = logarithms([calibration.probabilities(scores), values])
    _, loss = fit_pool(np.where(np.isnan(logs[1]), np.nan, logs[:1]), classes, weights)
    return fit_pool(logs, classes, weights)[1] < (1 - _GAIN) * loss


def fit_pool(
    logs: NDArray, classes: NDArray, weights: NDArray
) -> tuple[NDArray, float]:
    """Return the weights t (k,) with minimal log loss, and the loss.

    Rows with NaN are ignored.

    The prior of the calibration, which counts as one sample, prevents overconfident
    probabilities if few samples are perfectly separated: on 142 rows in three classes,
    the log loss is 2.5 times that of the kernel model alone without it, and 0.92 with
    it.

    Parameters
    ----------
    logs : ndarray of shape (k, n, c)
        Held-out log probabilities.
    classes : ndarray of int of shape (n,)
        Class of each row.
    weights : ndarray of shape (n,)
        Sample weights.
    """
    start = np.full(len(logs), 1 / len(logs))
    return least_log_loss(logs, classes, weights, start, penalty=_PENALTY)


def pooled(t: NDArray, logs: NDArray) -> NDArray:
    """Return the probabilities (n, c) of a pool of log probabilities (k, n, c)."""
    return np.exp(log_softmax(np.einsum("k,knc->nc", t, logs), axis=1))


def logarithms(chances: list[NDArray]) -> NDArray:
    """Return the log probabilities of several models, (k, n, c)."""
    return np.log(np.maximum(np.stack(chances), _LEAST))
