"""What a rank, a host or a user supplies is read in time that grows with its length, no faster.

Every regular expression of the package is found by itself, and fed what is worst for it; so are the
loops in LOOPS. Nothing is said of how long anything takes: ten times the text may take thirty times
the processor time, and a square would be a hundred.
"""

import ast
import gc
import importlib
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mcjax_launch
from mcjax_launch.agent.hook_server import HookConnection
from mcjax_launch.agent.stacks import with_source
from mcjax_launch.console.collapse import Collapse
from mcjax_launch.console.pieces import Lines, Piece, Stream, make_lines
from mcjax_launch.console.renderers import Live, Plain
from mcjax_launch.console.unfinished import UnfinishedLines
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.explain.jax_messages import known_errors, lost_peer, noise, tracebacks
from mcjax_launch.features.explain.noise_filter import NoiseFilter
from mcjax_launch.features.explain.snapshots import format_stacks
from mcjax_launch.features.preload.agent import Importer
from mcjax_launch.features.recorder import program_code
from mcjax_launch.hook import spmd_program
from mcjax_launch.job import hosts, placeholders
from mcjax_launch.job.slurm import parse_gpus
from mcjax_launch.journal.facts import Stack
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.journal.tails import Tails
from mcjax_launch.ranks import parse_ranges
from mcjax_launch.wire import frames
from mcjax_launch.wire.codec import Malformed, Message
from mcjax_launch.wire.source_lines import find_owner, shorten_path
from mcjax_launch.wording import format_one_line

pytestmark = pytest.mark.nightly

_TIMES = 10
_MOST_RATIO = 30
# What takes less processor time than this (seconds) is no square of anything.
_NOTHING = 0.02
# Others on the machine make work longer that was interrupted, never shorter.
_ATTEMPTS = 10


def seconds(work: Callable[[], object]) -> float:
    """Processor time, without that of a collector which looks at all that other tests have left."""
    gc.disable()
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()


def grows_too_fast(work: Callable[[int], Callable[[], object]], size: int) -> str:
    """How much longer work on a text of `size` takes than on a tenth; empty if that may be."""
    much = seconds(work(size))
    if much < _NOTHING:
        return ""
    little = min(seconds(work(size // _TIMES)) for _ in range(3))
    for _ in range(_ATTEMPTS):
        if much <= _MOST_RATIO * little or much > 2:
            break
        much = min(much, seconds(work(size)))
    return f"{much:.2f} s, not {little:.4f} s" if much > _MOST_RATIO * little else ""


# --- regular expressions ---

_PACKAGE = Path(mcjax_launch.__file__).parent
_METHODS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
# Each worker that reads the tests looks for calls: it parses a file only if this is in it.
_MAY_USE = re.compile(rf"\b(re|_?[A-Z_]+)\s*\.\s*({'|'.join(_METHODS)})\b")
_OF_A_PATTERN = 40_000
_parser: Any = importlib.import_module("re._parser")
# What no pattern's own text may contain.
_PIECES = ("a", "0", " ", "\n", "\r", ".", "[", "{", '"', "\\", "/", "1x", "a\n", "a\r", "\x1b[")


def uses() -> Iterator[tuple[str, str, re.Pattern[Any]]]:
    """Where the package applies a regular expression, how, and which."""
    for file in sorted(_PACKAGE.rglob("*.py")):
        text = file.read_text()
        if not _MAY_USE.search(text):
            continue
        calls = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.attr in _METHODS
        ]
        for call in calls:
            assert isinstance(call.func, ast.Attribute)
            assert isinstance(call.func.value, ast.Name)
            by_module = call.func.value.id == "re"
            if not by_module and not re.fullmatch("_?[A-Z_]+", call.func.value.id):
                continue
            names = vars(importlib.import_module(_name_of(file)))
            pattern = _value(call.args[0] if by_module else call.func.value, names)
            if isinstance(pattern, str | bytes):
                flags = [arg for arg in call.args[2:] if ast.unparse(arg).startswith("re.")]
                pattern = re.compile(pattern, *(_value(flag, {"re": re}) for flag in flags))
            if not isinstance(pattern, re.Pattern):
                continue  # a name in capitals of something else
            yield f"{file.relative_to(_PACKAGE)}:{call.lineno}", call.func.attr, pattern


def _name_of(file: Path) -> str:
    return ".".join(file.relative_to(_PACKAGE.parent).with_suffix("").parts)


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    """A pattern is a constant, or has a name of its module: else nobody could check it."""
    return eval(compile(ast.Expression(node), "", "eval"), names)


class Worst:
    """Texts that a pattern nearly matches, again and again, as (before, what is repeated)."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        text = pattern.pattern
        self.found = {("", piece) for piece in _PIECES}
        self._walk(_parser.parse(text if isinstance(text, str) else text.decode("latin-1")), "")
        self.found.discard(("", ""))

    def _walk(self, tree: Iterable[Any], text: str) -> str:
        """`text` with what matches more; on the way, where to begin again or to go on and on."""
        for operator, argument in tree:
            self.found.add(("", text))
            match str(operator):
                case "LITERAL":
                    text += chr(argument)
                case "NOT_LITERAL" | "ANY":
                    text += "a"
                case "IN":
                    text += _one_of(argument)
                case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                    least, most, inner = argument
                    piece = self._walk(inner, text)[len(text) :]
                    if most > 1 and piece:
                        self.found |= {(text, piece), ("", text + piece), ("", piece)}
                    text += piece * max(least, 1)
                case "SUBPATTERN":
                    text = self._walk(argument[3], text)
                case "ATOMIC_GROUP":
                    text = self._walk(argument, text)
                case "BRANCH":
                    text, *_ = [self._walk(branch, text) for branch in argument[1]]
                case "ASSERT":
                    text = self._walk(argument[1], text)
        self.found.add(("", text))
        return text


def _one_of(items: list[Any]) -> str:
    kinds = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}
    for operator, argument in items:
        match str(operator):
            case "LITERAL":
                return chr(argument)
            case "RANGE":
                return chr(argument[0])
            case "CATEGORY":
                return kinds.get(str(argument), "a")
            case "NEGATE":
                unwanted = {chr(arg) for op, arg in items if str(op) == "LITERAL"}
                return next(char for char in "ab1 " if char not in unwanted)
    return "a"


def applied(pattern: re.Pattern[Any], method: str, text: str) -> Callable[[], object]:
    subject = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    apply = getattr(pattern, method)
    if method in ("sub", "subn"):
        return lambda: apply(lambda match: match[0][:1], subject)
    return lambda: list(apply(subject)) if method == "finditer" else apply(subject)


USES = list(
    {(method, pattern): (where, method, pattern) for where, method, pattern in uses()}.values()
)


@pytest.mark.parametrize(("where", "method", "pattern"), USES, ids=[use[0] for use in USES])
def test_pattern_takes_linear_time(where: str, method: str, pattern: re.Pattern[Any]) -> None:
    for before, piece in sorted(Worst(pattern).found):

        def work(size: int, before: str = before, piece: str = piece) -> Callable[[], object]:
            text = before + piece * (size // len(piece))
            return applied(pattern, method, f"{text}\1")

        slow = grows_too_fast(work, _OF_A_PATTERN)
        assert not slow, f"{where}: {method} {pattern.pattern!r} of {before!r} {piece!r}: {slow}"


def test_patterns_in_the_source_are_found() -> None:
    found = {where.partition(":")[0] for where, _, _ in uses()}
    assert len(USES) > 70
    assert {
        "features/recorder/program_code.py",
        "agent/system/out_of_memory.py",
        "journal/tails.py",
    } <= found


def test_quadratic_pattern_is_detected() -> None:
    pattern = re.compile(rb"[^\n\r]*\r(?=[^\n])")
    slow = grows_too_fast(
        lambda size: applied(pattern, "sub", "\r" + "a" * size), _OF_A_PATTERN // 4
    )
    assert slow


# --- loops ---

_OF_A_LOOP = 15_000
_START = tracebacks._START.decode()
_CHAIN = tracebacks._CHAINS[0].decode()
_HEAD = "E0101 01:01:01.1 1 a/b.cc:1] "
REPEATED = (
    *("a", "\n", "\r", "a\n", "a\r", "a\r\n", "\0", "é", "[", "{", "(", '"', ",", "=", "-", "0"),
    *("[1]", "1,", "a,", "1-2,", "a b\n", "\x1b[", "\x1b[1m", '["', "{a}", "{process_id", "a:1,"),
    f"{_START}\n",
    f"{_START}\n  File \"a\", line 1, in a\n",
    f"{_START}\nValueError: a\n\n{_CHAIN}\n\n",
    *("[Gloo] Rank ", "[Gloo] Rank 0 is connected to 1 peer ranks. ", "1\n"),
    *(f"{_HEAD}Polled an error from coordination service\n", "    @ 0x1 a\n", "/job:a\n"),
    *('Thread 0x1:\n  File "/a.py", line 1 in a\n', '  File "/a.py", line 1 in a\n'),
    *("#loc = loc(#loc #loc)\n%0 = a loc(#loc)\n", "%0 = stablehlo.add %1 loc(#loc1)\n", "  %0 = a.constant "),
    *("%arg0: tensor<1xf32>, ", " all-reduce(", ", replica_groups={{", "\udcff", "[0] a\n"),
)  # fmt: skip


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def decode(data: bytes, size: int) -> None:
    """One message in pieces, and all that they may be."""
    head = frames.HEADER.pack(frames.MESSAGE, 0, 0, len(data))
    decoder = frames.Decoder()
    try:
        for piece in pieces(head + data, size):
            list(decoder.feed(piece))
    except Malformed:
        pass


def decode_json(data: bytes) -> None:
    try:
        Message.of(data.decode("utf-8", "replace"))
    except Malformed:
        pass


def read_hook(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    hook = HookConnection(ours)
    with ours, theirs:
        for piece in pieces(data, 1 << 14):
            theirs.sendall(piece)
            for line in hook.read_lines() or ():
                hook.add_stack_line(line)
    with_source(hook.stacks)


def show(data: bytes, *, stream: int, culprit: int | None = None) -> None:
    """The pipeline of the console, for what comes line by line."""
    rank_stream = Stream(0, stream, b"[0] ")
    unfinished, noise_filter = UnfinishedLines(), NoiseFilter()
    plain, live = Plain(), Live(lambda: 24)
    tails = Tails(for_record=True)
    tails.expect(1)
    if culprit is not None:
        noise_filter.set_verdict(culprit, Verdict.FAILED, None)
        noise_filter.fold_victims(own_term=True, now=0)

    def filtered(found: Iterable[Piece]) -> Iterator[Piece]:
        for piece in found:
            yield from noise_filter.feed(piece, 0)

    def render(found: Iterable[Piece]) -> None:
        for piece in found:
            for renderer in (plain, live):
                renderer.render_lines(piece) if isinstance(
                    piece, Lines
                ) else renderer.render_fragment(piece, 0)

    for piece in pieces(data, 16):
        tails.feed(0, stream, piece)
        render(filtered(unfinished.feed(rank_stream, piece, 0)))
    render(filtered(unfinished.finish()))
    render(noise_filter.expire(float("inf")))
    tails.get_tails(0)


def collapse(data: bytes) -> None:
    """All of one rank's lines, and then those of another."""
    plain, equal = Plain(), Collapse(2)
    for rank in (0, 1):
        plain.render_groups(equal.feed(make_lines(Stream(rank, 1), data[:-1] + b"\n"), 0))
    plain.render_groups(equal.flush())


def compare_programs(text: str) -> None:
    first, second = program_code.parse_code(text), program_code.parse_code(f"{text}x")
    list(program_code.find_code_differences(first, second))


def import_slowly(text: str) -> None:
    importer = Importer(0, 1)
    for at in range(0, len(text), 10):
        importer.add_text(text[at : at + 10])
    with_source(importer.stacks)


def diagnose(text: str) -> None:
    noise.without_noise(text.splitlines())
    known_errors.find_known_error(text)
    known_errors.parse_wrong_devices(text, text)
    lost_peer.is_of_lost_peer("XlaRuntimeError", text)
    for find in (
        lost_peer.find_silent_process,
        lost_peer.find_failed_exit_barrier,
        lost_peer.find_failed_programs_barrier,
        lost_peer.says_timed_out,
    ):
        find(text)


LOOPS: dict[str, Callable[[bytes], object]] = {
    "a message in small pieces": lambda data: decode(data, 100),
    "a message in big pieces": lambda data: decode(data, 1 << 16),
    "a hook's message": decode_json,
    "a hook's stacks": read_hook,
    "stdout": lambda data: show(data, stream=frames.STDOUT),
    "stderr": lambda data: show(data, stream=frames.STDERR),
    "stderr at the end": lambda data: show(data, stream=frames.STDERR, culprit=7),
    "equal lines": collapse,
}
TEXTS: dict[str, Callable[[str], object]] = {
    "an importer's stacks": import_slowly,
    "stacks": lambda text: format_stacks([Stack(0, "h", 1, text), Stack(1, "h", 2, text)]),
    "a file's owner": lambda text: (find_owner(text), shorten_path(text)),
    "programs": compare_programs,
    "a compiled program": lambda text: spmd_program.exchanges(text, [0, 1]),
    "diagnosis": diagnose,
    "a hosts file": lambda text: hosts.parse_file(text, "hosts", 1),
    "a list of hosts": lambda text: hosts.parse_list(text, 1),
    "ranks": parse_ranges,
    "placeholders": lambda text: (
        placeholders.fill(text, {"process_id": "1"}),
        placeholders.find_expressions([text]),
        placeholders.check_path("--log-dir", text),
    ),
    "Slurm's GPUs": parse_gpus,
    "an error": format_one_line,
}


def on_text(loop: Callable[[str], object]) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        try:
            loop(data.decode("utf-8", "surrogateescape"))
        except (LaunchError, ValueError):  # it says what is wrong with it
            pass

    return run


LOOPS.update({name: on_text(loop) for name, loop in TEXTS.items()})


@pytest.mark.parametrize("name", LOOPS)
def test_loop_takes_linear_time(name: str) -> None:
    for piece in REPEATED:
        unit = piece.encode("utf-8", "surrogateescape")

        def work(size: int, unit: bytes = unit) -> Callable[[], object]:
            data = unit * (size // len(unit))
            return lambda: LOOPS[name](data)

        quick = seconds(work(_OF_A_LOOP)) < _NOTHING / _TIMES
        slow = grows_too_fast(work, _OF_A_LOOP * (_TIMES if quick else 1))
        assert not slow, f"{name}, of {piece!r}: {slow}"
