"""The official all-MiniLM-L6-v2 weights as an ONNX folder that fastembed can load.

Made with numpy and onnx alone, of plain operators, with the same bytes every time. Comments give
shapes: B texts of S tokens; each token is 384 numbers, which are 12 heads of 32.
"""

import json
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kp_middleware.errors import MissingExtraError

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError as exc:
    raise MissingExtraError("weights") from exc

_HIDDEN = 384
_HEADS = 12
_LAYERS = 6
_EPSILON = 1e-12
_WINDOW = 256

Weights: TypeAlias = Mapping[str, NDArray[np.float32]]
"""By their names in the official file."""


def export_onnx(source: Path, target: Path) -> None:
    """Write the ONNX folder of an official folder.

    Args:
        source: Has ``model.safetensors`` and the tokenizer's files.
        target: Is made; files of the same names are overwritten. The window is set to 256 tokens.
    """
    target.mkdir(parents=True, exist_ok=True)
    onnx.save(build_model(read_safetensors(source / "model.safetensors")), target / "model.onnx")
    for name in ("config.json", "special_tokens_map.json", "tokenizer.json"):
        shutil.copyfile(source / name, target / name)
    tokenizer = json.loads((source / "tokenizer_config.json").read_text("utf-8"))
    tokenizer.pop("name_or_path", None)
    tokenizer["model_max_length"] = _WINDOW
    (target / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=1), "utf-8")


def read_safetensors(path: Path) -> Weights:
    """The float32 tensors of a file, by name; mapped, so each is read only when used."""
    content = np.memmap(path, dtype=np.uint8, mode="r")
    (header_size,) = struct.unpack("<Q", content[:8].tobytes())
    header = json.loads(content[8 : 8 + header_size].tobytes())
    numbers = content[8 + header_size :]
    return {
        name: numbers[slice(*entry["data_offsets"])].view("<f4").reshape(entry["shape"])
        for name, entry in header.items()
        if entry.get("dtype") == "F32"
    }


def build_model(weights: Weights) -> onnx.ModelProto:
    """The checked graph.

    It takes ``input_ids``, ``attention_mask`` and ``token_type_ids``. It gives first each token's
    vector, ``last_hidden_state``, then their mean at length 1, ``sentence_embedding``.
    """
    graph = _Graph(weights)
    tokens, mask_bias = _look_up_tokens(graph)
    for number in range(_LAYERS):
        layer = f"encoder.layer.{number}."
        tokens = _attend(graph, layer, tokens, mask_bias)
        tokens = _transform(graph, layer, tokens)
    graph.node("Identity", tokens, output="last_hidden_state")
    graph.floats("sqrt2", np.sqrt(2.0))
    graph.floats("half", 0.5)
    _pool(graph, tokens)
    model = helper.make_model(
        _closed(graph),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="kp-minilm-builder",
    )
    onnx.checker.check_model(model)
    return model


class _Graph:
    """Constants and nodes in the order they were asked for; each is known by its name."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.constants: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []

    def floats(self, name: str, values: ArrayLike) -> str:
        return self._constant(name, np.asarray(values, np.float32))

    def integers(self, name: str, values: ArrayLike) -> str:
        return self._constant(name, np.asarray(values, np.int64))

    def node(self, kind: str, *inputs: str, output: str = "", **attributes: object) -> str:
        name = output or f"t{len(self.nodes) + 1}_0"
        self._add(kind, inputs, [name], attributes)
        return name

    def thirds(self, values: str) -> list[str]:
        names = [f"t{len(self.nodes) + 1}_{part}" for part in range(3)]
        self._add("Split", [values, "split3"], names, {"axis": -1})
        return names

    def affine(self, values: str, name: str, matrix: ArrayLike, bias: ArrayLike) -> str:
        product = self.node("MatMul", values, self.floats(f"{name}.w", matrix))
        return self.node("Add", product, self.floats(f"{name}.b", bias))

    def scaling(self, prefix: str) -> tuple[str, str]:
        gain = self.floats(f"{prefix}.g", self.weights[f"{prefix}.weight"])
        return gain, self.floats(f"{prefix}.b", self.weights[f"{prefix}.bias"])

    def normalized(self, values: str, scaling: tuple[str, str]) -> str:
        return self.node("LayerNormalization", values, *scaling, axis=-1, epsilon=_EPSILON)

    def _constant(self, name: str, values: NDArray[np.float32] | NDArray[np.int64]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _add(
        self, kind: str, inputs: Sequence[str], outputs: list[str], attributes: Mapping[str, object]
    ) -> None:
        name = f"{kind}_{len(self.nodes) + 1}"
        node = helper.make_node(kind, inputs, outputs, name=name, domain="")
        node.attribute.extend(helper.make_attribute(*pair) for pair in sorted(attributes.items()))
        self.nodes.append(node)


def _look_up_tokens(graph: _Graph) -> tuple[str, str]:
    """The tokens' first vectors [B, S, 384], and what keeps attention off the padding."""
    for kind in ("word", "position", "token_type"):
        graph.floats(f"{kind}_emb", graph.weights[f"embeddings.{kind}_embeddings.weight"])
    zero = graph.integers("zero", [0])
    graph.integers("one", [1])
    lowest = graph.floats("neg", np.finfo(np.float32).min)
    scaling = graph.scaling("embeddings.LayerNorm")
    words = graph.node("Gather", "word_emb", "input_ids")
    types = graph.node("Gather", "token_type_emb", "token_type_ids")
    typed = graph.node("Add", words, types)
    length = graph.node("Shape", "input_ids", start=1, end=2)
    positions = graph.node("Slice", "position_emb", zero, length, zero)
    tokens = graph.normalized(graph.node("Add", typed, positions), scaling)
    return tokens, _mask_bias(graph, lowest)


def _mask_bias(graph: _Graph, lowest: str) -> str:
    mask = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = graph.node("Unsqueeze", mask, graph.integers("ax12", [1, 2]))  # [B, 1, 1, S]
    padding = graph.node("Sub", graph.floats("onef", 1.0), mask)
    bias = graph.node("Mul", padding, lowest)
    graph.integers("split3", [_HIDDEN] * 3)
    graph.integers("shape4", [0, 0, _HEADS, _HIDDEN // _HEADS])
    graph.integers("shape3", [0, 0, _HIDDEN])
    graph.floats("scale", 1 / np.sqrt(_HIDDEN // _HEADS))
    return bias


def _attend(graph: _Graph, layer: str, tokens: str, mask_bias: str) -> str:
    """Let each token look at the others."""
    parts = [f"{layer}attention.self.{part}" for part in ("query", "key", "value")]
    matrix = np.concatenate([graph.weights[f"{part}.weight"] for part in parts]).T
    bias = np.concatenate([graph.weights[f"{part}.bias"] for part in parts])
    query, key, value = graph.thirds(graph.affine(tokens, f"{layer}qkv", matrix, bias))
    query = _by_head(graph, query, [0, 2, 1, 3])  # [B, 12, S, 32]
    key = _by_head(graph, key, [0, 2, 3, 1])  # [B, 12, 32, S]
    value = _by_head(graph, value, [0, 2, 1, 3])
    likeness = graph.node("Mul", graph.node("MatMul", query, key), "scale")
    shares = graph.node("Softmax", graph.node("Add", likeness, mask_bias), axis=-1)
    seen = graph.node("Transpose", graph.node("MatMul", shares, value), perm=[0, 2, 1, 3])
    return _join(graph, f"{layer}attention.output.", graph.node("Reshape", seen, "shape3"), tokens)


def _by_head(graph: _Graph, values: str, order: list[int]) -> str:
    return graph.node("Transpose", graph.node("Reshape", values, "shape4"), perm=order)


def _transform(graph: _Graph, layer: str, tokens: str) -> str:
    """Widen each token's vector, bend it with GELU, and narrow it again."""
    dense = f"{layer}intermediate.dense"
    matrix, bias = graph.weights[f"{dense}.weight"].T, graph.weights[f"{dense}.bias"]
    wide = graph.affine(tokens, f"{layer}up", matrix, bias)
    error = graph.node("Erf", graph.node("Div", wide, "sqrt2"))
    bent = graph.node("Mul", wide, graph.node("Add", error, "onef"))
    return _join(graph, f"{layer}output.", graph.node("Mul", bent, "half"), tokens)


def _join(graph: _Graph, prefix: str, change: str, tokens: str) -> str:
    """What a half of a layer found out, added to what was known."""
    scaling = graph.scaling(f"{prefix}LayerNorm")
    dense = f"{prefix}dense"
    matrix, bias = graph.weights[f"{dense}.weight"].T, graph.weights[f"{dense}.bias"]
    change = graph.affine(change, f"{prefix}d", matrix, bias)
    return graph.normalized(graph.node("Add", change, tokens), scaling)


def _pool(graph: _Graph, tokens: str) -> None:
    """Sum the tokens, at length 1: it would be the same for their mean."""
    mask = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    total = graph.node("MatMul", graph.node("Unsqueeze", mask, "one"), tokens)  # [B, 1, 384]
    total = graph.node("Squeeze", total, "one")
    length = graph.node("ReduceL2", total, axes=[1], keepdims=1)
    length = graph.node("Max", length, graph.floats("tiny", 1e-12))
    graph.node("Div", total, length, output="sentence_embedding")


def _closed(graph: _Graph) -> onnx.GraphProto:
    """The graph with its inputs and outputs."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    floats = TensorProto.FLOAT
    outputs = [
        helper.make_tensor_value_info("last_hidden_state", floats, ["batch", "seq", _HIDDEN]),
        helper.make_tensor_value_info("sentence_embedding", floats, ["batch", _HIDDEN]),
    ]
    return helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", inputs, outputs, graph.constants)
