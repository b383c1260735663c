"""Static analysis: the arguments that a program passes to `jax.distributed.initialize()`; pure.

The program is not run. Its statements are followed in their order, and the file's functions where
they are called. A known value records the word of the command line that it comes from; all other
values are unknown. If the program can do without an argument, or parses it in another way, the
result is "unknown": nothing is guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from mcjax_launch.kernel.wire.value import Value

# The parameters of initialize(), in its order, and the placeholder for each on a command line.
_PARAMETERS = {
    "coordinator_address": "{coordinator}",
    "num_processes": "{num_processes}",
    "process_id": "{process_id}",
}
_HOST, _PORT = "{coordinator_host}", "{coordinator_port}"
_CONVERSIONS = frozenset({"int", "str", "float"})
_HARMLESS = frozenset({"len", "print"})
_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit", "SystemExit"})
_DEEPEST = 20
_MOST_STATEMENTS = 50_000  # to follow; those of a function count at each call
# Exceptions that a command line which is too short may raise.
_TOO_SHORT = frozenset({"IndexError", "LookupError", "ValueError", "Exception", "BaseException"})


class Arguments(Value):
    """The arguments that a program needs.

    Args:
        words: words of the command line, in order: options, placeholders for coordinates, and a
            NAME for each other value.

    """

    words: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """True if all words are options or placeholders, so that the launcher can fill them in."""
        return all(word.startswith(("-", "{")) for word in self.words)

    def completed(self, given: Sequence[str]) -> tuple[str, ...] | None:
        """Return the given arguments, followed by the missing arguments.

        Returns:
            None if no argument is missing, or if it is unknown which arguments are missing.

        """
        if any("{" in word or (word[:1] == "-" != word[1:2]) for word in given):
            return None  # a short option may be the same as a long one
        options = [word for word in self.words if word.startswith("-")]
        if not options and not any(word.startswith("-") for word in given):
            more = self.words[len(given) :]
        elif 2 * len(options) == len(self.words):
            pairs = zip(options, self.words[1::2], strict=True)
            there = {word.partition("=")[0] for word in given}
            more = tuple(word for pair in pairs if pair[0] not in there for word in pair)
        else:
            more = () if given else self.words
        return (*given, *more) if more else None


def find_arguments(source: bytes) -> Arguments | None:
    """Return the arguments that a program needs, if some of them are coordinates.

    Args:
        source: source code of the program.

    Returns:
        None if the program needs no coordinates, or if its arguments are unknown.

    """
    try:
        body = ast.parse(source).body
        reader = _Reader()
        reader.run(body)
        return reader.arguments()
    except (_Unknown, SyntaxError, ValueError, RecursionError):
        return None


class _Unknown(Exception):
    """Error: the program uses its command line in a way that this analysis does not support."""


# --- values ---


class _Dotted(Value):
    """A module, an object in a module, or a builtin, by its dotted path."""

    path: str


class _Nothing(Value):
    """Python's None, such as the argument of `parse_args(None)`."""


class _Count(Value):
    """The number of words on the command line."""


class _Words(Value):
    """The words of the command line from number `start` on: `sys.argv[start:]`."""

    start: int


class _Word(Value):
    """A word of the command line; `key` is its number, or the name of its option or positional."""

    key: int | str


class _Join(Value):
    """A `host:port` text; each half is a word of the command line, a constant text or unknown."""

    host: object
    port: object


class _Function(Value):
    """A function in the program's file, with the values of the names in its scope."""

    node: ast.FunctionDef
    scope: Any


class _Method(Value):
    """A method of a parser."""

    parser: Any
    name: str


class _Namespace(Value):
    """The namespace that a parser returns."""

    parser: Any


class _Parser:
    """An argparse.ArgumentParser, the parameters of a click command, or absl's flags.

    Attributes:
        required: for the name of each required value, its option ("" for a positional).
        values: names of all required values that are single words of the command line.

    """

    def __init__(self) -> None:
        self.required: dict[str, str] = {}
        self.values: set[str] = set()

    def add(self, option: str, name: str, *, required: bool, is_plain: bool) -> None:
        """Add an argument; `is_plain`: its value is one word, converted only by int() or such."""
        if required:
            self.required[name] = option
        if required and is_plain:
            self.values.add(name)

    def value(self, name: str) -> _Word | None:
        """Return the word that is the value of this name; None if it is not a single word."""
        return _Word(name) if name in self.values else None


_Scope: TypeAlias = "dict[str, object]"


# --- the statements ---


class _Reader:
    """An abstract interpreter, which follows the statements of a program.

    Attributes:
        uses: for each word of the command line, the placeholders for its uses in initialize().
        optional: number of enclosing parts of the program in which words may be missing.
        conditions: number of enclosing parts that depend on something other than words.

    """

    def __init__(self) -> None:
        self._globals: _Scope = {}
        self._calls: list[str] = []
        self._followed = 0
        self.optional = self.conditions = 0
        self._last = 0  # the number of the last word of sys.argv that is needed
        self._names: dict[int | str, str] = {}
        self._parser = _Parser()
        self._commands: set[ast.FunctionDef] = set()  # click's
        self._parses = False
        self.uses: dict[int | str, set[str]] = {}

    def arguments(self) -> Arguments | None:
        """Return the arguments that the program needs; None if unknown. Call it after `run`."""
        if self._last and self._parses:
            return None
        keys: Iterable[int | str] = range(1, self._last + 1)
        if self._parses:
            keys = self._parser.required
        words: list[str] = []
        for key in keys:
            option = self._parser.required.get(str(key), "") if self._parses else ""
            words += [option] if option else []
            words.append(self._placeholder(key))
        has_some = any(word.startswith("{") for word in words)
        return Arguments(tuple(words)) if has_some else None

    def _placeholder(self, key: int | str) -> str:
        uses = self.uses.get(key, set())
        if len(uses) == 1:
            return next(iter(uses))
        name = self._names.get(key) or (key if isinstance(key, str) else f"ARG{key}")
        return name.strip("_-").replace("-", "_").upper()

    def run(self, body: Sequence[ast.stmt], scope: _Scope | None = None) -> list[object]:
        """Follow statements; return the values of their `return` statements."""
        names = self._globals if scope is None else scope
        self._followed += len(body)
        if self._followed > _MOST_STATEMENTS:
            raise _Unknown("a long program")
        return [value for statement in body for value in self._follow(statement, names)]

    def _follow(self, node: ast.stmt, scope: _Scope) -> Iterator[object]:
        match node:
            case ast.Import() | ast.ImportFrom():
                _import(node, scope)
            case ast.FunctionDef():
                self._define(node, scope)
            case ast.Assign(targets, value):
                found = self._eval(value, scope)
                for target in targets:
                    self._assign(target, found, scope)
            case ast.AnnAssign(target, _, ast.expr() as value):
                self._assign(target, self._eval(value, scope), scope)
            case ast.Return(ast.expr() as value):
                yield self._eval(value, scope)
            case ast.If():
                yield from self._follow_if(node, scope)
            case ast.Try():
                yield from self._follow_try(node, scope)
            case ast.AugAssign(target):
                self._eval_parts(node, scope)
                self._assign(target, None, scope)
            case ast.Delete(targets):
                self._check_unchanged(targets, scope)
            case ast.Global(names) | ast.Nonlocal(names):
                raise _Unknown(f"{names} of another scope")
            case ast.While(test=asked) | ast.For(iter=asked) | ast.Match(subject=asked):
                with _Optional(self, self._asks_for_words(asked, scope)):
                    yield from self._follow_others(node, scope)
            case _:
                yield from self._follow_others(node, scope)

    def _follow_others(self, node: ast.stmt, scope: _Scope) -> Iterator[object]:
        """Follow any other statement: evaluate its expressions, follow its body once."""
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.expr():
                    if isinstance(self._eval(child, scope), _Words):
                        raise _Unknown("a loop over sys.argv, for example")
                    _forget(child, scope)
                case ast.stmt():
                    yield from self._follow(child, scope)
                case ast.withitem(context, target):
                    self._eval(context, scope)
                    _forget(target, scope)
                case ast.match_case(_, _, body):
                    yield from self.run(body, scope)

    def _follow_if(self, node: ast.If, scope: _Scope) -> Iterator[object]:
        """Follow both branches; a name with different values after them becomes unknown."""
        self._eval(node.test, scope)
        is_main = isinstance(node.test, ast.Compare) and "__name__" in ast.unparse(node.test)
        if is_main:
            yield from self.run(node.body, scope)
            return
        if self._asks_for_words(node.test, scope) and _ends_well([*node.body, *node.orelse]):
            raise _Unknown("a program that can do without arguments")
        depends = not self._has_coordinates(node.test, scope)
        with _Optional(self, self._asks_for_words(node.test, scope)), _Conditional(self, depends):
            before = dict(scope)
            yield from self.run(node.body, scope)
            other = dict(before)
            yield from self.run(node.orelse, other)
        for name in {*scope, *other}:
            if scope.get(name) != other.get(name):
                scope[name] = None

    def _follow_try(self, node: ast.Try, scope: _Scope) -> Iterator[object]:
        with _Optional(self, any(map(_catches_short_lines, node.handlers))):
            yield from self.run(node.body, scope)
        with _Conditional(self, True):
            for handler in node.handlers:
                yield from self.run(handler.body, dict(scope))
        yield from self.run([*node.orelse, *node.finalbody], scope)

    def _asks_for_words(self, test: ast.expr, scope: _Scope) -> bool:
        """Return whether a condition depends on the number of words, or on sys.argv."""
        parts = [part for part in ast.walk(test) if isinstance(part, (ast.Name, ast.Attribute))]
        return any(isinstance(self._eval(part, scope), (_Words, _Count)) for part in parts)

    def _has_coordinates(self, test: ast.expr, scope: _Scope) -> bool:
        """Return whether a condition uses a single word of the command line."""
        parts = [part for part in ast.walk(test) if isinstance(part, (ast.Name, ast.Attribute))]
        return any(isinstance(self._eval(part, scope), _Word) for part in parts)

    def _define(self, node: ast.FunctionDef, scope: _Scope) -> None:
        """Record a function, and the parameters of a click command."""
        made = _Function(node, scope)
        scope[node.name] = made
        decorators = [self._decorator(call, scope) for call in node.decorator_list]
        if any(path == "click.group" for path, _ in decorators):
            raise _Unknown("subcommands")
        if not any(path == "click.command" for path, _ in decorators):
            return
        self._commands.add(node)
        for path, call in decorators:
            if path in ("click.option", "click.argument") and call is not None:
                _add_of_click(self._parser, path, call)

    def _decorator(self, node: ast.expr, scope: _Scope) -> tuple[str, ast.Call | None]:
        call = node if isinstance(node, ast.Call) else None
        found = self._eval(call.func if call else node, scope)
        return (found.path if isinstance(found, _Dotted) else ""), call

    def _assign(self, target: ast.expr, value: object, scope: _Scope) -> None:
        match target, value:
            case ast.Name(name), _:
                scope[name] = value
                if isinstance(value, _Word):
                    self._names.setdefault(value.key, name)
            case ((ast.Tuple(targets) | ast.List(targets)), _Words(start)):
                if any(isinstance(part, ast.Starred) for part in targets):
                    raise _Unknown("any number of words")
                for number, part in enumerate(targets, start):
                    self._assign(part, self._word(number), scope)
            case ((ast.Tuple(targets) | ast.List(targets)), tuple()) if len(targets) == len(value):
                for part, item in zip(targets, value, strict=True):
                    self._assign(part, item, scope)
            case ast.Attribute(owner, name), _ if isinstance(
                found := self._eval(owner, scope), _Namespace
            ):
                found.parser.values.discard(name)
            case _:
                if isinstance(value, _Words):
                    raise _Unknown("words in a place of the program's")
                self._check_unchanged([target], scope)
                _forget(target, scope)

    def _check_unchanged(self, targets: Iterable[ast.expr], scope: _Scope) -> None:
        """Raise _Unknown if an assignment changes the words of the command line."""
        for target in targets:
            owner = target.value if isinstance(target, ast.Subscript) else target
            if not isinstance(owner, ast.Name) and self._eval(owner, scope) == _Words(0):
                raise _Unknown("a command line that is changed")
            if isinstance(target, ast.Subscript) and isinstance(self._eval(owner, scope), _Words):
                raise _Unknown("words that are changed")

    def _word(self, number: int) -> _Word | None:
        """Record that the program needs a word of sys.argv; return the word, None for number 0."""
        if number == 0:  # the program's own name
            return None
        if self.optional:
            raise _Unknown("a word that may be left out")
        self._last = max(self._last, number)
        return _Word(number)

    # --- expressions ---

    def _eval(self, node: ast.expr, scope: _Scope) -> object:
        """Return the abstract value of an expression; None if unknown."""
        match node:
            case ast.Name(name):
                return scope[name] if name in scope else self._globals.get(name, _Dotted(name))
            case ast.Constant(str() as text):
                return text
            case ast.Constant(None):
                return _Nothing()
            case ast.Attribute(value, name):
                return self._attribute(self._eval(value, scope), name)
            case ast.Subscript(value, index):
                return self._item(self._eval(value, scope), index, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Tuple(parts) | ast.List(parts):
                return tuple(self._eval(part, scope) for part in parts)
            case ast.JoinedStr() | ast.BinOp():
                return self._joined(node, scope)
            case ast.ListComp(element, [loop]) | ast.GeneratorExp(element, [loop]):
                return self._each(element, loop, scope)
            case ast.IfExp(ast.Compare(ast.Name() as name, [ast.Is()], [ast.Constant(None)])):
                given = self._eval(name, scope)
                return self._eval(node.body if given == _Nothing() else node.orelse, scope)
            case ast.IfExp(test) if self._asks_for_words(test, scope):
                raise _Unknown("a word that may be left out")
            case ast.BoolOp(_, [*conditions, _]) if any(
                self._asks_for_words(condition, scope) for condition in conditions
            ):
                raise _Unknown("a word that may be left out")
        self._eval_parts(node, scope)
        return None

    def _eval_parts(self, node: ast.AST, scope: _Scope) -> list[object]:
        found = []
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found.append(self._eval(child, scope))
            elif isinstance(child, (ast.keyword, ast.comprehension)):
                found += self._eval_parts(child, scope)
        if any(isinstance(value, _Words) for value in found):
            raise _Unknown("words in an expression")
        return found

    def _attribute(self, owner: object, name: str) -> object:
        match owner:
            case _Dotted("absl.flags.FLAGS"):
                return self._parser.value(name)
            case _Dotted(path):
                whole = f"{path}.{name}"
                return _Words(0) if whole == "sys.argv" else _Dotted(whole)
            case _Parser():
                return _Method(owner, name)
            case _Namespace(parser):
                return parser.value(name)
            case _Word() if name == "value":  # of a flag's holder
                return owner
            case _Words():
                raise _Unknown("words that are changed")
        return None

    def _item(self, owner: object, index: ast.expr, scope: _Scope) -> object:
        match owner, index:
            case _Words(start), ast.Constant(int() as number) if number >= 0:
                return self._word(start + number)
            case _Words(start), ast.Slice(ast.Constant(int() as lower), _, None) if lower >= 0:
                return _Words(start + lower)
            case _Words(), _:
                raise _Unknown("a word by another number")
        self._eval(index, scope)
        return None

    def _joined(self, node: ast.JoinedStr | ast.BinOp, scope: _Scope) -> object:
        """Return a _Join if the expression makes `host:port` of two parts; else None."""
        parts: list[object] = []
        for part in _parts_of_text(node):
            found = self._eval(part, scope)
            if isinstance(found, _Words):
                raise _Unknown("words in an expression")
            before, colon, after = found.partition(":") if isinstance(found, str) else ("", "", "")
            parts += [text for text in (before, colon, after) if text] if colon else [found]
        match parts:
            case [host, ":", port]:
                return _Join(host, port)
        return None

    def _each(self, element: ast.expr, loop: ast.comprehension, scope: _Scope) -> object:
        """Return the words that a comprehension converts one by one; None if it uses no words."""
        words = self._eval(loop.iter, scope)
        if not isinstance(words, _Words):
            self._eval_parts(element, scope)
            return None
        match element, loop.target:
            case ast.Call(ast.Name(kind), [ast.Name(name)]), ast.Name(target):
                if kind in _CONVERSIONS and name == target and not loop.ifs:
                    return words
        raise _Unknown("words that are changed")

    # --- calls ---

    def _call(self, node: ast.Call, scope: _Scope) -> object:
        function = self._eval(node.func, scope)
        if isinstance(function, _Method):
            return self._call_method(function, node, scope)
        values = self._arguments(function, node.args, scope)
        named = {word.arg or "": self._eval(word.value, scope) for word in node.keywords}
        match function, values:
            case _Dotted("jax.distributed.initialize"), _:
                self._initialize(values, named)
            case _Dotted(name), [value] if name in _CONVERSIONS:
                return value if isinstance(value, _Word) else None
            case _Dotted("map"), [_Dotted(name), _Words() as words] if name in _CONVERSIONS:
                return words
            case _Dotted("len"), [_Words()]:
                return _Count()
            case _Dotted("argparse.ArgumentParser"), _:
                return self._parser
            case _Dotted("absl.app.run"), [_Function() as function, *_]:
                self._parses = bool(self._parser.required)
                has_arguments = bool(function.node.args.args)
                return self._enter(function, [_Words(0)] if has_arguments else [], {})
            case _Dotted(path), _ if path.startswith("absl.flags."):
                return _add_of_absl(self._parser, path.rpartition(".")[2], node)
            case _Dotted(path), _ if path in _HARMLESS:
                return None
            case _Function(), _:
                return self._enter(function, values, named)
        if any(isinstance(value, (_Words, _Parser)) for value in (*values, *named.values())):
            raise _Unknown("words that are handed on")
        return None

    def _arguments(
        self, function: object, given: Sequence[ast.expr], scope: _Scope
    ) -> list[object]:
        """Return the values of a call's positional arguments, with `*sys.argv[1:]` expanded."""
        values: list[object] = []
        for argument in given:
            if not isinstance(argument, ast.Starred):
                values.append(self._eval(argument, scope))
                continue
            words = self._eval(argument.value, scope)
            match words, function:
                case _Words(start), _Function(node) if not node.args.defaults:
                    left = len(node.args.args) - len(values)
                    values += [self._word(number) for number in range(start, start + left)]
                case _:
                    values.append(words)
        return values

    def _call_method(self, method: _Method, node: ast.Call, scope: _Scope) -> object:
        match method.name:
            case "add_argument":
                if self.optional or self.conditions:
                    raise _Unknown("an argument that may not be declared")
                _add_of_argparse(method.parser, node)
            case "add_argument_group":
                return method.parser
            case "parse_args" | "parse_known_args":
                given = [self._eval(word, scope) for word in node.args]
                given += [self._eval(word.value, scope) for word in node.keywords]
                if not all(value in (_Words(1), _Nothing()) for value in given):
                    raise _Unknown("other arguments than its own")
                self._parses = True
                found = _Namespace(method.parser)
                return found if method.name == "parse_args" else (found, None)
            case "print_help" | "print_usage" | "error" | "exit":
                self._eval_parts(node, scope)
            case _:
                raise _Unknown(method.name)
        return None

    def _enter(
        self, function: _Function, values: Sequence[object], named: Mapping[str, object]
    ) -> object:
        """Follow a call of a function in the program's file; return its value, None if unknown."""
        node = function.node
        if node.name in self._calls or len(self._calls) >= _DEEPEST:
            return None
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        scope = {**function.scope, **dict.fromkeys(names)}
        defaults = [self._eval(default, function.scope) for default in node.args.defaults]
        scope |= dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        scope |= {**dict(zip(names, values, strict=False)), **named}
        if node in self._commands:
            self._parses = bool(self._parser.required)
            scope |= {name: self._parser.value(name) for name in names}
        self._calls.append(node.name)
        returned = self.run(node.body, scope)
        self._calls.pop()
        return returned[0] if len(returned) == 1 else None

    def _initialize(self, values: Sequence[object], named: Mapping[str, object]) -> None:
        given = {**dict(zip(_PARAMETERS, values, strict=False)), **named}
        if self.conditions or not given.keys() & _PARAMETERS.keys():
            raise _Unknown("a call that may not come, or that leaves its arguments out")
        for parameter, placeholder in _PARAMETERS.items():
            match given.get(parameter):
                case _Word(key):
                    self.uses.setdefault(key, set()).add(placeholder)
                case _Join(host, port):
                    for value, half in ((host, _HOST), (port, _PORT)):
                        if isinstance(value, _Word):
                            self.uses.setdefault(value.key, set()).add(half)


class _Within:
    """A context manager for a part of a program that may not run: counts enclosing parts.

    Args:
        reader: interpreter whose `counter` attribute is changed.
        applies: False if the part always runs, so that it does not count.

    """

    counter = ""

    def __init__(self, reader: _Reader, applies: bool) -> None:
        self._reader = reader
        self._step = int(applies)

    def __enter__(self) -> None:
        self._count(self._step)

    def __exit__(self, *_: object) -> None:
        self._count(-self._step)

    def _count(self, step: int) -> None:
        setattr(self._reader, self.counter, getattr(self._reader, self.counter) + step)


class _Optional(_Within):
    """A part of the program that runs only with some number of words."""

    counter = "optional"


class _Conditional(_Within):
    """A part of the program that runs under a condition not about the command line."""

    counter = "conditions"


def _import(node: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
    for alias in node.names:
        if isinstance(node, ast.Import):
            name = alias.asname or alias.name.partition(".")[0]
            scope[name] = _Dotted(alias.name if alias.asname else name)
        elif not node.level:
            path = f"{node.module}.{alias.name}"
            scope[alias.asname or alias.name] = _Words(0) if path == "sys.argv" else _Dotted(path)


def _forget(target: ast.expr | None, scope: _Scope) -> None:
    """Set all names that an expression assigns to unknown."""
    for part in ast.walk(target) if target is not None else ():
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            scope[part.id] = None


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


def _parts_of_text(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of an f-string or of a sum of texts."""
    match node:
        case ast.JoinedStr(parts):
            for part in parts:
                yield part.value if isinstance(part, ast.FormattedValue) else part
        case ast.BinOp(left, ast.Add(), right):
            yield from _parts_of_text(left)
            yield from _parts_of_text(right)
        case ast.BinOp(left, _, right):  # no text; the middle keeps it from being one
            yield from (left, ast.Constant(None), right)
        case _:
            yield node


# --- what declares arguments ---


def _settings(call: ast.Call) -> dict[str, Any]:
    """Return the keyword arguments of a call: constants and names; None for other expressions."""
    found = {}
    for word in call.keywords:
        value = word.value
        found[word.arg or ""] = (
            value.id if isinstance(value, ast.Name) else getattr(value, "value", None)
        )
    return found


def _texts(call: ast.Call) -> list[str]:
    """Return the names in a declaration of an argument, as in `add_argument("-n", "--num")`.

    Raises:
        _Unknown: the names are not constants.

    """
    texts = [getattr(argument, "value", None) for argument in call.args]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise _Unknown("names that are not written out")
    return [str(text) for text in texts]


def _add_of_argparse(parser: _Parser, call: ast.Call) -> None:
    names, settings = _texts(call), _settings(call)
    long = next((name for name in names if name.startswith("--")), names[0])
    name = str(settings.get("dest") or long.lstrip("-").replace("-", "_"))
    many = "nargs" in settings or "action" in settings
    is_plain = settings.get("type", "str") in _CONVERSIONS and not many
    if long.startswith("-"):
        parser.add(long, name, required=settings.get("required") is True, is_plain=is_plain)
    else:
        may_be_left_out = settings.get("nargs") in ("?", "*") or "action" in settings
        parser.add("", name, required=not may_be_left_out, is_plain=is_plain)


def _add_of_click(parser: _Parser, path: str, call: ast.Call) -> None:
    names, settings = _texts(call), _settings(call)
    long = next((name for name in names if name.startswith("--")), names[0])
    own = next((name for name in names if name.isidentifier()), long.lstrip("-"))
    is_plain = settings.get("type", "str") in _CONVERSIONS and settings.get("nargs", 1) == 1
    is_argument = path == "click.argument"
    may_be_left_out = settings.keys() & {"default", "envvar"}
    required = settings.get("required", is_argument) is True and not may_be_left_out
    option = "" if is_argument else long
    parser.add(option, own.replace("-", "_").lower(), required=required, is_plain=is_plain)


def _add_of_absl(parser: _Parser, function: str, call: ast.Call) -> object:
    """Add an absl flag, or mark a flag as required; return the flag's value, None if unknown."""
    if function == "mark_flag_as_required":
        (name,) = _texts(call)
        parser.add(f"--{name}", name, required=True, is_plain=True)
    elif function == "mark_flags_as_required":
        for part in getattr(call.args[0], "elts", ()):
            parser.add(f"--{part.value}", part.value, required=True, is_plain=True)
    elif function in ("DEFINE_string", "DEFINE_integer"):
        name = str(getattr(call.args[0], "value", ""))
        required = _settings(call).get("required") is True
        parser.add(f"--{name}", name, required=required, is_plain=True)
        return parser.value(name)
    return None
