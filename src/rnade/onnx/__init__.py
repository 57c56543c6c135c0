"""Fitted models as ONNX files, to score rows without rnade or torch.

Needs the package ``onnx`` (``pip install rnade[onnx]``); any runtime that computes in float64 on
the CPU, such as onnxruntime, runs the files.
"""

from rnade.onnx.export import export_conditional, export_scores

__all__ = ["export_conditional", "export_scores"]
