"""Placeholders such as `{process_id}` in arguments, `-x` values and `--log-dir`; pure.

Any other braces belong to the program and stay as they are.
"""

import re
from collections.abc import Iterable, Mapping

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
_PLACEHOLDER = re.compile(r"\{(" + "|".join(NAMES) + r")\}")
# Their names in other launchers.
_ELSEWHERE = {
    "rank": "process_id",
    "global_rank": "process_id",
    "local_rank": "local_process_id",
    "world_size": "num_processes",
    "master_addr": "coordinator_host",
    "master_port": "coordinator_port",
}
_ANY_WORD = re.compile(r"\{([A-Za-z_]\w*)\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with every placeholder that `values` names replaced."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def misspelt(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Words in braces that look like misspelt placeholders: (word, the nearest placeholder)."""
    words = dict.fromkeys(word for text in texts for word in _ANY_WORD.findall(text))
    if not words:
        return []
    import difflib

    hints = []
    for word in words:
        known = _ELSEWHERE.get(word.lower())
        near = [known] if known else difflib.get_close_matches(word.lower(), NAMES, 1, 0.8)
        if near and word not in NAMES:
            hints.append((word, near[0]))
    return hints
