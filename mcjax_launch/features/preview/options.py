"""Options for --preview, which runs single ranks and reports what they need."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from mcjax_launch.options.kinds import ONE_OR_MORE, Kind, parse_size, parse_some_ranks
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job

# MiB of memory that NVIDIA's driver reports for its GPUs.
_GPUS_MIB = {
    "l4": 23034,
    "a100-40g": 40960,
    "a100": 81920,
    "h100": 81559,
    "h200": 143771,
    "b200": 183359,
}


def parse_chip(value: Any) -> str:
    """Read a size of memory, such as `80G`, a GPU, such as `h100`, or a TPU slice, as `v5e:8x8`."""
    text = str(value).strip()
    if parse_memory(text) is None and not re.fullmatch(r"v\d[a-z\d]*:\d+(?:x\d+)*", text):
        gpus = ", ".join(_GPUS_MIB)
        raise ValueError(
            f"{value!r} is neither memory (80G), nor a TPU slice (v5e:8x8), nor {gpus}"
        )
    return text


def parse_memory(text: str) -> int | None:
    """Return the bytes of a size, or of a GPU's memory; None if the text is neither."""
    mib = _GPUS_MIB.get(text.lower())
    return parse_size(text) if mib is None else mib << 20


PREVIEW = Kind(parse_some_ranks, "[RANKS]", offers="ranks", omitted="0")
CHIP = Kind(parse_chip, "TYPE:TOPOLOGY|SIZE")


class PreviewOptions(OptionGroup, title="Debugging", kw_only=True):
    """Options on previews."""

    preview: frozenset[int] | Literal["all"] | None = declare_option(
        PREVIEW,
        in_project=False,
        only_command="it prints a report",
        excludes=(
            *("--no-hook", "--emit", "--check", "--watch", "--detach"),
            *("--num-hosts", "--max-restarts", "--verify-spmd", "--compile-cache"),
            *("--sync", "--cpu-transfers", "--tpu-chips-per-process"),
            "--gpus-per-process: it runs on CPU devices, give each rank K with -d K",
        ),
        help="Run only these ranks (0), each alone and here; compile programs that span processes "
        "and report what they need.",
    )
    on: str | None = declare_option(
        CHIP,
        in_project=False,
        only_command="it is for --preview",
        needs="--preview RANKS",
        help="Compare with a chip's memory (80G, h100) or compile for a TPU slice (v5e:8x8); "
        "status 1: too large.",
    )
    preview_steps: int | None = declare_option(
        ONE_OR_MORE,
        in_project=False,
        only_command="it is for --preview",
        needs="--preview RANKS",
        help="End each rank of --preview after N calls of the program that it calls most.",
    )


def is_used(job: Job) -> bool:
    """Return whether some ranks run, each alone."""
    return PreviewOptions.of(job).preview is not None


def find_choice(options: Any) -> Any:
    """Return the module that chooses the ranks of a preview; None without --preview."""
    if PreviewOptions.of(options).preview is None:
        return None
    return import_module("mcjax_launch.features.preview.launcher")
