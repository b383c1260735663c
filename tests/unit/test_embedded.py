"""The exception that the text of another one quotes, and the line that tells a failure: tables."""

import sys
from traceback import TracebackException
from types import SimpleNamespace
from typing import Any

import pytest
from histories import CALLBACK
from records import failure

from mcjax_launch.hook.failure import _format_traceback
from mcjax_launch.journal.words import extract_headline
from mcjax_launch.wire.source_lines import find_quoted_exception

pytestmark = pytest.mark.every_jax

EQUINOX = (
    "EquinoxRuntimeError: Above is the stack outside of JIT. Below is the stack inside of JIT:\n"
    '  File "/me/train.py", line 24, in f\n    x = eqx.error_if(x, x < 0, "x must be >= 0")\n\n'
    "equinox.EquinoxRuntimeError: x must be >= 0\n\n-------------------\n\nAn error occurred during"
)


@pytest.mark.parametrize(("text", "line", "frame"), [
    (CALLBACK.format("ValueError: not finite"), "ValueError: not finite", ("/me/train.py", 6, "check")),
    (CALLBACK.format("ValueError: \n\n  not finite"), "ValueError: not finite", ("/me/train.py", 6, "check")),
    (CALLBACK.format("KeyError"), "KeyError", ("/me/train.py", 6, "check")),
    (EQUINOX, "equinox.EquinoxRuntimeError: x must be >= 0", ("/me/train.py", 24, "f")),
])  # fmt: skip
def test_embedded_exception_is_found(text: str, line: str, frame: tuple[str, int, str]) -> None:
    found = find_quoted_exception(text)
    assert found is not None
    assert (found.line, found.frames[-1]) == (line, frame)


@pytest.mark.parametrize("text", [
    "", "ValueError: x", "ValueError: Traceback (most recent call last):", 'SyntaxError: x:\n  File "a.py", line 3',
    '  File "a.py", line 3\n    x = (\nSyntaxError: never closed', 'E: x:\n  File "a.py", line 3, in f\n    y',
])  # fmt: skip
def test_text_without_exception_is_not_embedded(text: str) -> None:
    assert find_quoted_exception(text) is None


def raised_in_jax() -> Exception:
    scope: dict[str, Any] = {}
    exec(compile("def step(): raise ValueError('x')", "/jax/array.py", "exec"), scope)
    with pytest.raises(ValueError) as raised:
        scope["step"]()
    return raised.value


def test_frames_of_jax_are_left_out_of_each_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    util = SimpleNamespace(_exclude_paths=("/jax/",))
    monkeypatch.setitem(sys.modules, "jax._src.traceback_util", util)
    group = ExceptionGroup("two", [raised_in_jax(), raised_in_jax()])
    text = _format_traceback(TracebackException.from_exception(group))
    assert text.count("in raised_in_jax") == 2 and "array.py" not in text


@pytest.mark.parametrize(("name", "summary", "line"), [
    ("JaxRuntimeError", CALLBACK.format("ValueError: not finite"), "ValueError: not finite (in a callback)"),
    ("EquinoxRuntimeError", EQUINOX, "equinox.EquinoxRuntimeError: x must be >= 0"),
    ("RuntimeError", "RuntimeError: \n\n  all is lost\nreally", "RuntimeError: all is lost"),
    ("RuntimeError", "RuntimeError: ", "RuntimeError"),
    ("SyntaxError", '  File "a.py", line 3\n    x = (\nSyntaxError: never closed', "SyntaxError: never closed"),
])  # fmt: skip
def test_headline_is_the_most_telling_line(name: str, summary: str, line: str) -> None:
    assert extract_headline(failure(summary, exception=name)) == line
