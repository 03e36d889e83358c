"""Tiny models whose outputs can be computed by hand, in the layout of real ones: ONNX graphs and
tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = "a b c d e f tea green cup late frost early harvest query: passage:".split()
VOCABULARY = {
    word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])
}
PAD, UNKNOWN, CLS, SEP = range(4)

_DIMENSION = 6
TABLE = np.random.default_rng(7).normal(size=(len(VOCABULARY), _DIMENSION)).astype(np.float32)
TABLE[PAD] = 1000.0  # what a mask must hide

WEIGHTS = np.arange(len(VOCABULARY), dtype=np.float32) / 8
WEIGHTS[PAD], WEIGHTS[CLS], WEIGHTS[SEP] = 1000.0, 0.0, 0.0

_OPSET, _IR = 17, 8  # what the oldest runtime that we support reads


def ids_of(text: str) -> list[int]:
    """The tokens of a text in lower case, without special ones."""
    return [VOCABULARY.get(word, UNKNOWN) for word in text.split()]


def write_tokenizer(folder: Path, **changes: Any) -> None:
    """A tokenizer.json that splits at spaces, with changes to what it holds; it cuts off and pads,
    as real ones do.
    """
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))  # noqa: S106  a word, no password
    tokenizer.normalizer = normalizers.Strip()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4, pad_id=PAD)
    described = {**json.loads(tokenizer.to_str()), **changes}
    write_json(folder / "tokenizer.json", described)


def write_json(path: Path, value: Any) -> None:
    """A file with a value in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def write_graph(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    outputs: dict[str, Sequence[str | int]],
    constants: dict[str, np.ndarray],
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    kind: int = TensorProto.INT64,
    shape: Sequence[str | int] = ("batch", "tokens"),
) -> None:
    """An ONNX file."""
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(name, kind, shape) for name in inputs],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, axes)
            for name, axes in outputs.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def write_embedder(
    folder: Path,
    *,
    file: str = "model.onnx",
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    pooling: dict[str, Any] | None = None,
    normalise: bool = True,
    max_tokens: int | None = 64,
    pooled: bool = False,
    quantised: bool = False,
    table: np.ndarray = TABLE,
    **graph: Any,
) -> Path:
    """An embedding model: a token's vector is its row of `TABLE`, plus its type, plus its position,
    where it is told.

    Args:
        folder: Where to write it; made if it is not there.
        file: The name of the graph.
        inputs: What the graph takes.
        pooling: What 1_Pooling/config.json says; None writes no modules.json either.
        normalise: Whether modules.json has a step Normalize.
        max_tokens: What sentence_bert_config.json says; None writes none.
        pooled: Whether the graph also gives the mean over the mask, as ``sentence_embedding``.
        quantised: Whether token vectors pass through 8 bits, with one scale for the whole batch.
        table: Another table.
        graph: Passed to `write_graph`.
    """
    write_tokenizer(folder)
    write_json(folder / "config.json", {"pad_token_id": PAD, "max_position_embeddings": 512})
    if max_tokens is not None:
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens})
    if pooling is not None:
        write_steps(folder, pooling, normalise=normalise)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["rows"])]
    last = "rows"
    for name in ("token_type_ids", "position_ids"):
        if name in inputs:
            nodes.append(helper.make_node("Cast", [name], [f"{name}_float"], to=TensorProto.FLOAT))
            nodes.append(
                helper.make_node("Unsqueeze", [f"{name}_float", "last_axis"], [f"{name}_column"])
            )
            nodes.append(helper.make_node("Add", [last, f"{name}_column"], [f"with_{name}"]))
            last = f"with_{name}"
    if quantised:
        nodes.append(helper.make_node("DynamicQuantizeLinear", [last], ["eight", "scale", "zero"]))
        nodes.append(helper.make_node("DequantizeLinear", ["eight", "scale", "zero"], ["coarse"]))
        last = "coarse"
    nodes.append(helper.make_node("Identity", [last], ["last_hidden_state"]))
    outputs: dict[str, Sequence[str | int]] = {
        "last_hidden_state": ("batch", "tokens", table.shape[1])
    }
    if pooled:
        nodes += _mean_nodes("last_hidden_state", "sentence_embedding")
        outputs["sentence_embedding"] = ("batch", table.shape[1])
    constants = {
        "table": table,
        "last_axis": np.array([2], np.int64),
        "token_axis": np.array([1], np.int64),
    }
    write_graph(folder / file, nodes, outputs, constants, inputs, **graph)
    return folder


def _mean_nodes(hidden: str, output: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last_axis"], ["mask_column"]),
        helper.make_node("Mul", [hidden, "mask_column"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "token_axis"], ["sums"], keepdims=0),
        helper.make_node("ReduceSum", ["mask_column", "token_axis"], ["counts"], keepdims=0),
        helper.make_node("Div", ["sums", "counts"], [output]),
    ]


def write_steps(
    folder: Path, pooling: dict[str, Any], *, normalise: bool = True, more: Sequence[str] = ()
) -> None:
    """modules.json and the pooling's config.json, as sentence-transformers writes them."""
    prefix = "sentence_transformers.models."
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), *((f"9_{name}", name) for name in more)]
    steps += [("2_Normalize", "Normalize")] if normalise else []
    described = [
        {"idx": number, "name": str(number), "path": path, "type": prefix + kind}
        for number, (path, kind) in enumerate(steps)
    ]
    write_json(folder / "modules.json", described)
    write_json(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": _DIMENSION, **pooling}
    )


def write_cross_encoder(
    folder: Path,
    *,
    labels: int = 1,
    quantised: bool = False,
    config: dict[str, Any] | None = None,
    max_tokens: int = 64,
    weights: np.ndarray = WEIGHTS,
) -> Path:
    """A cross-encoder whose first logit is the weight of those document tokens that are in the
    query; see `WEIGHTS`.

    Further labels have that times -1, -2 and so on. Its mask and its types must be right: padding
    weighs 1000, and a token of the query counts for nothing.
    """
    write_tokenizer(folder)
    write_json(
        folder / "config.json",
        {"pad_token_id": PAD, "max_position_embeddings": max_tokens, **(config or {})},
    )
    cast, node = {"to": TensorProto.FLOAT}, helper.make_node
    nodes = [
        node("Cast", ["attention_mask"], ["mask"], **cast),
        node("Cast", ["token_type_ids"], ["second"], **cast),
        node("Sub", ["one", "second"], ["first"]),
        node("Mul", ["mask", "first"], ["query"]),  # (batch, tokens)
        node("Mul", ["mask", "second"], ["document"]),
        node("Unsqueeze", ["input_ids", "axis_1"], ["as_row"]),
        node("Unsqueeze", ["input_ids", "axis_2"], ["as_column"]),
        node("Equal", ["as_row", "as_column"], ["equal"]),  # (batch, tokens, tokens)
        node("Cast", ["equal"], ["equal_float"], **cast),
        node("Unsqueeze", ["query", "axis_1"], ["query_row"]),
        node("Mul", ["equal_float", "query_row"], ["matches"]),
        node("ReduceMax", ["matches"], ["matched"], axes=[2], keepdims=0),  # (batch, tokens)
        node("Gather", ["weights", "input_ids"], ["weight"]),
        node("Mul", ["weight", "matched"], ["matched_weight"]),
        node("Mul", ["matched_weight", "document"], ["counted"]),
    ]
    last = "counted"
    if quantised:
        nodes.append(node("DynamicQuantizeLinear", ["counted"], ["eight", "scale", "zero"]))
        nodes.append(node("DequantizeLinear", ["eight", "scale", "zero"], ["coarse"]))
        last = "coarse"
    nodes.append(node("ReduceSum", [last, "axis_1"], ["score"], keepdims=1))
    nodes.append(node("Mul", ["score", "of_label"], ["logits"]))
    constants = {
        "one": np.ones(1, np.float32),
        "axis_1": np.array([1], np.int64),
        "axis_2": np.array([2], np.int64),
        "weights": weights,
        "of_label": np.array([[1.0, *(-number for number in range(1, labels))]], np.float32),
    }
    write_graph(
        folder / "model.onnx",
        nodes,
        {"logits": ("batch", labels)},
        constants,
        ("input_ids", "attention_mask", "token_type_ids"),
    )
    return folder


def shared_weight(query: str, document: str) -> float:
    """The logit that a cross-encoder of `write_cross_encoder` must give, for a pair that fits."""
    asked = set(ids_of(query))
    return float(sum(WEIGHTS[token] for token in ids_of(document) if token in asked))
