"""The result of a lab, and its picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """A figure of the claim, and the bounds between which the claim expects it.

    Args:
        name: of the figure.
        figure: as it was measured.
        low: the bound that it has to exceed; a figure may also be bounded by another one.
        high: the bound that it has to stay below.
    """

    name: str
    figure: float
    low: float = -math.inf
    high: float = math.inf

    @property
    def held(self) -> bool:
        """Whether the figure is between the bounds; one that is not a number is not."""
        return self.low < self.figure < self.high

    @property
    def text(self) -> str:
        """The name, the figure and the bounds."""
        if self.high == math.inf:
            bounds = f"above {self.low:.4g}"
        elif self.low == -math.inf:
            bounds = f"below {self.high:.4g}"
        else:
            bounds = f"{self.low:.4g} to {self.high:.4g}"
        return f"{self.name}: {self.figure:.4g} ({bounds})"


@dataclass(frozen=True)
class Panel:
    """One of the plots of a drawing.

    Args:
        title: above it.
        curves: by label, the places on the x-axis (numbers or words) and the values.
        x: the name of the x-axis.
        log: which axes are logarithmic: "", "x", "y" or "xy".
    """

    title: str
    curves: Mapping[str, tuple[Sequence[Any], Sequence[float]]]
    x: str = ""
    log: str = ""


@dataclass(frozen=True)
class Finding:
    """The claim of a lab and its measurements.

    Args:
        claim: one or two sentences.
        checks: what the claim says, one by one; it held where all of them did.
        rows: the measurements, one row each, with equal keys; written as CSV.
        panels: what is drawn of them.
        figures: the main figures, JSON-able.
    """

    claim: str
    checks: list[Check]
    rows: list[dict[str, Any]]
    panels: list[Panel]
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether every check held."""
        return all(check.held for check in self.checks)

    def draw(self, figure: Any) -> None:
        """Draw the panels beside each other on a matplotlib figure."""
        figure.set_size_inches(4.5 * len(self.panels), 4)
        for axes, panel in zip(figure.subplots(1, len(self.panels), squeeze=False)[0], self.panels, strict=True):
            for label, (x, y) in panel.curves.items():
                axes.plot(x, y, "o-" if len(x) < 20 else "-", ms=4, lw=1, label=label)
                if x and isinstance(x[0], str):
                    axes.tick_params("x", rotation=30)
            axes.set_title(panel.title, fontsize=10)
            axes.set_xlabel(panel.x)
            if "x" in panel.log:
                axes.set_xscale("symlog", base=2)
            if "y" in panel.log:
                axes.set_yscale("log")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)


def column(rows: Sequence[dict[str, Any]], x: str, y: str) -> tuple[list[Any], list[Any]]:
    """Return two columns of these rows."""
    return [row[x] for row in rows], [row[y] for row in rows]


def where(rows: Sequence[dict[str, Any]], **values: Any) -> list[dict[str, Any]]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def mean_of(rows: Sequence[dict[str, Any]], name: str, **values: Any) -> float:
    """Return the mean of a column over the rows that have these values."""
    chosen = [row[name] for row in where(rows, **values)]
    return float(sum(chosen) / len(chosen))
