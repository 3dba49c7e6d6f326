"""Text summaries of fitted models."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in

from nbsketch._machine.blas import factor, invert_factor
from nbsketch._machine.memory import asked
from nbsketch.files import Encoder
from nbsketch.fitting.methods import least_tol
from nbsketch.kernels import LinearKernel
from nbsketch.losses import SquareLoss, fitted_loss
from nbsketch.rows.inputs import is_pairwise
from nbsketch.rows.transform import InputScaler
from nbsketch.sketches import LandmarkSketch, Sketch, SubsamplingSketch

# Number of kept features to list.
_MOST_NAMES = 10
# Number of features whose length scales are listed.
_SHORTEST = 5
# If the degrees of freedom are above this share of the size, the sketch limits the
# accuracy: doubling the size lowered the test error, noise included, by 2 to 36 % above
# it and by at most 0.2 % below (three functions, four noise levels, 6000 samples, size
# 300).
_SATURATED = 0.7


def summary_lines(model: Any, entries: Iterable[tuple[str, str]]) -> str:
    """Return a summary of a fitted model: kernel, length scales and other entries."""
    widths = np.ravel(getattr(model.kernel_, "bandwidth", ()))
    shown = f", bandwidth {widths[0]:.4g}" if len(widths) == 1 else ""
    lines = [("kernel", type(model.kernel_).__name__ + shown)]
    if model.length_scales_ is not None:
        lines.append(("length-scales", shortest_scales(model)))
    return summary_text(model, [*lines, *entries])


def summary_text(model: Any, entries: Iterable[tuple[str, str]]) -> str:
    """Return the name of a fitted model and its entries, one line each."""
    return "\n".join([type(model).__name__, *(f"  {a:<14}{b}" for a, b in entries)])


def shortest_scales(model: Any) -> str:
    """Return the shortest length scales with the names of their features."""
    scales = model.length_scales_
    names = _check_feature_names_in(model)
    order = np.argsort(scales, kind="stable")[:_SHORTEST]
    listed = [f"{names[k]} {scales[k]:.3g}" for k in order if np.isfinite(scales[k])]
    unlisted = np.isfinite(scales).sum() - len(listed)
    return ", ".join(listed) + (f"; {unlisted} longer" if unlisted else "")


def entries_of(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the entries of the summary: name and text."""
    size, n = model.sketch_.shape
    own = isinstance(model.sketch, LandmarkSketch)  # the sketch does not know n
    count = getattr(model, "n_copies_", 0)  # missing in files of older versions
    copies = f", {count} copies merged" if count else ""
    yield "samples", f"{'' if own else f'{n}, '}{model.n_features_in_} features{copies}"
    yield "kernel", _kernel(model.kernel_)
    yield "inputs", _inputs(model.scaler_)
    if model.scaler_ is not None and model.scaler_.is_partial:
        yield "features kept", _kept(model)
    if model.length_scales_ is not None:
        yield "length-scales", shortest_scales(model)
    landmarks = model.landmarks_.shape[0]
    sizes = f"size {size}, rank {model.rank_}, {landmarks} landmarks"
    yield "sketch", f"{sizes}, {_recipe(model)}"
    parts = [model.landmarks_, model.sketch_, model.coef_]
    yield "prediction", f"{landmarks} kernel values per sample, {memory_of(parts)}"
    path = getattr(model, "size_path_", None)
    if path is not None:
        steps = zip(path["size"], path["loss"], strict=True)
        yield "size path", ", ".join(f"{s}: {loss:.4g}" for s, loss in steps)
    if hasattr(model, "dual_gap_"):
        yield "method", f"{_method(model)}, {_reason(model)}"
        yield "more", _more(model)
    if hasattr(model, "monotonic_violation_"):
        yield "monotonic", f"within {model.monotonic_violation_:.3g} on training data"
    yield from _solution(model)


def _method(model: Any) -> str:
    """Return the name of the algorithm that solved the problem."""
    steps = model.n_iter_
    # The solution is not restricted by a sketch.
    exact = model.sketch_.is_identity or _has_columns(model)
    name = "exact" if exact else "sketch"
    if not _is_square(model):
        return f"{name}, {steps} iteration{'s' if steps > 1 else ''}"
    if steps == 1:
        return f"{name}, closed form"
    name = name if exact else "Nystrom"
    return f"{name}, {steps} passes of conjugate gradients"


def _reason(model: Any) -> str:
    """Return why this algorithm was chosen."""
    if model.sketch is not None or model.size is not None:
        return "as given"
    limit = getattr(model, "max_seconds", None)
    if limit is not None:
        return f"the largest for max_seconds={limit:g}"
    most = asked()
    within = "" if most is None else f" within a memory limit of {most / 2**20:.4g} MB"
    return f"the default for {model.sketch_.shape[1]} samples{within}"


def _more(model: Any) -> str:
    """Return what a larger sketch would gain."""
    if _has_columns(model):
        return "all columns are features: no sketch is more accurate"
    if model.sketch_.is_identity:
        return "all samples are used: no sketch is more accurate"
    if _is_spanning(model):
        return "the landmarks span the others: more would hardly lower the error"
    path = getattr(model, "size_path_", None)
    if path is None or len(path["loss"]) < 2:
        return _limit(model)
    before, last = path["loss"][-2:]
    sizes = f"from size {path['size'][-2]} to {path['size'][-1]}"
    change = "the held-out loss was 0"
    if before > 0:
        change = f"the held-out loss changed by {100 * (last / before - 1):+.2g} %"
    return f"{sizes} {change}; twice the size takes about four times as long"


def _limit(model: Any) -> str:
    """Return whether the sketch or the noise limits accuracy, and what to do."""
    larger = "size='auto' or max_seconds= try larger sketches"
    degrees = _degrees_of_freedom(model)
    size = model.sketch_.shape[0]
    if not np.isfinite(degrees):
        return larger
    used = f"the penalty leaves {degrees:.0f} of {size} degrees of freedom"
    if degrees > _SATURATED * size:
        return f"{used}: more landmarks would lower the error; {larger}"
    return f"{used}: noise limits the error, more landmarks would hardly lower it"


def _degrees_of_freedom(model: Any) -> float:
    """Return tr K (K + s alpha I)^-1 at the landmarks of a subsample, else NaN.

    It estimates the effective dimension of all samples, and is reliable below s.
    """
    if not (_is_square(model) and isinstance(_drawn_by(model), SubsamplingSketch)):
        return np.nan
    size = model.sketch_.shape[0]
    kernel = model.kernel_
    if is_pairwise(kernel):
        return np.nan
    shift = size * model.alpha_
    K = np.asarray(kernel(model.landmarks_), dtype=np.float64, order="F")
    K[np.diag_indices(size)] += shift
    try:
        factor(K)
    except np.linalg.LinAlgError:  # the penalty is below rounding
        return np.nan
    invert_factor(K)
    return size - shift * float(np.linalg.norm(np.tril(K)) ** 2)


def _recipe(model: Any) -> str:
    """Return the kind of sketch, and whether it was passed or is the default."""
    if _has_columns(model):
        return "the columns of X"
    if _is_spanning(model):
        return "which span the others of the default sketch"
    if model.sketch is None:
        exact = model.sketch_.is_identity
        kind = "identity" if exact else type(_drawn_by(model)).__name__
        return f"{kind} (default)"
    given = isinstance(model.sketch, str)
    return f"{model.sketch if given else type(model.sketch).__name__} (given)"


def _is_spanning(model: Any) -> bool:
    """Return whether default landmarks that others span were dropped."""
    return model.sketch is None and type(_drawn_by(model)) is Sketch


def _has_columns(model: Any) -> bool:
    """Return whether the landmarks of a linear kernel are the unit vectors."""
    own = isinstance(model.sketch, LandmarkSketch) or model.sketch_.origin is not None
    linear = isinstance(model.kernel_, LinearKernel)
    return linear and not own and not model.sketch_.is_identity


def _drawn_by(model: Any) -> Any:
    """Return the recipe of a sketch, or the sketch itself if it has none."""
    return getattr(model.sketch_.origin, "recipe", model.sketch_)


def memory_of(parts: Any) -> str:
    """Return the memory of the parts of a model, as in an uncompressed model file."""
    encode = Encoder()
    encode(parts, "model")
    return f"model of {sum(a.nbytes for a in encode.arrays.values()) / 1e6:.3g} MB"


def _kernel(kernel: Any) -> str:
    """Return the kernel; abbreviate long sequences of bandwidths."""
    widths = getattr(kernel, "bandwidth", None)
    if widths is None:
        return repr(kernel)
    values = {f.name: f"{getattr(kernel, f.name)}" for f in fields(kernel)}
    many = np.ndim(widths) > 0
    values["bandwidth"] = f"<{len(widths)} numbers>" if many else f"{widths:.4g}"
    inside = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"{type(kernel).__name__}({inside})"


def _inputs(scaler: InputScaler | None) -> str:
    if scaler is None:
        return "as given"
    counts = len(scaler.plain), len(scaler.ranked)
    kinds = "standardized features", "scores of ranks"
    return " and ".join(
        f"{count} {kind}" for count, kind in zip(counts, kinds, strict=True) if count
    )


def _kept(model: Any) -> str:
    """Return the names of the first kept features."""
    kept = np.unique(model.scaler_.features)
    listed = ", ".join(map(str, _check_feature_names_in(model)[kept[:_MOST_NAMES]]))
    more = ", ..." if len(kept) > _MOST_NAMES else ""
    return f"{len(kept)} of {model.n_features_in_}: {listed}{more}"


def _solution(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the entries of the solution (stochastic gradients have no gap)."""
    yield "alpha", f"{model.alpha_:.4g}"
    if not hasattr(model, "dual_gap_"):
        yield "steps", str(model.n_steps_)
        return
    gap = f", relative distance to the minimum at most {model.dual_gap_:.1e}"
    certified = np.isfinite(model.dual_gap_)
    yield "objective", f"{model.objective_:.6g}" + (gap if certified else "")
    all_rows = model.sketch_.is_identity
    least = least_tol(_loss_kind(model), all_rows, model.sketch_.shape[1])
    if getattr(model, "tol", least) < min(model.dual_gap_, least):
        yield "tol", f"{model.tol:g}, raised to {least:g} for passes over all samples"


def _loss_kind(model: Any) -> str:
    """Return the kind of loss, which determines the accuracy of passes."""
    if _is_square(model):
        return "square"
    has_loss = hasattr(model, "loss")
    if has_loss and fitted_loss(model).is_smooth:
        return "smooth"
    return "kinked" if has_loss else "joint"


def _is_square(model: Any) -> bool:
    return hasattr(model, "loss") and fitted_loss(model) == SquareLoss()
