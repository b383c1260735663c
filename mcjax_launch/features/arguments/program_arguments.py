"""Static analysis: the words of a command line that a program passes to initialize(); pure.

The program is not run, and the order of its statements does not count. A name stands for a value
if the file assigns it once: by a statement, or by the only call of its function. Nothing is filled
in for a program that can do without an argument, or that reads its command line in another way
than by sys.argv[k], argparse or absl's flags; `guess_arguments` finds words for a hint.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any, NoReturn

# The parameters of initialize(), in its order, and the placeholder for each on a command line.
_PARAMETERS = {
    "coordinator_address": "{coordinator}",
    "num_processes": "{num_processes}",
    "process_id": "{process_id}",
}
_INITIALIZE = "jax.distributed.initialize"
_HOST, _PORT = "{coordinator_host}", "{coordinator_port}"
_ENDS = ("sys.exit(", "exit(", "raise ")
_ENDS_WELL = {
    f"{end}({status})" for end in ("sys.exit", "exit", "raise SystemExit") for status in ("", 0)
}
# Statements and expressions of which a part may not be evaluated.
_BRANCHES = (ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.For, ast.While, ast.Lambda)
# Packages whose options have the names of fields or parameters, and how an option is written.
_STYLES = {"tyro": "--{dashed}", "typer": "--{dashed}", "fire": "--{name}", "hydra": "{name}="}


class _Unsupported(Exception):
    """Error: the program uses its command line in a way that this analysis does not support."""


class _Names:
    """The names of a program, and what they stand for.

    Attributes:
        nodes: all nodes of the program.
        parents: the node that each node is a part of.
        functions: the functions of the file, by name.
        imported: the dotted path of each imported name.
        values: what each name stands for that is assigned once.

    """

    def __init__(self, module: ast.Module) -> None:
        self.nodes = list(ast.walk(module))
        self.parents = {part: node for node in self.nodes for part in ast.iter_child_nodes(node)}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.imported: dict[str, str] = {}
        self.values: dict[str, ast.expr] = {}
        bound = Counter[str]()
        calls: dict[str, list[ast.Call]] = {}
        for node in self.nodes:
            match node:
                case ast.Import(names):
                    for name in names:
                        first = name.name.partition(".")[0]
                        self.imported[name.asname or first] = name.name if name.asname else first
                case ast.ImportFrom(package, names, 0):
                    for name in names:
                        self.imported[name.asname or name.name] = f"{package}.{name.name}"
                case ast.FunctionDef(function):
                    self.functions[function] = node
                case ast.Call(ast.Name(function)):
                    calls.setdefault(function, []).append(node)
                case ast.Name(assigned, ast.Store() | ast.Del()) | ast.arg(assigned):
                    bound[assigned] += 1
                case ast.Assign([target], value) | ast.AnnAssign(target, _, ast.expr() as value):
                    self._assign(target, value)
        for function, (call, *others) in calls.items():
            if function in self.functions and not others:
                bound -= self._assign_parameters(self.functions[function], call)
        self.values = {name: value for name, value in self.values.items() if bound[name] == 1}

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(name), _:
                self.values[name] = value
            case ast.Tuple(targets), ast.Tuple(values) if len(targets) == len(values):
                for pair in zip(targets, values, strict=True):
                    self._assign(*pair)

    def _assign_parameters(self, function: ast.FunctionDef, call: ast.Call) -> Counter[str]:
        """Assign a call's arguments to parameters; return those that stand for their own name."""
        given = dict(zip(list_parameters(function), call.args, strict=False))
        given |= {word.arg or "": word.value for word in call.keywords}
        same = {name for name, node in given.items() if ast.unparse(node) == name}
        self.values |= {name: node for name, node in given.items() if name not in same}
        return Counter(same)

    def resolve(self, node: ast.expr) -> ast.expr:
        """Return what an expression stands for, if it is a name that is assigned once."""
        value = self.values.get(node.id) if isinstance(node, ast.Name) else None
        return node if value is None else self.resolve(value)

    def find_path(self, node: ast.AST) -> str:
        """Return the dotted path of what an expression stands for, such as "sys.argv" or "f()".

        A part that is unknown is left out of the path.
        """
        match self.resolve(node) if isinstance(node, ast.expr) else node:
            case ast.Name(name):
                return self.imported.get(name, name)
            case ast.Attribute(owner, name):
                return f"{self.find_path(owner)}.{name}"
            case ast.Call(function):
                return f"{self.find_path(function)}()"
        return ""

    def find_word(self, node: ast.expr) -> int | str | None:
        """Return which word of the command line an expression stands for.

        Returns:
            k for sys.argv[k]; the name of a parsed value, with the dots of its groups; or None.

        """
        match self.resolve(node):
            case ast.Call(ast.Name("int" | "str"), [value], []):
                return self.find_word(value)
            case ast.Call(function, [ast.Constant(str() as name), *_]):
                is_flag = self.find_path(function).startswith("absl.flags.DEFINE_")
                return name if is_flag else None
            case ast.Subscript(owner, ast.Constant(int() as number)) if number > 0:
                return number if self.find_path(owner) == "sys.argv" else None
            case ast.Subscript(owner, ast.Constant(str() as name)):
                return None if self.find_path(owner) == "os.environ" else name
            case ast.Attribute(owner, name):
                outer = self.find_word(owner)
                if name == "value" and isinstance(outer, str):
                    return outer
                is_group = isinstance(owner, ast.Attribute) and isinstance(outer, str)
                return f"{outer}.{name}" if is_group else name
            case ast.Name(name):
                functions = self.functions.values()
                return name if any(name in list_parameters(each) for each in functions) else None
        return None

    def find_calls(self) -> list[ast.Call]:
        """Return the calls of initialize()."""
        calls = (node for node in self.nodes if isinstance(node, ast.Call))
        return [call for call in calls if self.find_path(call.func) == _INITIALIZE]

    def iterate_coordinates(self, call: ast.Call) -> Iterator[tuple[ast.expr, str]]:
        """Yield the expressions that a call of initialize() passes, each with its placeholder."""
        given = dict(zip(_PARAMETERS, call.args, strict=False))
        given |= {word.arg or "": word.value for word in call.keywords}
        for parameter, placeholder in _PARAMETERS.items():
            if parameter in given:
                yield from self._split_address(given[parameter], placeholder)

    def _split_address(self, node: ast.expr, placeholder: str) -> Iterator[tuple[ast.expr, str]]:
        """Yield an expression with its placeholder; `HOST:PORT` as its two parts."""
        match self.resolve(node):
            case ast.JoinedStr(
                [ast.FormattedValue(host), ast.Constant(":"), ast.FormattedValue(port)]
            ):
                yield host, _HOST
                yield port, _PORT
            case ast.BinOp(host, ast.Add(), ast.Constant(str() as text)) | ast.JoinedStr(
                [ast.FormattedValue(host), ast.Constant(str() as text)]
            ) if text.startswith(":"):
                yield host, _HOST
            case _:
                yield node, placeholder

    def is_certain(self, node: ast.AST) -> bool:
        """Return whether a part of the program runs whenever its function does."""
        while node in self.parents:
            node, part = self.parents[node], node
            if isinstance(node, ast.FunctionDef):
                return True
            if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
                continue
            evaluated = (getattr(node, name, None) for name in ("test", "iter", "subject"))
            if isinstance(node, _BRANCHES) and part not in evaluated:
                return False
            if isinstance(node, ast.AsyncFunctionDef | ast.ExceptHandler):
                return False
            if isinstance(node, ast.Try) and node.handlers:
                return False
        return True


def list_parameters(function: ast.FunctionDef) -> list[str]:
    """Return the names of a function's parameters, without `*args` and `**kwargs`."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return [argument.arg for argument in every]


class _Parser(argparse.ArgumentParser):
    """A parser with the options that a program declares to argparse or absl.

    Attributes:
        declared: for the name of each value, its option ("" for a word without one); click's, too.
        required: names of the values that argparse or absl require.
        plain: names of values that are a single word, which the program does not change.
        is_clear: False if the program may parse other words, or in another way.

    """

    def __init__(self, names: _Names) -> None:
        super().__init__(add_help=False, argument_default=argparse.SUPPRESS)
        self.declared: dict[str, str] = {}
        self.required: list[str] = []
        self.plain: set[str] = set()
        self.is_clear = True
        calls = [node for node in names.nodes if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            try:
                self._read_call(call, names.find_path(call.func), names)
            except (_Unsupported, argparse.ArgumentError, ValueError, TypeError):
                self.is_clear = False
        self.plain -= {
            node.attr
            for node in names.nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }

    def error(self, message: str) -> NoReturn:
        raise _Unsupported(message)

    def _read_call(self, call: ast.Call, path: str, names: _Names) -> None:
        """Add the argument that a call declares.

        Raises:
            _Unsupported: it is unknown what the program needs.

        """
        function = path.rpartition(".")[2]
        if path.startswith("absl.flags.DEFINE_"):
            self._add_flag(call, is_switch=function in ("DEFINE_bool", "DEFINE_boolean"))
        elif function in ("mark_flag_as_required", "mark_flags_as_required"):
            match call.args:
                case [ast.List(flags) | ast.Tuple(flags)] | flags:
                    for name in _get_texts(flags):
                        self.required.append(name)
                        self.declared[name] = f"--{name}"
        elif path in ("click.option", "click.argument"):
            self._declare(call)
        elif path.endswith(".add_argument"):
            if not names.is_certain(call):
                raise _Unsupported("an argument that may not be declared")
            self._add(call)
        elif path.endswith((".parse_args", ".parse_known_args")):
            words = [names.resolve(word) for word in call.args]
            others = [word for word in words if not isinstance(word, ast.Name)]
            if not names.is_certain(call) or any(ast.unparse(w) != "sys.argv[1:]" for w in others):
                raise _Unsupported("other words than those of the command line")
        elif function in ("add_subparsers", "add_mutually_exclusive_group"):
            raise _Unsupported("arguments of which some are needed")

    def _declare(self, call: ast.Call) -> tuple[str, list[str]]:
        """Add an argument of argparse or click to `declared`; return its name and its options."""
        texts = _get_texts(call.args)
        options = [text for text in texts if text.startswith("-")]
        long = next((text for text in options if text.startswith("--")), texts[0])
        own = next((text for text in texts if text.isidentifier()), long)
        name = str(_get_settings(call).get("dest") or own.lstrip("-").replace("-", "_"))
        self.declared[name] = long if options else ""
        return name, options

    def _add(self, call: ast.Call) -> None:
        """Add an argument of argparse."""
        name, options = self._declare(call)
        settings = _get_settings(call)
        nargs, action = settings.get("nargs"), settings.get("action", "store")
        if not options and nargs not in (None, "?", "*"):
            raise _Unsupported("several words in one argument")
        if settings.get("required") is True or not (options or nargs):
            self.required.append(name)
        if settings.get("type", "str") in ("int", "str") and not nargs and action == "store":
            self.plain.add(name)
        if options:
            words = {} if nargs is None else {"nargs": getattr(argparse, str(nargs), nargs)}
            kind = "store_true" if action in ("help", "version") else action
            self.add_argument(*options, dest=name, action=getattr(argparse, kind, kind), **words)

    def _add_flag(self, call: ast.Call, *, is_switch: bool) -> None:
        """Add a flag of absl."""
        (name,) = _get_texts(call.args[:1])
        self.declared[name] = f"--{name}"
        self.plain.add(name)
        if _get_settings(call).get("required") is True:
            self.required.append(name)
        action = "store_true" if is_switch else "store"
        self.add_argument(f"--{name}", f"-{name}", dest=name, action=action)


def _get_settings(call: ast.Call) -> dict[str, Any]:
    """Return a call's keyword arguments: constants, and the last names of other expressions."""
    found: dict[str, Any] = {}
    for word in call.keywords:
        match word.value:
            case ast.Constant(value) | ast.Name(value) | ast.Attribute(_, value):
                found[word.arg or ""] = value
            case _:
                found[word.arg or ""] = ""
    return found


def _get_texts(names: Sequence[ast.expr]) -> list[str]:
    """Return the constant texts in a declaration, as in `add_argument("-n", "--num")`.

    Raises:
        _Unsupported: there is no text, or one is not written out.

    """
    texts = [node.value for node in names if isinstance(node, ast.Constant)]
    if not texts or len(texts) != len(names):
        raise _Unsupported("names that are not written out")
    return [str(text) for text in texts]


class Arguments:
    """The arguments that a program needs: placeholders for coordinates, a NAME for other values.

    Attributes:
        options: the needed options, each with its value.
        places: the needed words that belong to no option, in order.

    """

    def __init__(
        self, options: dict[str, str], places: Sequence[str], parser: _Parser | None = None
    ) -> None:
        self.options = options
        self.places = places
        self._parser = parser  # None if the program reads sys.argv[k]

    def list_words(self) -> tuple[str, ...]:
        """Return all needed words."""
        return (*chain.from_iterable(self.options.items()), *self.places)

    def complete(self, given: Sequence[str]) -> tuple[str, ...]:
        """Return the given arguments with the missing coordinates.

        Returns:
            () if nothing is missing, or if what is missing is unknown or is no coordinate.

        """
        missing, words = self._read(given)
        if any(map(_is_unknown, missing[1::2])):
            return ()
        if (words is not None and len(words) == len(self.places)) or not self.places:
            return (*missing, *given) if missing else ()
        unknown = [place for place in self.places if _is_unknown(place)]
        if words is None or len(words) != len(unknown) or {*words} & {*self.places}:
            return ()
        first = [*takewhile(lambda place: not _is_unknown(place), self.places)]
        last = self.places[len(first) + len(unknown) :]
        return () if any(map(_is_unknown, last)) else (*missing, *first, *given, *last)

    def suggest(self, given: Sequence[str]) -> tuple[str, ...]:
        """Return a command line for a hint: completed, or all needed words; () if none lacks."""
        if completed := self.complete(given):
            return completed
        missing, words = self._read(given)
        if self.places and (words is None or len(words) < len(self.places)):
            return self.list_words()
        return (*missing, *given) if missing else ()

    def _read(self, given: Sequence[str]) -> tuple[list[str], Sequence[str] | None]:
        """Return missing options with values, and given words without option; None if unclear."""
        words, there = given, set[str]()
        if self._parser is not None:
            try:
                found, words = self._parser.parse_known_args(given)
            except _Unsupported:
                return [], None
            there = {self._parser.declared[name] for name in vars(found)}
        missing = [pair for pair in self.options.items() if pair[0] not in there]
        clear: Sequence[str] | None = words
        if any(map(_is_option, words)):
            # A program that reads sys.argv[k] may read its own options behind coordinates.
            is_behind = self._parser is None and _is_option(words[0])
            clear = () if is_behind and not any(map(_is_unknown, self.places)) else None
        return [*chain.from_iterable(missing)], clear


def _is_option(word: str) -> bool:
    """Return whether a word of a command line is an option, not a negative number."""
    return word.startswith("-") and not word[1:2].isdigit() and word != "-"


def _is_unknown(word: str) -> bool:
    """Return whether a needed word is a NAME, which only the user knows."""
    return not word.startswith("{")


def find_arguments(source: bytes) -> Arguments | None:
    """Return the arguments that a program needs, if some of them are coordinates.

    Returns:
        None if the program needs no coordinates, or if its arguments are unknown.

    """
    try:
        names = _Names(ast.parse(source))
        parser = _Parser(names)
        found = _collect(names, parser) if parser.is_clear else None
    except (_Unsupported, SyntaxError, ValueError, RecursionError):
        return None
    return found if found and not all(map(_is_unknown, found.list_words())) else None


def _collect(names: _Names, parser: _Parser) -> Arguments:
    """Return the arguments that a program needs.

    Raises:
        _Unsupported: they are unknown.

    """
    uses: dict[int | str | None, set[str]] = {}
    for call in names.find_calls():
        found = [*names.iterate_coordinates(call)]
        if not found:
            raise _Unsupported("a call that leaves its arguments out")
        for node, placeholder in found:
            uses.setdefault(names.find_word(node), set()).add(placeholder)
    if parser.declared:
        values = {
            name: _choose(uses.get(name, ()) if name in parser.plain else (), name)
            for name in parser.required
        }
        options = {parser.declared[name]: value for name, value in values.items()}
        places = [value for name, value in values.items() if not parser.declared[name]]
        return Arguments({key: options[key] for key in options if key}, places, parser)
    variables = {names.find_word(value): name for name, value in names.values.items()}
    numbers = range(1, _find_last_word(names) + 1)
    words = [_choose(uses.get(k, ()), str(variables.get(k, f"ARG{k}"))) for k in numbers]
    return Arguments({}, words)


def _choose(placeholders: Collection[str], name: str) -> str:
    """Return the placeholder of a value; a NAME unless there is exactly one."""
    return next(iter(placeholders)) if len(placeholders) == 1 else name.upper()


def _find_last_word(names: _Names) -> int:
    """Return the number of the last word of sys.argv that the program needs.

    Raises:
        _Unsupported: it may do without, or uses sys.argv in another way than by its numbers.

    """
    numbers, rests = {0}, set[int]()
    for node in names.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and names.find_path(node) == "sys.argv":
            match parent := names.parents[node]:
                case ast.Subscript(_, ast.Constant(int() as k), ast.Load()) if k >= 0:
                    if k and not names.is_certain(parent):
                        raise _Unsupported("a program that can do without arguments")
                    numbers.add(k)
                case ast.Subscript(_, ast.Slice(ast.Constant(int() as k), None, None)):
                    rests.add(k)
                case ast.Call(ast.Name("len")) if _is_checked(names, parent):
                    pass
                case ast.Call(ast.Name(function)) if function in names.functions:
                    pass
                case ast.Assign([ast.Name()]):
                    pass
                case _:
                    raise _Unsupported("another use of sys.argv")
    last = max(numbers)
    if any(start <= last for start in rests):
        raise _Unsupported("words that are used twice")
    return last


def _is_checked(names: _Names, count: ast.expr) -> bool:
    """Return whether a wrong number of words leads to an error, and nothing else is run for it."""
    match names.parents[names.parents[count]]:
        case ast.Assert():
            return True
        case ast.If(_, [*_, last], []):
            text = ast.unparse(last)
            return text.startswith(_ENDS) and text not in _ENDS_WELL
    return False


def guess_arguments(sources: Sequence[bytes]) -> list[list[str]]:
    """Return arguments that pass a program its coordinates, each as its words; [] if unknown.

    Args:
        sources: source code of the program, and of the modules that it imports.

    """
    try:
        statements = [statement for source in sources for statement in ast.parse(source).body]
        names = _Names(ast.Module(statements, []))
        parser = _Parser(names)
        pairs = [pair for call in names.find_calls() for pair in names.iterate_coordinates(call)]
        found = {names.find_word(node): placeholder for node, placeholder in reversed(pairs)}
    except (SyntaxError, ValueError, RecursionError):
        return []
    words = {word: found[word] for word in reversed(found) if isinstance(word, str)}
    packages = {package.partition(".")[0] for package in names.imported.values()}
    package = next((package for package in _STYLES if package in packages), "")
    places = _list_places(names, [*words]) if package == "typer" else []
    options: list[list[str]] = []
    for word, placeholder in words.items():
        option = parser.declared.get(word.rpartition(".")[2])
        if option is not None:
            options.append([option, placeholder] if option else [placeholder])
        elif package and word not in places:
            written = _STYLES[package].format(name=word, dashed=word.replace("_", "-"))
            is_whole = written.endswith("=")
            options.append([written + placeholder] if is_whole else [written, placeholder])
    return [*options, *([words.get(name, name.upper())] for name in places)]


def _list_places(names: _Names, words: Sequence[str]) -> list[str]:
    """Return the parameters that typer takes without an option, of the function with a word."""
    for function in names.functions.values():
        parameters = list_parameters(function)
        if not {*parameters}.isdisjoint(words):
            count = len(parameters) - len(function.args.defaults)
            annotated = {part.arg: part.annotation for part in function.args.args}
            hints = {name: ast.unparse(hint) for name, hint in annotated.items() if hint}
            return [name for name in parameters[:count] if "Option(" not in hints.get(name, "")]
    return []
