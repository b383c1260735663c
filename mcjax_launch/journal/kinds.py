"""Declarations of all kinds of events, the source of docs/events.json and a table in the docs."""

from __future__ import annotations

from mcjax_launch.wire.value import Value

#: Goes up when a field changes its meaning or goes away; a new kind or field does not change it.
VERSION = 1

_RANK = {"rank": "the rank's number", "host": "the name of its host"}


class EventKind(Value):
    """Kind of event.

    Args:
        meaning: sentence that says what has happened.
        fields: meanings of the event's fields other than `event` and `time`, by name.

    """

    meaning: str
    fields: dict[str, str]


#: By the value of `event`; `job` is the first event of a run, `summary` the last.
KINDS = {
    "job": EventKind(
        "A run begins, or could not begin.",
        {
            "version": f"of this format: {VERSION}",
            "launcher_version": "of mcjax-launch",
            "job_id": 'of the first attempt; `""` if the run could not begin',
            "pid": "of the launcher",
            "program": "PROGRAM and its arguments",
            "ranks": "the number of ranks in the whole job, or null if the run could not begin",
            "hosts": "the names of the hosts that get ranks of this launcher",
        },
    ),
    "started": EventKind("A rank's process runs.", {**_RANK, "pid": "of the process"}),
    "joining": EventKind("A rank has called `jax.distributed.initialize()`.", _RANK),
    "joined": EventKind("`jax.distributed.initialize()` has returned in a rank.", _RANK),
    "output": EventKind(
        "A rank has written something.",
        {
            "rank": "the rank's number",
            "stream": '`"stdout"` or `"stderr"`',
            "text": "with its newlines: several lines, or a part of one; bytes that are not "
            "UTF-8 become surrogates, as with Python's `surrogateescape`",
        },
    ),
    "note": EventKind(
        "The launcher has something to say.",
        {
            "text": "one or more lines, without the prefix",
            "level": '`"say"`, `"note"` (not shown with `-q`), `"detail"` (shown with `-v`), '
            '`"summary"`, or `"alarm"`: a summary of a failure',
        },
    ),
    "finding": EventKind(
        "The launcher has found something that explains what the job does; a note says the same.",
        {
            "words": "what happened, in one line",
            "ranks": "the ranks that caused it, the rank to blame first",
            "cure": 'what to do about it, or `""`',
            "since": "since when, in seconds since 1970, or null",
            "certain": "true if the job can never go on, and is ended",
        },
    ),
    "failed": EventKind(
        "The program of a rank has failed; its process may still run.",
        {**_RANK, "message": "in one line"},
    ),
    "ended": EventKind(
        "A rank's process has ended.",
        {
            **_RANK,
            "exit_status": "as a shell would report it",
            "message": "the same in words",
        },
    ),
    "restart": EventKind(
        "The whole job is restarted.",
        {
            "count": "how often it has been restarted, this time included",
            "job_id": "of the new attempt; of the same one for a rank",
            "hosts": "the names of the hosts that get ranks",
        },
    ),
    "gpus": EventKind(
        "What a rank uses of its GPUs of NVIDIA's, every ten seconds.",
        {
            **_RANK,
            "gpus": "each GPU that the rank uses, as `gpu_use` in record.json",
        },
    ),
    "programs": EventKind(
        "How many programs over several processes the ranks have run, every ten seconds.",
        {"ranks": "each rank that has run any: `rank`, `count`, and `per_s` of late or null"},
    ),
    "stacks": EventKind("The stacks of all ranks were requested.", {"lines": "as they are shown"}),
    "summary": EventKind(
        "The run is over, or could not begin: then only the first two fields are there.",
        {
            "exit_status": "of the launcher",
            "message": "how the run ended, in one line",
            "lines": "the summary as it is shown; none if all went well",
            "root_cause": "why the job failed, or null: `message`, `rank` (to blame, or null), "
            "`ranks` (that failed alike), `host`, `exception`, `where`, `traceback`",
            "ranks": "each rank of the last attempt, with its `traceback` and the last "
            "of its `stdout` and `stderr`, as text",
            "hosts": "the names of the hosts of the last attempt",
            "seconds": "how long the run took, with all attempts",
            "restarts": "how often the whole job was restarted",
            "job_id": "of the last attempt",
            "log_dir": "the folder with the log files, or null",
            "record": "the last attempt in the form of the record (record.json), without its ranks",
        },
    ),
}
