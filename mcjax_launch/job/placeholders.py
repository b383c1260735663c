"""Placeholders such as `{process_id}` in arguments, `-x` values and `--log-dir`; pure.

Any other braces belong to the program and stay unchanged; in the launcher's own paths they are an
error.
"""

import re
from collections.abc import Iterable, Mapping

from mcjax_launch.errors import LaunchError

NAMES = (
    "process_id",
    "num_processes",
    "local_process_id",
    "coordinator",
    "coordinator_host",
    "coordinator_port",
    "host",
    "job_id",
)
# Patterns, compiled only if a text has a brace: most have none.
_PLACEHOLDER = r"\{(" + "|".join(NAMES) + r")\}"
# Placeholders by their names in other launchers.
_ELSEWHERE = {
    "rank": "process_id",
    "global_rank": "process_id",
    "local_rank": "local_process_id",
    "world_size": "num_processes",
    "master_addr": "coordinator_host",
    "master_port": "coordinator_port",
}
_ANY_WORD = r"\{([A-Za-z_]\w*)\}"
# As in a format of Python's, or with arithmetic.
_CALCULATED = r"\{((?:" + "|".join(NAMES) + r")\s*(?:[-+*/%]|:\S)[^{}]*)\}"


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in a text that have a value; leave all others unchanged."""
    if "{" not in text:
        return text
    return re.sub(_PLACEHOLDER, lambda match: values.get(match[1], match[0]), text)


def find_misspelt(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of a misspelt placeholder in the texts and the one probably meant."""
    words = dict.fromkeys(word for text in texts for word in _find_words(text))
    return [(word, near) for word in words if word not in NAMES and (near := _find_nearest(word))]


def find_expressions(texts: Iterable[str]) -> list[str]:
    """Return expressions in braces that begin with a placeholder, such as `process_id+1`."""
    return list(dict.fromkeys(word for text in texts for word in re.findall(_CALCULATED, text)))


def check_path(option: str, path: str) -> None:
    """Refuse a path with an unknown placeholder.

    Args:
        option: option that the path belongs to, for the error.
        path: path with placeholders.

    Raises:
        LaunchError: the path has an unknown placeholder.

    """
    for word in _find_words(path):
        if word not in NAMES:
            near = _find_nearest(word)
            there_are = " ".join(f"{{{name}}}" for name in NAMES)
            hint = f"did you mean {{{near}}}?" if near else f"there are {there_are}"
            raise LaunchError(f"{option} {path}: {{{word}}} is not a placeholder; {hint}")


def _find_words(text: str) -> list[str]:
    """Return the words in braces, without the braces."""
    return re.findall(_ANY_WORD, text) if "{" in text else []


def _find_nearest(word: str) -> str | None:
    """Return the placeholder that a word resembles; None if there is none."""
    import difflib

    near = difflib.get_close_matches(word.lower(), NAMES, 1, 0.8)
    return _ELSEWHERE.get(word.lower()) or (near[0] if near else None)
