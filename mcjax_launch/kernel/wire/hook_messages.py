"""Messages between a hook and the agent of its host, one line of JSON each: `["Joined", [...]]`.

The hook runs in the user's process, so the agent drops malformed messages. Places (`where`) are
`train.py:88`, the user's line; empty where there is none.
"""

from __future__ import annotations

from .codec import Malformed, Message, Nested
from .exit_status import MOST_STATUS
from .source_lines import is_users

#: The platforms that JAX also calls "gpu".
GPU_PLATFORMS = ("cuda", "rocm", "oneapi")


class HookMessage(Message):
    """Any of the messages below."""


class Hello(HookMessage):
    """The first: a Python process of a rank runs.

    `process_id` is JAX_PROCESS_ID, which the program may have changed; `dump_signal` makes
    faulthandler write stacks to this socket, `dump_all_signal` those of all threads; 0 where it
    cannot.
    """

    pid: int
    process_id: str
    dump_signal: int
    dump_all_signal: int = 0


class ImportedJax(HookMessage):
    """The program has imported jax.distributed: of these versions, "" where one is not known."""

    jax: str = ""
    jaxlib: str = ""
    python: str = ""


class Joining(HookMessage):
    """It calls initialize(); None where it gives what is not a number.

    `jax` and `jaxlib` are their versions; `elsewhere`: it is process 0, and the coordinator's
    address that it gives is not one of its machine; `partition` is its partition index, if any.
    `recoverable`: it has set jax_enable_recoverability, so processes outlive one another.
    `settings`: what has to be the same in all processes, by the names of the variables.
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
    """initialize() has returned. `profiles`: SIGPROF begins a profile, and does not end it."""

    process_id: int
    profiles: bool = False


class NotJoined(HookMessage):
    """initialize() has raised an exception, which the program may catch: its class and its text.

    `backend_at` is the user's line that had started a backend before; "" where none had.
    """

    exception: str
    summary: str
    backend_at: str = ""


class CalledBelow(HookMessage):
    """A process that a rank has started calls initialize() as the rank: the call is left out.

    `where` is the user's line; `by_import`: multiprocessing imports the rank's main module there.
    """

    where: str
    by_import: bool


class Backend(HookMessage):
    """JAX starts the backend of a platform, or has started all: this is the one that it uses.

    `devices` are its local ones, 0 where it is being started; `why` is the reason for which JAX
    uses the CPU although there is a GPU, if there is one.
    """

    platform: str
    devices: int
    why: str = ""


class ProcessNumber(HookMessage):
    """A backend has started, in a process that has joined: its own number for the process.

    Elsewhere than on TPUs that is the one that initialize() was given.
    """

    platform: str
    process: int


class Leaving(HookMessage):
    """The program is over, or calls shutdown(): JAX may hold it up in its exit barrier."""


class Left(HookMessage):
    """shutdown() has returned: the process has left the job."""


class Compiling(HookMessage):
    """A compilation begins. `platform` is "cpu", "gpu", ..."""

    name: str
    where: str
    platform: str


class Compiled(HookMessage):
    """The compilation is over, successful or not."""


class Program(HookMessage):
    """A program that spans processes is about to run for the first time, or to be compiled.

    `fingerprint` is of its code and its devices; `processes` and `devices` are those of its mesh,
    None for all, by the numbers that the backend of `platform` gives them. `held`: it does not
    before a GateOpens comes, on the same connection. `compiling`: it is about to be compiled;
    `copies` are checksums of those arguments that all processes have alike, "" for others.
    `order`: the first of its devices, where they are not in the order of their numbers.
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
    """What a `Program` has said to be compiled is not any more; on the same connection.

    Compiled comes on another one, and may be read before that.
    """

    fingerprint: str


class ProgramText(HookMessage):
    """Asked by a ShowProgram: a part of the text of the program at which a thread is.

    `last`: it is the last part; `compiled` are then the fingerprints of what else the process has
    compiled and not run.
    """

    fingerprint: str
    text: str
    last: bool
    compiled: tuple[str, ...] = ()


class Blind(HookMessage):
    """The programs of this jax version cannot be compared."""

    reason: str


class Raised(Nested):
    """An exception that led to a failure: its class, its text, and the user's line.

    `inside`: it is in a group, one of those that failed together.
    """

    exception: str
    summary: str
    where: str | None = None
    line: str | None = None
    inside: bool = False


class BackendStart(Nested):
    """The start of JAX's first backend before initialize(): a line, and the import that led there.

    The last two are empty where no import was under way.
    """

    where: str
    line: str
    imported_at: str = ""
    import_line: str = ""


def _is_at_users(where: str | None) -> tuple[bool, bool]:
    """Compare places: in the user's own code, in a library, nowhere."""
    return where is not None and is_users(where), where is not None


class Failed(HookMessage):
    """The program has failed, whatever status its process ends with.

    `joined`: in the job, so that JAX holds up the exit; `exited`: by sys.exit() or the like, with
    the text `summary`, if any; otherwise by an exception. `module` is what an ImportError could not
    find; `handled` was being handled at the exit; `causes` are the exceptions from which that one,
    or the program's, was raised, and those in a group; `slices` is the slice of each process, where
    several of them are what is wrong. `test`: a runner of tests has exited, of which `failed_tests`
    failed; this was the first, and raised what stands as `handled`. `backend` is what came before
    initialize(), where JAX has refused that.
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
        """The error whose line is shown: that handled at an exit, unless its line is less known."""
        handled = self.handled
        if handled is None or _is_at_users(handled.where) < _is_at_users(self.where):
            return self
        return handled

    @property
    def has_calls(self) -> bool:
        """Whether Python prints it with a traceback: not a text at an exit, nor a SyntaxError's."""
        return not self.exited and self.traceback.startswith("Traceback")

    def check(self) -> None:
        """A failure never ends with 0."""
        if not 0 < self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class ErrorLost(HookMessage):
    """An exception has ended a thread, or was raised in a callback.

    `callback`: JAX has called what raised it, by this function of its own, and raises it again
    where a result of the program is used, if one is.
    """

    thread: str
    raised: Raised
    callback: str = ""


class Crashed(HookMessage):
    """The process has died of a fault or of abort(): the stack of its main thread, then.

    Its agent says so, of what faulthandler has written.
    """

    stack: str


# --- agent to hook ---


class HookReply(Message):
    """An answer to a thread that is held; `fingerprint` is its program's."""

    fingerprint: str


class GateOpens(HookReply):
    """The program may run."""

    fingerprint: str


class ShowProgram(HookReply):
    """The program's text is wanted, in ProgramText messages; it is held on."""

    fingerprint: str
