"""Functions of `jax.experimental.multihost_utils`, with the values that one rank can know."""

from __future__ import annotations

from ....hook.wrapping import wrap_like

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def patch(module: Any, jax: Any) -> None:
    """Replace the functions by which processes exchange values, if the rank has joined.

    Args:
        module: `jax.experimental.multihost_utils`.
        jax: the package.

    """
    import numpy as np

    def broadcast_one_to_all(in_tree: Any, *_: Any, **__: Any) -> Any:
        return jax.tree.map(np.asarray, in_tree)

    def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
        def gather(value: Any) -> Any:
            if isinstance(value, jax.Array) and not value.is_fully_addressable:
                if not tiled:
                    raise ValueError(
                        "Gathering global non-fully-addressable arrays only supports tiled=True"
                    )
                return np.zeros(value.shape, value.dtype)
            own = np.asarray(value)
            if tiled and own.ndim:
                return np.concatenate([own] * jax.process_count())
            return np.stack([own] * jax.process_count())

        return jax.tree.map(gather, in_tree)

    def sync_global_devices(*_: Any, **__: Any) -> None:
        return None

    def assert_equal(*_: Any, **__: Any) -> None:
        return None

    for function in (broadcast_one_to_all, process_allgather, sync_global_devices, assert_equal):
        real = getattr(module, function.__name__)
        setattr(module, function.__name__, wrap_like(real, function))
