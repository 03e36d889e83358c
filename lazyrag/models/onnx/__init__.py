"""Models as ONNX, in a folder on this machine: no torch, no server."""

from lazyrag.models.onnx.models import OnnxCrossEncoder, OnnxEmbedder

__all__ = ["OnnxCrossEncoder", "OnnxEmbedder"]
