"""Wrapping of a function by a function with the same name, docstring and signature."""

from __future__ import annotations

import functools
import inspect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def wrap_like(real: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with the name, documentation and signature of `real`."""
    function = functools.wraps(real)(function)
    function.__signature__ = inspect.signature(real)  # type: ignore[attr-defined]
    return function
