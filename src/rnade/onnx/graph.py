"""A small writer of ONNX graphs: values with operators, float64 throughout.

Graphs are written and not traced: torch's exporter fixes the number of rows where orders are
gathered, and needs further packages; and the formulas, a page of them, are short.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

OPSET, IR_VERSION = 18, 9


class Value:
    """An array that a graph computes; operators and indexing make further ones."""

    __array_ufunc__ = None  # so that an array on the left leaves the operation to us

    def __init__(self, graph: "Graph", name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Any) -> "Value":
        return self.graph("Add", self, other)

    def __radd__(self, other: Any) -> "Value":
        return self.graph("Add", other, self)

    def __sub__(self, other: Any) -> "Value":
        return self.graph("Sub", self, other)

    def __rsub__(self, other: Any) -> "Value":
        return self.graph("Sub", other, self)

    def __mul__(self, other: Any) -> "Value":
        return self.graph("Mul", self, other)

    def __rmul__(self, other: Any) -> "Value":
        return self.graph("Mul", other, self)

    def __truediv__(self, other: Any) -> "Value":
        return self.graph("Div", self, other)

    def __matmul__(self, other: Any) -> "Value":
        return self.graph("MatMul", self, other)

    def __neg__(self) -> "Value":
        return self.graph("Neg", self)

    def __lt__(self, other: Any) -> "Value":
        return self.graph("Less", self, other)

    def __le__(self, other: Any) -> "Value":
        return self.graph("LessOrEqual", self, other)

    def __gt__(self, other: Any) -> "Value":
        return self.graph("Greater", self, other)

    def __ge__(self, other: Any) -> "Value":
        return self.graph("GreaterOrEqual", self, other)

    def __and__(self, other: Any) -> "Value":
        return self.graph("And", self, other)

    def __invert__(self) -> "Value":
        return self.graph("Not", self)

    def equals(self, other: Any) -> "Value":
        """Where it is equal to another."""
        return self.graph("Equal", self, other)

    def take(self, indices: Any, axis: int = 0) -> "Value":
        """Entries at some places of an axis."""
        return self.graph("Gather", self, np.asarray(indices, np.int64), axis=axis)

    def part(self, start: int, stop: int) -> "Value":
        """Entries start to stop of the last axis."""
        ends = (np.array([end], np.int64) for end in (start, stop, -1))
        return self.graph("Slice", self, *ends)

    def unsqueeze(self, axis: int) -> "Value":
        """With a further axis."""
        return self.graph("Unsqueeze", self, np.array([axis], np.int64))

    def transpose(self, *axes: int) -> "Value":
        """With its axes in another order."""
        return self.graph("Transpose", self, perm=list(axes))

    def exp(self) -> "Value":
        """Exponential."""
        return self.graph("Exp", self)

    def log(self) -> "Value":
        """Natural logarithm."""
        return self.graph("Log", self)

    def abs(self) -> "Value":
        """Magnitude."""
        return self.graph("Abs", self)

    def clip(self, low: float, high: float) -> "Value":
        """Cut off at two ends."""
        return self.graph("Clip", self, np.float64(low), np.float64(high))

    def sum(self, axis: int = -1) -> "Value":
        """Sum over an axis."""
        return self.graph("ReduceSum", self, np.array([axis], np.int64), keepdims=0)

    def logsumexp(self, axis: int = -1) -> "Value":
        """Logarithm of the sum of exponentials over an axis."""
        return self.graph("ReduceLogSumExp", self, np.array([axis], np.int64), keepdims=0)

    def real(self) -> "Value":
        """As float64."""
        return self.graph("Cast", self, to=TensorProto.DOUBLE)

    def whole(self) -> "Value":
        """As int64."""
        return self.graph("Cast", self, to=TensorProto.INT64)


class Graph:
    """Nodes and constants of a graph that is being written."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._constants: dict[bytes, Any] = {}
        self._large: dict[str, Value] = {}

    def input(self, name: str, *shape: Any) -> Value:
        """Declare an input of float64."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, list(shape)))
        return Value(self, name)

    def output(self, name: str, value: Value, *shape: Any) -> None:
        """Declare an output of float64."""
        self.nodes.append(helper.make_node("Identity", [value.name], [name], name=name))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, list(shape)))

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> Value:
        """Add a node; arrays and numbers among its inputs become constants."""
        names = [self.constant(i).name if not isinstance(i, Value) else i.name for i in inputs]
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], name=output, **attributes))
        return Value(self, output)

    def constant(self, value: Any) -> Value:
        """A constant; equal ones are kept once, and in float32 where nothing is lost by it."""
        array = np.asarray(value)
        if array.dtype not in (np.int64, np.bool_):
            array = array.astype(np.float64)
        key = f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        if key not in self._constants:
            self._constants[key] = (f"c{len(self._constants)}", array)
        name = self._constants[key][0]
        if not _is_single(array):
            return Value(self, name)
        if name not in self._large:
            self._large[name] = self("Cast", Value(self, name), to=TensorProto.DOUBLE)
        return self._large[name]

    def where(self, condition: Value, yes: Any, no: Any) -> Value:
        """Entries of one where a condition holds, else of the other."""
        return self("Where", condition, yes, no)

    def concat(self, values: list[Value], axis: int = 0) -> Value:
        """Values side by side."""
        return self("Concat", *values, axis=axis)

    def stack(self, values: list[Value]) -> Value:
        """Values side by side on a new first axis."""
        return self.concat([value.unsqueeze(0) for value in values])

    def logaddexp(self, a: Value, b: Value) -> Value:
        """Logarithm of the sum of two exponentials."""
        largest = self("Max", a, b)
        return largest + self("Softplus", -(a - b).abs())

    def model(self, **properties: str) -> ModelProto:
        """The graph as a checked model, with properties for people and programs."""
        constants = [
            numpy_helper.from_array(a.astype(np.float32) if _is_single(a) else a, name)
            for name, a in self._constants.values()
        ]
        graph = helper.make_graph(self.nodes, "rnade", self.inputs, self.outputs, constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        helper.set_model_props(model, properties)
        checker.check_model(model)
        return model


def _is_single(array: NDArray[Any]) -> bool:
    """Whether a large array of float64 holds only numbers of float32, as trained weights do."""
    return bool(
        array.dtype == np.float64
        and array.size > 256
        and (array == array.astype(np.float32).astype(np.float64)).all()
    )
