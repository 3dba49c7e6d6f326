"""Color and marker of each method, the same in all figures."""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """Color and marker of a curve; without a marker it is dashed."""

    color: str
    marker: str


_DEFAULT = Style("#1764ab", "o")
# By the beginning of a label; the first that fits.
STYLES = {
    # references
    "theory, sub-sampling": Style("#d95f02", ""),
    "theory": Style("#888888", ""),
    "stated order": Style("#888888", ""),
    "without sketch": Style("#000000", ""),
    "30/n-SR, Adam": Style("#888888", "x"),
    "30/n-SG, Adam": Style("#888888", "x"),
    # sketches
    "5/n": Style("#9ecae1", "o"),
    "10/n": Style("#4a98c9", "s"),
    "30/n": Style("#1764ab", "^"),
    "50/n": Style("#08306b", "D"),
    "p-SR, p = 0.7": Style("#9ecae1", "o"),
    "p-SR": Style("#1764ab", "s"),
    "p-sparsified": Style("#1764ab", "s"),
    "sub-sampling": Style("#d95f02", "v"),
    "leverage": Style("#a6611a", "X"),
    "accumulation": Style("#7570b3", "D"),
    "CountSketch": Style("#e6ab02", "^"),
    "sparse JL": Style("#a6761d", "<"),
    "SRHT": Style("#e7298a", ">"),
    "Gaussian": Style("#1b9e77", "P"),
    "Rademacher": Style("#66a61e", "p"),
    "random Fourier features": Style("#e7298a", "*"),
    "bootstrap": Style("#e7298a", "x"),
    # kernels
    "polynomial": Style("#1764ab", "s"),
    "Sobolev": Style("#d95f02", "v"),
    # filters and regimes of stochastic gradients
    "ridge": Style("#1764ab", "o"),
    "iterated ridge": Style("#d95f02", "s"),
    "cutoff": Style("#1b9e77", "^"),
    "Landweber": Style("#7b3294", "v"),
    "regime IV": Style("#e34a33", "h"),
    "regime III": Style("#8da0cb", "p"),
    "regime II": Style("#e6ab02", ">"),
    "regime I": Style("#66a61e", "<"),
    # structured prediction
    "IOKR": Style("#888888", ""),
    "SIOKR": Style("#d95f02", "v"),
    "ISOKR": Style("#1b9e77", "P"),
    "SISOKR": Style("#1764ab", "o"),
    # tabular data
    "tabular, fast, cv=5": Style("#1764ab", "o"),
    "tabular, fast": Style("#9ecae1", "^"),
    "tabular, high": Style("#08306b", "D"),
    "LightGBM tuned": Style("#d7301f", "s"),
    "LightGBM, CQR": Style("#fc8d59", "D"),
    "LightGBM": Style("#000000", "s"),
    "CatBoost, stopped": Style("#fdbf6f", "<"),
    "CatBoost": Style("#e6ab02", ">"),
    "ExtraTrees": Style("#66a61e", "p"),
    "exact GP": Style("#a6611a", "h"),
    "RealMLP": Style("#7b3294", "x"),
    "HistGradientBoosting": Style("#969696", "s"),
    "exact ridge": Style("#d95f02", "v"),
    "sketched": Style("#1b9e77", "P"),
    "xRFM": Style("#7570b3", "X"),
    "TabPFN": Style("#e7298a", "*"),
}


def style_of(label: str) -> Style:
    """Return the style of a label; a blue circle for labels that are not listed."""
    fitting = (style for name, style in STYLES.items() if label.startswith(name))
    return next(fitting, _DEFAULT)
