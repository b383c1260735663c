"""Cells: texts that run in a rank's `__main__`, one after another."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from types import CodeType
    from typing import Any

_COROUTINE = 0x80  # inspect.CO_COROUTINE, without inspect's own imports


class Cells:
    """Runner of cells, which share names and an event loop.

    Args:
        names: the names, as of `__main__`.

    """

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, source: str, name: str) -> Any:
        """Run a text, which may use `await`; return its last expression's value, else None.

        Args:
            source: Python code.
            name: stands in place of a file in tracebacks.

        """
        import ast

        # Without ast.parse, whose frame would be part of the traceback of a SyntaxError.
        awaits = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree: Any = compile(source, name, "exec", ast.PyCF_ONLY_AST | awaits, dont_inherit=True)
        last: Any = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self._evaluate(compile(tree, name, "exec", awaits, dont_inherit=True))
        if last is None:
            return None
        expression = ast.Expression(last.value)
        return self._evaluate(compile(expression, name, "eval", awaits, dont_inherit=True))

    def _evaluate(self, code: CodeType) -> Any:
        value = eval(code, self._names)
        return self._await(value) if code.co_flags & _COROUTINE else value

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the cells' event loop, whose other tasks run meanwhile."""
        import asyncio
        import contextlib

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(_catch(coroutine))
        try:
            value, error = self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # an interrupt of the loop itself
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)
            raise
        if error is not None:
            raise error
        return value


async def _catch(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Return a coroutine's value or exception, so that the loop is not part of its traceback."""
    try:
        return await coroutine, None
    except BaseException as error:
        return None, error
