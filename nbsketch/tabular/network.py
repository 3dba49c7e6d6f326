"""A small network on columns divided by learned length scales, for smooth targets.

Three hidden layers of 192 SiLU, trained by AdamW (Loshchilov and Hutter, Decoupled
Weight Decay Regularization, ICLR 2019) with a warm-up and a cosine schedule, in single
precision. In the stack of larger efforts it had 0.95 of the error on elevators, 0.65 on
pol and 1.00 where it does not help. scikit-learn's MLPRegressor of the same size in its
place had 1.02 of the error of the stack on elevators and 1.14 on pol (4000 rows).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

_WIDTH = 192
_DEPTH = 3
_EPOCHS = 60
_BATCH = 256
_RATE = 4e-3
_WARM_UP = 0.05
_BETAS = (0.9, 0.95)
_DECAY = 0.01
_EPSILON = 1e-8
# Epochs between two looks at the validation rows.
_LOOK = 4

Layers = list[NDArray]  # matrices and constants in turn


class ScaledNetwork(RegressorMixin, BaseEstimator):
    """A network for rows that are divided by length scales; see `fit`."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(
        self,
        X: NDArray,
        y: NDArray,
        sample_weight: NDArray | None = None,
        X_val: NDArray | None = None,
        y_val: NDArray | None = None,
    ) -> ScaledNetwork:
        """Keep the best of every fourth epoch on validation rows, else the last."""
        rng = np.random.default_rng(self.seed)
        self.center_ = X.mean(axis=0)
        self.factor_ = float(np.sqrt(np.mean(np.square(X - self.center_)))) or 1.0
        self.mean_ = float(y.mean())
        self.spread_ = float(y.std()) or 1.0
        rows = self._scaled(X)
        targets = ((y - self.mean_) / self.spread_).astype(np.float32)[:, None]
        w = np.ones(len(y)) if sample_weight is None else sample_weight
        w = (w / w.mean()).astype(np.float32)[:, None]
        least = np.inf
        best = list[NDArray]()
        for epoch, layers in enumerate(_trained(rows, targets, w, rng), 1):
            last = epoch == _EPOCHS
            if not last and (X_val is None or epoch % _LOOK):
                continue
            self.layers_ = [part.copy() for part in layers]
            if X_val is not None and y_val is not None:
                error = float(np.square(self.predict(X_val) - y_val).mean())
                if error < least:
                    least = error
                    best = self.layers_
        self.layers_ = best or self.layers_
        return self

    def predict(self, X: NDArray) -> NDArray:
        """Return the values at rows, (n,)."""
        values = _forward(self.layers_, self._scaled(X))[-1][:, 0]
        return self.mean_ + self.spread_ * values.astype(np.float64)

    def _scaled(self, X: NDArray) -> NDArray:
        return ((X - self.center_) / self.factor_).astype(np.float32)


def _trained(
    rows: NDArray, Y: NDArray, w: NDArray, rng: np.random.Generator
) -> Iterator[Layers]:
    """Yield the layers after each epoch."""
    sizes = [rows.shape[1], *[_WIDTH] * _DEPTH, 1]
    layers = list[NDArray]()
    for a, b in pairwise(sizes):
        layers += [rng.normal(0, a**-0.5, (a, b)), np.zeros(b)]
    layers = [part.astype(np.float32) for part in layers]
    first, second = ([np.zeros_like(p) for p in layers] for _ in range(2))
    batches = max(len(rows) // _BATCH, 1)
    step = 0
    total = _EPOCHS * batches
    for _ in range(_EPOCHS):
        for part in np.array_split(rng.permutation(len(rows)), batches):
            step += 1
            rate = _rate(step / total)
            slopes = _gradient(layers, rows[part], Y[part], w[part])
            for p, g, m, v in zip(layers, slopes, first, second, strict=True):
                m += (1 - _BETAS[0]) * (g - m)
                v += (1 - _BETAS[1]) * (g * g - v)
                scale = np.sqrt(v / (1 - _BETAS[1] ** step)) + _EPSILON
                if p.ndim == 2:
                    p *= 1 - rate * _DECAY
                p -= (rate / (1 - _BETAS[0] ** step)) * m / scale
        yield layers


def _rate(done: float) -> np.float32:
    """Return the rate of a step: a warm-up, then a cosine to zero."""
    if done < _WARM_UP:
        return np.float32(_RATE * done / _WARM_UP)
    share = (done - _WARM_UP) / (1 - _WARM_UP)
    return np.float32(_RATE * (1 + np.cos(np.pi * share)) / 2)


def _forward(layers: Layers, rows: NDArray) -> list[NDArray]:
    """Return the rows, sums and values of the hidden layers in turn, and the output."""
    out = [rows]
    for k in range(0, len(layers) - 2, 2):
        sums = out[-1] @ layers[k] + layers[k + 1]
        out += [sums, sums * _sigmoid(sums)]
    return [*out, out[-1] @ layers[-2] + layers[-1]]


def _gradient(layers: Layers, rows: NDArray, Y: NDArray, w: NDArray) -> Layers:
    """Return the gradient of the weighted mean of half the squares."""
    parts = _forward(layers, rows)
    slopes = list[NDArray]()
    back = w * (parts.pop() - Y) / np.float32(len(Y))
    for k in range(len(layers) - 2, -1, -2):
        values = parts.pop()
        slopes = [values.T @ back, back.sum(axis=0), *slopes]
        if k:
            sums = parts.pop()
            share = _sigmoid(sums)
            back = (back @ layers[k].T) * (share * (1 + sums * (1 - share)))
    return slopes


def _sigmoid(x: NDArray) -> NDArray:
    return (np.tanh(x / 2) + 1) / 2
