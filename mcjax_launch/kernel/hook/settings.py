"""The settings that have to be the same in all processes of a job: JAX compares none of them."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Of JAX's configuration, which a variable or the program sets.
_OPTIONS = {"JAX_PLATFORMS": "jax_platforms", "JAX_ENABLE_X64": "jax_enable_x64"}
# In the names of flags that each process may set as it likes: where it writes what.
_OWN_FLAGS = ("dump", "dir", "path", "file", "log", "cache")
_MOST = 2_000


def settings() -> dict[str, str]:
    """Those of this process; what is not set is left out."""
    config = getattr(sys.modules.get("jax"), "config", None)
    found = {name: _value(config, option) for name, option in _OPTIONS.items()}
    found["XLA_FLAGS"] = " ".join(
        sorted(filter(_is_shared, os.environ.get("XLA_FLAGS", "").split()))
    )
    return {name: value[:_MOST] for name, value in found.items() if value}


def _value(config: Any, option: str) -> str:
    value = getattr(config, option, None)
    return str(int(value)) if value is True else str(value or "")


def _is_shared(flag: str) -> bool:
    name = flag.partition("=")[0]
    return not any(word in name for word in _OWN_FLAGS)
