"""Mark rows of a table of tests that older versions of Python and jax run too."""

from collections.abc import Iterable
from typing import Any

import pytest


def rows(ways: Iterable[Any], *every_jax: Any) -> list[Any]:
    """Return all rows; those in `every_jax` depend on the version of jax, each in its own way."""
    return [
        pytest.param(
            *(way if isinstance(way, tuple) else (way,)),
            marks=pytest.mark.every_jax if way in every_jax else (),
        )
        for way in ways
    ]
