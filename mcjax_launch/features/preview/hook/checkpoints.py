"""Orbax without files: saves are measured and not written, restored arrays are zeros."""

from __future__ import annotations

import math
import os
from types import FunctionType, SimpleNamespace

from ....hook import user_lines
from ..messages import Checkpoint
from .zeros import make_zeros

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....hook.agent_link import AgentLink


def patch(module: Any, link: AgentLink) -> None:
    """Replace what reads and writes files by what does not.

    Args:
        module: Orbax's module `checkpoint_manager`, `checkpointers` or `v1`.
        link: the link to the agent.

    """

    def act(action: str, path: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        asked, tree = _find_tree((named.get("args"), *given, *named.values()))
        size = sum(map(_measure, _list_leaves(tree)))
        link.send(Checkpoint(action, os.fspath(path), size, user_lines.find_current_line()))
        return _restore(asked, tree) if action == "restore" else None

    for name in dir(module):
        value = getattr(module, name)
        if isinstance(value, FunctionType) and name.startswith(("save", "load")):  # in v1
            setattr(module, name, _make_function(name, act))
        elif name.endswith("Checkpointer"):
            value.save = lambda _, directory, *given, **named: act("save", directory, given, named)
            value.restore = lambda _, directory, *given, **named: act(
                "restore", directory, given, named
            )
    if hasattr(module, "CheckpointManager"):
        _patch_manager(module.CheckpointManager, module.CheckpointManagerOptions, act)


def _make_function(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the place of the one of this name."""

    def call(path: Any, *given: Any, **named: Any) -> Any:
        value = act("save" if name.startswith("save") else "restore", path, given, named)
        return SimpleNamespace(result=lambda *_: value) if name.endswith("_async") else value

    return call


def _patch_manager(manager: Any, options: Any, act: Callable[..., Any]) -> None:
    """Let the class that keeps the checkpoints of steps only read which there are."""
    check = options.__post_init__

    def complete(self: Any) -> None:
        check(self)
        self.read_only, self.create, self.cleanup_tmp_directories = True, False, False

    def should_save(self: Any, step: int) -> bool:
        return step % (self._options.save_interval_steps or 1) == 0

    def save(self: Any, step: int, *given: Any, force: bool = False, **named: Any) -> bool:
        is_wanted = force or should_save(self, step)
        if is_wanted:
            act("save", self.directory / str(step), given, named)
        return is_wanted

    def restore(self: Any, step: int | None = None, *given: Any, **named: Any) -> Any:
        return act("restore", self.directory / str(step), given, named)

    options.__post_init__ = complete
    manager.should_save, manager.save, manager.restore = should_save, save, restore


# --- trees of arrays ---


def _is_of_orbax(value: Any) -> bool:
    return type(value).__module__.startswith("orbax.")


def _find_tree(values: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the first argument of a call that holds arrays, and the tree in it; else None."""
    for value in values:
        tree = _unwrap(value)
        if any(hasattr(leaf, "shape") for leaf in _list_leaves(tree)):
            return value, tree
    return None, None


def _list_leaves(tree: Any) -> list[Any]:
    import jax

    return list(jax.tree.leaves(tree))


def _unwrap(value: Any) -> Any:
    """Return the tree inside Orbax's own arguments, such as `StandardSave(tree)`."""
    import jax

    if not _is_of_orbax(value):
        return value
    if hasattr(value, "items"):  # Composite(state=StandardSave(...), ...)
        return {name: _unwrap(each) for name, each in value.items()}
    tree, wanted = getattr(value, "item", None), getattr(value, "restore_args", None)
    return tree if None in (tree, wanted) else jax.tree.map(_add_sharding, tree, wanted)


def _add_sharding(leaf: Any, wanted: Any) -> Any:
    """Return a leaf's shape with the sharding of Orbax's ArrayRestoreArgs."""
    import jax

    sharding = getattr(wanted, "sharding", None)
    if sharding is None or not hasattr(leaf, "shape"):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, wanted.dtype or leaf.dtype, sharding=sharding)


def _measure(leaf: Any) -> int:
    """Return the bytes of a leaf that this process writes: one copy of each part is written."""
    import jax

    own, sharding = jax.process_index(), getattr(leaf, "sharding", None)
    if sharding is None:
        return int(getattr(leaf, "nbytes", 0)) if own == 0 else 0
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
        return 0
    writers: dict[str, int] = {}
    for device, index in sharding.devices_indices_map(leaf.shape).items():
        writers.setdefault(repr(index), device.process_index)  # the first one writes it
    size = math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    return list(writers.values()).count(own) * int(size)


def _restore(asked: Any, tree: Any) -> Any:
    """Return zeros of the shapes that a program asks for.

    Raises:
        RuntimeError: the program does not say which shapes.

    """
    import jax
    import numpy as np

    if tree is None:
        raise RuntimeError(
            "--preview reads no checkpoint: give restore() a tree of arrays or of "
            "jax.ShapeDtypeStruct, such as jax.eval_shape returns"
        )

    def make(leaf: Any) -> Any:
        if not hasattr(leaf, "shape"):
            return leaf
        if getattr(leaf, "sharding", None) is None:
            return np.zeros(leaf.shape, leaf.dtype)
        parts = make_zeros(leaf, leaf.sharding)
        return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, parts)

    restored = jax.tree.map(make, tree)
    is_composite = _is_of_orbax(asked) and hasattr(asked, "items")
    return type(asked)(**restored) if is_composite else restored
