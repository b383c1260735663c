"""Question to one process for its stacks, such that no stack is read while it changes.

faulthandler reads a stack at any instruction. If the thread runs Python at that moment, a frame may
be half made or half cleared, and the process crashes.
"""

from __future__ import annotations

from ..machine.system import get_dump_signals, get_others_signal, get_question_signal
from .stacks import waits_for_a_thread
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from .stacks import StackSource


class StackQuestion:
    """Question to a process, asked in up to three steps.

    1. The main thread is observed for a moment, which the caller waits between construction and
       `ask`. If it stays in one wait, its stack does not change: faulthandler dumps it.
    2. If it moves, Python is asked, and answers between two bytecodes.
    3. If it does not answer, it is in C code and its stack does not change either.

    Args:
        source: the process.
        all_threads: True to ask for other threads too, whatever the main thread does.

    """

    def __init__(self, source: StackSource, all_threads: bool) -> None:
        self.source = source
        self._all_threads = all_threads
        self._wait = system.find_wait(source.pid)
        self._asks_python = False

    def ask(self) -> bool:
        """Signal the process to send its stacks; return False if it handles no such signal."""
        pid, source, wait = self.source.pid, self.source, self._wait
        source.expect_stacks()
        main = get_dump_signals()[False]
        # By exec it may have become another program, which the signal would kill.
        if not system.handles(pid, main):
            return False
        stands = bool(wait) and system.find_wait(pid) == wait
        # A single stack is that of the thread which gets the signal: it must be a thread of Python.
        if stands and (self._dump_all() or system.signal_standing_thread(pid, main, wait)):
            return True
        self._asks_python = self._ask_python()
        return self._asks_python or system.signal_main_thread(pid, main)

    def is_unanswered(self, since: float) -> bool:
        """Return whether Python was asked and has not answered since this time."""
        return self._asks_python and self.source.last_stack_at < since

    def ask_again(self, since: float) -> bool:
        """Ask for what is still missing; return whether the process was signaled.

        Args:
            since: time of the call of `ask` (time.monotonic).

        """
        if self.is_unanswered(since):
            return self._dump_despite_silence()
        return self.source.last_stack_at >= since and self._request_others()

    def _ask_python(self) -> bool:
        pid, signum = self.source.pid, get_question_signal()
        return system.handles(pid, signum) and (
            system.signal_without_interrupting(pid, signum)
            or system.signal_main_thread(pid, signum)
        )

    def _dump_despite_silence(self) -> bool:
        """Make faulthandler dump a main thread that does not answer, because it is in C code."""
        pid = self.source.pid
        # A thread that has not run since it was asked is stopped or starved: it can be anywhere.
        if system.is_pending(pid, get_question_signal()):
            return False
        return self._dump_all() or system.signal_main_thread(pid, get_dump_signals()[False])

    def _dump_all(self) -> bool:
        """Make faulthandler dump all threads, if all stand still and Python cannot be asked.

        If all are wanted, those of native code may run: a deadlock is not proven without all.
        """
        pid, source, signum = self.source.pid, self.source, get_dump_signals()[True]
        source.asked_all = (
            (self._all_threads or not self._may_ask_more())
            and system.handles(pid, signum)
            and (
                system.signal_standing_process(pid, signum, interrupt=self._all_threads)
                or (self._all_threads and system.signal_standing_thread(pid, signum, self._wait))
            )
        )
        source.all_stacks = source.asked_all and not self._all_threads
        return source.asked_all

    def _request_others(self) -> bool:
        """Ask Python for all threads, if they are wanted or the main thread waits for a thread.

        The main thread answers only in a wait of Python's own, not in C code.
        """
        pid, source, signum = self.source.pid, self.source, get_others_signal()
        if source.asked_all:
            return False
        if self._asks_python and self._all_threads and system.handles(pid, signum):
            asked = system.signal_without_interrupting(pid, signum)
        else:
            waits = self._may_ask_more() and waits_for_a_thread(source)
            asked = waits and system.signal_main_thread(pid, signum)
        source.all_stacks = source.asked_all = asked
        return asked

    def _may_ask_more(self) -> bool:
        """Return whether another signal is safe.

        The process must have a handler for it, and the main thread must wait for a lock.
        """
        pid = self.source.pid
        return system.handles(pid, get_others_signal()) and system.waits_for_lock(pid)
