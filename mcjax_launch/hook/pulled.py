"""Values of ranks for a process that may have no JAX, such as a notebook."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def convert_arrays(value: Any, name: str) -> Any:
    """Return a value in which NumPy's arrays are in place of JAX's.

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
