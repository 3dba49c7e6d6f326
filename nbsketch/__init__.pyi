from nbsketch import conformal as conformal
from nbsketch import datasets as datasets
from nbsketch import diagnostics as diagnostics
from nbsketch import estimators as estimators
from nbsketch import explain as explain
from nbsketch import features as features
from nbsketch import files as files
from nbsketch import gram as gram
from nbsketch import kernels as kernels
from nbsketch import leverage as leverage
from nbsketch import losses as losses
from nbsketch import metrics as metrics
from nbsketch import model_selection as model_selection
from nbsketch import outputs as outputs
from nbsketch import plots as plots
from nbsketch import sketches as sketches
from nbsketch import solvers as solvers
from nbsketch import structured as structured
from nbsketch import tabular as tabular
from nbsketch import tuning as tuning
from nbsketch._machine.memory import get_memory_limit as get_memory_limit
from nbsketch._machine.memory import set_memory_limit as set_memory_limit
from nbsketch._report.progress import FitState as FitState
from nbsketch.estimators import JointQuantileRegressor as JointQuantileRegressor
from nbsketch.estimators import SketchedKernelClassifier as SketchedKernelClassifier
from nbsketch.estimators import SketchedKernelRegressor as SketchedKernelRegressor
from nbsketch.estimators import SketchedSGDClassifier as SketchedSGDClassifier
from nbsketch.estimators import SketchedSGDRegressor as SketchedSGDRegressor
from nbsketch.estimators import SpectralFilterRegressor as SpectralFilterRegressor
from nbsketch.features import RandomFourierFeatures as RandomFourierFeatures
from nbsketch.features import SketchedFeatures as SketchedFeatures
from nbsketch.files import load as load
from nbsketch.fitting.plan import AutoSize as AutoSize
from nbsketch.kernels import CallableKernel as CallableKernel
from nbsketch.kernels import GaussianKernel as GaussianKernel
from nbsketch.kernels import GaussianTanimotoKernel as GaussianTanimotoKernel
from nbsketch.kernels import LaplacianKernel as LaplacianKernel
from nbsketch.kernels import LinearKernel as LinearKernel
from nbsketch.kernels import MaternKernel as MaternKernel
from nbsketch.kernels import PolynomialKernel as PolynomialKernel
from nbsketch.kernels import PrecomputedKernel as PrecomputedKernel
from nbsketch.kernels import SobolevKernel as SobolevKernel
from nbsketch.kernels import TanimotoKernel as TanimotoKernel
from nbsketch.losses import EpsilonInsensitiveLoss as EpsilonInsensitiveLoss
from nbsketch.losses import GammaLoss as GammaLoss
from nbsketch.losses import HingeLoss as HingeLoss
from nbsketch.losses import HuberLoss as HuberLoss
from nbsketch.losses import LogisticLoss as LogisticLoss
from nbsketch.losses import PinballLoss as PinballLoss
from nbsketch.losses import PoissonLoss as PoissonLoss
from nbsketch.losses import (
    SquaredEpsilonInsensitiveLoss as SquaredEpsilonInsensitiveLoss,
)
from nbsketch.losses import SquaredHingeLoss as SquaredHingeLoss
from nbsketch.losses import SquareLoss as SquareLoss
from nbsketch.outputs import GraphOutput as GraphOutput
from nbsketch.outputs import IdentityOutput as IdentityOutput
from nbsketch.outputs import MatrixOutput as MatrixOutput
from nbsketch.outputs import QuantileOutput as QuantileOutput
from nbsketch.rows.outliers import OutlierWarning as OutlierWarning
from nbsketch.rows.splits import DependentRowsWarning as DependentRowsWarning
from nbsketch.sketches import AccumulationSketch as AccumulationSketch
from nbsketch.sketches import CountSketch as CountSketch
from nbsketch.sketches import GaussianSketch as GaussianSketch
from nbsketch.sketches import IdentitySketch as IdentitySketch
from nbsketch.sketches import LandmarkSketch as LandmarkSketch
from nbsketch.sketches import LeverageSketch as LeverageSketch
from nbsketch.sketches import PSparsifiedSketch as PSparsifiedSketch
from nbsketch.sketches import RademacherSketch as RademacherSketch
from nbsketch.sketches import RPCholeskySketch as RPCholeskySketch
from nbsketch.sketches import SizedRecipe as SizedRecipe
from nbsketch.sketches import SparseJLSketch as SparseJLSketch
from nbsketch.sketches import SRHTSketch as SRHTSketch
from nbsketch.sketches import SubsamplingSketch as SubsamplingSketch
from nbsketch.solvers.filters import CutoffFilter as CutoffFilter
from nbsketch.solvers.filters import IteratedRidgeFilter as IteratedRidgeFilter
from nbsketch.solvers.filters import LandweberFilter as LandweberFilter
from nbsketch.solvers.filters import RidgeFilter as RidgeFilter
from nbsketch.solvers.stochastic import StochasticSolver as StochasticSolver
from nbsketch.structured import InputOutputKernelRegressor as InputOutputKernelRegressor
from nbsketch.structured import OutputEmbedding as OutputEmbedding
from nbsketch.tabular.classifier import (
    TabularKernelClassifier as TabularKernelClassifier,
)
from nbsketch.tabular.columns import TableColumns as TableColumns
from nbsketch.tabular.encodings import DateColumn as DateColumn
from nbsketch.tabular.encodings import LevelColumn as LevelColumn
from nbsketch.tabular.encodings import NumberColumn as NumberColumn
from nbsketch.tabular.regressor import TabularKernelRegressor as TabularKernelRegressor
from nbsketch.tuning import InputScaler as InputScaler

__version__: str
__all__: list[str]
