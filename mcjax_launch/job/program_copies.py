"""The copies of PROGRAM on the hosts: where each is, and a warning if they differ; pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from mcjax_launch.options.options import Options
from mcjax_launch.wording import format_names


def list_source_paths(job: Options) -> tuple[str, ...]:
    """Return the paths at which a host may have PROGRAM's source, relative to the ranks' folder."""
    if job.module:
        path = job.program[0].replace(".", "/")
        return (f"{path}.py", f"{path}/__main__.py")
    return tuple(word for word in job.program[:2] if word.endswith(".py"))[:1]


def describe_differing_copies(program: Sequence[str], checksums: Mapping[str, str]) -> str:
    """Return a line on the hosts that have another copy of PROGRAM; "" if there are none.

    Args:
        program: PROGRAM and its arguments.
        checksums: known checksums of the hosts' copies, by the host's name, in order.

    """
    if len(set(checksums.values())) < 2:
        return ""
    usual, _ = Counter(checksums.values()).most_common(1)[0]  # of equally many the first host's
    others = [host for host, checksum in checksums.items() if checksum != usual]
    first = next(host for host, checksum in checksums.items() if checksum == usual)
    name = next((word for word in program if word.endswith(".py")), program[0])
    has = "has another copy" if len(others) == 1 else "have other copies"
    return (
        f"{format_names(others)} {has} of {name} than {first}, so ranks run different programs; "
        "make them equal, or add --sync"
    )
