"""Static analysis: the arguments that a program passes to `jax.distributed.initialize()`; pure.

The program is not run. If it can do without an argument, or parses its command line in another way,
the result is "unknown": nothing is guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from mcjax_launch.request.program_source import (
    CONVERSIONS,
    ArgumentParser,
    Assigned,
    SourceNames,
    Unsupported,
)
from mcjax_launch.wire.value import Value

# The parameters of initialize(), in its order, and the placeholder for each on a command line.
_PARAMETERS = {
    "coordinator_address": "{coordinator}",
    "num_processes": "{num_processes}",
    "process_id": "{process_id}",
}
_HOST, _PORT = "{coordinator_host}", "{coordinator_port}"
_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit", "SystemExit"})
# Functions and methods that may get words of the command line, beside those of the file.
_TAKE_WORDS = frozenset({"len", "print", "parse_args", "parse_known_args"})
# How the paths of objects end whose attributes are values of options.
_NAMESPACES = (".parse_args()", ".parse_known_args()[0]", "absl.flags.FLAGS")
_MAY_BE_WORDS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.ListComp, ast.GeneratorExp)
# Exceptions that a command line which is too short may raise.
_TOO_SHORT = frozenset({"IndexError", "LookupError", "ValueError", "Exception", "BaseException"})


class Arguments(Value):
    """The arguments that a program needs.

    Args:
        words: words of the command line, in order: options, placeholders for coordinates, and a
            NAME for each other value.
        counts: for options of the program, the number of words of their values.
        aliases: for options of the program, the name in `words`, if they are needed.
        is_parsed: True if a parser of options reads the command line; False for sys.argv.

    """

    words: tuple[str, ...]
    counts: Mapping[str, int] = MappingProxyType({})
    aliases: Mapping[str, str] = MappingProxyType({})
    is_parsed: bool = False

    @property
    def _options(self) -> dict[str, str]:
        """The needed options, with their values."""
        return {word: value for word, value in pairwise(self.words) if word.startswith("-")}

    @property
    def _places(self) -> list[str]:
        """The needed words that belong to no option."""
        pairs = pairwise(("", *self.words))
        return [word for last, word in pairs if not word.startswith("-") and last[:1] != "-"]

    def complete(self, given: Sequence[str]) -> tuple[str, ...] | None:
        """Return the given arguments with the missing coordinates.

        Options come first, so that the same option among the given arguments takes precedence.
        Words without an option are added if the number of such given words leaves no doubt.

        Returns:
            None if nothing is missing, or if what is missing is unknown or is no coordinate.

        """
        front, placed = self._list_missing_options(given), self._place(given)
        if placed is None or any(map(_is_unknown, front[1::2])):
            return None
        return (*front, *placed) if front or placed != [*given] else None

    def suggest(self, given: Sequence[str]) -> tuple[str, ...] | None:
        """Return a command line to show to the user: completed, or all needed words.

        Returns:
            None if nothing seems to be missing.

        """
        if (completed := self.complete(given)) is not None:
            return completed
        at, missing = self._find_places(given), self._list_missing_options(given)
        if self._places and (at is None or len(at) < len(self._places)):
            return self.words
        return (*missing, *given) if missing else None

    def _list_missing_options(self, given: Sequence[str]) -> list[str]:
        """Return the needed options that are not among the given words, each with its value."""
        there = set()
        for word in given:
            name = word.partition("=")[0]
            there |= {name, self.aliases.get(name), self.aliases.get(name[:2])}
            if name[:2] == "--" and name != "--" and name not in self.aliases:  # abbreviated
                there |= {option for option in self._options if option.startswith(name)}
        options = self._options.items()
        return [word for option in options if option[0] not in there for word in option]

    def _place(self, given: Sequence[str]) -> list[str] | None:
        """Return the given arguments with missing words that have no option; None if unclear."""
        places, at = self._places, self._find_places(given)
        if not places or (at is not None and len(at) == len(places)):
            return [*given]
        if at is None or len(at) != sum(map(_is_unknown, places)):
            return None
        if any(given[number] in places for number in at):  # a placeholder that the user has set
            return None
        result, added, taken = [*given], 0, 0
        for place in places:
            if _is_unknown(place):
                taken += 1
                continue
            number = at[taken] if taken < len(at) else (at[-1] + 1 if at else 0)
            result.insert(number + added, place)
            added += 1
        return result

    def _find_places(self, given: Sequence[str]) -> list[int] | None:
        """Return which of the given words belong to no option; None if that is unknown."""
        has_options = any(map(_is_option, given))
        if not self.is_parsed:
            if not has_options:
                return [*range(len(given))]
            # The program's own options follow, if only coordinates come first.
            return [] if _is_option(given[0]) and not any(map(_is_unknown, self._places)) else None
        found: list[int] = []
        skipped = 0
        for number, word in enumerate(given):
            if word == "--" and not skipped:
                return [*found, *range(number + 1, len(given))]
            if skipped:
                skipped -= 1
            elif not _is_option(word):
                found.append(number)
            elif "=" not in word:
                if word not in self.counts:
                    return None
                skipped = self.counts[word]
        return found


def _is_option(word: str) -> bool:
    """Return whether a word of a command line is an option, not a negative number."""
    return word.startswith("-") and not word[1:2].isdigit() and word != "-"


def _is_unknown(word: str) -> bool:
    """Return whether a needed word is a NAME, which only the user knows."""
    return not word.startswith("{")


def find_arguments(source: bytes) -> Arguments | None:
    """Return the arguments that a program needs, if some of them are coordinates.

    Args:
        source: source code of the program.

    Returns:
        None if the program needs no coordinates, or if its arguments are unknown.

    """
    try:
        return _Reader(SourceNames(ast.parse(source))).collect_arguments()
    except (Unsupported, SyntaxError, ValueError, RecursionError):
        return None


class _Reader:
    """The use that a program makes of its command line."""

    def __init__(self, names: SourceNames) -> None:
        self._names = names
        self._parser = ArgumentParser()
        self._uses: dict[int | str, set[str]] = {}  # by word: its placeholders in initialize()
        self._last = 0  # the number of the last word of sys.argv that is surely needed
        self._last_used = 0  # the number of the last word, needed or not

    def collect_arguments(self) -> Arguments | None:
        """Return the arguments that the program needs; None if it needs no coordinates.

        Raises:
            Unsupported: the arguments are unknown.

        """
        calls = [node for node in self._names.nodes if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            self._declare(call)
        for node in self._names.nodes:
            if isinstance(node, _MAY_BE_WORDS):
                self._check(node)
        for call in calls:
            if self._names.find_path(call.func) == "jax.distributed.initialize":
                self._initialize(call)
        if self._last_used > self._last or (self._last and self._parser.required):
            return None
        keys: Iterable[int | str] = self._parser.required or range(1, self._last + 1)
        words: list[str] = []
        for key in keys:
            option = self._parser.required.get(str(key), "")
            words += [option] if option else []
            words.append(self._choose_placeholder(key))
        has_some = any(word.startswith("{") for word in words)
        if not has_some:
            return None
        parser = self._parser
        return Arguments(tuple(words), parser.counts, parser.aliases, bool(parser.options))

    def _choose_placeholder(self, key: int | str) -> str:
        uses = self._uses.get(key, set())
        if len(uses) == 1:
            return next(iter(uses))
        values = self._names.assigned.items()
        named = (name for (_, name), found in values if key in map(self._find_key, found))
        text = key if isinstance(key, str) else next(named, f"ARG{key}")
        return text.strip("_-").replace("-", "_").upper()

    def _find_key(self, node: Assigned) -> int | str | None:
        """Return the number or name of the word that an expression stands for; None if unknown."""
        match self._names.resolve(node) if isinstance(node, ast.expr) else node:
            case str() as name:
                return name
            case ast.Call(ast.Name(kind), [value], []) if kind in CONVERSIONS:
                return self._find_key(value)
            case ast.Call(function, [ast.Constant(str() as name), *_]) if self._names.find_path(
                function
            ).startswith("absl.flags.DEFINE_"):
                return name
            case ast.Attribute(owner, name):
                if self._is_namespace(owner):
                    return name
                return self._find_key(owner) if name == "value" else None
            case ast.Subscript(owner, ast.Constant(int() as number)):
                match self._names.resolve(owner):
                    case ast.Tuple(parts) if number < len(parts):
                        return self._find_key(parts[number])
                start = self._find_start(owner)
                return start + number if start is not None and start + number > 0 else None
        return None

    def _is_namespace(self, node: ast.expr) -> bool:
        """Return whether an object's attributes are the values of options."""
        match self._names.resolve(node):
            case ast.Call(_, [], [ast.keyword(None, ast.Call(ast.Name("vars"), [values]))]):
                return self._is_namespace(values)  # as in Config(**vars(parser.parse_args()))
            case found:
                return self._names.find_path(found).endswith(_NAMESPACES)

    def _find_start(self, node: ast.expr) -> int | None:
        """Return the number of the first word, if an expression stands for words of sys.argv."""
        match self._names.resolve(node):
            case ast.Subscript(owner, ast.Slice(ast.Constant(int() as lower), _, None)):
                start = self._find_start(owner)
                return None if start is None else start + lower
            case ast.Call(ast.Name("map"), [ast.Name(kind), words]) if kind in CONVERSIONS:
                return self._find_start(words)
            case ast.ListComp(element, [loop]) | ast.GeneratorExp(element, [loop]):
                match element:
                    case ast.Call(ast.Name(kind), [ast.Name()]) if kind in CONVERSIONS:
                        return None if loop.ifs else self._find_start(loop.iter)
            case ast.IfExp(ast.Compare(_, [ast.Is()], [ast.Constant(None)]), words):
                return self._find_start(words)
            case found if self._names.find_path(found) == "sys.argv":
                return 0
        return None

    # --- uses of the command line ---

    def _declare(self, call: ast.Call) -> None:
        """Add what a call declares to the parser; refuse a parser whose arguments are unknown."""
        path = self._names.find_path(call.func)
        self._parser.declare(call, path)
        parses = path.endswith((".parse_args", ".parse_known_args"))
        if (parses or path.endswith(".add_argument")) and not self._is_certain(call):
            raise Unsupported("a parser that may not be used")
        for value in [*call.args, *(word.value for word in call.keywords)] if parses else ():
            is_default = isinstance(self._names.resolve(value), (ast.Name, ast.Constant))
            if not is_default and self._find_start(value) != 1:
                raise Unsupported("other words than those of the command line")

    def _check(self, node: ast.expr) -> None:
        """Note the word that an expression needs, and words whose number or value is unknown.

        Raises:
            Unsupported: the number of needed words is unknown.

        """
        is_changed = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
        match self._names.resolve(node):
            case ast.Call(ast.Name("len"), [value]) if self._find_start(value) is not None:
                if not is_changed and not self._is_known_count(node):
                    raise Unsupported("a program that can do without arguments")
        if isinstance(node, ast.Attribute) and is_changed and isinstance(self._find_key(node), str):
            self._parser.values.discard(node.attr)
        key = self._find_key(node) if isinstance(node, ast.Subscript) else None
        if isinstance(key, int):
            self._last_used = max(self._last_used, key)
            if key > self._last and self._is_certain(node):
                self._last = key
        if (is_changed and isinstance(node, ast.Name)) or self._find_start(node) is None:
            return
        if is_changed or not self._is_known_use(node):
            raise Unsupported("another use of words, or words that are changed")

    def _is_known_use(self, node: ast.expr) -> bool:
        """Return whether it is known which words are used where words of sys.argv are used."""
        parent = self._names.parents[node]
        if isinstance(parent, (ast.Starred, ast.keyword, ast.comprehension)):
            parent = self._names.parents[parent]
        match parent:
            case ast.Subscript(_, ast.Constant(int()) | ast.Slice(ast.Constant()), ast.Load()):
                return True
            case ast.Assign([ast.Tuple(parts) | ast.List(parts)]):
                return not any(isinstance(part, ast.Starred) for part in parts)
            case ast.Assign([target]) | ast.AnnAssign(target):
                return self._find_start(target) is not None
            case ast.Call(function):
                name = self._names.find_path(function).rpartition(".")[2]
                if name in _TAKE_WORDS or name in self._names.functions:
                    return True
            case ast.Return():
                return True
        return isinstance(parent, ast.expr) and self._find_start(parent) is not None

    def _is_known_count(self, node: ast.expr) -> bool:
        """Return whether the number of words has a name, or leads to an error if it is wrong."""
        statement = self._names.parents[node]
        while not isinstance(statement, ast.stmt):
            statement = self._names.parents[statement]
        match statement:
            case ast.Assign([ast.Name() as target], value):
                return value is node and self._names.resolve(target) is node
            case ast.If(_, body, other):
                return not _ends_well([*body, *other])
        return isinstance(statement, ast.Assert)

    def _is_certain(self, node: ast.AST) -> bool:
        """Return whether a part of the program runs, whatever words and variables there are.

        A part that runs if a single word has some value counts as certain. A word that is missing
        must raise an exception that the program does not catch.
        """
        return self._is_reached(node, isinstance(node, ast.Subscript), set())

    def _is_reached(self, node: ast.AST, is_word: bool, seen: set[ast.AST]) -> bool:
        """Return whether a part is certain; `seen` are functions whose callers are being read."""
        while node in self._names.parents:
            node, part = self._names.parents[node], node
            match node:
                case (
                    ast.If(test=first)
                    | ast.IfExp(test=first)
                    | ast.Match(subject=first)
                    | ast.BoolOp(values=[first, *_])
                ) if part is not first and not self._is_met(first):
                    return False
                case ast.ExceptHandler():
                    return False
                case ast.Try(body, handlers) if is_word and part in body:
                    if any(map(_catches_short_lines, handlers)):
                        return False
                case ast.FunctionDef(name):
                    if node in seen:
                        return False
                    seen.add(node)
                    calls = self._names.calls.get(name, [])
                    return any(self._is_reached(call, is_word, seen) for call in calls)
                case ast.AsyncFunctionDef() | ast.Lambda():
                    return False
        return True

    def _is_met(self, test: ast.expr) -> bool:
        """Return whether a condition asks first for `__main__`, or for the value of a word."""
        if isinstance(test, ast.Compare) and "__name__" in ast.unparse(test):
            return True
        while isinstance(test, ast.BoolOp):
            test = test.values[0]
        keys = [self._find_key(part) for part in ast.walk(test) if isinstance(part, _MAY_BE_WORDS)]
        return any(isinstance(key, int) or key in self._parser.values for key in keys)

    def _initialize(self, call: ast.Call) -> None:
        """Record the words that a call of initialize() passes."""
        found = list(iterate_coordinates(self._names, call))
        if not found or not self._is_certain(call):
            raise Unsupported("a call that may not come, or that leaves its arguments out")
        for node, placeholder in found:
            key = self._find_key(node)
            if isinstance(key, int) or key in self._parser.values:
                self._uses.setdefault(key, set()).add(placeholder)


def iterate_coordinates(names: SourceNames, call: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expressions that a call of initialize() passes, each with its placeholder."""
    given = dict(zip(_PARAMETERS, call.args, strict=False))
    given |= {keyword.arg or "": keyword.value for keyword in call.keywords}
    for parameter, placeholder in _PARAMETERS.items():
        if parameter in given:
            yield from _split_address(names, given[parameter], placeholder)


def _split_address(
    names: SourceNames, node: ast.expr, placeholder: str
) -> Iterator[tuple[ast.expr, str]]:
    """Yield an expression with its placeholder; `HOST:PORT` as its two parts."""
    match names.resolve(node):
        case ast.JoinedStr([ast.FormattedValue(host), ast.Constant(":"), ast.FormattedValue(port)]):
            yield host, _HOST
            yield port, _PORT
        case ast.BinOp(host, ast.Add(), ast.Constant(str() as text)) | ast.JoinedStr(
            [ast.FormattedValue(host), ast.Constant(str() as text)]
        ) if text.startswith(":"):
            yield host, _HOST
        case _:
            yield node, placeholder


def _catches_short_lines(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches the exception that a missing argument raises."""
    if handler.type is None:
        return True
    return any(
        isinstance(part, ast.Name) and part.id in _TOO_SHORT for part in ast.walk(handler.type)
    )


def _ends_well(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements may end a function or the program without an error."""
    for part in (part for statement in body for part in ast.walk(statement)):
        match part:
            case ast.Return(value) if value is None or not _is_error(value):
                return True
            case ast.Call(called, values):
                exits = ast.unparse(called) in _EXITS
                if exits and not (values and _is_error(values[0])):
                    return True
            case ast.Raise(ast.Name("SystemExit")):
                return True
    return False


def _is_error(value: ast.expr) -> bool:
    """Return whether an exit or return with this value means failure."""
    if isinstance(value, ast.Constant):
        return value.value not in (0, None)
    return isinstance(value, (ast.Name, ast.JoinedStr))  # USAGE, __doc__
