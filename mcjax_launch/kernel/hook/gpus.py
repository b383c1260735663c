"""A rank's own GPUs, as the launcher shares those of the host out.

JAX reads JAX_LOCAL_DEVICE_IDS in initialize() alone (`jax/_src/distributed.py`): a program that
never calls that would open all GPUs of the host. What a program says itself wins.
"""

from __future__ import annotations

import os
import sys

from ..wire.hook_environ import GPUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_OF_JAX = "JAX_LOCAL_DEVICE_IDS"
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_FLAGS = ("jax_cuda_visible_devices", "jax_rocm_visible_devices")
_ALL = "all"


def assign(environ: Mapping[str, str]) -> None:
    """Have jax, which is imported, use them also where nobody calls initialize().

    Args:
        environ: as this rank was given it.

    """
    ids = environ.get(GPUS)
    if ids and not _are_chosen(environ):
        _set_flags(_ALL, ids)


def leave_to_program(environ: Mapping[str, str]) -> None:
    """Where the program has chosen devices itself, have JAX use no others.

    To be called before initialize(), and before a backend is made, whichever comes first.
    """
    ids = environ.get(GPUS)
    if not ids or os.environ.get(_OF_JAX) != ids:
        return
    if _are_chosen(environ):
        _set_flags(ids, _ALL)
        del os.environ[_OF_JAX]
    elif any(value not in (_ALL, ids) for value in _flags().values()):
        del os.environ[_OF_JAX]


def _are_chosen(environ: Mapping[str, str]) -> bool:
    """Whether the program has said which devices it sees, since it was started."""
    names = (*_VISIBLE, _OF_JAX)
    return any(os.environ.get(name) != environ.get(name) for name in names)


def _flags() -> dict[str, str]:
    """Those that this jax has."""
    values = _config().values
    return {name: values[name] for name in _FLAGS if name in values}


def _set_flags(old: str, new: str) -> None:
    for name, value in _flags().items():
        if value == old:
            _config().update(name, new)


def _config() -> Any:
    return sys.modules["jax._src.config"].config
