"""A rule on ranks that have another number of devices than an option asks for."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.findings.devices import format_device_name
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.ranks import format_count, group_by_key, inflect_have

_WHY = {
    "CPU device": "does the program set jax_num_cpu_devices itself?",
    "GPU": "does the program set CUDA_VISIBLE_DEVICES, or local_device_ids= of initialize()?",
}


def other_count(view: View) -> Iterator[Finding]:
    """Find ranks that have more or fewer devices than -d or --gpus-per-process asks for.

    Yields nothing until all ranks have started a backend, or a rank has failed.
    """
    backends = [(run, run.membership.backend) for run in view.runs]
    groups = group_by_key(
        ((backend.devices, format_device_name(backend.platform), run.share.asked), run.process_id)
        for run, backend in backends
        if backend is not None and backend.devices
    )
    if view.first is None and sum(map(len, groups.values())) < len(backends):
        return
    for (has, name, asked), ranks in groups.items():
        if asked is not None and asked.kind == name and asked.count != has:
            devices = f"{inflect_have(ranks)} {format_count(has, f'local {name}')}"
            words = (
                f"{view.format_ranks(ranks)} {devices}, but {asked.option} asks for {asked.count}"
            )
            yield Finding(("asked", has), f"{words}: {_WHY[name]}", tuple(ranks))
