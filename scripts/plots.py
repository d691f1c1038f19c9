"""Figures with matplotlib (the extra `plots`), without a screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def require_matplotlib() -> None:
    """Check that figures can be drawn; call it before any long work.

    Raises:
        ValueError: naming the extra to install.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError("figures need matplotlib: pip install 'rlenv[plots]'") from error


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
