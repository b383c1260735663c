"""Messages between a hook and the agent of its host, one line of JSON each: `["Joined", [...]]`.

The hook runs in the user's process, so the agent drops malformed messages. Positions (`where`) are
`train.py:88`, the user's line; "" if unknown.
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
    """First message on a connection: a Python process of a rank runs.

    `process_id` is JAX_PROCESS_ID, which the program may have changed. `dump_signal` makes
    faulthandler write the main thread's stack to this socket, `dump_all_signal` the stacks of all
    threads; 0 if unavailable.
    """

    pid: int
    process_id: str
    dump_signal: int
    dump_all_signal: int = 0


class ImportedJax(HookMessage):
    """Notice that the program has imported jax.distributed, with versions ("" if unknown)."""

    jax: str = ""
    jaxlib: str = ""
    python: str = ""


class Joining(HookMessage):
    """Notice of a call of initialize(), with its arguments; None for an argument that is no number.

    `jax` and `jaxlib` are their versions. `elsewhere`: this is process 0, and its coordinator
    address does not belong to its machine. `partition` is its partition index, if any.
    `recoverable`: it has set jax_enable_recoverability, so processes survive each other's failures.
    `settings` are those that must be equal in all processes, by variable name.
    """

    coordinator_address: str
    num_processes: int | None
    process_id: int | None
    where: str = ""
    jax: str = ""
    jaxlib: str = ""
    elsewhere: bool = False
    partition: int | None = None
    recoverable: bool = False
    settings: dict[str, str] | None = None


class Joined(HookMessage):
    """Notice that initialize() has returned.

    `profiles`: SIGPROF begins a profile in this process, and does not end the process.
    """

    process_id: int
    profiles: bool = False


class NotJoined(HookMessage):
    """Notice that initialize() has raised an exception, which the program may catch.

    `exception` is its class and `summary` its text. `backend_at` is the user's line that had
    started a backend before; "" if none had.
    """

    exception: str
    summary: str
    backend_at: str = ""


class CalledBelow(HookMessage):
    """Notice that a rank's child process has called initialize(), which the hook has skipped.

    `where` is the user's line. `by_import`: the call comes from multiprocessing, which imports the
    rank's main module again; otherwise the call repeats an ancestor's call.
    """

    where: str
    by_import: bool


class Backend(HookMessage):
    """Notice that JAX starts a platform's backend, or has started all and uses this platform.

    `devices` is the number of local devices, 0 while the backend starts; `why` is the reason for
    which JAX uses the CPU although there is a GPU, if any.
    """

    platform: str
    devices: int
    why: str = ""


class ProcessNumber(HookMessage):
    """Number that a started backend gives to a process that has joined.

    Except on TPUs it is the number that initialize() was given.
    """

    platform: str
    process: int


class Leaving(HookMessage):
    """Notice that the program ends or calls shutdown(); JAX may hold it in its exit barrier."""


class Left(HookMessage):
    """Notice that shutdown() has returned: the process has left the job."""


class Compiling(HookMessage):
    """Notice that a compilation begins. `platform` is "cpu", "gpu", ..."""

    name: str
    where: str
    platform: str


class Compiled(HookMessage):
    """Notice that the compilation is over, successful or not."""


class Program(HookMessage):
    """Notice that a program that spans processes is about to be compiled or run for the first time.

    `fingerprint` covers its code and its devices. `processes` and `devices` are those of its mesh,
    None for all, as the backend of `platform` numbers them. `held`: it runs only after a GateOpens
    on the same connection. `compiling`: it is about to be compiled. `copies` are checksums of the
    arguments of which every process has the same copy, "" for each other argument. `order` holds
    its first devices if its devices are not in the order of their numbers.
    """

    name: str
    fingerprint: str
    processes: tuple[int, ...] | None
    shapes: tuple[str, ...]
    where: str
    devices: tuple[int, ...] | None = None
    held: bool = False
    platform: str = ""
    compiling: bool = False
    copies: tuple[str, ...] = ()
    order: tuple[int, ...] = ()


class ProgramCompiled(HookMessage):
    """Notice that the compilation announced by a `Program` is over; on the same connection.

    Compiled comes on another connection and may be read earlier.
    """

    fingerprint: str


class ProgramText(HookMessage):
    """Part of the text of the program at which a thread is held: the answer to a ShowProgram.

    `last`: this is the last part; `compiled` then holds the fingerprints of other programs that the
    process has compiled and not run.
    """

    fingerprint: str
    text: str
    last: bool
    compiled: tuple[str, ...] = ()


class Blind(HookMessage):
    """Notice that the programs of this jax version cannot be compared, and why."""

    reason: str


class Raised(Nested):
    """Exception that led to a failure: its class, its text, and the user's line.

    `inside`: it is a member of an exception group.
    """

    exception: str
    summary: str
    where: str | None = None
    line: str | None = None
    inside: bool = False


class BackendStart(Nested):
    """Start of JAX's first backend before initialize(): the user's line, and the import's.

    The last two fields are empty if no import was under way.
    """

    where: str
    line: str
    imported_at: str = ""
    import_line: str = ""


def _position_key(where: str | None) -> tuple[bool, bool]:
    """Return a sort key for a position: highest for the user's code, lowest for no position."""
    return where is not None and is_users(where), where is not None


class Failed(HookMessage):
    """Notice that the program has failed, whatever status its process ends with.

    `joined`: the process is in the job, so JAX holds up its exit. `exited`: the program failed by
    sys.exit() or the like, with the text `summary`, if any; otherwise by an exception. `module` is
    what an ImportError could not find. `handled` is the exception that was being handled at the
    exit. `causes` are the exceptions that led to the exception, and the members of its group.
    `slices` is the slice of each process, if wrong slices are the cause. `test`: a test runner has
    exited, with `failed_tests` failures; this test failed first, by the exception in `handled`.
    `backend` is the backend's start before initialize(), if JAX refused initialize() for that.
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

    @property
    def placed(self) -> Failed | Raised:
        """Error whose line is shown: that handled at an exit, unless its line is less known."""
        handled = self.handled
        if handled is None or _position_key(handled.where) < _position_key(self.where):
            return self
        return handled

    @property
    def has_calls(self) -> bool:
        """True if Python prints a traceback for it, unlike for an exit or a SyntaxError."""
        return not self.exited and self.traceback.startswith("Traceback")

    def check(self) -> None:
        """Reject status 0: a failure never ends with it."""
        if not 0 < self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class UnhandledError(HookMessage):
    """Notice of an exception that ended a thread, or was raised in a callback.

    `callback`: the function of JAX's that called the callback. JAX raises the exception again where
    a result of the program is used, if it is used.
    """

    thread: str
    raised: Raised
    callback: str = ""


class Crashed(HookMessage):
    """Notice that the process has died of a fault or of abort(), with its main thread's stack.

    The agent makes it from faulthandler's output.
    """

    stack: str


# --- agent to hook ---


class HookReply(Message):
    """Answer to a thread that is held; `fingerprint` is that of its program."""

    fingerprint: str


class GateOpens(HookReply):
    """Permission to run the program."""

    fingerprint: str


class ShowProgram(HookReply):
    """Request for the program's text, in ProgramText messages; the thread stays held."""

    fingerprint: str
