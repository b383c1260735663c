"""The arguments that a program declares with argparse, click or absl; pure."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

# Actions of argparse: for one word, and for none.
_SINGLE = ("store", "append")
_FLAGS = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version")
CONVERSIONS = frozenset({"int", "str", "float"})


class Unsupported(Exception):
    """Error: the program uses its command line in a way that this analysis does not support."""


class ArgumentParser:
    """An argparse.ArgumentParser, the parameters of a click command, or absl's flags.

    Attributes:
        options: for the name of each value, its option ("" for a positional).
        required: the same for the required values alone.
        values: names of all required values that are single words of the command line.
        counts: for each option as it may be written, the number of words of its value.
        aliases: for each option as it may be written, as it is in `options`.

    """

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.required: dict[str, str] = {}
        self.values: set[str] = set()
        self.counts: dict[str, int] = {}
        self.aliases: dict[str, str] = {}

    def add(self, option: str, name: str, *, required: bool, is_plain: bool) -> None:
        """Add an argument; `is_plain`: its value is one word, converted only by int() or such."""
        self.options[name] = option
        if required:
            self.required[name] = option
        if required and is_plain:
            self.values.add(name)

    def declare(self, call: ast.Call, path: str) -> None:
        """Add the argument that a call declares; `path` is the dotted path of its function.

        Raises:
            Unsupported: the program has subcommands.

        """
        name = path.rpartition(".")[2]
        if name == "add_argument":
            _add_of_argparse(self, call)
        elif path in ("click.option", "click.argument"):
            _add_of_click(self, path, call)
        elif path.startswith("absl.flags."):
            _add_of_absl(self, name, call)
        elif name in ("add_subparsers", "add_mutually_exclusive_group") or path == "click.group":
            raise Unsupported("subcommands, or arguments of which some are needed")


def _get_settings(call: ast.Call) -> dict[str, Any]:
    """Return a call's keyword arguments: constants, names as text, None for other expressions."""
    found = {}
    for word in call.keywords:
        value = word.value
        constant = value.value if isinstance(value, ast.Constant) else None
        found[word.arg or ""] = value.id if isinstance(value, ast.Name) else constant
    return found


def _get_texts(call: ast.Call) -> list[str]:
    """Return the names in a declaration of an argument, as in `add_argument("-n", "--num")`.

    Raises:
        Unsupported: the names are not constants.

    """
    names: Sequence[ast.expr | None] = call.args or [None]
    return [_get_text(name) for name in names]


def _get_text(node: ast.expr | None) -> str:
    """Return the value of a constant text; None stands for a missing argument.

    Raises:
        Unsupported: the expression is no constant text.

    """
    match node:
        case ast.Constant(str() as text):
            return text
    raise Unsupported("names that are not written out")


def _add_spellings(parser: ArgumentParser, names: Sequence[str], long: str, count: object) -> None:
    """Record how an option may be written, and the number of words of its value if it is known."""
    if long.startswith("-"):
        parser.aliases |= dict.fromkeys(names, long)
        if isinstance(count, int):
            parser.counts |= dict.fromkeys(names, count)


def _add_of_argparse(parser: ArgumentParser, call: ast.Call) -> None:
    """Add the argument of a call of add_argument()."""
    names, settings = _get_texts(call), _get_settings(call)
    long = next((name for name in names if name.startswith("--")), names[0])
    name = str(settings.get("dest") or long.lstrip("-").replace("-", "_"))
    many = "nargs" in settings or "action" in settings
    is_plain = settings.get("type", "str") in CONVERSIONS and not many
    if settings.get("action", "store") in _SINGLE:
        count = settings.get("nargs", 1)
    else:
        count = 0 if settings["action"] in _FLAGS else None
    _add_spellings(parser, names, long, count)
    if long.startswith("-"):
        parser.add(long, name, required=settings.get("required") is True, is_plain=is_plain)
    else:
        may_be_left_out = settings.get("nargs") in ("?", "*") or "action" in settings
        parser.add("", name, required=not may_be_left_out, is_plain=is_plain)


def _add_of_click(parser: ArgumentParser, path: str, call: ast.Call) -> None:
    """Add the argument of a decorator, click.option or click.argument."""
    names, settings = _get_texts(call), _get_settings(call)
    long = next((name for name in names if name.startswith("--")), names[0])
    own = next((name for name in names if name.isidentifier()), long.lstrip("-"))
    is_plain = settings.get("type", "str") in CONVERSIONS and settings.get("nargs", 1) == 1
    is_argument = path == "click.argument"
    is_flag = settings.get("is_flag") or settings.get("count") or "/" in long
    count = 0 if is_flag else settings.get("nargs", 1)
    _add_spellings(parser, long.split("/") if is_flag else names, long, count)
    may_be_left_out = settings.keys() & {"default", "envvar"}
    required = settings.get("required", is_argument) is True and not may_be_left_out
    option = "" if is_argument else long
    parser.add(option, own.replace("-", "_").lower(), required=required, is_plain=is_plain)


def _add_of_absl(parser: ArgumentParser, function: str, call: ast.Call) -> None:
    """Add an absl flag, or mark a flag as required."""
    if function == "mark_flag_as_required":
        (name,) = _get_texts(call)
        parser.add(f"--{name}", name, required=True, is_plain=True)
    elif function == "mark_flags_as_required":
        match call.args:
            case [ast.List(parts) | ast.Tuple(parts)]:
                for name in map(_get_text, parts):
                    parser.add(f"--{name}", name, required=True, is_plain=True)
            case _:
                raise Unsupported("flags whose names are unknown")
    elif function in ("DEFINE_string", "DEFINE_integer"):
        name = _get_text(call.args[0] if call.args else None)
        required = _get_settings(call).get("required") is True
        parser.add(f"--{name}", name, required=required, is_plain=True)
