"""The templates of `--emit`: `<kind>.sh` and `<kind>.yaml`, next to this module.

- `{name}` stands for a value, as in `str.format`. A line with a value that is None is left out. A
  line with a list is repeated for each item.
- `# if NAME` or `# if not NAME` at the end of a line: the line, and the lines indented below it,
  are left out unless there is such a value.
- A line that begins with `##` explains the template, and is left out.
"""

from collections.abc import Mapping
from importlib import resources
from string import Formatter
from typing import Any

Values = Mapping[str, Any]


def read(name: str) -> list[str]:
    """Return the lines of a template by its file name; works if the package is in a zip file."""
    assert __package__
    return resources.files(__package__).joinpath(name).read_text("utf-8").splitlines()


def fill(lines: list[str], values: Values) -> str:
    """Fill values into the lines of a template and return the text; see the module."""
    filled: list[str] = []
    left_out = None  # the indentation of the line that was left out, with those below it
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if left_out is not None and indent > left_out:
            continue
        text, _, condition = line.partition("  # if ")
        left_out = None if _holds(condition, values) else indent
        if left_out is None and not text.lstrip().startswith("##"):
            filled += _fill_line(text, values)
    return "".join(f"{line}\n" for line in filled)


def _holds(condition: str, values: Values) -> bool:
    name = condition.removeprefix("not ")
    return not condition or bool(values[name]) == (name == condition)


def _fill_line(text: str, values: Values) -> list[str]:
    """Fill values into a line: return no line for None, and a line for each item of a list."""
    used = {name: values[name] for _, name, _, _ in Formatter().parse(text) if name}
    if None in used.values():
        return []
    for name, value in used.items():
        if isinstance(value, list):
            return [text.format_map({**values, name: item}) for item in value]
    return [text.format_map(used)]
