"""Folding of what several ranks have to show: equal values once, with their ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mcjax_launch.console.prefix import Prefixes
from mcjax_launch.ranks import group_by_key

#: Texts by MIME type, and pictures in base64.
Bundle = Mapping[str, str]
#: The type that each bundle has.
PLAIN = "text/plain"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def prefix_lines(text: str, ranks: Sequence[int], prefixes: Prefixes) -> str:
    """Return a text with the prefix of ranks before each line, and with a newline."""
    prefix = prefixes.format_shared_prefix(ranks).decode()
    return "".join(f"{prefix}{line}\n" for line in text.split("\n"))


def _make_key(bundle: Bundle) -> tuple[tuple[str, str], ...]:
    """Return what two ranks show alike if their values are equal: all but addresses in memory."""
    rich = {mime: data for mime, data in bundle.items() if mime != PLAIN}
    return tuple(sorted(rich.items())) or ((PLAIN, _ADDRESS.sub("", bundle[PLAIN])),)


def group_shown(
    ranks: Sequence[int], shown: Sequence[Sequence[Bundle]]
) -> list[tuple[Bundle, list[int]]]:
    """Return what ranks have to show, equal things once with their ranks, in order of rank.

    Args:
        ranks: the ranks.
        shown: what each of them has to show.

    """
    pairs = [
        ((place, _make_key(bundle)), (rank, bundle))
        for rank, bundles in zip(ranks, shown, strict=True)
        for place, bundle in enumerate(bundles)
    ]
    groups = group_by_key(pairs).values()
    return [(group[0][1], [rank for rank, _ in group]) for group in groups]
