"""`--junit`: the last attempt of a run as JUnit's XML, one case a rank, for a CI system."""

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from xml.etree import ElementTree

from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.diagnosis.root_cause import NotStarted, RankFailed
from mcjax_launch.diagnosis.summary import fate, last_words, reason
from mcjax_launch.diagnosis.victims import is_victim
from mcjax_launch.job.job import Job
from mcjax_launch.report import files
from mcjax_launch.report.record import last_lines, outcome
from mcjax_launch.runs.rank_run import RankRun

Element = ElementTree.Element

OPTION = "--junit"
# Characters of a rank's stream, and of all ranks'.
_MOST_OUTPUT = 128 << 10
_MOST_OF_ALL = 16 << 20
_COLOURS = r"\x1b\[[0-9;]*m"
# What XML cannot hold in any way.
_NOT_XML = "[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


class JUnit:
    """Writes the file when the run is over; a `recording.Recorder`.

    Args:
        path: checked; may hold placeholders.
        job: what is run.
        say: prints a line of the launcher's own.

    """

    def __init__(self, path: str, job: Job, say: Callable[[str], object]) -> None:
        self._path = os.path.abspath(path)  # the working directory may change
        self._job = job
        self._say = say
        self._began, self._began_at = time.time(), time.monotonic()
        self._last: Attempt | None = None
        self._earlier: list[str] = []

    def ended(self, attempt: Attempt) -> None:
        """An attempt is over."""
        if self._last is not None:
            self._earlier.append(next(iter(self._last.summary.lines), "ended"))
        self._last = attempt

    def over(self, status: int, end: str) -> None:
        """Write the file."""
        place = files.filled(self._path, files.values(self._job, self._last))
        cases = _cases(self._job, self._last, status, end)
        suite = _suite(cases, time.monotonic() - self._began_at, self._began)
        suite.insert(0, _properties(self._last, self._earlier, status, end))
        root = Element("testsuites")
        root.append(suite)
        ElementTree.indent(root)
        text = ElementTree.tostring(root, "unicode")
        try:
            files.replace(place, f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')
        except OSError as error:
            self._say(f"{OPTION} {place}: cannot be written: {error.strerror}")


def _suite(cases: list[Element], seconds: float, began: float) -> Element:
    counts = {
        kind: str(sum(case.find(name) is not None for case in cases))
        for kind, name in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    suite = _element("testsuite", name="mcjax-launch", tests=str(len(cases)), **counts)
    suite.set("time", f"{seconds:.3f}")
    # Without an offset, as the format has it.
    suite.set("timestamp", datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    suite.set("hostname", _clean(os.uname().nodename))
    suite.extend(cases)
    return suite


def _properties(last: Attempt | None, earlier: list[str], status: int, end: str) -> Element:
    found = {"exit status": str(status), "end": end}
    if last is not None:
        found |= {"job id": last.state.job_id, "hosts": " ".join(last.hosts)}
    found |= {f"attempt {number}": line for number, line in enumerate(earlier, 1)}
    properties = Element("properties")
    properties.extend(_element("property", name=name, value=found[name]) for name in found)
    return properties


def _cases(job: Job, last: Attempt | None, status: int, end: str) -> list[Element]:
    """A case for each rank, and one more if none of them shows that the job has failed."""
    classname = re.sub("/+", ".", job.program[0].removesuffix(".py").lstrip("./"))
    cases: list[Element] = []
    if last is not None and not isinstance(last.summary.ending, NotStarted):
        most = min(_MOST_OUTPUT, _MOST_OF_ALL // max(1, 2 * len(last.state.ranks)))
        cases = [_case(run, last, classname, most) for run in last.state.ranks.values()]
    if status and not any(_is_bad(case) for case in cases):
        case = _element("testcase", classname=classname, name="job", time="0.000")
        case.append(_said("error", "job", end, ""))
        cases.append(case)
    return cases


def _is_bad(case: Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _case(run: RankRun, last: Attempt, classname: str, most: int) -> Element:
    """The case of a rank.

    Args:
        run: of the rank.
        last: the attempt.
        classname: of all cases.
        most: so many characters of each of its streams.

    """
    process, name = run.process, f"rank {run.process_id}"
    if last.state.hosts > 1:
        name += f" on {run.host}"
    seconds = 0.0
    if process.started_at is not None:
        end = process.ended_at or last.state.began_at + last.seconds
        seconds = max(0.0, end - process.started_at)
    case = _element("testcase", classname=classname, name=name, time=f"{seconds:.3f}")
    case.extend(_verdict(run, last))
    for stream, text in (("system-out", run.stdout), ("system-err", run.stderr)):
        if lines := last_lines(text, most):
            element = Element(stream)
            element.text = _clean("\n".join(lines))
            case.append(element)
    return case


def _verdict(run: RankRun, last: Attempt) -> list[Element]:
    """What a rank's case has beside its output, unless it went well.

    A failure is the rank's own. An error is what others did to it, or what happened to its host.
    """
    ending, lines = last.summary.ending, last.summary.lines
    if isinstance(ending, RankFailed) and run is ending.culprit:
        return [_said("failure", _kind(run), lines[0], "\n".join(lines))]
    if run.failed and not is_victim(run):
        failure = run.failure
        said = last_words(run) if failure is None else [failure.traceback]
        words = f"{_name(run)} failed: {reason(run)}"
        return [_said("failure", _kind(run), words, "\n".join(said))]
    kind = outcome(run)
    if kind == "ended":
        return []
    words = f"{_name(run)}: {fate(run)}"
    return [_said("error", kind, words, "\n".join([words, *lines[:1], *last_words(run)]))]


def _kind(run: RankRun) -> str:
    failure = run.failure
    return failure.exception if failure is not None and failure.exception else reason(run)


def _name(run: RankRun) -> str:
    return f"rank {run.process_id}"


def _said(tag: str, kind: str, message: str, text: str) -> Element:
    element = _element(tag, type=kind, message=message)
    element.text = _clean(text)
    return element


def _element(tag: str, /, **attributes: str) -> Element:
    return Element(tag, {key: _clean(value) for key, value in attributes.items()})


def _clean(text: str) -> str:
    r"""Text that XML can hold: without colours, other characters that it cannot as `\x1b`."""
    plain = re.sub(_COLOURS, "", text)
    return re.sub(_NOT_XML, lambda match: match[0].encode("unicode_escape").decode(), plain)
