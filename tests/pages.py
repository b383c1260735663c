"""Read the commands, their output and the files that the pages of docs/ show."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(
    r"^    \$ ((?:mcjax-launch|python) .+)\n((?:(?!    \$ )    .*\n)*)", re.MULTILINE
)
_FILE = re.compile(r"^    \$ cat > (\S+) <<'END'\n((?:(?:    .*)?\n)*?)    END\n", re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Its commands that run the launcher or a Python, each with what it prints, without indent."""
    return [(command, _flush(lines)) for command, lines in _BLOCK.findall(page.read_text())]


def files(page: Path) -> dict[str, str]:
    """The files that it has the reader make, by name."""
    return {name: _flush(text) for name, text in _FILE.findall(page.read_text())}


def _flush(text: str) -> str:
    return re.sub(r"^    ", "", text, flags=re.MULTILINE)
