"""Export of kernel expansions as ONNX graphs, to predict without nbsketch."""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._expansion import compiled_form
from nbsketch.gram import CompiledForm
from nbsketch.gram.form import middle_of
from nbsketch.losses import LogLinkLoss, fitted_loss
from nbsketch.rows.transform import InputScaler

# Operator set version: the first with all operators in double precision.
_OPSET = 17
_LN2 = float(np.log(2))
# Above this squared norm of the scaled landmarks, squared distances are sums of
# differences: products lose this times 2e-16.
_LARGEST_NORM = 1e5


def write_onnx(model: Any, path: Any) -> None:
    """Write a fitted expansion as a graph X (n, q) -> scores (n,) or (n, d)."""
    if find_spec("onnx") is None:
        raise ModuleNotFoundError(
            'to_onnx needs onnx: pip install "nbsketch[onnx]"', name="onnx"
        )
    import onnx

    graph = _Graph()
    rows = "X" if model.scaler_ is None else _preprocessed(graph, model.scaler_)
    values = _kernel(graph, rows, _form(model), np.asarray(model.landmarks_, float))
    coef = model.coef_.reshape(len(model.coef_), -1)
    beta = np.asarray(model.sketch_.weights.T @ coef)
    scores = graph(
        "Add", graph("MatMul", values, beta), np.atleast_1d(model.intercept_)
    )
    if hasattr(model, "loss") and isinstance(fitted_loss(model), LogLinkLoss):
        scores = graph("Exp", scores)
    n_outputs = None if model.coef_.ndim == 1 else beta.shape[1]
    if n_outputs is None:
        scores = graph("Squeeze", scores, [1])
    onnx.save(graph.model(scores, model.n_features_in_, n_outputs), path)


class _Graph:
    """A graph that is built node by node; arrays become constants."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self._helper = helper
        self._numpy = numpy_helper
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        names = [
            value if isinstance(value, str) else self._constant(value)
            for value in inputs
        ]
        name = f"v{len(self._nodes)}"
        node = self._helper.make_node(operator, names, [name], **attributes)
        self._nodes.append(node)
        return name

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(self._numpy.from_array(np.asarray(value), name))
        return name

    def model(self, name: str, n_features: int, n_outputs: int | None) -> Any:
        """Return the checked model whose output is the value of this name."""
        import onnx

        helper = self._helper
        self._nodes.append(helper.make_node("Identity", [name], ["scores"]))
        double = onnx.TensorProto.DOUBLE
        shape = ["n"] if n_outputs is None else ["n", n_outputs]
        inputs = [helper.make_tensor_value_info("X", double, ["n", n_features])]
        outputs = [helper.make_tensor_value_info("scores", double, shape)]
        graph = helper.make_graph(
            self._nodes, "nbsketch", inputs, outputs, self._constants
        )
        opset = [helper.make_opsetid("", _OPSET)]
        made = helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.checker.check_model(made)
        return made


def _form(model: Any) -> CompiledForm:
    """Return the compiled form of a kernel; raise an error if it has none."""
    form = compiled_form(model)
    exported = {("product", "power"), *product(_METRICS, _PROFILES)}
    if form is None or (form.metric, form.profile) not in exported:
        raise TypeError(
            "`kernel` must be Gaussian, Laplacian, Matern, linear or polynomial on "
            f"dense samples for an ONNX graph, got {model.kernel_!r}"
        )
    return form


def _preprocessed(graph: _Graph, scaler: InputScaler) -> str:
    """Return the preprocessed columns, (n, p)."""
    parts = []
    if len(scaler.plain):
        parts.append(graph("Gather", "X", scaler.plain.astype(np.int64), axis=1))
    if len(scaler.ranked):
        parts.append(_ranks(graph, scaler))
    columns = graph("Concat", *parts, axis=1)
    return graph("Div", graph("Sub", columns, scaler.center), scaler.width)


def _ranks(graph: _Graph, scaler: InputScaler) -> str:
    """Return scores of ranks: linear between quantiles, steps at equal quantiles."""
    knots = scaler.quantiles.T  # (features, k)
    width = np.diff(knots, axis=1)
    step = 1.0 / (knots.shape[1] - 1)
    slope = np.where(width > 0, step / np.where(width > 0, width, 1.0), 0.0)
    jump = np.where(width > 0, 0.0, step / 2)
    values = graph("Gather", "X", scaler.ranked.astype(np.int64), axis=1)
    values = graph("Unsqueeze", values, [2])
    low = knots[:, :-1]
    high = knots[:, 1:]
    inside = graph("Min", graph("Max", values, low), high)
    linear = graph("Mul", graph("Sub", inside, low), slope)
    names = "Greater", "GreaterOrEqual"
    above = [graph("Cast", graph(name, values, low), to=11) for name in names]
    steps = graph("Mul", graph("Add", *above), jump)
    return graph("ReduceSum", graph("Add", linear, steps), [2], keepdims=0)


def _kernel(graph: _Graph, rows: str, form: CompiledForm, landmarks: NDArray) -> str:
    """Return the kernel values of rows and landmarks, (n, m)."""
    if form.metric == "product":
        scaled = graph("Mul", rows, form.scale)
        L = landmarks * form.scale
        base = graph("Add", graph("MatMul", scaled, L.T), float(form.offset))
        return graph("Pow", base, float(form.degree))
    # Centered first: scaling rounds a column with a large offset.
    center = middle_of(landmarks)
    scaled = graph("Mul", graph("Sub", rows, center), form.scale)
    L = (landmarks - center) * form.scale
    return _PROFILES[form.profile](graph, _METRICS[form.metric](graph, scaled, L))


def _squared(graph: _Graph, scaled: str, L: NDArray) -> str:
    """Return squared distances, (n, m), by products if accurate enough."""
    norms = np.square(L).sum(axis=1)
    if norms.max(initial=0.0) > _LARGEST_NORM:
        apart = _differences(graph, scaled, L)
        return graph("ReduceSum", graph("Mul", apart, apart), [2], keepdims=0)
    own = graph("ReduceSum", graph("Mul", scaled, scaled), [1], keepdims=1)
    cross = graph("MatMul", scaled, -2.0 * L.T)
    total = graph("Add", graph("Add", own, norms), cross)
    return graph("Max", total, 0.0)


def _absolute(graph: _Graph, scaled: str, L: NDArray) -> str:
    """Return sums of absolute differences, (n, m)."""
    apart = graph("Abs", _differences(graph, scaled, L))
    return graph("ReduceSum", apart, [2], keepdims=0)


def _differences(graph: _Graph, scaled: str, L: NDArray) -> str:
    """Return the differences of rows and landmarks, (n, m, q)."""
    return graph("Sub", graph("Unsqueeze", scaled, [1]), L[None])


def _matern(*factors: float) -> Callable[[_Graph, str], str]:
    """Return the profile ``exp(-u) (1 + c_1 u + c_2 u^2)`` of u = sqrt(t) log 2."""

    def profile(graph: _Graph, t: str) -> str:
        u = graph("Mul", graph("Sqrt", t), _LN2)
        polynomial: Any = 0.0
        for factor in reversed(factors):
            polynomial = graph("Mul", graph("Add", polynomial, factor), u)
        polynomial = graph("Add", polynomial, 1.0)
        return graph("Mul", graph("Exp", graph("Neg", u)), polynomial)

    return profile


_METRICS = {"squared": _squared, "absolute": _absolute}
_PROFILES = {
    "exponential": lambda graph, t: graph("Exp", graph("Mul", t, -_LN2)),
    "matern-1/2": _matern(),
    "matern-3/2": _matern(1.0),
    "matern-5/2": _matern(1.0, 1.0 / 3.0),
}
