"""Figures with matplotlib, without a screen: as PNG files, or as SVG in a page with a light and a dark theme."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

# matplotlib knows no CSS variables: these colors stand for them, and `as_svg` writes the variables in their places.
VARIABLES = {"#000a01": "--ink", "#000a02": "--soft", "#000a03": "--grid", "#000a04": "--accent"}
INK, SOFT, GRID, LINE = VARIABLES  # text that matters, other text, lines behind the data, data


def save_figure(draw: Callable[[Any], None], path: Path, size: tuple[float, float] = (9.0, 4.0)) -> None:
    """Draw on a new figure and write it as PNG.

    Args:
        draw: takes a matplotlib Figure.
        path: of the PNG.
        size: width and height in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    figure.savefig(path, dpi=90)


def as_svg(draw: Callable[[Any], None], name: str, size: tuple[float, float]) -> str:
    """Draw on a new figure with the colors of `VARIABLES`, and return an <svg> element to put into a page.

    Text stays text in the page's font, colors are the page's CSS variables --ink, --soft, --grid and --accent,
    and nothing in it points outside.

    Args:
        draw: takes a matplotlib Figure.
        name: of the figure within the page; its ids begin with it.
        size: width and height in inches; the page scales the figure to its column.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    look: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify_threshold": 0.5}
    with rc_context(look | {"text.parse_math": False}):  # a dollar in a label is a dollar
        figure, file = Figure(figsize=size), io.StringIO()
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(file, format="svg", transparent=True)
    return _for_page(file.getvalue(), name)


def _for_page(text: str, name: str) -> str:
    """Return a file of matplotlib as an element of a page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text, count=1)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{name}-", text)
    for color, variable in VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    return re.sub(r"\n\s*", "\n", text).strip()
