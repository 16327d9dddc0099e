"""The model with its products in 8-bit integers: faster, and not quite the same vectors.

What comes into a product has one scale for all its numbers, chosen for each text. A few channels of
it are ten times as large as the others and would leave these a coarse scale: their share of the
product stays in floats. That did more for the vectors than to smooth the scales. Comments give
shapes: B texts of S tokens, I numbers in and O numbers out for each.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kp_middleware.embedding._onnx_session import quiet_session
from kp_middleware.errors import MissingExtraError

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError as exc:
    raise MissingExtraError("weights") from exc

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_KEPT: Final = 32  # channels of each product, the largest: half as many err 1.2 times as much
_LARGEST: Final = 63  # 7 bits: processors without VNNI add two products in 16 bits, and cut them
_WORDS: Final = 30_522
_DOMAIN: Final = "com.microsoft"
_FIRST, _LAST = 101, 102  # the frame of a text

Floats: TypeAlias = NDArray[np.float32]


def export_int8(source: Path, target: Path) -> None:
    """Write the folder of a model in 8-bit integers.

    Args:
        source: Has ``model.onnx`` in floats and the tokenizer's files.
        target: Is made; files of the same names are overwritten.

    Raises:
        ValueError: If the model has no product of a matrix of weights.
    """
    target.mkdir(parents=True, exist_ok=True)
    onnx.save(quantize(onnx.load(source / "model.onnx")), target / "model.onnx")
    for file in source.glob("*.json"):
        shutil.copyfile(file, target / file.name)


def quantize(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with integers where it multiplies by a matrix of weights.

    For onnxruntime alone: the product is an operator of its own. Raises as `export_int8`.
    """
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    products = {node.output[0] for node in model.graph.node if _is_product(node, weights)}
    if not products:
        raise ValueError("it has no product of a matrix of weights")
    peaks = _peaks(model, products)
    graph = _Graph(weights)
    for node in model.graph.node:
        if node.output[0] in products:
            graph.add_product(node, peaks[node.input[0]])
        else:
            graph.nodes.append(node)
    return _assembled(model, graph)


class _Graph:
    """Nodes in their order, and the constants that some of them brought along."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.replaced: set[str] = set()

    def add_product(self, node: onnx.NodeProto, peaks: Floats) -> None:
        """In the place of a product: that of the large channels in floats, the others' in integers.

        Args:
            node: Multiplies [B, S, I] by weights [I, O].
            peaks: The largest number of each channel of what comes in, [I].
        """
        values, name = node.input
        matrix = self._weights[name]
        large = np.sort(np.argsort(peaks)[-_KEPT:])
        exact = self._node("Gather", values, self._constant(name, "large", large), axis=2)
        exact = self._node("MatMul", exact, self._constant(name, "floats", matrix[large]))
        others = np.ones(len(matrix), np.float32)
        others[large] = 0
        rough = self._node("Mul", values, self._constant(name, "others", others))
        rough = self._integer_product(rough, name, matrix * others[:, None])
        self.nodes.append(helper.make_node("Add", [exact, rough], node.output))
        self.replaced.add(name)

    def _integer_product(self, values: str, name: str, matrix: Floats) -> str:
        scale = np.maximum(np.abs(matrix).max(axis=0), np.finfo(np.float32).tiny) / _LARGEST  # [O]
        integers = self._constant(name, "integers", np.rint(matrix / scale).astype(np.int8))
        scales = self._constant(name, "scale", scale)
        return self._node("DynamicQuantizeMatMul", values, integers, scales, domain=_DOMAIN)

    def _constant(
        self, name: str, part: str, values: Floats | NDArray[np.int64] | NDArray[np.int8]
    ) -> str:
        self.constants.append(numpy_helper.from_array(values, f"{name}.{part}"))
        return f"{name}.{part}"

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"int8_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name


def _is_product(node: onnx.NodeProto, weights: Mapping[str, Floats]) -> bool:
    if node.op_type != "MatMul" or node.input[1] not in weights:
        return False
    return weights[node.input[1]].ndim == 2


def _peaks(model: onnx.ModelProto, products: set[str]) -> dict[str, Floats]:
    """By name of what comes into the products: each channel's largest number, for random words.

    Which channels are large is in the weights: with real texts they are the same.
    """
    names = sorted({node.input[0] for node in model.graph.node if node.output[0] in products})
    outputs = model.graph.output
    given = len(outputs)
    outputs.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names)
    session = quiet_session(model.SerializeToString(), threads=1)
    del outputs[given:]  # a copy of the model would be 90 MB more
    return dict(zip(names, _largest(session, names), strict=True))


def _largest(session: "InferenceSession", names: Sequence[str]) -> Iterator[Floats]:
    words = np.random.default_rng(0).integers(1000, _WORDS, (8, 64))
    words[:, 0], words[:, -1] = _FIRST, _LAST
    offered = {
        "input_ids": words,
        "attention_mask": np.ones_like(words),
        "token_type_ids": np.zeros_like(words),
    }
    taken = {expected.name: offered[expected.name] for expected in session.get_inputs()}
    return (np.abs(values).max(axis=(0, 1)) for values in session.run(names, taken))


def _assembled(model: onnx.ModelProto, graph: _Graph) -> onnx.ModelProto:
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in graph.replaced]
    whole = helper.make_graph(
        graph.nodes,
        model.graph.name,
        model.graph.input,
        model.graph.output,
        [*kept, *graph.constants],
    )
    opsets = {opset.domain: opset for opset in model.opset_import}
    opsets.setdefault(_DOMAIN, helper.make_opsetid(_DOMAIN, 1))
    return helper.make_model(whole, opset_imports=opsets.values(), ir_version=model.ir_version)
