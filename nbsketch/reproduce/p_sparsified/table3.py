"""Table 3 and Theorems 2 and 4 of the p-sparsified paper: orders and excess risks.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, after Yang, Pilanci and Wainwright, Ann.
Stat. 2017: the orders of the squared critical radius and of the statistical dimension
for Gaussian, polynomial and first-order Sobolev kernels. Here both are measured on
uniform inputs in [0, 1], and the growth is fitted.

The excess risk of sketched estimators, which the theorems bound by terms of order
delta_n, is measured in the same way: Huber loss, one output or three with a coupling
output matrix, targets of a function in the unit sphere of the space with normal noise.
Penalty and sketch follow the theorem, delta_n^2 and s = max(12 d_n / p^2, delta_n^2 n)
at p = 0.7; the theorem's constant, 5120, exceeds n. For the Gaussian kernel also
with as many random Fourier features, for which the paper cites a rate of n^(-1/2).
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch import kernels
from nbsketch.diagnostics import SizeRecommendation, recommend_size, spectrum
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.features import RandomFourierFeatures
from nbsketch.losses import HuberLoss
from nbsketch.outputs import QuantileOutput
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._figures import STYLES, Curve, Panel, style_of
from nbsketch.reproduce._report import Row, Rows, log_log_slope, replicated, where
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.sketches import IdentitySketch, PSparsifiedSketch, SketchRecipe

ROWS = ENTRIES["table3"]["rows"]
LANDMARKS = 1600
_MOST_RISK_ROWS = 3200  # the time of dense sketches grows like the square
# In units where the norm of the regression function is 1.
NOISE = 0.3
DEGREE = 3
LOSS = HuberLoss(NOISE)
# Levels of the outputs, coupled by the output matrix.
OUTPUTS = {"risk": (0.5,), "vector_risk": (0.1, 0.5, 0.9), "fourier_risk": (0.5,)}
FOURIER = "fourier_risk"
# Number of kernel functions in a regression function.
_CENTERS = np.linspace(0.1, 0.9, 5)[:, None]
_TEST_ROWS = 1000  # nodes of the mean over inputs
_TEST_NOISES = 500  # draws of the noise, each with both signs
# Names in the table. The rate of the bound is the root of the squared radius.
QUANTITIES = ENTRIES["table3"]["quantities"]


class Case(NamedTuple):
    """A kernel, the orders stated for it as functions of n and as texts, and size s.

    Orders are those of the squared radius and of the dimension; texts, also of the
    learning rate, the root of the squared radius.
    """

    kernel: kernels.Kernel
    radius: Callable[[NDArray], NDArray]
    dimension: Callable[[NDArray], NDArray]
    texts: tuple[str, str, str]
    size: str

    def stated(self, quantity: str, n: NDArray) -> tuple[str, NDArray]:
        """Return the stated order of a quantity and its values; for risks, the rate."""
        radius, dimension, rate = self.texts
        if quantity == "radius":
            return radius, self.radius(n)
        if quantity == "dimension":
            return dimension, self.dimension(n)
        if quantity == FOURIER:
            return "n^(-1/2)", n**-0.5
        return rate, np.sqrt(self.radius(n))


CASES = {
    "Gaussian": Case(
        kernels.GaussianKernel(0.25),
        lambda n: np.sqrt(np.log(n)) / n,
        lambda n: np.sqrt(np.log(n)),
        ("sqrt(log n) / n", "sqrt(log n)", "(log n)^(1/4) / n^(1/2)"),
        "sqrt(log n) / p^2",
    ),
    f"polynomial, degree {DEGREE}": Case(
        kernels.PolynomialKernel(DEGREE),
        lambda n: 1 / n,
        lambda n: np.full(n.shape, DEGREE + 1.0),
        ("1 / n", f"at most {DEGREE + 1}", "n^(-1/2)"),
        "1 / p^2",
    ),
    "Sobolev, first order": Case(
        kernels.SobolevKernel(),
        lambda n: n ** (-2 / 3),
        lambda n: n ** (1 / 3),
        ("n^(-2/3)", "n^(1/3)", "n^(-1/3)"),
        "n^(1/3) / p^2",
    ),
}


def points(replicates: int, quick: bool) -> Points:
    """Return kernel, draw of the inputs, and number of rows."""
    return list(product(CASES, range(replicates), ROWS[quick]))


def measure(name: str, replicate: int, n: int) -> Iterator[Row]:
    """Yield the squared radius and the dimension of one draw."""
    X = np.random.default_rng((replicate, n)).uniform(size=(n, 1))
    kernel = CASES[name].kernel
    mu = spectrum(X, kernel, size=min(n, LANDMARKS), random_state=replicate)
    advice = recommend_size(mu, guarantee="satisfiable", noise=NOISE)
    row = {"kernel": name, "n": n, "replicate": replicate}
    row |= {"radius": advice.radius**2, "dimension": advice.statistical_dimension}
    for risk in OUTPUTS:
        is_measured = n <= _MOST_RISK_ROWS and _has_risk(risk, kernel)
        row[risk] = (
            excess_risk(X, kernel, risk, advice, replicate) if is_measured else None
        )
    yield row


def _has_risk(risk: str, kernel: kernels.Kernel) -> bool:
    """Return whether a kernel has the features of a risk."""
    return risk != FOURIER or isinstance(kernel, kernels.GaussianKernel)


def excess_risk(
    X: NDArray, kernel: kernels.Kernel, risk: str, advice: SizeRecommendation, seed: int
) -> float:
    """Return the excess risk of a sketched estimator of recommended size.

    The noise is symmetric, so the regression function has the smallest risk.
    """
    output = QuantileOutput(OUTPUTS[risk])
    d = len(output.quantiles)
    rng = np.random.default_rng((seed, len(X), d))
    weights = np.random.default_rng(seed).standard_normal((len(_CENTERS), d))
    M = output.matrix(d)
    weights /= np.sqrt(np.trace(weights.T @ kernel(_CENTERS) @ weights @ M))
    test = (np.arange(_TEST_ROWS)[:, None] + 0.5) / _TEST_ROWS
    truth, best = (kernel(rows, _CENTERS) @ weights @ M for rows in (X, test))
    noise = NOISE * rng.standard_normal((_TEST_NOISES, d))
    nodes = test
    sketch: SketchRecipe = PSparsifiedSketch(advice.size, advice.density)
    if risk == FOURIER:
        pairs = advice.size // 2
        fourier = RandomFourierFeatures(kernel, size=2 * pairs, random_state=seed)
        X = fourier.fit_transform(X)
        nodes = fourier.transform(test)
        kernel = kernels.LinearKernel()
        sketch = IdentitySketch()
    model = SketchedKernelRegressor(
        kernel,
        loss=LOSS,
        output=output,
        sketch=sketch,
        alpha=advice.alpha,
        fit_intercept=False,
        random_state=seed,
    ).fit(X, truth + NOISE * rng.standard_normal(truth.shape))
    errors = model.predict(nodes).reshape(best.shape) - best
    noise = np.concatenate([noise, -noise])
    risks = LOSS.norm_value((errors[:, None] - noise).reshape(-1, d))
    return risks.mean() - LOSS.norm_value(noise).mean()


def summarize(rows: Rows) -> Rows:
    """Return the fitted and the stated growth, for each kernel and quantity."""
    table = []
    for (name, case), quantity in product(CASES.items(), QUANTITIES):
        if not _has_risk(quantity, case.kernel):
            continue
        n, values = _by_size(rows, name, quantity)
        slope, half_width = log_log_slope(n, values)
        text, stated = case.stated(quantity, n)
        ratios = values.mean(axis=0) / stated
        row = {
            "kernel": name,
            "quantity": QUANTITIES[quantity],
            "stated": text,
            "stated_size": case.size if quantity == "dimension" else None,
            "stated_exponent": log_log_slope(n, stated)[0],
            "exponent": slope,
            "half_width": half_width,
            "drift": ratios[-1] / ratios[0],
            "first": values[:, 0].mean(),
            "last": values[:, -1].mean(),
        }
        table.append(row)
    return table


def _by_size(rows: Rows, kernel: str, quantity: str) -> tuple[NDArray, NDArray]:
    """Return the numbers of rows with values, and these (replicates, sizes)."""
    if quantity == "rate":
        n, radii = _by_size(rows, kernel, "radius")
        return n, radii**0.5
    return replicated(where(rows, kernel=kernel), quantity)


def panels(rows: Rows) -> list[Panel]:
    """Return a panel per quantity: measured, and the stated order dashed."""
    result = []
    for quantity, label in ENTRIES["table3"]["labels"].items():
        curves = []
        for name, case in CASES.items():
            n, values = _by_size(rows, name, quantity)
            mean = values.mean(axis=0)
            _, stated = case.stated(quantity, n)
            level = np.exp(np.log(mean / stated).mean())
            style = STYLES["stated order"]._replace(color=style_of(name).color)
            order = Curve("stated order", n, level * stated, style=style)
            curves += [Curve(name, n, mean), order]
        result.append(Panel("", "Rows n", label, curves, "xy"))
    return result


run = Experiment("table3", points, measure, summarize, panels)
