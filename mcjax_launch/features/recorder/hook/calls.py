"""Observation of calls of jitted functions, most of which run no Python code of JAX.

JAX's C++ code runs a function again without Python if the function's signature is known. Only the
call itself is seen, by `sys.monitoring`: the function and its first argument. All else is learnt
when Python runs the function for the first time with a signature (a *miss*): whether the program
spans processes, and which. A call is first taken for a hit, and recorded if the function's programs
span processes; in a miss that entry is withdrawn, and what is really run is recorded.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import weakref
from contextlib import suppress
from functools import partial
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType

from ....hook import jax_internals
from ....hook.wrapping import wrap_like
from ....wire.source_lines import is_jax
from ....wire.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType
    from typing import Any, TypeVar

    from ....wire.hook_messages import Program
    from .sequences import Mesh, Sequence, SequenceFile

    T = TypeVar("T")

_monitoring: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
# A place in the code that has made so many other calls is not observed any more.
_MOST_OTHER_CALLS = 32
# Types of callables that are, and contain, no jitted functions.
_PLAIN = frozenset((FunctionType, BuiltinFunctionType, type))
_MOST_LEAVES = 8
# Values by which functions of one line may differ: how deep to search, and how many to compare.
_FUNCTIONS, _NUMBERS = (FunctionType, MethodType, partial), (int, float)
_DEEPEST, _MOST_PARTS = 5, 32
# Attribute of a jitted function with its state: (entry, sequence, _Learnt) if all its calls run one
# program that spans processes, _LOCAL if none does, else its _Learnt, which is false. A dict by
# function would keep functions alive, and one by id() is slow if Python has audit hooks.
_STATE = "_mcjax_launch"
# Address of an object, as tools have it in names of the code that they make.
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
# Name of JAX's function for misses, within `_cpp_pjit`.
_MISS = "cache_miss"
_LOCAL = ()


class _Outcome(Value):
    """Program that a call runs over a mesh, with its entry."""

    entry: int
    mesh: Mesh


class _Learnt:
    """Knowledge of a function that JAX has compiled with some options.

    Attributes:
        outcomes: outcome by the first argument's kind (see `_Values.make_key`): None if the program
            does not span processes.
        meshes: meshes of all outcomes so far.
        functions: the jitted functions.
        direct: the outcome if all calls have the same, else None.
        is_mixed: True if the outcome of a call depends on its argument.

    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.functions: weakref.WeakSet[Any] = weakref.WeakSet()
        self.outcomes: dict[Any, _Outcome | None] = {}
        self.meshes: set[Mesh] = set()
        self.unclear: set[Any] = set()
        self.direct: _Outcome | None = None
        self.is_mixed = False

    def __bool__(self) -> bool:
        return False  # see `_STATE`

    def learn(self, key: Any, outcome: _Outcome | None) -> None:
        """Record the outcome of a call whose first argument is of this kind."""
        if self.outcomes.get(key, outcome) != outcome:
            self.unclear.add(key)
        self.outcomes[key] = outcome
        if outcome is not None:
            self.meshes.add(outcome.mesh)
        outcomes = list(self.outcomes.values())
        are_equal = not self.unclear and all(each == outcome for each in outcomes)
        self.direct = outcome if are_equal else None
        self.is_mixed = not are_equal


class _Run:
    """Run of a function by JAX's Python code, while it is under way."""

    def __init__(self, learnt: _Learnt, key: Any) -> None:
        self.learnt = learnt
        self.key = key
        self.has_run = False


class _OfThread(threading.local):
    """State of a thread: runs under way, and options of functions whose arguments JAX has read."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.options: dict[int, Any] = {}
        self.unknown: _Learnt | None = None  # of the latest observed call, compiled ahead of time
        self.missing: _Learnt | None = None  # of the latest call, if it must be a miss
        # The latest call that was not direct: its function, sequence and entry.
        self.latest: tuple[Any, Sequence, int] | None = None
        self.run: tuple[Sequence, int] | None = None  # the latest miss's sequence and entry


class Calls:
    """Observer of all calls in this process, which records those that span processes.

    Args:
        file: the file of the sequences.

    Raises:
        ImportError, AttributeError: this JAX lacks an internal name.

    """

    def __init__(self, file: SequenceFile) -> None:
        import jax
        from jax._src import core, pjit, source_info_util, traceback_util
        from jax._src.array import ArrayImpl

        own = Calls.__init__.__code__.co_filename
        source_info_util.register_exclusion(own)  # no operation is from these lines
        traceback_util.register_exclusion(own)
        self._file = file
        self._pjit, self._is_clean = pjit, core.trace_state_clean
        self._array, self._list_leaves = ArrayImpl, jax.tree_util.tree_leaves
        self._jitted: Any = jax_internals.get_extension().PjitFunction
        self._run_inside = pjit.jit_p.impl.__code__
        self._of_thread = _OfThread()
        # By the id of the function in a jitted function: options of jit(), and what is known.
        self._by_function: dict[int, list[tuple[Any, _Learnt]]] = {}
        self._by_code: weakref.WeakKeyDictionary[Any, _Learnt] = weakref.WeakKeyDictionary()
        self._other_calls: dict[Any, int] = {}  # by place in the code
        self._staying: set[Any] = set()  # places that stay observed
        self._names: set[str] = set()  # by which the program may call jitted functions
        # Fingerprint by the entry, of functions that were compiled ahead of time.
        self._ahead: dict[int, str] = {}
        self._is_broken = False

    def begin(self, tool: int) -> None:
        """Begin to observe, as this tool of _monitoring.

        Raises:
            AttributeError: this JAX lacks an internal name.

        """
        pjit = self._pjit
        infer, run, inside = pjit._infer_params, pjit._run_python_pjit, pjit.jit_p.impl
        if not any(getattr(c, "co_name", "") == _MISS for c in pjit._cpp_pjit.__code__.co_consts):
            raise AttributeError(f"_cpp_pjit has no {_MISS}")
        pjit._infer_params = wrap_like(infer, partial(self._infer, infer))
        pjit._run_python_pjit = wrap_like(run, partial(self._run, run))
        pjit._cpp_pjit = wrap_like(pjit._cpp_pjit, partial(_make_without_state, pjit._cpp_pjit))
        pjit.jit_p.impl = wrap_like(inside, partial(self._run_transformed, inside))
        monitoring = _monitoring
        monitoring.use_tool_id(tool, "mcjax-launch")
        monitoring.register_callback(tool, monitoring.events.CALL, self._make_on_call())
        monitoring.set_events(tool, monitoring.events.CALL)
        stop = partial(monitoring.set_events, tool, 0)
        os.register_at_fork(after_in_child=stop)  # a fork shares the rings
        atexit.register(stop)  # before Python takes modules apart

    def begin_anew(self) -> None:
        """Begin new sequences: this process has joined another time."""
        self._file.begin_anew()
        for known in list(self._by_function.values()):
            for _, learnt in known:
                self._set_states(learnt)

    # --- calls ---

    def _make_on_call(self) -> Callable[[CodeType, int, Any, Any], object]:
        """Return the function that sys.monitoring calls: with a place, a function, an argument.

        It takes part in every step of the program, so all that it needs is local to it.
        """
        jitted: Any = self._jitted
        main = self._file.main
        get_ident, disable = threading.get_ident, _monitoring.DISABLE
        on_other, on_rare = self._on_other_call, self._on_rare_call
        local, ref, plain, staying = _LOCAL, weakref.ref, _PLAIN, self._staying

        def on_call(code: CodeType, offset: int, function: Any, argument: Any) -> object:
            kind = type(function)
            if kind is not jitted:
                if kind in plain and (ref(code), offset) in staying:
                    return None
                return disable if on_other(code, offset, function, argument) else None
            try:
                state = function._mcjax_launch
            except AttributeError:
                return on_rare(code, function, argument)
            if state:
                if get_ident() == main:
                    entry, sequence, _ = state
                    try:
                        sequence.ring[next(sequence.positions)] = entry
                    except StopIteration:
                        sequence.begin_block(entry)
                    return None
            elif state is local:
                return None
            return on_rare(code, function, argument)

        return on_call

    def _on_other_call(self, code: CodeType, offset: int, function: Any, argument: Any) -> bool:
        """Handle a call of another object; return True to observe this place no longer.

        A place that calls what it is given may call a jitted function later, so it stays observed;
        and one that calls a function by a name by which a jitted one may be called, such as a
        method of another class.
        """
        place = weakref.ref(code), offset
        kind = type(function)
        if kind is MethodType:
            inner = function.__func__
        elif kind is partial:
            inner = _unwrap(function)
            argument = function.args[0] if function.args else argument
        else:
            inner, argument = getattr(kind, "__call__", None), function  # noqa: B004, of its class
        if type(inner) is self._jitted:
            self._on_rare_call(code, inner, argument)
            self._staying.add(place)
        if place in self._staying:
            return False
        count = self._other_calls.pop(place, 0) + 1
        if count < _MOST_OTHER_CALLS:
            self._other_calls[place] = count
            return False
        is_python = kind is FunctionType or kind is MethodType
        if _calls_any(code, function) or (is_python and function.__name__ in self._names):
            self._staying.add(place)
            return False
        return True

    def _on_rare_call(self, code: CodeType, function: Any, argument: Any) -> object:
        """Record a call whose outcome is not the same in every call of the main thread."""
        if code is self._run_inside:  # in `_run_transformed`
            return _monitoring.DISABLE
        self._try(self._record_call, code, function, argument)
        return None

    def _record_call(self, code: CodeType, function: Any, argument: Any) -> None:
        state: Any = getattr(function, _STATE, None)
        if state is _LOCAL:
            return
        if state is None:
            state = self._meet(code, function)
        learnt: _Learnt = state[-1] if state else state
        self._of_thread.latest = None
        if (missed := self._of_thread.missing) is not None:  # a hit with an argument of a new kind
            self._of_thread.missing = None
            self._give_up_order(missed)
        outcome = learnt.direct
        if learnt.is_mixed:
            key = self._make_key(argument)
            outcome = learnt.outcomes.get(key)
            if key in learnt.unclear:
                self._give_up_order(learnt)
            elif key not in learnt.outcomes:
                self._of_thread.missing = learnt
        if outcome is not None:
            sequence = self._file.get_sequence(outcome.mesh)
            sequence.record(outcome.entry)
            self._of_thread.latest = getattr(function, "_fun", None), sequence, outcome.entry
        elif getattr(function, "_fun", None) is None:
            self._of_thread.unknown = learnt

    def _give_up_order(self, learnt: _Learnt) -> None:
        """Give up comparing the meshes of a function, because a call's outcome is unknown."""
        for mesh in learnt.meshes:
            self._file.give_up_order(self._file.get_sequence(mesh))

    def _meet(self, code: CodeType, function: Any) -> _Learnt:
        """Return what is known of a jitted function that code calls for the first time."""
        if not is_jax(code.co_filename):
            name = str(getattr(function, "__name__", ""))
            self._names.update([name] if name in code.co_names else [name, *code.co_names])
        inner = getattr(function, "_fun", None)
        learnt = _Learnt("") if inner is None else self._get_learnt(inner, function._jit_info)
        learnt.functions.add(function)
        setattr(function, _STATE, self._make_state(learnt))
        return learnt

    def _get_learnt(self, inner: Any, options: Any) -> _Learnt:
        """Return what is known of a function with these options of jit()."""
        known = self._by_function.setdefault(id(inner), [])
        for other, learnt in known:
            if other is options or tuple.__eq__(other, options):
                return learnt
        learnt = _Learnt(_identify(inner))
        known.append((options, learnt))
        try:
            weakref.finalize(inner, self._by_function.pop, id(inner), None).atexit = False
        except TypeError:  # an object without weak references
            pass
        return learnt

    def _make_state(self, learnt: _Learnt) -> Any:
        if learnt.is_mixed:
            return learnt
        if learnt.direct is None:
            return _LOCAL
        sequence = self._file.get_sequence(learnt.direct.mesh, self._file.main)
        return learnt.direct.entry, sequence, learnt

    def _set_states(self, learnt: _Learnt) -> None:
        state = self._make_state(learnt)
        for function in list(learnt.functions):
            setattr(function, _STATE, state)

    def _make_key(self, argument: Any) -> Any:
        """Return the kind of a first argument: shapes and shardings of the arrays in it."""
        if type(argument) is self._array:
            return argument.shape, argument.sharding
        if argument is _monitoring.MISSING:
            return None
        arrays = [leaf for leaf in self._list_leaves(argument) if type(leaf) is self._array]
        return tuple((leaf.shape, leaf.sharding) for leaf in arrays[:_MOST_LEAVES])

    # --- misses ---

    def _infer(self, real: Any, inner: Any, options: Any, *args: Any) -> Any:
        """Wrap JAX's function that reads the arguments of a miss."""
        if sys._getframe(1).f_code.co_name == _MISS:  # not to lower or trace the function
            self._try(self._withdraw, inner, options)
        return real(inner, options, *args)

    def _withdraw(self, inner: Any, options: Any) -> None:
        """Withdraw the entry of this thread's call of a function: it is no hit."""
        self._of_thread.missing = None
        latest, self._of_thread.latest = self._of_thread.latest, None
        if latest is not None and latest[0] is inner:
            found = [latest[1:]]
        else:  # a direct call of the main thread
            known = self._by_function.get(id(inner), ())
            direct = (learnt.direct for _, learnt in known if learnt.direct is not None)
            found = [(self._file.get_sequence(each.mesh), each.entry) for each in direct]
        for sequence, entry in found:
            if sequence.last == entry:
                sequence.withdraw()
                break
        if self._is_clean():
            self._of_thread.options[id(inner)] = options

    def _run(self, real: Any, params: Any, flat: Any, inner: Any, args: Any, kwargs: Any) -> Any:
        """Wrap JAX's function that runs a miss."""
        run = self._try(self._make_run, inner, args, kwargs)
        if run is None:
            return real(params, flat, inner, args, kwargs)
        return self._run_within(run, real, params, flat, inner, args, kwargs)

    def _make_run(self, inner: Any, args: Any, kwargs: Any) -> _Run | None:
        """Return the run of a miss; None if the function is only traced."""
        options = self._of_thread.options.pop(id(inner), None)
        if options is None or not self._is_clean():
            return None
        first = next(iter((*args, *kwargs.values())), _monitoring.MISSING)
        return _Run(self._get_learnt(inner, options), self._make_key(first))

    def _run_transformed(self, real: Any, *args: Any, **params: Any) -> Any:
        """Wrap JAX's function that runs a jitted function below a transformation, such as grad."""
        run = self._try(self._make_transformed_run, params, args)
        if run is None:
            return real(*args, **params)
        result = self._run_within(run, real, *args, **params)
        if not run.has_run:
            self._try(self._record_hit, run)
        return result

    def _make_transformed_run(self, params: Any, args: Any) -> _Run:
        code = params["jaxpr"]
        learnt = self._by_code.get(code)
        if learnt is None:
            learnt = self._by_code[code] = _Learnt(f"{params['name']} transformed")
        return _Run(learnt, self._make_key(args[0] if args else _monitoring.MISSING))

    def _record_hit(self, run: _Run) -> None:
        """Record the run of a transformed function, which needed no Python code."""
        outcome = run.learnt.outcomes.get(run.key)
        if run.key in run.learnt.unclear:
            self._give_up_order(run.learnt)
        elif outcome is not None:
            self._file.get_sequence(outcome.mesh).record(outcome.entry)

    def _run_within(self, run: _Run, real: Any, *args: Any, **kwargs: Any) -> Any:
        runs = self._of_thread.runs
        runs.append(run)
        try:
            return real(*args, **kwargs)
        finally:
            runs.remove(run)

    def on_run(self, program: Program | None) -> None:
        """Learn and record what this thread's latest call runs: a program; None for a local one."""
        self._try(self._record_run, program)

    def on_abandoned_run(self) -> None:
        """Withdraw this thread's latest run, which an exception has prevented."""
        latest, self._of_thread.run = self._of_thread.run, None
        if latest is not None and latest[0].last == latest[1]:
            latest[0].withdraw()

    def _record_run(self, program: Program | None) -> None:
        self._of_thread.run = None
        runs = self._of_thread.runs
        run = runs[-1] if runs and not runs[-1].has_run else None
        learnt, self._of_thread.unknown = self._of_thread.unknown, None
        key = None
        if run is not None:
            run.has_run = True
            learnt, key = run.learnt, run.key
        if program is None:
            if learnt is not None:
                self._learn(learnt, key, None)
            return
        mesh = program.platform, program.processes, program.devices
        sequence = self._file.get_sequence(mesh)
        last = sequence.last
        if run is None and learnt is None and self._ahead.get(last) == program.fingerprint:
            return  # compiled ahead of time: its call has been recorded
        if learnt is None:
            text = f"{program.name} alone"
        elif run is None:  # compiled ahead of time: the function that is called has no name
            text = f"{program.name} {program.fingerprint} ahead"
        else:
            text = f"{learnt.text} {_get_shape(key)}"
        entry = self._file.identify(text, program)
        sequence.record(entry)
        self._of_thread.run = sequence, entry
        if run is None and learnt is not None:
            self._ahead[entry] = program.fingerprint
        if learnt is not None:
            self._learn(learnt, key, _Outcome(entry, mesh))

    def _learn(self, learnt: _Learnt, key: Any, outcome: _Outcome | None) -> None:
        if key in learnt.outcomes and learnt.outcomes[key] == outcome:
            return
        learnt.learn(key, outcome)
        self._set_states(learnt)
        if outcome is not None:  # places that call no jitted function so far may call this one
            self._other_calls.clear()
            _monitoring.restart_events()

    def _try(self, do: Callable[..., T], *args: Any) -> T | None:
        """Return what `do` returns; on an exception give up, because entries are missing."""
        if self._is_broken:
            return None
        try:
            return do(*args)
        except Exception as error:
            self._is_broken = True
            self._file.close(repr(error))
            return None


def _calls_any(code: CodeType, function: Any) -> bool:
    """Return whether code may call other functions where it has called this one.

    It names what it always calls. JAX's own code calls jitted functions where it calls no others.
    """
    if is_jax(code.co_filename):
        return False
    own = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]
    names = (*code.co_names, *own, *code.co_cellvars)
    return getattr(function, "__name__", None) not in names


def _unwrap(function: Any) -> Any:
    while type(function) is partial:
        function = function.func
    return function


def _make_without_state(real: Any, *args: Any) -> Any:
    """Make a jitted function without the state of another one, which JAX may have copied."""
    function = real(*args)
    function.__dict__.pop(_STATE, None)
    return function


def _identify(inner: Any) -> str:
    """Return a text for a function that is equal in all processes of a program."""
    return _ADDRESS.sub("", " ".join(islice(_list_parts(inner, _DEEPEST), _MOST_PARTS)))


def _list_parts(function: Any, depth: int) -> Iterator[str]:
    """Yield the name and line of a function, and what tells it from others of that line.

    These are arguments of partial(), and variables of the code around it: functions and numbers.
    """
    name = getattr(function, "__name__", type(function).__name__)
    given: list[Any] = []
    while type(function) is partial:
        given += *function.args, *function.keywords.values()
        function = function.func
    function = _find_wrapped(function)
    code = getattr(function, "__code__", None)
    where = ""
    if code is not None:
        where = f" {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
        if name == "<lambda>":  # a line may have several
            where += f":{max(column or 0 for _, _, column, _ in code.co_positions())}"
        for cell in getattr(function, "__closure__", None) or ():
            with suppress(ValueError):  # a variable that is not assigned yet
                given.append(cell.cell_contents)
    yield f"{name}{where}"
    for value in given:
        if isinstance(value, _NUMBERS):
            yield repr(value)
        elif depth and (isinstance(value, _FUNCTIONS) or _is_transformed(value)):
            yield from _list_parts(value, depth - 1)


def _find_wrapped(function: Any) -> Any:
    """Return the Python function in an object that JAX or Flax makes of it; else the object."""
    if _is_transformed(function):
        return function.f
    return function if hasattr(function, "__code__") else getattr(function, "__wrapped__", function)


def _is_transformed(value: Any) -> bool:
    """Return whether a value is JAX's wrapper of a function, as in pmap()."""
    return type(value).__name__ == "WrappedFun"


def _get_shape(key: Any) -> str:
    """Return the shape of a first argument that is an array, from its kind."""
    return repr(key[0]) if key and len(key) == 2 and not hasattr(key[1], "__len__") else ""
