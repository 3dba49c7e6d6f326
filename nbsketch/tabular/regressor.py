"""Regression on tables."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_is_fitted

from nbsketch._machine.blas import one_thread
from nbsketch._quantiles import as_values
from nbsketch._report.validation import (
    as_numbers,
    check_level,
    check_magnitude,
    check_spread,
    declares_parameters,
    explaining,
)
from nbsketch.estimators._base import ObjectParameters, RegressorScore, ResidualLoss
from nbsketch.fitting.objectives import loss_at
from nbsketch.losses import HuberLoss, LogLinkLoss, Loss, PinballLoss, as_loss
from nbsketch.outputs import check_levels
from nbsketch.rows.inputs import check_weights, rowwise, table_by_row
from nbsketch.tabular._model import TabularModel
from nbsketch.tabular.fit import SQUARE, LeftOutRows
from nbsketch.tabular.machine import stack_weights
from nbsketch.tabular.noise import fit_noise
from nbsketch.tabular.suspects import Suspects, errors_beside
from nbsketch.tabular.working import losses_of, stacked
from nbsketch.tuning.rows import Training


@declares_parameters
class TabularKernelRegressor(
    ResidualLoss, RegressorScore, ObjectParameters, TabularModel
):
    r"""Kernel regression for tables with mixed columns, without tuning.

    A stack of kernel models with learned length scales: Matern 3/2, the product
    Laplacian :math:`\exp(-\sum_k |x_k - z_k| / l_k)` and, up to 1500 samples, Matern
    5/2:

    .. math:: f(x) = b + \sum_m w_m f_m(x).

    Above 1500 samples, :math:`f_0` is a ridge regression on a few landmarks; the others
    are exact kernel ridge regressions on the leaf of a random tree that contains x,
    with at most 1600 samples each. Up to 1500 samples there is a single leaf. Weights,
    penalties and length scales minimize leave-one-out errors. Above 1500 samples,
    members that together lower the leave-one-out error by at most 0.05 % are dropped.
    See :doc:`/tabular`.

    Parameters
    ----------
    loss : str or Loss, default="square"
        Loss for fitting and stacking the members: "square", "huber", "absolute_error"
        (medians), "quantile" (with its level: ``PinballLoss(0.9)``), "poisson", "gamma"
        (means; for unequal exposure pass rates, and the exposure as `sample_weight`),
        another name or an object of `nbsketch.losses`, in the units of the targets.
        "huber" by name sets the threshold to 1.345 robust standard deviations of the
        leave-one-out errors. Several outputs: "square", "huber", "absolute_error" and
        other losses of norms.
    partners : "large", "auto", list of regressors or None, default="large"
        scikit-learn estimators added to the stack by their predictions in five-fold
        cross-validation. They are fitted to the encoded features; model files with
        partners need skops. "large": boosted trees above 65,536 samples for the square
        loss, in fewer folds if the table is large. "auto": boosted trees above 1500
        samples. None: no partners.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Samples left out together in every choice; merged to 10 blocks if there are
        more. None: leave-one-out, with a `DependentRowsWarning` if contiguous blocks
        give contradictory results. An integer: that many contiguous blocks of samples
        (or of whole groups).
    max_seconds : float or None, default=None
        Upper bound on the time of the fit: searches end early, base and leaves are
        fitted to as many samples as the time allows (at least 1600), with a warning,
        and boosted trees are skipped. The model then depends on the speed of the
        computer. None: no limit.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results, independent of the number of threads.
    verbose : int, default=0
        If positive, display the progress of the fit.
    callback : callable or None, default=None
        Called as ``callback(state)`` with a `FitState`, in the stages "length-scales"
        and "leaves". If it returns true, searches end and no partner is added. None: no
        callback.

    Attributes
    ----------
    columns_ : TableColumns
        Fitted encoding of the columns of X as features.
    feature_relevance_ : ndarray of shape (p,)
        Relevance of each feature of `columns_`: inverse length scales averaged over the
        members with their weights, relative to the largest.
    feature_importances_ : ndarray of shape (q,)
        Shares of the columns of X in the variation of the predictions, close to
        permutation importance. Computed on first access.
    loss_ : Loss
        Fitted loss, with its threshold set.
    loo_error_ : float or ndarray of shape (d,)
        Estimated root mean squared error on new samples: the leave-one-out error, which
        is too small on small data sets (:doc:`/tabular`). Other losses: their mean.
    n_outliers_ : int
        Number of training samples excluded from the fit: gross errors in the targets,
        beyond a gap in the residuals of a robust regression, at most 5 % (with an
        `OutlierWarning`). For even losses of bounded slope ("huber", "absolute_error"),
        any share. For other losses: 0.
    outliers_ : ndarray of int
        Indices of the excluded samples in the data passed to `fit`.
    suspects_ : ndarray of int
        Indices of samples whose targets look like gross errors but are used, with an
        `OutlierWarning`: more than 5 %, or the other samples cannot be predicted.
    n_skipped_ : int
        Number of steps skipped or shortened because of `max_seconds` or a callback: 1
        for the samples of base and leaves, and 1 for boosted trees.
    partners_ : tuple
        Fitted partners.
    partner_weights_ : ndarray
        Weights of the partners; the kernel model has the remaining weight.
    machine_, noise_ : Machine, Noise
        Arrays used for prediction: about n (p + m) numbers for m members.
    n_copies_ : int
        Number of training samples merged into an identical one (:ref:`copies`).
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (q,)
        Column names, if X is a data frame with string names.

    Notes
    -----
    The model stores all training samples. Predictions are discontinuous at borders
    between leaves. They are limited to the range of the training targets, widened by a
    tenth, and features are clipped to their training range: the model does not
    extrapolate.

    Losses other than the square loss are fitted by iteratively reweighted least
    squares: weights and responses are computed at the leave-one-out scores until the
    leave-one-out loss is stable. Length scales are learned with the square loss, on
    targets without extremes or on their logarithms. A quantile is computed from the
    distribution of the errors around the medians.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import TabularKernelRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 2))
    >>> y = np.sin(X[:, 0])
    >>> model = TabularKernelRegressor(random_state=0).fit(X, y)
    >>> model.predict([[0.5, 0.0], [1.5, 0.0]]).round(2).tolist()
    [0.48, 1.0]
    """

    loss: Any = "square"
    partners: Any = "large"

    loss_ = SQUARE  # for models of older files

    def _checked(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[NDArray, NDArray | None]:
        y = as_numbers(y)
        with explaining({"y": y}):
            targets = check_array(y, ensure_2d=False, input_name="y")
        if targets.dtype.kind not in "fiub":
            raise TypeError(f"`y` must be an array of numbers, got {y!r:.60}")
        targets = targets.astype(np.float64)
        check_magnitude("y", targets)
        check_spread("y", targets)
        self._single = targets.ndim == 1
        _check_loss(as_loss(self.loss), targets)
        return targets.reshape(len(targets), -1), check_weights(sample_weight, X)

    def _fit(self, data: Training, rng: np.random.Generator) -> Suspects:
        self.loss_ = loss_at(self.loss, data.Y, data.weights)
        is_adaptive = as_loss(self.loss) == HuberLoss()
        loss = None if is_adaptive else self.loss_
        left_out, values = self._fit_rows(data, rng, loss=loss)
        if is_adaptive:
            self.loss_ = left_out.work.loss or self.loss_  # with its threshold
        drawn = left_out.drawn
        weights = left_out.work.weights
        Y = data.Y[drawn]
        residual = self._stack_partners(left_out, Y, values)
        machine = self.machine_
        with one_thread():
            at = machine.prepare(data.rows[drawn])
            kept = np.isfinite(residual).all(axis=1)
            errors = Training(at, residual, weights).take(kept)
            self.noise_ = fit_noise(machine.scales, errors, rng)
            error = self._expected_error(Y[kept], errors, left_out.unit)
            self.loo_error_ = float(error[0]) if self._single else error
            if len(left_out.suspects.rows) or self.loss_ != SQUARE:
                return left_out.suspects
            suspects = errors_beside(machine.scales, at, Y, residual, weights)
        return suspects._replace(rows=drawn[suspects.rows])

    def _expected_error(self, Y: NDArray, errors: Training, unit: float) -> NDArray:
        """Return the error (d,) or the mean loss of leave-one-out residuals (m, d)."""
        at, residual, weights, _ = errors
        loss = self.loss_
        if loss == SQUARE:
            return np.sqrt(np.average(np.square(residual), axis=0, weights=weights))
        if isinstance(loss, PinballLoss):
            shift = self.noise_.quantiles(np.array([loss.quantile]))
            residual = residual - self.noise_.sigma(at) * shift
        scores = Y - residual
        factor = 1.0
        if isinstance(loss, LogLinkLoss):
            Y = loss.link(Y / unit)
            scores = np.log(scores / unit)
            factor = unit ** (2 - loss.power)
        losses = factor * losses_of(loss, Y, scores)
        return np.full(residual.shape[1], np.average(losses, weights=weights))

    @rowwise(table_by_row)
    def predict(self, X: Any) -> NDArray:
        """Return the predictions for X, of shape (n,) or (n, d)."""
        return self._outputs(self._encoded(X))

    def _outputs(self, encoded: NDArray) -> NDArray:
        if isinstance(self.loss_, PinballLoss):
            levels = self.noise_.quantiles(np.array([self.loss_.quantile]))
            return self._spread(encoded, levels)[..., 0]
        values = self._values(encoded, self.machine_.prepare(encoded))
        return values[:, 0] if self._single else values

    @rowwise(table_by_row)
    def predict_quantiles(self, X: Any, levels: Any) -> NDArray:
        """Return conditional quantiles of the target.

        They are the prediction plus quantiles of the leave-one-out residuals, scaled by
        their local size, which is a regression of the log size on the features.
        Excluded gross errors (`n_outliers_`) are not part of the distribution.

        Parameters
        ----------
        X : DataFrame or array of shape (n, q)
            Samples.
        levels : float or sequence of floats
            Ascending levels in (0, 1).

        Returns
        -------
        ndarray of shape (n, levels) or (n, d, levels)
            Quantiles; they do not cross.
        """
        check_is_fitted(self)
        tau = np.array(check_levels("levels", np.atleast_1d(np.asarray(levels))))
        return self._spread(self._encoded(X), self.noise_.quantiles(tau))

    @rowwise(lambda method, X, y: table_by_row(method, X, as_values(y, ())))
    def predict_cdf(self, X: Any, y: ArrayLike) -> NDArray:
        """Return the conditional distribution function P(Y <= y | X).

        It is the inverse of `predict_quantiles`: 0 below the smallest and 1 above the
        largest leave-one-out residual, scaled to the sample.

        Parameters
        ----------
        X : DataFrame or array of shape (n, q)
            Samples.
        y : float, array of shape (k,), or array of shape (n, k) or (n, d, k)
            Values: the same k values for each sample, or one row per sample.

        Returns
        -------
        ndarray of shape (n, k) or (n, d, k)
            Probabilities.
        """
        center, sigma = self._law(self._encoded(X))
        values = as_values(y, center.shape[: 1 if self._single else 2])
        values = values[:, None] if self._single else values
        levels = self.noise_.levels((values - center[:, :, None]) / sigma[:, :, None])
        if isinstance(self.loss_, LogLinkLoss):
            levels = np.where(values < 0, 0.0, levels)
        return levels[:, 0] if self._single else levels

    @rowwise(table_by_row)
    def predict_interval(self, X: Any, coverage: float = 0.9) -> NDArray:
        """Return prediction intervals with the given coverage.

        As `predict_quantiles` with equal tails, but with order statistics as in split
        conformal prediction. New samples are assumed exchangeable with the training
        samples (with whole blocks of them, for `cv`). If gross errors were excluded
        (`n_outliers_` > 0), targets of new samples are assumed free of them: if a share
        q of the new targets are gross errors, expect the coverage times 1 - q.

        Parameters
        ----------
        X : DataFrame or array of shape (n, q)
            Samples.
        coverage : float in (0, 1), default=0.9
            Probability of coverage.

        Returns
        -------
        ndarray of shape (n, 2) or (n, d, 2)
            Lower and upper ends; infinite if there are too few training samples for
            this coverage.
        """
        check_is_fitted(self)
        level = check_level("coverage", coverage)
        return self._spread(self._encoded(X), self.noise_.limits(level))

    def _stack_partners(
        self, left_out: LeftOutRows, Y: NDArray, values: list[NDArray]
    ) -> NDArray:
        """Set the weights of partners; return leave-one-out residuals of the stack."""
        machine = self.machine_
        if self.loss_ != SQUARE:
            log_unit = np.log(left_out.unit)
            own = left_out.work.targets - left_out.residual + log_unit
            scores = np.stack([own, *map(self._scores, values)])
            stack = np.ones(1)
            if values:
                stack, _ = stacked(left_out.work, scores - log_unit)
            self.partner_weights_ = stack[1:]
            return Y - self.loss_.mean(np.einsum("k,kmd->md", stack, scores))
        if not values:
            return left_out.residual
        errors = [Y - machine.clipped(part) for part in values]
        residuals = np.stack([left_out.residual, *errors])
        stack = stack_weights(residuals / machine.spread, left_out.work.weights)
        self.partner_weights_ = stack[1:]
        return np.einsum("k,kmd->md", stack, residuals)

    def _scores(self, values: NDArray) -> NDArray:
        """Return predictions of a partner on the scale of the scores, clipped."""
        if isinstance(self.loss_, LogLinkLoss):
            values = np.log(np.maximum(values, np.finfo(float).tiny))
        return self.machine_.clipped(values)

    def _values(self, encoded: NDArray, rows: NDArray) -> NDArray:
        """Return the predictions of the kernel model and its partners, (n, d)."""
        out = self.machine_.predict(rows) * (1 - self.partner_weights_.sum())
        for weight, partner in zip(self.partner_weights_, self.partners_, strict=True):
            out += weight * self._scores(partner.predict(encoded))
        return self.loss_.mean(out)

    def _law(self, encoded: NDArray) -> tuple[NDArray, NDArray]:
        """Return predictions and local scales of errors, (n, d) each."""
        rows = self.machine_.prepare(encoded)
        with one_thread():
            sigma = self.noise_.sigma(rows)
        return self._values(encoded, rows), sigma

    def _spread(self, encoded: NDArray, scores: NDArray) -> NDArray:
        """Return predictions plus local scales times scores (levels, d)."""
        center, sigma = self._law(encoded)
        out = center[:, :, None] + sigma[:, :, None] * scores.T
        if isinstance(self.loss_, LogLinkLoss):
            out = np.maximum(out, 0.0)
        return out[:, 0] if self._single else out

    def _entries(self) -> Iterator[tuple[str, str]]:
        yield from super()._entries()
        errors = np.atleast_1d(self.loo_error_)
        listed = ", ".join(f"{error:.4g}" for error in errors[:5])
        more = ", ..." if len(errors) > 5 else ""
        clean = " without gross errors" if self.n_outliers_ else ""
        name = "root mean squared error" if self.loss_ == SQUARE else f"{self.loss_}"
        yield "expected", f"{name} {listed}{more} on new samples{clean}"


def _check_loss(loss: Loss, targets: NDArray) -> None:
    """Check that the loss is a loss of residuals for these targets."""
    if loss.is_classification:
        raise ValueError(
            f"`loss` must be a loss of residuals, got {loss!r}: use "
            "TabularKernelClassifier for classes"
        )
    if isinstance(loss, LogLinkLoss):
        loss.link(targets)
    else:
        loss.check_solvable()
    if targets.shape[1:] > (1,):
        loss.check_radial()
