"""Serialising of executables that were loaded: XLA itself would leave out their code.

Otherwise JAX's own cache (by LoadedExecutable.serialize) and
`jax.experimental.serialize_executable` (by Client.serialize_executable) would write executables
that cannot run.
"""

from __future__ import annotations

from ....wire.value import Value
from .key import may_serialize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .store import Store


class _Origin(Value):
    """Origin of an executable.

    Attributes:
        fingerprint: the executable's, to notice when another executable reuses its id.
        store, key: where its file is.
        is_elsewhere: another rank may have compiled the file, for devices of its own.

    """

    fingerprint: Any
    store: Store
    key: str
    is_elsewhere: bool


class Origins:
    """Files from which executables of this process were loaded."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Origin] = {}
        self._patched: set[type] = set()

    def record(self, executable: Any, store: Store, key: str, *, is_local: bool) -> None:
        """Record that an executable was loaded from a store.

        Raises:
            Exception: this version of JAX cannot be patched.

        """
        self._patch(type(executable.client), "serialize_executable", check_devices=True)
        if hasattr(
            executable, "serialize"
        ):  # used by JAX's cache, which is told the devices on reading
            self._patch(type(executable), "serialize", check_devices=False)
        is_elsewhere = is_local and not may_serialize()
        origin = _Origin(executable.fingerprint, store, key, is_elsewhere)
        self._by_id[id(executable)] = origin

    def forget(self, executable: Any) -> None:
        """Record that an executable was compiled in this process, not loaded."""
        self._by_id.pop(id(executable), None)

    def _read(self, executable: Any, check_devices: bool) -> bytes | None:
        """Return the bytes from which an executable was loaded; None if it was compiled here.

        Raises:
            ValueError: the file is gone, or would run on other devices.

        """
        origin = self._by_id.get(id(executable))
        fingerprint = executable.fingerprint
        if origin is None or fingerprint is None or origin.fingerprint != fingerprint:
            return None
        is_elsewhere = check_devices and origin.is_elsewhere and may_serialize()
        compiled = None if is_elsewhere else origin.store.read(origin.key)
        if compiled is None:
            raise ValueError(
                "another rank has compiled this program: import "
                "jax.experimental.serialize_executable before it is compiled, or run with "
                "--compile-once off"
            )
        return compiled.data

    def _patch(self, owner: type, name: str, *, check_devices: bool) -> None:
        """Wrap a JAX method whose last argument is an executable, so that it can be serialised."""
        if owner in self._patched:
            return
        real = getattr(owner, name)

        def serialize(*args: Any, **more: Any) -> Any:
            data = self._read([*args, *more.values()][-1], check_devices)
            return real(*args, **more) if data is None else data

        setattr(owner, name, serialize)
        self._patched.add(owner)
