"""Solvers for given features: one public module per method.

Public names are imported on first access, so importing the package compiles nothing.
"""

from importlib import import_module

# The public names of each module.
_HOME = {
    "conjugate": (
        "NotConvergedError build_preconditioner conjugate_path solve_conjugate "
        "solve_nystrom"
    ),
    "design": "ArrayDesign Design",
    "dual": "dual_path joint_dual_path solve_dual solve_joint_dual",
    "exact": "LeftOut leave_one_out_residuals solve_exact",
    "filters": "CutoffFilter Filter IteratedRidgeFilter LandweberFilter RidgeFilter",
    "left_out": (
        "Fold OrderEffect cross_validation fold_errors generalized_cross_validation "
        "held_out_error leave_blocks_out leave_one_out order_effect"
    ),
    "newton": "solve_generic solve_joint_pinball solve_scalar",
    "radial": "solve_radial",
    "sgm": (
        "Iterate Regime SGMSolution StreamState sgm_iterates sgm_regime solve_sgm "
        "stream_sgm"
    ),
    "solution": "Solution State",
    "spectrum": "CovarianceSpectrum RidgePath decompose ridge_path",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name in _MODULE_OF:
        return getattr(import_module(f"nbsketch.solvers.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'nbsketch.solvers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
