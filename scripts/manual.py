"""The manual page: from what --help is made of, and the statuses in docs/reference.md."""

import re
from pathlib import Path

from mcjax_launch.cli.command import command
from mcjax_launch.cli.options import GROUPS
from mcjax_launch.cli.words import ClickOption
from mcjax_launch.options.options import Options

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "man" / "mcjax-launch.1"
_REFERENCE = ROOT / "docs" / "reference.md"


def page() -> str:
    """Return the manual page, as roff."""
    purpose, *paragraphs = (command.help or "").split("\n\n")
    return "".join(
        [
            ".TH MCJAX\\-LAUNCH 1\n",
            ".SH NAME\n", _text("mcjax-launch - starts, watches and ends multi-controller JAX"),
            ".SH SYNOPSIS\n", _text("mcjax-launch [OPTIONS] [--] PROGRAM [ARGS]..."),
            ".SH DESCRIPTION\n", ".PP\n".join(map(_text, [purpose, *paragraphs])),
            ".SH OPTIONS\n", *map(_group, GROUPS),
            ".SH EXIT STATUS\n", _exit_statuses(),
            ".SH EXAMPLES\n", *map(_example, Options.examples),
            ".SH SEE ALSO\n", _text("https://github.com/mcjax/mcjax-launch/tree/main/docs"),
        ]
    )  # fmt: skip


def _group(title: str) -> str:
    return f".SS {title}\n{''.join(map(_option, GROUPS[title]))}"


def _option(option: ClickOption) -> str:
    names = ", ".join(option.opts) + ("" if option.is_flag else f" {option.metavar}")
    default = f" [default: {option.shown}]" if option.shown else ""
    return f".TP\n.B {_text(names)}{_text(f'{option.help}{default}')}"


def _example(title: str) -> str:
    what, line = Options.examples[title]
    return f".TP\n{_text(what)}{_text(line)}"


def _exit_statuses() -> str:
    _, _, after = _REFERENCE.read_text().partition("\n## Exit status\n")
    table = after.partition("\n#")[0].replace(r"\|", "\0")
    rows = re.findall(r"^\| ([^|]+) \|[^|]+\| ([^|]+) \|$", table, re.MULTILINE)
    plain = [(_plain(status), _plain(what)) for what, status in rows[1:] if status.strip()]
    return "".join(f".TP\n.B {_text(status)}{_text(what)}" for status, what in plain)


def _plain(markdown: str) -> str:
    return re.sub(r"\[([^]]+)\]\([^)]+\)|`", r"\1", markdown).replace("\0", "|")


def _text(text: str) -> str:
    """Return a line that roff shows as this text."""
    words = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return (r"\&" if words.startswith((".", "'")) else "") + words + "\n"
