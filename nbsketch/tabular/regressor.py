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
from nbsketch.losses import LogLinkLoss, Loss, PinballLoss, as_loss
from nbsketch.outputs import check_levels
from nbsketch.rows.inputs import check_weights, rowwise, table_by_row
from nbsketch.tabular._model import TabularModel, without_effort
from nbsketch.tabular.fit import SQUARE, LeftOutRows
from nbsketch.tabular.machine import stack_weights
from nbsketch.tabular.noise import Suspects, errors_beside, fit_noise
from nbsketch.tabular.problem import Points
from nbsketch.tabular.working import losses_of, stacked
from nbsketch.tuning.rows import Training, at_rows


@without_effort
@declares_parameters
class TabularKernelRegressor(
    ResidualLoss, RegressorScore, ObjectParameters, TabularModel
):
    r"""Kernel regression for tables, with nothing to choose.

    A stack of kernels with learned length scales, Matern 3/2, the product Laplacian
    :math:`\exp(-\sum_k |x_k - z_k| / l_k)` and, up to 1500 rows, Matern 5/2:

    .. math:: f(x) = b + \sum_m w_m f_m(x).

    Beyond 1500 rows :math:`f_0` is a ridge on few landmarks, and the others are exact
    kernel ridge regressions on the leaf of at most 1600 rows of a random tree that x
    falls in. Up to 1500 rows there is one leaf with all rows. Weights, penalties and
    length scales minimize leave-one-out errors. Above 1500 rows, members that lower the
    leave-one-out error by at most .05 % in all are dropped. See :doc:`/tabular`.

    Parameters
    ----------
    loss : str or Loss, default="square"
        Loss of predictions, by which members are fitted and stacked: "square", "huber",
        "absolute_error" (medians), "quantile" (with its level: ``PinballLoss(0.9)``),
        "poisson", "gamma" (means; for unequal exposure pass rates, and the exposure as
        `sample_weight`), another name or object of `nbsketch.losses`, in the units of
        the targets. "huber" without a number: the threshold is 1.345 robust standard
        deviations of the left-out errors. Several outputs: "square", "huber",
        "absolute_error" and other losses of norms.
    partners : "large", "auto", list of regressors or None, default="large"
        Estimators of scikit-learn that join the stack by their predictions of five
        folds. They take the encoded rows, and need skops in a model file. "large":
        boosted trees beyond 65,536 rows if the loss is the square loss, fitted without
        fewer folds, at least one. "auto": boosted trees beyond 1500 rows. None: none.
    cv : int, splitter, iterable of (train, test) or None, default=None
        Rows that are left out together wherever something is chosen; merged to 10
        blocks if there are more. None: single rows, with a `DependentRowsWarning` if
        contiguous blocks contradict them. An integer: that many contiguous blocks of
        rows, or of whole groups.
    max_seconds : float or None, default=None
        Upper bound on the time of the fit: searches end early, base and leaves are
        fitted to as many rows as there is time for, at least 1600, with a warning, and
        boosted trees are skipped. The model then depends on the machine. None: no
        limit.
    random_state : None, int or Generator, default=None
        Pass an int for reproducible results: the model does not depend on the number of
        threads.
    verbose : int, default=0
        If positive, display the progress of the fit.
    callback : callable or None, default=None
        Called as ``callback(state)`` with a `FitState`, in the stages "length-scales"
        and "leaves". If it returns true, searches end and no partner is added.

    Attributes
    ----------
    columns_ : TableColumns
        Encodings of the columns of X as features.
    feature_relevance_ : ndarray of shape (p,)
        Relevance of each feature of `columns_`: inverse length scales, averaged over
        the members by their weights, relative to the largest.
    feature_importances_ : ndarray of shape (q,)
        Shares of the columns of X in the variation of predictions: about permutation
        importance. Computed when asked for.
    loss_ : Loss
        The loss.
    loo_error_ : float or ndarray of shape (d,)
        Root mean squared error expected on new rows: that of left-out rows, which is
        about 8 % too small on few rows. Losses other than the square: their mean.
    n_outliers_ : int
        Number of training rows that were not used: gross errors in the targets, beyond
        a gap in the residuals from a robust regression, at most 5 %. An
        `OutlierWarning` says so. Of even losses of bounded slope ("huber",
        "absolute_error"): any share. Of other losses: 0.
    outliers_ : ndarray of int
        Their indices among the rows given to `fit`.
    suspects_ : ndarray of int
        Indices of rows whose targets look like gross errors and are used nevertheless,
        with an `OutlierWarning`: more than 5 %, or the others cannot be predicted.
    n_skipped_ : int
        Number of steps that were skipped or cut short because of `max_seconds` or a
        callback: 1 for the rows of base and leaves, and 1 for boosted trees.
    partners_ : tuple
        Fitted partners.
    partner_weights_ : ndarray
        Their weights; the machine has the rest.
    machine_, noise_ : Machine, Noise
        What predictions need, as arrays: about n (p + m) numbers for m
        members.
    n_copies_ : int
        Number of training rows that are merged into an equal one (:ref:`copies`).
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (q,)
        Their names, if X is a data frame with text as names.

    Notes
    -----
    The model stores all training rows. Predictions are discontinuous at borders of
    leaves. They stay within the range of the training targets, widened by a tenth, and
    features are clipped to their training range: the model does not extrapolate.

    Other losses than the square are fitted by least squares with working weights and
    responses at the left-out scores, repeated until the left-out loss is steady. Length
    scales are those of the square loss, of targets without extremes, or of logarithms.
    A quantile is that of the law of the errors around the medians.

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

    loss_ = SQUARE  # of models of older files

    def _checked(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[NDArray, NDArray | None]:
        y = as_numbers("y", y)
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
        self.loss_ = as_loss(self.loss)
        is_adaptive = self.loss == "huber"
        loss = None if is_adaptive else self.loss_
        left_out, values = self._fit_rows(data, rng, loss=loss)
        if is_adaptive:
            self.loss_ = left_out.work.loss or self.loss_  # with a threshold
        drawn = left_out.drawn
        weights = left_out.weights
        Y = data.Y[drawn]
        residual = self._stack_partners(left_out, Y, values)
        machine = self.machine_
        with one_thread():
            at = machine.prepare(data.rows[drawn]).rows
            kept = np.isfinite(residual).all(axis=1)
            errors = at[kept], residual[kept], at_rows(weights, kept)
            self.noise_ = fit_noise(machine.scales, *errors, rng)
            error = self._expected_error(Y[kept], *errors, left_out.unit)
            self.loo_error_ = float(error[0]) if self._single else error
            if len(left_out.suspects.rows) or self.loss_ != SQUARE:
                return left_out.suspects
            suspects = errors_beside(machine.scales, at, Y, residual, weights)
        return suspects._replace(rows=drawn[suspects.rows])

    def _expected_error(
        self,
        Y: NDArray,
        at: NDArray,
        residual: NDArray,
        weights: NDArray | None,
        unit: float,
    ) -> NDArray:
        """Return the error (d,), or the mean loss, of left-out residuals (m, d)."""
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
        """Return the predictions of the rows of X, of shape (n,) or (n, d)."""
        return self._outputs(self._points(X))

    def _outputs(self, points: Points) -> NDArray:
        if isinstance(self.loss_, PinballLoss):
            levels = self.noise_.quantiles(np.array([self.loss_.quantile]))
            return self._spread(points, levels)[..., 0]
        values = self._values(points)
        return values[:, 0] if self._single else values

    @rowwise(table_by_row)
    def predict_quantiles(self, X: Any, levels: Any) -> NDArray:
        """Return quantiles of the target given the rows of X.

        They are the prediction plus quantiles of left-out residuals, which are scaled
        by their local size: a regression of the logarithm of the size on the features.
        Gross errors, which were left out (`n_outliers_`), are no part of the
        distribution.

        Parameters
        ----------
        X : DataFrame or array of shape (n, q)
            Rows.
        levels : float or sequence of floats
            Ascending levels in (0, 1).

        Returns
        -------
        ndarray of shape (n, levels) or (n, d, levels)
            Quantiles; they do not cross.
        """
        check_is_fitted(self)
        tau = np.array(check_levels("levels", np.atleast_1d(np.asarray(levels))))
        return self._spread(self._points(X), self.noise_.quantiles(tau))

    @rowwise(lambda method, X, y: table_by_row(method, X, as_values(y, ())))
    def predict_cdf(self, X: Any, y: ArrayLike) -> NDArray:
        """Return the probability that the target is at most y.

        The inverse of `predict_quantiles`: 0 below the smallest and 1 above the largest
        left-out residual, scaled to the row.

        Parameters
        ----------
        X : DataFrame or array of shape (n, q)
            Rows.
        y : float, array of shape (k,), or array of shape (n, k) or (n, d, k)
            Values: the same k for each row, or some for each.

        Returns
        -------
        ndarray of shape (n, k) or (n, d, k)
            Probabilities.
        """
        center, sigma = self._law(self._points(X))
        values = as_values(y, center.shape[: 1 if self._single else 2])
        values = values[:, None] if self._single else values
        levels = self.noise_.levels((values - center[:, :, None]) / sigma[:, :, None])
        if isinstance(self.loss_, LogLinkLoss):
            levels = np.where(values < 0, 0.0, levels)
        return levels[:, 0] if self._single else levels

    @rowwise(table_by_row)
    def predict_interval(self, X: Any, coverage: float = 0.9) -> NDArray:
        """Return intervals that hold the target with a given probability.

        As in `predict_quantiles`, with equal tails, from order statistics as in split
        conformal prediction. Assumes that new rows are exchangeable with those of
        training (with whole blocks of these, for `cv`) and, where gross errors were
        left out (`n_outliers_` > 0), that their targets are no gross errors: if these
        are as frequent as in training, a share q, expect the coverage times 1 - q.

        Parameters
        ----------
        X : DataFrame or array of shape (n, q)
            Rows.
        coverage : float in (0, 1), default=0.9
            Probability.

        Returns
        -------
        ndarray of shape (n, 2) or (n, d, 2)
            Lower and upper ends; infinite if there are too few training rows for this
            probability.
        """
        check_is_fitted(self)
        level = check_level("coverage", coverage)
        return self._spread(self._points(X), self.noise_.limits(level))

    def _stack_partners(
        self, left_out: LeftOutRows, Y: NDArray, values: list[NDArray]
    ) -> NDArray:
        """Set the weights of partners; return the left-out residuals of the stack."""
        machine = self.machine_
        if self.loss_ != SQUARE:
            scores = [left_out.scores, *map(self._scores, values)]
            return self._stack_scores(left_out, Y, np.stack(scores))
        if not values:
            return left_out.residual
        errors = [Y - machine.clipped(part) for part in values]
        residuals = np.stack([left_out.residual, *errors])
        stack = stack_weights(residuals / machine.spread, left_out.weights)
        self.partner_weights_ = stack[1:]
        return np.einsum("k,kmd->md", stack, residuals)

    def _stack_scores(
        self, left_out: LeftOutRows, Y: NDArray, scores: NDArray
    ) -> NDArray:
        """Return the residuals of a stack of left-out scores (k, m, d) for the loss."""
        stack = np.ones(1)
        if len(scores) > 1:
            stack = stacked(left_out.work, scores - np.log(left_out.unit))
        self.partner_weights_ = stack[1:]
        return Y - self.loss_.mean(np.einsum("k,kmd->md", stack, scores))

    def _scores(self, values: NDArray) -> NDArray:
        """Return predictions of a partner on the scale of the scores, within limits."""
        if isinstance(self.loss_, LogLinkLoss):
            values = np.log(np.maximum(values, np.finfo(float).tiny))
        return self.machine_.clipped(values)

    def _values(self, points: Points) -> NDArray:
        """Return the predictions of the machine and its partners, (n, d)."""
        out = self.machine_.predict(points) * (1 - self.partner_weights_.sum())
        pairs = zip(self.partner_weights_, self.partners_, strict=True)
        for weight, partner in pairs:
            out += weight * self._scores(partner.predict(points.encoded))
        return self.loss_.mean(out)

    def _law(self, points: Points) -> tuple[NDArray, NDArray]:
        """Return predictions and local scales of errors, (n, d) each."""
        with one_thread():
            sigma = self.noise_.sigma(points.rows)
        return self._values(points), sigma

    def _spread(self, points: Points, scores: NDArray) -> NDArray:
        """Return predictions plus local scales times scores (levels, d)."""
        center, sigma = self._law(points)
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
        yield "expected", f"{name} {listed}{more} on new rows{clean}"


def _check_loss(loss: Loss, targets: NDArray) -> None:
    """Raise an error unless a loss is one of residuals that takes the targets."""
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
