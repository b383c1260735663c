"""`{process_id}` and its like in arguments, `-x` values and `--log-dir`; pure.

Any other braces are the program's own and stay as they are.
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
_ANY_WORD = re.compile(r"\{([A-Za-z_]\w*)\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with every placeholder that `values` names replaced."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def misspelt(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Words in braces that look like a placeholder misspelt: (word, the nearest placeholder)."""
    import difflib

    words = dict.fromkeys(word for text in texts for word in _ANY_WORD.findall(text))
    near = {word: difflib.get_close_matches(word, NAMES, 1, 0.8) for word in words}
    return [(word, found[0]) for word, found in near.items() if found and word not in NAMES]
