"""Reports wording that is not allowed: openings of docstrings, variables `one`, replaced words."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
OPENING = re.compile(
    r"(All|As|How|If|It|Nobody|Nothing|Of|Others|That|These|This|Those|What|When|Where|Whether"
    r"|Which|Who|Whoever|Whose|Why)\b"
)
REPLACED = re.compile(r"(?i)\b(fork server|heirs?|next life|sightings?|whereabouts|whoever)\b")


def faults(source: str, *, in_package: bool) -> Iterator[tuple[int, str]]:
    """Yield a line and its fault; docstrings and words only of files in the package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.arg) and "one" in vars(node).values():
            yield node.lineno, "variable `one`: name it after the thing"
        text = ast.get_docstring(node) if in_package and isinstance(node, DOCUMENTED) else None
        if text and (found := OPENING.match(text)):
            yield getattr(node, "lineno", 1), f"docstring begins with {found[0]!r}"
    for number, line in enumerate(source.splitlines() if in_package else (), 1):
        yield from ((number, f"{word!r} has been replaced") for word in REPLACED.findall(line))


def all_faults(folders: tuple[str, ...] = ("mcjax_launch", "scripts", "tests")) -> Iterator[str]:
    """Yield every fault, with the file and the line."""
    for path in sorted(path for name in folders for path in (ROOT / name).rglob("*.py")):
        name = path.relative_to(ROOT)
        for line, fault in faults(path.read_text(), in_package=name.parts[0] == "mcjax_launch"):
            yield f"{name}:{line}: {fault}"


if __name__ == "__main__":
    sys.exit("\n".join(all_faults()) or 0)
