"""ONNX export of the model: from the official weights, and quantized to 8-bit integers.

Both exports use numpy and onnx alone and are reproducible byte for byte. Comments give shapes: B
texts of S tokens, each token 384 numbers in 12 heads of 32; I input and O output channels.
"""

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kp_middleware.errors import MissingExtraError

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime import InferenceSession, SessionOptions
except ModuleNotFoundError as exc:
    raise MissingExtraError("weights") from exc

_HIDDEN = 384
_HEADS = 12
_LAYERS = 6

_MAX_INTEGER: Final = 63  # 7 bits: without VNNI, a sum of two products saturates at 16 bits
_VOCABULARY: Final = 30_522
_DOMAIN: Final = "com.microsoft"
_FIRST, _LAST = 101, 102  # [CLS] and [SEP]

Floats: TypeAlias = NDArray[np.float32]
Tensors: TypeAlias = Mapping[str, Floats]
"""The tensors by their names in the official file."""


def export_onnx(source: Path, target: Path) -> None:
    """Write a model folder with a window of 256 tokens from one with the official weights."""
    target.mkdir(parents=True, exist_ok=True)
    onnx.save(build_model(read_safetensors(source / "model.safetensors")), target / "model.onnx")
    for name in ("config.json", "special_tokens_map.json", "tokenizer.json"):
        shutil.copyfile(source / name, target / name)
    tokenizer = json.loads((source / "tokenizer_config.json").read_text("utf-8"))
    tokenizer.pop("name_or_path", None)
    tokenizer["model_max_length"] = 256
    (target / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=1), "utf-8")


def read_safetensors(path: Path) -> Tensors:
    """Return the float32 tensors of a file by name, memory-mapped and read only when used."""
    content = np.memmap(path, dtype=np.uint8, mode="r")
    (header_size,) = struct.unpack("<Q", content[:8].tobytes())
    header = json.loads(content[8 : 8 + header_size].tobytes())
    numbers = content[8 + header_size :]
    return {
        name: numbers[slice(*entry["data_offsets"])].view("<f4").reshape(entry["shape"])
        for name, entry in header.items()
        if entry.get("dtype") == "F32"
    }


def build_model(weights: Tensors) -> onnx.ModelProto:
    text = files(__package__).joinpath("minilm.onnxtxt").read_text("utf-8")
    before, layer, after = text.split("%LAYERS%")
    layers = [layer.replace("LAYER", f"encoder__layer__{number}") for number in range(_LAYERS)]
    graph = onnx.parser.parse_graph("".join((before, *layers, after)))
    graph.name = "all-MiniLM-L6-v2"
    _name_nodes(graph)
    graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(values), name)
        for name, values in _constants(weights)
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="kp-minilm-builder",
    )
    onnx.checker.check_model(model)
    return model


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Name nodes and values by number, and constants with dots: the text repeats its names."""
    boundary = {value.name for value in (*graph.input, *graph.output)}
    latest = dict(zip(boundary, boundary, strict=True))
    for number, node in enumerate(graph.node, start=1):
        node.name = f"{node.op_type}_{number}"
        node.input[:] = [latest.get(name, name.replace("__", ".")) for name in node.input]
        inner = [name for name in node.output if name not in boundary]
        latest |= {name: f"t{number}_{place}" for place, name in enumerate(inner)}
        node.output[:] = [latest[name] for name in node.output]


def _constants(weights: Tensors) -> Iterator[tuple[str, Floats | NDArray[np.int64]]]:
    for kind in ("word", "position", "token_type"):
        yield f"{kind}_emb", weights[f"embeddings.{kind}_embeddings.weight"]
    yield "zero", np.array([0])
    yield "one", np.array([1])
    yield "neg", np.array(np.finfo(np.float32).min)
    yield from _norm(weights, "embeddings.LayerNorm")
    yield "ax12", np.array([1, 2])
    yield "onef", np.array(1, np.float32)
    yield "split3", np.array([_HIDDEN] * 3)
    yield "shape4", np.array([0, 0, _HEADS, _HIDDEN // _HEADS])
    yield "shape3", np.array([0, 0, _HIDDEN])
    yield "scale", np.array(1 / np.sqrt(_HIDDEN // _HEADS), np.float32)
    for number in range(_LAYERS):
        layer = f"encoder.layer.{number}."
        parts = [f"{layer}attention.self.{part}" for part in ("query", "key", "value")]
        yield from _dense(weights, f"{layer}qkv", parts)
        yield from _norm(weights, f"{layer}attention.output.LayerNorm")
        yield from _dense(weights, f"{layer}attention.output.d", [f"{layer}attention.output.dense"])
        yield from _dense(weights, f"{layer}up", [f"{layer}intermediate.dense"])
        yield from _norm(weights, f"{layer}output.LayerNorm")
        yield from _dense(weights, f"{layer}output.d", [f"{layer}output.dense"])
    yield "sqrt2", np.array(np.sqrt(2.0), np.float32)
    yield "half", np.array(0.5, np.float32)
    yield "tiny", np.array(1e-12, np.float32)


def _norm(weights: Tensors, name: str) -> Iterator[tuple[str, Floats]]:
    yield f"{name}.g", weights[f"{name}.weight"]
    yield f"{name}.b", weights[f"{name}.bias"]


def _dense(weights: Tensors, name: str, parts: list[str]) -> Iterator[tuple[str, Floats]]:
    yield f"{name}.w", np.concatenate([weights[f"{part}.weight"] for part in parts]).T
    yield f"{name}.b", np.concatenate([weights[f"{part}.bias"] for part in parts])


def export_int8(source: Path, target: Path) -> None:
    """Write a model folder quantized to 8-bit integers from one in floats."""
    target.mkdir(parents=True, exist_ok=True)
    onnx.save(quantize(onnx.load(source / "model.onnx")), target / "model.onnx")
    for file in source.glob("*.json"):
        shutil.copyfile(file, target / file.name)


def quantize(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its products with matrices of weights in 8-bit integers.

    The input of a product is quantized dynamically, with one scale for each text. A few channels
    are ten times as large as the others and would make the scale too coarse for these, so their
    part of the product stays in floats.
    """
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    products = {node.output[0] for node in model.graph.node if _is_product(node, weights)}
    if not products:
        raise ValueError("it has no matrix product with weights")
    peaks = _peaks(model, products)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.output[0] in products:
            values, name = node.input
            parts = _split(weights.pop(name), peaks[values])
            weights |= {f"{name}.{part}": numbers for part, numbers in parts.items()}
            nodes += _in_integers(values, name, node.output[0])
        else:
            nodes.append(node)
    graph = helper.make_graph(
        nodes,
        model.graph.name,
        model.graph.input,
        model.graph.output,
        [numpy_helper.from_array(numbers, name) for name, numbers in weights.items()],
    )
    opsets = {opset.domain: opset for opset in model.opset_import}
    opsets.setdefault(_DOMAIN, helper.make_opsetid(_DOMAIN, 1))
    return helper.make_model(graph, opset_imports=opsets.values(), ir_version=model.ir_version)


def _is_product(node: onnx.NodeProto, weights: Mapping[str, NDArray[Any]]) -> bool:
    return (
        node.op_type == "MatMul" and node.input[1] in weights and weights[node.input[1]].ndim == 2
    )


def _split(matrix: Floats, peaks: Floats) -> dict[str, NDArray[Any]]:
    """Split weights [I, O]: those of the largest channels stay floats, others become integers."""
    large = np.sort(np.argsort(peaks)[-32:])  # per product; half as many give 1.2 times the error
    others = np.ones(len(matrix), np.float32)
    others[large] = 0
    rest = matrix * others[:, None]
    scale = np.maximum(np.abs(rest).max(axis=0), np.finfo(np.float32).tiny) / _MAX_INTEGER  # [O]
    return {
        "large": large,
        "floats": matrix[large],
        "others": others,
        "integers": np.rint(rest / scale).astype(np.int8),
        "scale": scale,
    }


def _in_integers(values: str, name: str, product: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Gather", [values, f"{name}.large"], [f"{product}.large"], axis=2),
        helper.make_node("MatMul", [f"{product}.large", f"{name}.floats"], [f"{product}.exact"]),
        helper.make_node("Mul", [values, f"{name}.others"], [f"{product}.others"]),
        helper.make_node(
            "DynamicQuantizeMatMul",
            [f"{product}.others", f"{name}.integers", f"{name}.scale"],
            [f"{product}.rough"],
            domain=_DOMAIN,
        ),
        helper.make_node("Add", [f"{product}.exact", f"{product}.rough"], [product]),
    ]


def _peaks(model: onnx.ModelProto, products: set[str]) -> dict[str, Floats]:
    """Return the largest value of each channel by input of a product, the same for any tokens."""
    names = sorted({node.input[0] for node in model.graph.node if node.output[0] in products})
    outputs = model.graph.output
    original = len(outputs)
    outputs.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names)
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    del outputs[original:]  # restored in place, because a copy of the model would take 90 MB
    words = np.random.default_rng(0).integers(1000, _VOCABULARY, (8, 64))
    words[:, 0], words[:, -1] = _FIRST, _LAST
    inputs = {
        "input_ids": words,
        "attention_mask": np.ones_like(words),
        "token_type_ids": np.zeros_like(words),
    }
    used = {expected.name: inputs[expected.name] for expected in session.get_inputs()}
    results = zip(names, session.run(names, used), strict=True)
    return {name: np.abs(values).max(axis=(0, 1)) for name, values in results}
