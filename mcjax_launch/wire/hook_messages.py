"""Messages between a hook and the agent of its host, one line of JSON each: `["Joined", [...]]`.

The hook runs in the user's process, so the agent drops malformed messages. A position (`where`) is
the user's line, such as `train.py:88`; "" if unknown.
"""

from __future__ import annotations

from .codec import Malformed, Message, Nested
from .exit_status import MOST_STATUS
from .source_lines import is_users

#: The platforms that JAX also calls "gpu".
GPU_PLATFORMS = ("cuda", "rocm", "oneapi")


class HookMessage(Message):
    """Message from a hook to its agent."""


class Hello(HookMessage):
    """First message on a connection: identifies a Python process of a rank.

    `process_id` is the value of JAX_PROCESS_ID, which the program may have changed.
    """

    pid: int
    process_id: str


class Answering(HookMessage):
    """First message on a second connection: a thread of this process answers questions there."""

    pid: int


class PythonEnded(HookMessage):
    """Notice that a process has ended its Python code; C++ code may still keep it alive."""


class ImportedJax(HookMessage):
    """Notice that the program has imported jax.distributed; versions are "" if unknown."""

    jax: str = ""
    jaxlib: str = ""
    python: str = ""


class Joining(HookMessage):
    """Notice that a process calls initialize(), with the arguments (None if not a number).

    `jax` and `jaxlib` are the versions of these packages. `elsewhere` is True if this is process 0
    and the coordinator address is of another machine.
    `recoverable` is True if jax_enable_recoverability is set, so that processes survive failures of
    other processes. `settings` holds JAX settings that must be equal in all processes, by variable.
    `replaced` is the address that the program has passed, if it is only a placeholder; else "".
    `term_handler` is the place of the program's SIGTERM handler, which JAX replaces; "" for none.
    `has_backend` is True if a backend has been started, so that JAX refuses the call.
    """

    coordinator_address: str
    num_processes: int | None
    process_id: int | None
    where: str = ""
    jax: str = ""
    jaxlib: str = ""
    elsewhere: bool = False
    recoverable: bool = False
    settings: dict[str, str] | None = None
    replaced: str = ""
    term_handler: str = ""
    has_backend: bool = False


class Joined(HookMessage):
    """Notice that initialize() has returned.

    `private` is True if rank 0 listens at the job's private socket, not at its address.
    """

    process_id: int
    private: bool = False


class NotJoined(HookMessage):
    """Notice that initialize() has raised an exception, which the program may catch.

    `exception` is its class and `summary` its text. `backend_at` is the user's line that started a
    backend too early; "" if there is none.
    """

    exception: str
    summary: str
    backend_at: str = ""


class CalledBelow(HookMessage):
    """Notice that a rank's child process has called initialize(), which the hook has skipped.

    `by_import` is True if multiprocessing has caused the call by importing the rank's main module
    again; False if a process above has called initialize() already.
    """

    where: str
    by_import: bool


class Backend(HookMessage):
    """Notice that JAX starts a platform's backend, or has started all and uses this backend.

    `devices` is the number of local devices, 0 before the start. `why` is the reason for which JAX
    uses the CPU despite a GPU; "" if there is none.
    """

    platform: str
    devices: int
    why: str = ""


class ProcessNumber(HookMessage):
    """Notice of the process number that a backend has given to a joined process.

    Except on TPUs it equals the argument of initialize().
    """

    platform: str
    process: int


class Leaving(HookMessage):
    """Notice that the program ends or calls shutdown(), and may wait in JAX's exit barrier."""


class Left(HookMessage):
    """Notice that shutdown() has returned: the process has left the job."""


class Compiling(HookMessage):
    """Notice that a compilation begins. `platform` is "cpu", "gpu", ...

    `identity` stands for the code and devices of a program that spans processes; 0 for others.
    """

    name: str
    where: str
    platform: str
    identity: int = 0


class Compiled(HookMessage):
    """Notice that a compilation has ended, with success or not."""


class Program(HookMessage):
    """Notice that a program in which processes exchange data is about to be run the first time.

    `identity` stands for its code and devices. `processes` are the numbers in its mesh, as the
    backend of `platform` counts; None for all.
    """

    name: str
    identity: int
    processes: tuple[int, ...] | None
    where: str
    platform: str = ""


class Raised(Nested):
    """Exception: its class, text and position in the user's code (None if unknown).

    `inside` is True for a member of an exception group.
    """

    exception: str
    summary: str
    where: str | None = None
    line: str | None = None
    inside: bool = False


class BackendStart(Nested):
    """Start of JAX's first backend before initialize(): position and text of the user's line.

    `imported_at` and `import_line` are those of the import that was running; "" if none was.
    """

    where: str
    line: str
    imported_at: str = ""
    import_line: str = ""


def _make_position_key(where: str | None) -> tuple[bool, bool]:
    """Return a sort key for a position: highest for the user's code, lowest for no position."""
    return where is not None and is_users(where), where is not None


class Failed(HookMessage):
    """Notice that the program has failed, whatever status its process ends with.

    `joined` is True if the process is in the job, so that JAX delays its exit. `exited` is True if
    the program failed by sys.exit() or the like (`summary` is the text, if any), False if by an
    exception. `module` is the module that an ImportError could not find. `handled` is the exception
    that was being handled at the exit. `causes` are the exceptions that led to the exception, and
    the members of its group. `slices` holds the slice of each process, if wrong slices are the
    cause. `test` is the first failed test if a test runner exited with `failed_tests` failures; its
    exception is in `handled`. `before` is the exception of the user's code in whose clearing up the
    program's was raised. `backend` is the start of a backend that made initialize() fail.
    """

    status: int
    joined: bool
    exited: bool = False
    exception: str = ""
    summary: str = ""
    traceback: str = ""
    where: str | None = None
    line: str | None = None
    module: str | None = None
    python: str = ""
    handled: Raised | None = None
    causes: tuple[Raised, ...] = ()
    slices: tuple[int, ...] = ()
    test: str = ""
    failed_tests: int = 0
    backend: BackendStart | None = None
    before: Raised | None = None

    @property
    def placed(self) -> Failed | Raised:
        """Error to show: `handled` if its position is at least as well known, else this failure."""
        handled = self.handled
        if handled is None or _make_position_key(handled.where) < _make_position_key(self.where):
            return self
        return handled

    def check(self) -> None:
        """Reject a status outside 1 to 255: a failure never ends with status 0."""
        if not 0 < self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class UnhandledError(HookMessage):
    """Notice of an exception that ended a thread, or was raised in a callback.

    `callback` is the JAX function that ran the callback; "" for a thread. JAX raises the exception
    again only where a result of the program is used.
    """

    thread: str
    raised: Raised
    callback: str = ""


class Handling(HookMessage):
    """Notice that a program over several processes is launched while an exception is handled.

    `where` is the user's line that launches it.
    """

    raised: Raised
    where: str


class AtBarrier(HookMessage):
    """Notice that a process comes to a barrier of all processes in JAX's coordination service.

    `where` is the user's line. Without a name: its latest wait has failed, and the process goes on.
    """

    name: str = ""
    where: str = ""


class CollectedTests(HookMessage):
    """Notice that pytest is about to run tests.

    Args:
        count: number of the tests.
        digest: checksum of their names, in order.
        first: name of the first test.

    """

    count: int
    digest: str
    first: str


class FailedTest(HookMessage):
    """Notice of a process's first failed test, after which other tests follow."""

    test: str
    raised: Raised


class Crashed(HookMessage):
    """Notice that the process has died of a fault or of abort(), with its main thread's stack.

    The agent makes it from faulthandler's output.
    """

    stack: str
