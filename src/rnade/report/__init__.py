"""What a model found in a table, as plain findings and as one self-contained page.

`study` computes the findings, `render` writes them as HTML; the two know nothing of each other
but the findings. Nothing is trained but two plain reference models.
"""

from rnade.report.findings import Findings
from rnade.report.page import render
from rnade.report.study import study

__all__ = ["Findings", "render", "study"]
