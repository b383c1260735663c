"""Orbax without files: saves are measured and not written, restored arrays are zeros."""

from __future__ import annotations

import os

from ....hook import user_lines
from ..messages import Checkpoint
from .zeros import Zeros

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....hook.agent_link import AgentLink

_CLASSES = ("Checkpointer", "AsyncCheckpointer", "PyTreeCheckpointer", "StandardCheckpointer")
# Of the newer interface, which has functions; each may have a variant that returns at once.
_FUNCTIONS = tuple(
    f"{action}{kind}{variant}"
    for action in ("save", "load")
    for kind in ("", "_pytree", "_checkpointables")
    for variant in ("", "_async")
)
# Keyword arguments with the tree to save or to restore, and names of it inside such an argument.
_TREES = (
    *("args", "item", "items", "state", "target", "pytree", "checkpointables"),
    *("abstract_pytree", "abstract_state", "abstract_checkpointables"),
)


def patch(module: Any, link: AgentLink) -> None:
    """Replace what reads and writes files by what does not.

    Args:
        module: Orbax's module `checkpoint_manager`, `checkpointers` or `v1`.
        link: the link to the agent.

    """
    files = _Files(link)
    for name in _FUNCTIONS:
        if hasattr(module, name):
            setattr(module, name, _make_function(name, files))
    if hasattr(module, "CheckpointManager"):
        _patch_manager(module.CheckpointManager, files)
    for name in _CLASSES:
        found = getattr(module, name, None)
        if found is not None:
            _patch_checkpointer(found, files)


class _Files:
    """Reporter of what would be written and read."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._zeros = Zeros()

    def save(self, path: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Report the bytes that this process would write."""
        self._report("save", path, _unwrap(_find_asked(given, named)))

    def restore(self, path: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return zeros of the shapes that the program asks for.

        Raises:
            RuntimeError: the program does not say which shapes.

        """
        import jax

        asked = _find_asked(given, named)
        tree = _unwrap(asked)
        if not jax.tree.leaves(tree):
            raise RuntimeError(
                "--preview reads no checkpoint: give restore() a tree of arrays or of "
                "jax.ShapeDtypeStruct, such as jax.eval_shape returns"
            )
        self._report("restore", path, tree)
        restored = jax.tree.map(self._make_leaf, tree)
        return type(asked)(**restored) if _is_composite(asked) else restored

    def _report(self, action: str, path: Any, tree: Any) -> None:
        import jax

        size = sum(map(_measure, jax.tree.leaves(tree)))
        where = user_lines.find_current_line()
        self._link.send(Checkpoint(action, os.fspath(path), size, where))

    def _make_leaf(self, leaf: Any) -> Any:
        import jax
        import numpy as np

        sharding = getattr(leaf, "sharding", None)
        if not hasattr(leaf, "shape"):
            return leaf
        if sharding is None:
            return np.zeros(leaf.shape, leaf.dtype)
        parts = self._zeros.make(leaf, sharding)
        return jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts)


def _find_asked(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the argument of a call that holds the tree; None if there is none."""
    values = [*(named[name] for name in _TREES if named.get(name) is not None), *given]
    return values[0] if values else None


def _is_composite(value: Any) -> bool:
    return type(value).__module__.startswith("orbax.") and hasattr(value, "items")


def _unwrap(value: Any) -> Any:
    """Return the tree inside Orbax's own arguments, such as `StandardSave(tree)`."""
    if not type(value).__module__.startswith("orbax."):
        return value
    if _is_composite(value):  # Composite(state=StandardSave(...), ...)
        return {name: _unwrap(each) for name, each in value.items()}
    inner = (getattr(value, name, None) for name in _TREES)
    tree = next((each for each in inner if each is not None), None)
    shardings = getattr(value, "restore_args", None)
    return tree if shardings is None or tree is None else _add_shardings(tree, shardings)


def _add_shardings(tree: Any, restore_args: Any) -> Any:
    """Return a tree of shapes with the shardings of Orbax's ArrayRestoreArgs."""
    import jax

    def add(leaf: Any, wanted: Any) -> Any:
        sharding = getattr(wanted, "sharding", None)
        if sharding is None or not hasattr(leaf, "shape"):
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, wanted.dtype or leaf.dtype, sharding=sharding)

    return jax.tree.map(add, tree, restore_args)


def _measure(leaf: Any) -> int:
    """Return the bytes of a leaf that this process writes: one copy of each part is written."""
    import jax

    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        return int(getattr(leaf, "nbytes", 0)) if jax.process_index() == 0 else 0
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
        return 0
    seen: dict[str, int] = {}
    for device, index in sharding.devices_indices_map(leaf.shape).items():
        seen.setdefault(repr(index), device.process_index)  # the first one writes it
    own = sum(process == jax.process_index() for process in seen.values())
    size: int = leaf.dtype.itemsize * own
    for length in sharding.shard_shape(leaf.shape):
        size *= length
    return size


# --- Orbax's functions and classes ---


def _make_function(name: str, files: _Files) -> Callable[..., Any]:
    """Return a function that takes the place of the one of this name."""
    act = files.save if name.startswith("save") else files.restore

    def call(path: Any, *args: Any, **named: Any) -> Any:
        result = act(path, args, named)
        return _Response(result) if name.endswith("_async") else result

    return call


class _Response:
    """Answer of a function that has returned at once."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, *_: Any, **__: Any) -> Any:
        """Return what the function has returned."""
        return self._value


def _patch_checkpointer(checkpointer: Any, files: _Files) -> None:
    """Replace the methods of a class that reads and writes trees."""

    def save(_: Any, directory: Any, *args: Any, **named: Any) -> None:
        files.save(directory, args, named)

    def restore(_: Any, directory: Any, *args: Any, **named: Any) -> Any:
        return files.restore(directory, args, named)

    for method in (save, restore):
        setattr(checkpointer, method.__name__, method)
    checkpointer.wait_until_finished = checkpointer.check_for_errors = _do_nothing


def _patch_manager(manager: Any, files: _Files) -> None:
    """Replace the methods of the class that keeps the checkpoints of steps."""

    def __init__(self: Any, directory: Any, *_: Any, options: Any = None, **__: Any) -> None:
        import pathlib

        self._directory = pathlib.Path(directory)
        self._every = getattr(options, "save_interval_steps", None) or 1
        names = os.listdir(directory) if os.path.isdir(directory) else []
        self._steps = sorted(int(name) for name in names if name.isdigit())

    def all_steps(self: Any, *_: Any, **__: Any) -> list[int]:
        return list(self._steps)

    def latest_step(self: Any) -> int | None:
        return self._steps[-1] if self._steps else None

    def should_save(self: Any, step: int) -> bool:
        return bool(step % self._every == 0)

    def save(self: Any, step: int, *args: Any, force: bool = False, **named: Any) -> bool:
        if not force and not should_save(self, step):
            return False
        files.save(self._directory / str(step), args, named)
        self._steps.append(step)
        return True

    def restore(self: Any, step: int | None = None, *args: Any, **named: Any) -> Any:
        return files.restore(self._directory / str(step), args, named)

    for method in (__init__, all_steps, latest_step, should_save, save, restore):
        setattr(manager, method.__name__, method)
    manager.best_step = latest_step
    for name in _IDLE:
        setattr(manager, name, _do_nothing)


_IDLE = (
    *("wait_until_finished", "check_for_errors", "close", "reload", "delete", "item_metadata"),
    *("metadata", "metrics", "is_saving_in_progress", "reached_preemption"),
)


def _do_nothing(*_: Any, **__: Any) -> None:
    return None
