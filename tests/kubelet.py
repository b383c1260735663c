"""Expand a container's command and variables as a kubelet does.

In commands and values `$(NAME)` is a variable, if there is one, and `$$` is `$`
(`third_party/forked/golang/expansion`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any


def expanded(word: str, variables: Mapping[str, str]) -> str:
    """A word with its references replaced, from left to right; what comes of one is not read again."""
    text, at = "", 0
    while (dollar := word.find("$", at)) >= 0 and dollar + 1 < len(word):
        text += word[at:dollar]
        at = dollar + 2
        follows = word[dollar + 1]
        end = word.find(")", at) if follows == "(" else -1
        if follows == "$":
            text += "$"
        elif end >= 0:
            name = word[at:end]
            text += variables.get(name, f"$({name})")
            at = end + 1
        else:  # not the beginning of a reference
            text += "$" + follows
    return text + word[at:]


def environment(
    entries: Iterable[Mapping[str, Any]],
    outside: Mapping[str, str],
    field: Callable[[str], str],
) -> dict[str, str]:
    """The variables of a container.

    Args:
        entries: its `env`; a value may refer to those before it.
        outside: what the runtime and the cluster's services add.
        field: the pod's own field of this path; what it holds is not expanded.

    """
    variables: dict[str, str] = {}
    for entry in entries:
        if value := entry.get("value"):
            variables[entry["name"]] = expanded(value, {**outside, **variables})
        else:
            path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            variables[entry["name"]] = field(path) if path else ""
    return {**outside, **variables}
