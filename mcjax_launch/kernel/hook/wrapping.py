"""Replaces a function, keeping its name, docstring and signature."""

from __future__ import annotations

import functools
import inspect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def in_place_of(real: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the name, the documentation and the signature of `real`."""
    function = functools.wraps(real)(function)
    function.__signature__ = inspect.signature(real)  # type: ignore[attr-defined]
    return function
