"""What a rank compiles, and in which order it first runs the programs that span processes.

JAX compares nothing between processes: two that run different programs over one mesh may hang, or
return wrong numbers. So every compilation is told, with its line, and each program that spans
processes when it runs for the first time, with a fingerprint. From then on JAX runs it without
Python, and without us, unless the launcher asks to see it again.
"""

from ...protocol.hook_messages import LOOK, Blind, Compiled, Compiling, Program, Rerun
from . import frames
from . import reruns as looks

_MOST_SHAPES = 64

_agent = None
_process_count = 0
# By the id of an executable: what is to be told when that first runs.
_waiting = {}
_told = set()
_sees_runs = False
_is_blind = False
# The launcher may ask which programs run still.
_looks = False


def install(agent):
    """What to patch, by module."""
    global _agent
    _agent = agent
    return {"jax._src.compiler": _patch_compiler, "jax._src.interpreters.pxla": _patch_execution}


def joined(process_count):
    """The process is one of so many now."""
    global _process_count
    _process_count = process_count


def watch():
    """Tell on a signal which programs run still; its number, 0 where that is not wanted."""
    global _looks
    if not _agent.environ.get(LOOK):
        return 0
    signum = looks.watch(_tell_again)
    _looks = signum != 0
    return signum


def _patch_compiler(compiler):
    real = getattr(compiler, "compile_or_get_cached", None)
    if real is None:
        _blind("it has no compile_or_get_cached")
        return

    def compile_or_get_cached(backend, computation, devices, *args, **kwargs):
        told = _tell_begin(backend, computation)
        program = _program(backend, computation, devices)
        try:
            executable = real(backend, computation, devices, *args, **kwargs)
        finally:
            if told:
                _agent.tell(Compiled())
        _compiled(program, executable)
        return executable

    compiler.compile_or_get_cached = compile_or_get_cached
    try:  # JAX's tracebacks are without JAX's frames, and without this one
        from jax._src import traceback_util

        traceback_util.register_exclusion(__file__)
    except (ImportError, AttributeError):
        pass


def _tell_begin(backend, computation):
    """Say what is compiled; whether that has been said."""
    try:
        _agent.tell(Compiling(_name(computation), frames.place(), backend.platform))
        return True
    except Exception as error:  # another JAX than we know: the program comes first
        _blind(repr(error))
        return False


def _name(computation):
    return str(computation.operation.attributes["sym_name"]).strip('"')


def _program(backend, computation, devices):
    """What is to be told of a program that spans processes when it runs."""
    try:
        devices = list(devices.flat)
        places = [device.process_index for device in devices]
        processes, own = sorted(set(places)), backend.process_index()
        # One on the devices of others does nothing here.
        if len(processes) < 2 or own not in processes:
            return None
        fingerprint, communicates = _look_into(computation, devices)
        return {
            "name": _name(computation),
            "fingerprint": fingerprint,
            "processes": None if len(processes) == _process_count else processes,
            "shapes": [],
            "where": frames.place(),
            "communicates": communicates,
            "places": places,
            "own": own,
        }
    except Exception as error:
        _blind(repr(error))
        return None


# Parts of the names of operations, and of calls, that make processes talk.
_TALKING = (
    "all_",
    "reduce_scatter",
    "collective",
    "send",
    "recv",
    "replica_id",
    "partition",
)


def _look_into(computation, devices):
    """A fingerprint of a program, and whether it says itself that its processes depend on another.

    The fingerprint is one and the same on all processes: it is without names, places in the source
    and callbacks' addresses.
    """
    import hashlib
    import io

    from jaxlib.mlir import ir, passmanager

    communicates = False

    def look(op):
        nonlocal communicates
        name = op.name
        if "call_target_name" in op.attributes:
            name = str(op.attributes["call_target_name"]).strip('"')
            communicates = communicates or not name.endswith(("callback", "Sharding"))
            if name.endswith("callback") or name == "CustomSPMDPartitioning":
                for attribute in ("backend_config", "mhlo.backend_config"):
                    if attribute in op.attributes:
                        op.attributes[attribute] = ir.StringAttr.get("")
        communicates = communicates or _divides(op) or any(word in name for word in _TALKING)
        return ir.WalkResult.ADVANCE

    code = io.BytesIO()
    with computation.context:
        copy = computation.operation.clone().operation
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(copy)
        copy.attributes["sym_name"] = ir.StringAttr.get("program")
        copy.walk(look)
        copy.write_bytecode(code)
    found = hashlib.sha256(code.getbuffer())
    found.update(repr([device.id for device in devices]).encode())
    return found.hexdigest()[:16], communicates


def _divides(op):
    """Whether an operation says of an array that each process has a part of it only."""
    if op.name.startswith("sdy."):
        # By number: iterating gives names in some versions of jaxlib, and attributes in others.
        found = [op.attributes[number] for number in range(len(op.attributes))]
        shardings = " ".join(str(one.attr) for one in found if one.name != "manual_axes")
        return '{"' in shardings.replace('replicated={"', "")
    if "mhlo.sharding" in op.attributes and op.name.endswith("custom_call"):
        return str(op.attributes["mhlo.sharding"]) != '"{replicated}"'
    return False


def _blind(why):
    """Say once that the programs of this jax cannot be compared."""
    global _is_blind
    if not _is_blind:
        _is_blind = True
        _agent.tell(Blind(why))


def _compiled(program, executable):
    _waiting.pop(id(executable), None)
    looks.see_thread()
    looks.forget(id(executable))
    if program is None or (program["fingerprint"] in _told and not _looks):
        return
    if _sees_runs:
        _waiting[id(executable)] = program
    else:
        _tell(program)


def _tell(program):
    if program["fingerprint"] not in _told:
        _told.add(program["fingerprint"])
        _agent.tell(_told_of(program))


def _told_of(program):
    """What the launcher is to know of a program."""
    return Program(
        program["name"],
        program["fingerprint"],
        program["processes"],
        program["shapes"],
        program["where"],
    )


def _tell_again(program, look, partners):
    again = _told_of({**program, "where": frames.place()})
    _agent.tell(Rerun(again, look, partners))


def _patch_execution(pxla):
    global _sees_runs
    execution = getattr(pxla, "ExecuteReplicated", None)
    if execution is None:
        return
    real = execution.__call__

    def call(self, *args):
        if _waiting or _looks:
            _runs(self, args)
        return real(self, *args)

    execution.__call__ = call
    _sees_runs = True


def _runs(execution, args):
    """An executable runs, maybe for the first time."""
    try:
        program = _waiting.pop(id(execution.xla_executable), None)
        if program is None:
            if _looks:
                looks.ran(execution)
            return
        if not program["communicates"] and _all_whole(execution, args):
            return  # each process computes it for itself: so one may do it alone
        program["where"] = frames.place()
        program["shapes"] = [_shape(arg) for arg in args[:_MOST_SHAPES]]
        _tell(program)
        if _looks:
            looks.know(execution, program)
    except Exception as error:
        _blind(repr(error))


def _all_whole(execution, args):
    """Whether each process has all of the arguments, and gets all of the results."""
    results = getattr(getattr(execution, "out_handler", None), "out_shardings", None)
    if results is None:
        return False
    shardings = [getattr(arg, "sharding", None) for arg in args]
    return all(one is None or one.is_fully_replicated for one in (*shardings, *results))


def _shape(value):
    aval = getattr(value, "aval", None)
    if aval is not None and hasattr(aval, "str_short"):
        return aval.str_short(short_dtypes=True)
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
