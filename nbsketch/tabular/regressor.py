"""Regression on tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin
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
from nbsketch.estimators._base import RegressorScore
from nbsketch.outputs import check_levels
from nbsketch.rows.inputs import check_weights, rowwise, table_by_row
from nbsketch.tabular._model import TabularModel, without_effort
from nbsketch.tabular.fit import LeftOutRows
from nbsketch.tabular.machine import stack_weights
from nbsketch.tabular.noise import Suspects, errors_beside, expected_error, fit_noise
from nbsketch.tabular.problem import Points, Training


@without_effort
@declares_parameters
class TabularKernelRegressor(MultiOutputMixin, RegressorScore, TabularModel):
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
    partners : "auto", list of regressors or None, default=None
        Estimators of scikit-learn that join the stack by their predictions of five
        folds. They take the encoded rows. A model with a list of partners cannot be
        saved by `save`. "auto": boosted trees, beyond 1500 rows. None: none.
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
    loo_error_ : float or ndarray of shape (d,)
        Root mean squared error expected on new rows: that of left-out rows, which is
        about 8 % too small on few rows.
    n_outliers_ : int
        Number of training rows that were not used: gross errors in the targets, beyond
        12 robust local standard deviations from a small model, at most 5 %. An
        `OutlierWarning` says so.
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
        return targets.reshape(len(targets), -1), check_weights(sample_weight, X)

    def _fit(self, data: Training, rng: np.random.Generator) -> Suspects:
        left_out, values = self._fit_rows(data, rng)
        drawn = left_out.drawn
        weights = left_out.weights
        residual = self._stack_partners(left_out, data.Y[drawn], values)
        error = expected_error(residual, weights)
        self.loo_error_ = float(error[0]) if self._single else error
        machine = self.machine_
        with one_thread():
            at = machine.prepare(data.rows[drawn]).rows
            self.noise_ = fit_noise(machine.scales, at, residual, weights, rng)
            if len(left_out.suspects.rows):
                return left_out.suspects
            Y = data.Y[drawn]
            suspects = errors_beside(machine.scales, at, Y, residual, weights)
        return suspects._replace(rows=drawn[suspects.rows])

    @rowwise(table_by_row)
    def predict(self, X: Any) -> NDArray:
        """Return the predictions of the rows of X, of shape (n,) or (n, d)."""
        values = self._values(self._points(X))
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
        return self._spread(X, self.noise_.quantiles(tau))

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
        center, sigma = self._law(X)
        values = as_values(y, center.shape[: 1 if self._single else 2])
        values = values[:, None] if self._single else values
        levels = self.noise_.levels((values - center[:, :, None]) / sigma[:, :, None])
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
        return self._spread(X, self.noise_.limits(level))

    def _stack_partners(
        self, left_out: LeftOutRows, Y: NDArray, values: list[NDArray]
    ) -> NDArray:
        """Set the weights of partners; return the left-out residuals of the stack."""
        machine = self.machine_
        if not values:
            return left_out.residual
        errors = [Y - machine.clipped(part) for part in values]
        residuals = np.stack([left_out.residual, *errors])
        stack = stack_weights(residuals / machine.spread, left_out.weights)
        self.partner_weights_ = stack[1:]
        return np.einsum("k,kmd->md", stack, residuals)

    def _values(self, points: Points) -> NDArray:
        """Return the predictions of the machine and its partners, (n, d)."""
        machine = self.machine_
        out = machine.predict(points) * (1 - self.partner_weights_.sum())
        pairs = zip(self.partner_weights_, self.partners_, strict=True)
        for weight, partner in pairs:
            out += weight * machine.clipped(partner.predict(points.encoded))
        return out

    def _law(self, X: Any) -> tuple[NDArray, NDArray]:
        """Return predictions and local scales of errors, (n, d) each."""
        points = self._points(X)
        with one_thread():
            sigma = self.noise_.sigma(points.rows)
        return self._values(points), sigma

    def _spread(self, X: Any, scores: NDArray) -> NDArray:
        """Return predictions plus local scales times scores (levels, d)."""
        center, sigma = self._law(X)
        out = center[:, :, None] + sigma[:, :, None] * scores.T
        return out[:, 0] if self._single else out

    def _entries(self) -> Iterator[tuple[str, str]]:
        yield from super()._entries()
        errors = np.atleast_1d(self.loo_error_)
        listed = ", ".join(f"{error:.4g}" for error in errors[:5])
        more = ", ..." if len(errors) > 5 else ""
        clean = " without gross errors" if self.n_outliers_ else ""
        yield "expected", f"root mean squared error {listed}{more} on new rows{clean}"
