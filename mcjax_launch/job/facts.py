"""What is known of a host before the ranks are started; a value."""

from __future__ import annotations

from mcjax_launch.kernel.wire.messages import Tpu, VisibleGpus
from mcjax_launch.kernel.wire.value import Value


class Facts(Value):
    """What a host's agent reported and reserved before the ranks are started.

    Args:
        python: interpreter of its ranks, if they need one.
        cwd: working directory of its ranks.
        gpus: what its ranks would see, if nothing more were said.
        platforms: JAX_PLATFORMS there.
        cores: the physical ones, each as its hardware threads, where ranks are bound to some.
        transfer_ports: each rank's, for transfers between CPU processes.
        tpu: its chips, if it has any.
        tpu_ports: each rank's, for libtpu.
        address: where other hosts can reach it; empty if none needs to.
        good_name: whether its own name resolves to such an address.
        name: its own, where other launchers have the other hosts; else it is that of the host.

    """

    python: str = ""
    cwd: str = ""
    gpus: VisibleGpus = VisibleGpus()
    platforms: str = ""
    cores: tuple[tuple[int, ...], ...] = ()
    transfer_ports: tuple[int, ...] = ()
    tpu: Tpu | None = None
    tpu_ports: tuple[int, ...] = ()
    address: str = ""
    good_name: bool = True
    name: str = ""
