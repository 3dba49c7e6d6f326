"""Kernels: small frozen objects that can be called on two sets of rows."""

from dataclasses import fields
from typing import Any

from nbsketch._validation import check_choice
from nbsketch.kernels._kernel import (
    GaussianKernel,
    GaussianTanimotoKernel,
    Kernel,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    SobolevKernel,
    StationaryKernel,
    TanimotoKernel,
    check_bandwidth,
    median_distance,
)
from nbsketch.kernels.user import CallableKernel, PrecomputedKernel

__all__ = [
    "CallableKernel",
    "GaussianKernel",
    "GaussianTanimotoKernel",
    "Kernel",
    "LaplacianKernel",
    "LinearKernel",
    "MaternKernel",
    "PolynomialKernel",
    "PrecomputedKernel",
    "SobolevKernel",
    "StationaryKernel",
    "TanimotoKernel",
    "as_kernel",
    "median_distance",
]

_BY_NAME: dict[str, type[Kernel]] = {
    "auto": GaussianKernel,  # where an estimator does not learn a better one
    "gaussian": GaussianKernel,
    "laplacian": LaplacianKernel,
    "matern": MaternKernel,
    "polynomial": PolynomialKernel,
    "linear": LinearKernel,
    "sobolev": SobolevKernel,
    "tanimoto": TanimotoKernel,
    "gaussian-tanimoto": GaussianTanimotoKernel,
    "precomputed": PrecomputedKernel,
}


# Kernels whose length scales can be learned, by the family of `_jit.tuning.FAMILIES`.
LEARNABLE: dict[str, StationaryKernel] = {
    "gaussian": GaussianKernel(),
    "matern-1/2": MaternKernel(nu=0.5),
    "matern-3/2": MaternKernel(nu=1.5),
    "matern-5/2": MaternKernel(nu=2.5),
    "laplacian": LaplacianKernel(),
}
# Names of kernels whose length scales can be learned, and their families.
LEARNABLE_NAMES = {
    name: family
    for name, kernel in _BY_NAME.items()
    for family, learnable in LEARNABLE.items()
    if kernel is type(learnable) and kernel() == learnable
}


def as_kernel(kernel: Any, bandwidth: Any = None, *, prefix: str = "") -> Kernel:
    """Return a kernel from an object, a name or a function of two sets of rows.

    Parameters
    ----------
    kernel : Kernel, str or callable
        A kernel, one of "auto" (the Gaussian kernel), "gaussian", "laplacian",
        "matern", "polynomial", "linear", "sobolev", "tanimoto", "gaussian-tanimoto" and
        "precomputed", or a function ``k(X, Y)``.
    bandwidth : optional
        The bandwidth, where `kernel` is the name of a kernel that has one.
    prefix : str
        Prefix of the two argument names in error messages, such as ``"output_"``.
    """
    name = f"{prefix}kernel"
    if isinstance(kernel, str):
        family: Any = _BY_NAME[check_choice(name, kernel, _BY_NAME)]
        if bandwidth is None:
            return family()
        if "bandwidth" in [field.name for field in fields(family)]:
            check_bandwidth(bandwidth, f"{prefix}bandwidth")
            return family(bandwidth=bandwidth)
        raise ValueError(
            f"`{prefix}bandwidth` has no meaning for {name}={kernel!r}, "
            f"got {bandwidth!r}"
        )
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise TypeError(
            f"`{name}` must be an object or a name, got a class: write "
            f"{kernel.__name__}()"
        )
    if bandwidth is not None:
        raise ValueError(
            f"`{prefix}bandwidth` goes with the name of a kernel, got {name}="
            f"{kernel!r}: set the bandwidth of the object instead"
        )
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return CallableKernel(kernel)
    raise TypeError(f"`{name}` must be a name, a Kernel or a callable, got {kernel!r}")
