"""A rank's value for a notebook: its texts and pictures by MIME type, and its arrays as NumPy's."""

from __future__ import annotations

import base64
import io
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


# As IPython names the methods by which values show themselves.
_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
}

#: Figures that the running cell has shown, drawn.
kept_figures: list[dict[str, str]] = []


def make_bundles(value: Any) -> list[dict[str, str]]:
    """Return what to show after a cell: the value of its last expression, and its figures.

    Raises:
        Exception: whatever the value's `__repr__` raises.

    """
    shown = [] if value is None or _is_open_figure(value) else [_make_bundle(value)]
    figures = [*kept_figures, *take_figures()]
    kept_figures.clear()
    return [*shown, *figures]


def _make_bundle(value: Any) -> dict[str, str]:
    bundle = {"text/plain": repr(value)}
    if isinstance(value, type):  # its methods are for its instances
        return bundle
    if (told := _call(value, "_repr_mimebundle_")) is not None:
        more = told[0] if isinstance(told, tuple) else told
        bundle.update({mime: _to_text(data) for mime, data in more.items() if _is_data(data)})
    for mime, method in _METHODS.items():
        data = _call(value, method)
        data = data[0] if isinstance(data, tuple) else data  # with metadata
        if _is_data(data):
            bundle.setdefault(mime, _to_text(data))
    if "image/png" not in bundle and _is_figure(value):
        bundle["image/png"] = _draw(value)
    return bundle


def _call(value: Any, name: str) -> Any:
    """Return what a value's method returns; None without the method, or if it fails."""
    try:
        method = getattr(value, name, None)
        return method() if callable(method) else None
    except Exception:  # the text is shown
        return None


def _is_data(data: object) -> bool:
    return isinstance(data, (str, bytes))


def _to_text(data: str | bytes) -> str:
    return data if isinstance(data, str) else base64.b64encode(data).decode()


# --- figures of matplotlib ---


def _is_figure(value: Any) -> bool:
    matplotlib: Any = sys.modules.get("matplotlib.figure")
    return matplotlib is not None and isinstance(value, matplotlib.Figure)


def _is_open_figure(value: Any) -> bool:
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    return pyplot is not None and _is_figure(value) and pyplot.fignum_exists(value.number)


def take_figures() -> Iterator[dict[str, str]]:
    """Yield the figures that pyplot has open, and close them, as notebooks do after a cell."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot is not None else ():
        figure = pyplot.figure(number)
        if figure.axes:
            yield {"text/plain": repr(figure), "image/png": _draw(figure)}
        pyplot.close(figure)


def _draw(figure: Any) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return _to_text(file.getvalue())


def convert_arrays(value: Any, name: str) -> Any:
    """Return a value in which NumPy's arrays are in place of JAX's, which a notebook may lack.

    Args:
        value: any value; in trees of JAX, such as dictionaries, its leaves are converted.
        name: name of the value, for an error.

    Raises:
        ValueError: an array has parts in other processes alone.

    """
    if "jax" not in sys.modules:
        return value
    import jax
    import numpy as np

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            raise ValueError(
                f"{name} spans ranks: gather it there first, x = jax.experimental."
                f"multihost_utils.process_allgather({name}, tiled=True), and pull x"
            )
        return np.asarray(leaf)

    return jax.tree_util.tree_map(convert, value)
