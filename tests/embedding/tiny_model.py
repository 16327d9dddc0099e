"""A model of 1.4 MB with MiniLM's inputs, outputs and 384 dimensions: a hashed bag of tokens."""

import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TOKENIZER_FILES = (
    "config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)

_ROWS = 1024
_DIMENSIONS = 384


def write_tiny_model(tokenizer_folder: Path, target: Path) -> Path:
    """The target, with all that fastembed loads."""
    target.mkdir(parents=True, exist_ok=True)
    onnx.save(build_tiny_model(), target / "model.onnx")
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer_folder / name, target / name)
    return target


def build_tiny_model() -> onnx.ModelProto:
    """Each token's vector is the row of a fixed table that its id, modulo 1024, falls on, turned.

    Eight channels of the rows are larger than the others, as in real models.
    """
    random = np.random.default_rng(0)
    table = random.standard_normal((_ROWS, _DIMENSIONS)).astype(np.float16)
    table[:, ::48] *= 30
    turn = random.standard_normal((_DIMENSIONS, _DIMENSIONS)).astype(np.float32)
    constants = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array(_ROWS, np.int64), "rows"),
        numpy_helper.from_array(turn, "turn"),
    ]
    nodes = [
        helper.make_node("Mod", ["input_ids", "rows"], ["row"]),
        helper.make_node("Gather", ["table", "row"], ["vectors"]),
        helper.make_node("Cast", ["vectors"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["floats", "turn"], ["last_hidden_state"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info(
        "last_hidden_state", TensorProto.FLOAT, ["batch", "seq", _DIMENSIONS]
    )
    graph = helper.make_graph(nodes, "tiny", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
