"""Formulas as MathML, which browsers show by themselves: no script, no network, no images."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the form of formulas in pages."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.connect("config-inited", lambda _, config: setattr(config, "html_math_renderer", "mathml"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    formula = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode
