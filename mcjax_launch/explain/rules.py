"""The table of all rules, in order of precedence, and when each is asked; pure.

A rule is a function in `findings/`. It gets a view of one moment and yields findings, each worded
once: notes, limits, the summary and the record all quote it. A new rule is a function and a line in
`RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module

from mcjax_launch.explain.view import Fact, Occasion, View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.state import RunState
from mcjax_launch.wire.value import Value

NOTE, HANG, LIMIT, DEATH = Occasion.NOTE, Occasion.HANG, Occasion.LIMIT, Occasion.DEATH
SUMMARY, END, OVER = Occasion.SUMMARY, Occasion.END, Occasion.OVER
CALL = Fact.CALL


class Rule(Value):
    """An entry in the table of rules: a rule's function, and when to call it.

    Args:
        name: `module.function`, the module in `findings/`; it is loaded at first use.
        occasions: the occasions at which to call the rule.
        facts: the facts of which one must be new for a call at `NOTE`.

    """

    name: str
    occasions: Occasion
    facts: Fact = Fact.NOTHING

    @cached_property
    def find(self) -> Callable[[View], Iterable[Finding]]:
        """The rule's function, which yields the findings of a view."""
        module, _, function = self.name.partition(".")
        found: Callable[[View], Iterable[Finding]] = getattr(
            import_module(f"mcjax_launch.explain.findings.{module}"), function
        )
        return found


RULES = (
    Rule("importing.under_way", LIMIT),
    Rule("errors.failed_clean_up", DEATH),
    Rule("collectives.different_collectives", DEATH),
    Rule("collectives.different_barriers", DEATH),
    Rule("alone.second_process", DEATH),
    Rule("joining.impossible_call", NOTE, CALL),
    Rule("absent.ended_without", NOTE, CALL | Fact.END),
    Rule("joining.wrong_call", LIMIT | DEATH),
    Rule("joining.wrong_address", NOTE | LIMIT | DEATH, CALL),
    Rule("joining.oversized_call", NOTE, CALL),
    Rule("joining.replaced_handler", NOTE, CALL),
    Rule("absent.never_called", DEATH),
    Rule("settings.other_version", NOTE | LIMIT | DEATH, CALL),
    Rule("settings.other_setting", NOTE | LIMIT | SUMMARY, CALL),
    Rule("requested.other_count", NOTE | SUMMARY, Fact.BACKEND),
    Rule("devices.unlike_others", NOTE | SUMMARY, Fact.BACKEND),
    Rule("devices.shared_gpus", NOTE, Fact.BACKEND | Fact.JAX),
    Rule("gpus.memory_taken", NOTE | SUMMARY, Fact.GPU_MEMORY),
    Rule("devices.other_numbers", NOTE, Fact.NUMBER),
    Rule("devices.without_devices", DEATH),
    Rule("exits.silent", DEATH),
    Rule("exits.failed_exit_barrier", DEATH),
    Rule("exits.vanished", NOTE | DEATH, Fact.END),
    Rule("errors.failed_callback", DEATH),
    Rule("collectives.missed_barrier", DEATH),
    Rule("collectives.missed_collective", DEATH),
    Rule("errors.unhandled_errors", HANG | LIMIT | SUMMARY),
    Rule("tests.failed_test", HANG | LIMIT | SUMMARY),
    Rule("tests.other_tests", NOTE | SUMMARY, CALL | Fact.TESTS),
    Rule("programs.other_sequence", NOTE | HANG | LIMIT | SUMMARY, Fact.SEQUENCE),
    Rule("errors.logged_errors", HANG | LIMIT | SUMMARY | END),
    Rule("alone.lone_ranks", NOTE | SUMMARY | END, Fact.JAX),
    Rule("alone.single_process_calls", SUMMARY | END),
    Rule("alone.separate_jobs", NOTE | END, Fact.JAX),
    Rule("alone.calls_below", NOTE, Fact.BELOW),
    Rule("leftovers.left_behind", OVER),
)


def apply_rules(view: View, occasion: Occasion, facts: Fact = ~Fact.NOTHING) -> Iterator[Finding]:
    """Call the rules for an occasion and yield their findings, in order of precedence.

    A rule that raises is recorded in the state's `failed_hints`, and skipped.

    Args:
        view: view of the job at the moment to judge.
        occasion: occasion that selects the rules.
        facts: new facts; at `NOTE` only rules that depend on one of these are called.

    """
    for rule in RULES:
        if occasion in rule.occasions and (occasion is not NOTE or rule.facts & facts):
            try:
                yield from rule.find(view)
            except Exception as error:  # a bug in a rule must not cost the summary
                failed = f"the rule {rule.name} failed: {error!r}; please report this"
                if failed not in view.state.failed_hints:
                    view.state.failed_hints.append(failed)


def explain_limit(state: RunState, now: float) -> Sequence[str]:
    """Return the words of all findings for a job that has reached a limit, with advice.

    Args:
        state: state of the run.
        now: current time, in time.monotonic's seconds.

    """
    return format_lines(apply_rules(View(state, now), LIMIT))


def format_lines(found: Iterable[Finding]) -> Sequence[str]:
    """Return the words of each finding as a line, followed by its cure as a line `hint: ...`."""
    return [line for finding in found for line in (finding.words, finding.hint) if line]
