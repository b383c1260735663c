"""Programs in which processes exchange data, and the rank of each JAX process; pure.

Programs name processes by the numbers of their backends: on TPUs `jax.process_index()` is libtpu's
number, not that of initialize().
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mcjax_launch.wire.value import Value


class RanProgram(Value):
    """A program in which processes exchange data, as one rank ran it.

    Args:
        name: name of the program in JAX, such as `jit_step`; "" if unknown.
        ranks: the ranks that take part.
        where: the user's line that ran it first, as `file:line`.

    """

    name: str
    ranks: frozenset[int]
    where: str = ""

    @property
    def title(self) -> str:
        """Name of the program as JAX's users know it."""
        return format_title(self.name)


def format_title(name: str) -> str:
    """Return a program's name as JAX's users know it, such as `jit(step)`."""
    return f"jit({name[4:]})" if name.startswith("jit_") else name


class ProcessRanks:
    """The rank of each JAX process, by the numbers that backends have given to processes."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[int, int]] = {}  # by platform and process

    def record(self, rank: int, platform: str, process: int) -> None:
        """Record the rank of a process, given the process's number on a platform's backend."""
        ranks = self._ranks.setdefault(platform, {})
        for before in [number for number, known in ranks.items() if known == rank]:
            del ranks[before]
        ranks[process] = rank

    def get_ranks(self, platform: str) -> Mapping[int, int]:
        """Return the known ranks of a platform's processes, by process number."""
        return self._ranks.get(platform, {})

    def find_renumbered_ranks(self, ranks: Collection[int]) -> Mapping[int, int]:
        """Return ranks by process number, on a platform where some number is not the rank.

        Empty if there is no such platform, or if some of `ranks` are unknown on it.
        """
        for known in self._ranks.values():
            if set(known.values()) >= set(ranks) and any(n != rank for n, rank in known.items()):
                return known
        return {}
