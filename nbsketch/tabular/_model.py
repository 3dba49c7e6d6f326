"""Shared base of the tabular estimators: checks, fit, summary and saving."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from nbsketch._report.progress import is_stopped, seconds_left
from nbsketch._report.validation import (
    check_collected,
    check_magnitude,
    check_spread,
    declares_parameters,
    random_generator,
    row_weights,
    warn,
)
from nbsketch.estimators._summary import memory_of, summary_text
from nbsketch.files import SaveMixin
from nbsketch.fitting.callbacks import CallbackSupportMixin, watched_fit
from nbsketch.losses import Loss
from nbsketch.rows.copies import merged
from nbsketch.rows.inputs import TrainingRows, loaded
from nbsketch.rows.lost_digits import warn_of_constants
from nbsketch.rows.outliers import outlier_warning
from nbsketch.rows.splits import (
    block_labels,
    dependent_rows,
    folds_of_kept,
    merges_copies,
    warn_of_divided_copies,
)
from nbsketch.tabular.boosting import BoostedTrees, affordable_folds, boosting
from nbsketch.tabular.columns import Table, fit_table
from nbsketch.tabular.fit import SQUARE, LeftOutRows, fit_machine
from nbsketch.tabular.partners import (
    Partner,
    check_partners,
    fit_partner,
    folds_of,
    lowers_log_loss,
)
from nbsketch.tabular.reading import as_frame, check_table
from nbsketch.tabular.scales import LARGE
from nbsketch.tabular.suspects import Suspects
from nbsketch.tuning.rows import Training

# Number of features listed in the summary.
_LISTED = 5
# Smaller weights, relative to the mean, do not count, and their inverses may overflow.
_LEAST_WEIGHT = 1e-30


@declares_parameters
class TabularModel(SaveMixin, CallbackSupportMixin, BaseEstimator):
    """Base of the tabular estimators."""

    partners: Any = None
    cv: Any = None
    max_seconds: float | None = None
    random_state: Any = None
    verbose: int = 0
    callback: Any = None

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame or array of shape (n, q)
            Training samples. Columns may hold numbers, categories, strings, booleans,
            dates and missing values; see `nbsketch.tabular.columns.fit_columns`. Dask
            arrays and data frames are loaded.
        y : array of shape (n,), or (n, d) for a `TabularKernelRegressor`
            Targets. For a classifier: labels (numbers or strings) of at least two
            classes.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        groups : array of shape (n,) or None, default=None
            Group label of each sample, for `cv`.
        """
        with watched_fit(self):
            check_collected("X", X)
            X, y, sample_weight = loaded(X, y=y, sample_weight=sample_weight)
            if y is None:
                raise ValueError(
                    "`fit` requires y to be passed, but the target y is None"
                )
            y, weights = self._checked(X, y, sample_weight)
            rng = random_generator(self.random_state)
            data, place = self._encode(X, y, weights, groups)
            self._report_suspects(self._fit(data, rng), place)
        return self

    def _checked(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[NDArray, NDArray | None]:
        """Return targets (n, d) or labels (n,), and the sample weights."""
        raise NotImplementedError

    def _fit(self, data: Training, rng: np.random.Generator) -> Suspects:
        """Fit model, partners and error distribution or calibration; set attributes.

        Return the samples that look like gross errors.
        """
        raise NotImplementedError

    def _report_suspects(self, suspects: Suspects, place: NDArray) -> None:
        """Set the samples that look like gross errors; warn if there are any.

        `place` has the training row of each sample passed, -1 for samples of weight
        zero.
        """
        rows = np.flatnonzero(np.isin(place, suspects.rows))
        self.outliers_ = rows[:0] if suspects.reason else rows
        self.suspects_ = rows if suspects.reason else rows[:0]
        self.n_outliers_ = len(self.outliers_)
        if len(rows):
            n = int(np.count_nonzero(place >= 0))
            warn(outlier_warning(len(rows), n, suspects.reason))

    def _encode(
        self, X: Any, y: NDArray, weights: NDArray | None, groups: Any
    ) -> tuple[Training, NDArray]:
        """Fit the encodings of the columns; return the samples of positive weight.

        Their labels are the blocks that `cv` leaves out together. The second array has
        the position among them of each sample passed; -1: none.
        """
        table = Table.of(X)
        validate_data(self, X, skip_check_array=True)
        table.warn_of_equal_integers(X)
        place = table.representatives(y, weights)
        stand_ins = place if merges_copies(self.cv) else None
        n_given = len(y) if weights is None else int(np.count_nonzero(weights))
        weights = merged(stand_ins, weights)
        # Splitters get row numbers as X, because the encoding depends on the folds.
        numbers = TrainingRows.of(np.arange(len(y))[:, None], y, weights)
        self.n_copies_ = n_given - len(numbers.y)
        labelled = is_classifier(self)
        folds = folds_of_kept(self.cv, groups, numbers, classification=labelled)
        index = numbers.X.ravel()
        among = None if place is None else np.searchsorted(index, place[index])
        warn_of_divided_copies(self.cv, folds, among)
        blocks = block_labels(folds, len(numbers.y))
        self.columns_, rows = fit_table(
            table, y, weights, classification=labelled, blocks=blocks
        )
        check_magnitude("X", rows)
        names = self.columns_.feature_names
        check_spread("X", rows, names)
        warn_of_constants("X", rows, names)
        relative = row_weights(numbers.relative_weights, numbers.y)
        relative = np.maximum(relative, _LEAST_WEIGHT)
        rows = rows if len(index) == len(rows) else rows[index]
        place = np.full(len(y), -1)
        place[index] = np.arange(len(index))
        place = place if stand_ins is None else place[stand_ins]
        return Training(rows, numbers.y, relative, blocks), place

    def _fit_rows(
        self,
        data: Training,
        rng: np.random.Generator,
        *,
        classes: NDArray | None = None,
        loss: Loss | None = SQUARE,
    ) -> tuple[LeftOutRows, list[NDArray]]:
        """Fit the kernel model and its partners to encoded rows and targets (n, d).

        `classes`: the class of each row, for classification. `loss`: see `fit_machine`.
        Also return the held-out predictions of the partners, at the rows of the
        leave-one-out residuals.
        """
        partners = check_partners(self.partners, classes is not None)
        n = len(data.Y)
        if n < 2:
            raise ValueError(
                f"`X` must have at least 2 rows of positive weight, got n_samples={n}"
            )
        before = seconds_left()
        machine, left_out = fit_machine(data, rng, robust=classes is None, loss=loss)
        left = seconds_left()
        if left_out.order is not None and left_out.order.is_contradicted:
            warn(dependent_rows(left_out.order, classes))
        self.machine_ = machine
        self.feature_relevance_ = machine.relevance()
        unused = len(left_out.kept) - len(machine.rows)
        self.n_skipped_ = int(unused > 0)
        if unused:
            warn(
                f"`max_seconds` leaves time for {len(machine.rows)} of "
                f"{len(left_out.kept)} samples: increase it to use all",
                ConvergenceWarning,
            )
        is_large = n > LARGE and loss == SQUARE
        if self.partners == "auto" or (is_large and self.partners == "large"):
            counts = np.bincount([] if classes is None else classes)
            partners = boosting(n, counts, int(rng.integers(2**31)))
            # Trees take less time than the kernel model, but cannot be interrupted.
            if is_stopped() or left < before - left:
                self.n_skipped_ += len(partners)
                partners = []
        return left_out, self._fit_partners(partners, data, classes, left_out, rng)

    def _fit_partners(
        self,
        chosen: list[Any],
        data: Training,
        classes: NDArray | None,
        left_out: LeftOutRows,
        rng: np.random.Generator,
    ) -> list[NDArray]:
        """Fit partners to the rows of the kernel model; see `_fit_rows`."""
        self.partners_: tuple[Partner | BoostedTrees, ...] = ()
        self.partner_weights_ = np.empty(0)
        if not chosen:
            return []
        Y = data.Y[left_out.drawn]
        data = data.take(left_out.kept)
        count = 0
        if classes is not None:
            count = len(np.unique(classes))
            data = data._replace(Y=classes[left_out.kept, None])
        folds = folds_of(data, count, rng)
        place = np.searchsorted(left_out.kept, left_out.drawn)
        is_usual = isinstance(self.partners, str)
        if is_usual:
            folds = affordable_folds(folds, data, count, place)

        def is_worth(values: NDArray) -> bool:
            scores = self.machine_.clipped(Y - left_out.residual)
            index = Y.argmax(axis=1)
            return lowers_log_loss(scores, values[place], index, left_out.work.weights)

        # For two classes, trees take as long as the kernel model; for more classes two
        # to three times as long, without gain if the classes are nearly separated.
        trial = is_worth if is_usual and count > 2 else None
        left_out_values = list[NDArray]()
        for estimator in chosen:
            partner, values = fit_partner(estimator, data, folds, count, trial)
            if not partner.fits:
                continue
            usual = BoostedTrees.of(partner.fits, count) if is_usual else partner
            self.partners_ += (usual,)
            left_out_values.append(values[place])
        return left_out_values

    @property
    def feature_importances_(self) -> NDArray:
        """Shares of the columns of X in the variation of predictions, (q,).

        For each column, its features are permuted among 500 training samples. The share
        is the mean squared change of the scores of the kernels, relative to the sum
        over all columns. It is close to permutation importance (L. Breiman, Random
        Forests, 2001), without targets. Zero: no effect. Partners are not included.
        Computed on first access, in the time of 500 predictions per column.
        """
        check_is_fitted(self)
        changes = self.machine_.importances(self.columns_.owners, self.n_features_in_)
        return changes / (changes.sum() or 1.0)

    def _outputs(self, encoded: NDArray) -> NDArray:
        """Return predictions (n,) or (n, d), or probabilities, at encoded rows."""
        raise NotImplementedError

    def _encoded(self, X: Any) -> NDArray:
        """Return new samples, encoded."""
        check_is_fitted(self)
        check_table(X)
        frame = as_frame(X)
        if frame is None:
            validate_data(self, X, skip_check_array=True, reset=False)
        rows = self.columns_.transform(X if frame is None else frame)
        check_magnitude("X", rows)
        return rows

    def summary(self) -> str:
        """Return a text summary of the fitted model, one line per property."""
        check_is_fitted(self)
        return summary_text(self, self._entries())

    def _entries(self) -> Iterator[tuple[str, str]]:
        machine = self.machine_
        n = len(machine.rows)
        outliers = f" without {self.n_outliers_} outliers" if self.n_outliers_ else ""
        count = getattr(self, "n_copies_", 0)  # missing in files of older versions
        copies = f", {count} copies merged" if count else ""
        yield "samples", f"{n}{outliers}, {self.n_features_in_} columns{copies}"
        count = len(getattr(self, "suspects_", ()))  # missing in files of 0.2.0
        if count:
            yield "suspects", f"{count} targets look like gross errors, all are used"
        yield from self.columns_.summary_rows()
        relevance = self.feature_relevance_
        names = self.columns_.feature_names
        order = np.argsort(-relevance, kind="stable")[:_LISTED]
        yield "relevant", ", ".join(f"{names[k]} {relevance[k]:.2f}" for k in order)
        for member, weight in zip(machine.members, machine.weights, strict=True):
            kind, text = member.summary()
            yield kind, f"{text}, weight {weight:.2f}"
        for partner, weight in zip(
            self.partners_, self.partner_weights_[-len(self.partners_) :], strict=False
        ):
            yield "partner", f"{partner.name}, weight {weight:.2f}"
        if self.n_skipped_:
            limit = self.max_seconds
            why = "stopped" if limit is None else f"max_seconds={limit:g}"
            yield "skipped", f"{self.n_skipped_} steps: {why}"
        yield "memory", memory_of(machine)

    def __sklearn_tags__(self) -> Tags:
        """Return the capabilities of the estimator."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
