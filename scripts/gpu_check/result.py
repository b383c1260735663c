"""What was seen, as data and as rows of a Markdown table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_check.about import About

OK, FAILED, NOT_RUN = "ok", "FAILED", "not run"
_MOST = 400


@dataclass(frozen=True)
class Result:
    """Of one check.

    Attributes:
        what: it is about, in words.
        seen: what was seen, or why it was not run.

    """

    name: str
    verdict: str
    what: str
    seen: str
    seconds: float

    @property
    def row(self) -> str:
        """Of the table."""
        seen = " ".join(self.seen.split()).replace("|", "\\|")
        cut = seen if len(seen) <= _MOST else f"{seen[:_MOST]} ..."
        seconds = "" if self.verdict == NOT_RUN else f"{self.seconds:.0f} s"
        return f"| {self.verdict} | {self.name} | {self.what} | {cut} | {seconds} |"


HEAD = "| | check | what has to be so | what was seen | |\n|---|---|---|---|---|"


def save(path: Path, about: About, results: list[Result]) -> None:
    """Write all that is known until now."""
    found: dict[str, object] = {"format": "gpu-check", "version": 1, **asdict(about)}
    found["checks"] = [asdict(result) for result in results]
    path.write_text(json.dumps(found, indent=1) + "\n")


def counts(results: list[Result]) -> str:
    """How many of each verdict, in words."""
    found = (
        (sum(result.verdict == word for result in results), word) for word in (OK, FAILED, NOT_RUN)
    )
    return ", ".join(f"{number} {word}" for number, word in found if number)
