"""Sketched kernel machines, accelerated by Numba.

Public names are imported on first use: importing the package imports neither numba nor
scikit-learn.
"""

from importlib import import_module

__version__ = "0.2.0"

_HOME = {
    "nbsketch._memory": ("get_memory_limit", "set_memory_limit"),
    "nbsketch._progress": ("FitState",),
    "nbsketch.estimators": (
        "JointQuantileRegressor",
        "SketchedKernelClassifier",
        "SketchedKernelRegressor",
        "SketchedSGDClassifier",
        "SketchedSGDRegressor",
        "SpectralFilterRegressor",
    ),
    "nbsketch.fitting.training": ("DependentRowsWarning",),
    "nbsketch.fitting.plan": ("AutoSize", "StochasticSolver"),
    "nbsketch.features": ("RandomFourierFeatures", "SketchedFeatures"),
    "nbsketch.kernels": (
        "CallableKernel",
        "GaussianKernel",
        "GaussianTanimotoKernel",
        "LaplacianKernel",
        "LinearKernel",
        "MaternKernel",
        "PolynomialKernel",
        "PrecomputedKernel",
        "SobolevKernel",
        "TanimotoKernel",
    ),
    "nbsketch.losses": (
        "EpsilonInsensitiveLoss",
        "GammaLoss",
        "HingeLoss",
        "HuberLoss",
        "LogisticLoss",
        "PinballLoss",
        "PoissonLoss",
        "SquareLoss",
        "SquaredEpsilonInsensitiveLoss",
        "SquaredHingeLoss",
    ),
    "nbsketch.outputs": (
        "GraphOutput",
        "IdentityOutput",
        "MatrixOutput",
        "QuantileOutput",
    ),
    "nbsketch.persistence": ("load",),
    "nbsketch.sketches": (
        "AccumulationSketch",
        "CountSketch",
        "GaussianSketch",
        "IdentitySketch",
        "LandmarkSketch",
        "LeverageSketch",
        "PSparsifiedSketch",
        "RademacherSketch",
        "SRHTSketch",
        "SizedRecipe",
        "SparseJLSketch",
        "SubsamplingSketch",
    ),
    "nbsketch.solvers.filters": (
        "CutoffFilter",
        "IteratedRidgeFilter",
        "LandweberFilter",
        "RidgeFilter",
    ),
    "nbsketch.structured": ("InputOutputKernelRegressor",),
    "nbsketch.tabular.classifier": ("TabularKernelClassifier",),
    "nbsketch.tabular.regressor": ("TabularKernelRegressor",),
    "nbsketch.tabular.columns": ("TableColumns",),
    "nbsketch.tabular.encodings": ("DateColumn", "LevelColumn", "NumberColumn"),
    "nbsketch.tuning": ("InputScaler",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_SUBMODULES = ("datasets", "diagnostics", "leverage", "metrics")

__all__ = ["__version__", *sorted(_MODULE_OF), *_SUBMODULES]


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
