"""Backend of matplotlib for ranks of a notebook: `plt.show()` keeps pictures for the cell's end."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

from . import shown

__all__ = ["FigureCanvas", "show"]


def show(*_: object, **__: object) -> None:
    """Draw the open figures, and close them, as notebooks do."""
    shown.kept_figures.extend(shown.take_figures())
