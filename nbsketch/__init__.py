"""Sketched kernel machines, accelerated by Numba.

Public names are imported on first use: importing the package imports neither numba nor
scikit-learn.
"""

from importlib import import_module

__version__ = "1.0.0"

# Public names by module; `__init__.pyi` has them for type checkers and editors.
_HOME = {
    "_machine.memory": "get_memory_limit set_memory_limit",
    "_report.progress": "FitState",
    "estimators": (
        "JointQuantileRegressor SketchedKernelClassifier SketchedKernelRegressor "
        "SketchedSGDClassifier SketchedSGDRegressor SpectralFilterRegressor"
    ),
    "rows.outliers": "OutlierWarning",
    "rows.splits": "DependentRowsWarning",
    "fitting.plan": "AutoSize",
    "features": "RandomFourierFeatures SketchedFeatures",
    "kernels": (
        "CallableKernel GaussianKernel GaussianTanimotoKernel LaplacianKernel "
        "LinearKernel MaternKernel PolynomialKernel PrecomputedKernel "
        "SobolevKernel TanimotoKernel"
    ),
    "losses": (
        "EpsilonInsensitiveLoss GammaLoss HingeLoss HuberLoss LogisticLoss "
        "PinballLoss PoissonLoss SquareLoss SquaredEpsilonInsensitiveLoss "
        "SquaredHingeLoss"
    ),
    "outputs": "GraphOutput IdentityOutput MatrixOutput QuantileOutput",
    "files": "load",
    "sketches": (
        "AccumulationSketch CountSketch GaussianSketch IdentitySketch "
        "LandmarkSketch LeverageSketch PSparsifiedSketch RademacherSketch "
        "RPCholeskySketch "
        "SRHTSketch SizedRecipe SparseJLSketch SubsamplingSketch"
    ),
    "solvers.filters": "CutoffFilter IteratedRidgeFilter LandweberFilter RidgeFilter",
    "solvers.stochastic": "StochasticSolver",
    "structured": "InputOutputKernelRegressor OutputEmbedding",
    "tabular.classifier": "TabularKernelClassifier",
    "tabular.regressor": "TabularKernelRegressor",
    "tabular.columns": "TableColumns",
    "tabular.encodings": "DateColumn LevelColumn NumberColumn",
    "tuning": "InputScaler",
}
_MODULE_OF = {
    name: f"nbsketch.{m}" for m, names in _HOME.items() for name in names.split()
}
_PUBLIC = (
    "conformal",
    "datasets",
    "diagnostics",
    "explain",
    "leverage",
    "metrics",
    "model_selection",
    "plots",
)
# # Modules reached as attributes (base classes, functions), not by `import *`.
_BASES = "gram kernels losses outputs sketches solvers features files structured tuning"
_SUBMODULES = *_PUBLIC, *_BASES.split(), "estimators", "tabular"

__all__ = ["__version__", *sorted(_MODULE_OF), *_PUBLIC]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF and name not in _SUBMODULES:
        raise AttributeError(f"module 'nbsketch' has no attribute {name!r}")
    try:
        module = import_module(_MODULE_OF.get(name, f"nbsketch.{name}"))
        return getattr(module, name) if name in _MODULE_OF else module
    except AttributeError as error:  # Python would say that the name does not exist
        raise ImportError(f"importing nbsketch.{name} failed: {error}") from error


def __dir__() -> list[str]:
    return __all__
