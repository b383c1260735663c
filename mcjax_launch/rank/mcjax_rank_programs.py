"""What a rank compiles, and in which order it first runs the programs that span processes.

JAX compares nothing between processes: two that run different programs over one mesh may hang, or
return wrong numbers. So every compilation is told, with its line, and each program that spans
processes when it runs for the first time, with a fingerprint. From then on JAX runs it without
Python, and without us.
"""

import mcjax_rank_frames as frames

_MOST_SHAPES = 64

_agent = None
_process_count = 0
# By the id of an executable: what is to be told when that first runs.
_waiting = {}
_told = set()
_sees_runs = False
_is_blind = False


def install(agent):
    """What to patch, by module."""
    global _agent
    _agent = agent
    return {"jax._src.compiler": _patch_compiler, "jax._src.interpreters.pxla": _patch_execution}


def joined(process_count):
    """The process is one of so many now."""
    global _process_count
    _process_count = process_count


def _patch_compiler(compiler):
    real = getattr(compiler, "compile_or_get_cached", None)
    if real is None:
        _blind("it has no compile_or_get_cached")
        return

    def compile_or_get_cached(backend, computation, devices, *args, **kwargs):
        program = _begin(backend, computation, devices)
        try:
            executable = real(backend, computation, devices, *args, **kwargs)
        finally:
            _agent.tell({"compiled": True})
        _compiled(program, executable)
        return executable

    compiler.compile_or_get_cached = compile_or_get_cached
    try:  # JAX's tracebacks are without JAX's frames, and without this one
        from jax._src import traceback_util

        traceback_util.register_exclusion(__file__)
    except (ImportError, AttributeError):
        pass


def _begin(backend, computation, devices):
    """Say what is compiled; of a program that spans processes, what is to be told of its run."""
    try:
        name = str(computation.operation.attributes["sym_name"]).strip('"')
        place = frames.here()
        where = f"{frames.shown(place[0])}:{place[1]}" if place else ""
        _agent.tell({"compiling": {"name": name, "where": where, "platform": backend.platform}})
        devices = list(devices.flat)
        processes = sorted({device.process_index for device in devices})
        # One on the devices of others does nothing here.
        if len(processes) < 2 or backend.process_index() not in processes:
            return None
        return {
            "name": name,
            "fingerprint": _fingerprint(computation, devices),
            "processes": None if len(processes) == _process_count else processes,
            "shapes": [],
            "where": where,
        }
    except Exception as error:  # another JAX than we know: the program comes first
        _blind(repr(error))
        return None


def _fingerprint(computation, devices):
    """One and the same on all processes: without places in the source and callbacks' addresses."""
    import hashlib
    import io

    from jaxlib.mlir import ir, passmanager

    def blank_callback(op):
        if "call_target_name" in op.attributes:
            target = str(op.attributes["call_target_name"]).strip('"')
            if target.endswith("callback") or target == "CustomSPMDPartitioning":
                for name in ("backend_config", "mhlo.backend_config"):
                    if name in op.attributes:
                        op.attributes[name] = ir.StringAttr.get("")
        return ir.WalkResult.ADVANCE

    code = io.BytesIO()
    with computation.context:
        copy = computation.operation.clone().operation
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(copy)
        copy.walk(blank_callback)
        copy.write_bytecode(code)
    found = hashlib.sha256(code.getbuffer())
    found.update(repr([device.id for device in devices]).encode())
    return found.hexdigest()[:16]


def _blind(why):
    """Say once that the programs of this jax cannot be compared."""
    global _is_blind
    if not _is_blind:
        _is_blind = True
        _agent.tell({"blind": why})


def _compiled(program, executable):
    _waiting.pop(id(executable), None)
    if program is None or program["fingerprint"] in _told:
        return
    if _sees_runs:
        _waiting[id(executable)] = program
    else:
        _tell(program)


def _tell(program):
    if program["fingerprint"] not in _told:
        _told.add(program["fingerprint"])
        _agent.tell({"program": program})


def _patch_execution(pxla):
    global _sees_runs
    execution = getattr(pxla, "ExecuteReplicated", None)
    if execution is None:
        return
    real = execution.__call__

    def call(self, *args):
        if _waiting:
            _runs(self, args)
        return real(self, *args)

    execution.__call__ = call
    _sees_runs = True


def _runs(execution, args):
    """An executable runs, maybe for the first time."""
    try:
        program = _waiting.pop(id(execution.xla_executable), None)
        if program is None:
            return
        place = frames.here()
        if place:
            program["where"] = f"{frames.shown(place[0])}:{place[1]}"
        program["shapes"] = [_shape(arg) for arg in args[:_MOST_SHAPES]]
        _tell(program)
    except Exception:  # another JAX than we know: the program comes first
        pass


def _shape(value):
    aval = getattr(value, "aval", None)
    if aval is not None and hasattr(aval, "str_short"):
        return aval.str_short(short_dtypes=True)
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
