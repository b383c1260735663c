"""What JAX prints that is no news: the words are those of real runs (jax 0.12.0, 0.10.2, 0.6.0)."""

import math
import random

import pytest

from mcjax_launch.console.noise_filter import (
    CHAIN_S,
    GLOO_S,
    HOLD_S,
    MOST_HELD,
    QUIET_S,
    SAME_S,
    HiddenLines,
    NoiseFilter,
    patience_s,
)
from mcjax_launch.console.pieces import Fragment, Lines, Piece, Stream, whole_lines
from mcjax_launch.console.renderers import Plain
from mcjax_launch.console.unfinished import MOMENT_S, UnfinishedLines
from mcjax_launch.jax_messages.noise import LineClassifier, Noise, without_noise
from mcjax_launch.jax_messages.tracebacks import CHAINS
from mcjax_launch.kernel.wire import frames

GLOO, TERM, VICTIM, STACK = Noise.GLOO, Noise.TERM, Noise.VICTIM, Noise.STACK
TRACEBACK, STUB = Noise.TRACEBACK, Noise.STUB
NO_DRIVER = "Could not find cuda drivers on your machine, GPU will not be used."
CONNECTED = (
    "[Gloo] Rank 0 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3"
)
FATAL = (
    "F1120 10:33:29.981010   26150 client.h:80] Terminating process because the JAX distributed "
    "service detected fatal errors. This most likely indicates that another task died; see the "
    "other task logs for more details. absl::Status: UNAVAILABLE: "
)
OLD_FATAL = FATAL.replace(
    "F1120 10:33:29.981010   26150 client.h:80]",
    "2026-11-20 10:33:36.139785: F external/xla/xla/pjrt/distributed/client.h:80]",
)
POLLED = (
    "E1120 10:33:29.981005   26150 coordination_service_agent.cc:289] Polled an error from "
    "coordination service (this can be an error from this or another task)."
)
TASKS = "The tasks have crashed. Check the task logs for an earlier error, or scheduler events"
FRAME = "    @     0x7fa19d840634  absl::lts_20260107::log_internal::LogMessage::SendToLog()"
LOST_PEER = "ValueError: UNKNOWN: Gloo AllGather failed: Read error: Connection reset by peer"
TERM_CAUGHT = (
    "W1120 10:33:26.586135   25953 preemption_notifier.cc:90] SIGTERM caught at 2026-11-20T10:33:26"
)

STREAMS: dict[str, list[tuple[str, Noise | None]]] = {
    "Gloo": [
        (CONNECTED, GLOO),
        (CONNECTED + " ", None),
        (CONNECTED.replace("3", "x"), None),
        ("", None),
        ("13", None),
    ],
    "Gloo's threads mix their pieces": [
        (
            "[Gloo] Rank 0 is connected to 1[Gloo] Rank  peer ranks. 1Expected number of connected "
            "peer ranks is :  is connected to 11",
            GLOO,
        ),
        (" peer ranks. Expected number of connected peer ranks is : 1", GLOO),
        ("[Gloo] Rank [Gloo] Rank 0 is connected to 1 peer ranks. " + CONNECTED[-46:], GLOO),
        ("1 is connected to 1 peer ranks. " + CONNECTED[-46:], GLOO),
    ],
    "the coordinator is gone": [
        (
            "W1120 10:33:29.980934   26150 preemption_sync_manager.cc:147] Failed to retrieve "
            "preemption notice from coordination service: UNAVAILABLE: recvmsg:Connection reset",
            VICTIM,
        ),
        (
            "Additional GRPC error information from remote target coordination_service while "
            "calling /xla.coordination.CoordinationService/GetKeyValue:",
            VICTIM,
        ),
        (':UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"recvmsg"}.', VICTIM),
        (
            "E1120 10:33:29.980960   26150 preemption_sync_manager.cc:159] Failed to cancel "
            "preemption barrier: FAILED_PRECONDITION: Tried to cancel non-existent barrier",
            VICTIM,
        ),
        (
            "E1122 00:58:07.001353   27588 preemption_sync_manager.cc:251] Preemption sync barrier "
            "failed: UNAVAILABLE: Failed to send RPC to coordination service.",
            VICTIM,
        ),
        (POLLED, VICTIM),
        (FATAL + "Failed to send RPC to coordination service.", VICTIM),
        ("Traceback (most recent call last):", TRACEBACK),
        ('  File "fail.py", line 38, in <module>', TRACEBACK),
        (LOST_PEER, TRACEBACK),
        ("*** Check failure stack trace: ***", STACK),
        (FRAME, STACK),
        ("    @     0x7fa1a4ca71f5  (unknown)", STACK),
    ],
    "the coordinator of jax 0.6 is gone": [
        (POLLED.replace("289", "567"), VICTIM),
        (OLD_FATAL, VICTIM),
        (
            "Additional GRPC error information from remote target coordination_service while "
            "calling /tensorflow.CoordinationService/PollForError:",
            VICTIM,
        ),
        (
            ':{"created":"@1795170816.139601778","description":"Error received from peer '
            'ipv4:127.0.0.1:41785","file_line":1056,"grpc_message":"Socket closed"}',
            VICTIM,
        ),
    ],
    "the coordinator of jax 0.12 is gone": [
        (POLLED, VICTIM),
        (FATAL + "Failed to send RPC to coordination service.", VICTIM),
        (
            "Additional GRPC error information from remote target coordination_service while "
            "calling /xla.coordination.CoordinationService/PollForError:",
            VICTIM,
        ),
        (":UNAVAILABLE:Stream removed (Socket closed)", VICTIM),
        ("=== Source Location Trace: === ", VICTIM),
        ("external/xla+/xla/pjrt/coordination/coordination_service_error_util.cc:64", VICTIM),
        (". This is only expected if one of the tasks is unhealthy. Check the logs", VICTIM),
        ("", VICTIM),
        ("lib/mine.cc:64", VICTIM),
        ("mine: 3", None),
        ("lib/mine.cc:64", None),
    ],
    "a rank is silent": [
        (
            "E1120 10:38:56.045093   27717 coordination_service.cc:1549] [12687235404188073214] "
            "Use error polling to propagate the following error to all tasks: UNAVAILABLE: The "
            "following tasks are unhealthy (stopped sending heartbeats):",
            VICTIM,
        ),
        ("1", VICTIM),
        (TASKS, VICTIM),
        ("", VICTIM),
        (FATAL + "The following tasks are unhealthy (stopped sending heartbeats):", VICTIM),
        ("1", VICTIM),
        ("2", VICTIM),
        (TASKS, VICTIM),
        ("", VICTIM),
        ("RPC: /xla.coordination.CoordinationService/PollForError [type.googleapis.com/t]", VICTIM),
        ("*** Check failure stack trace: ***", STACK),
        ("", None),
        ("1", None),
    ],
    "a rank of jax 0.6 is silent": [
        (OLD_FATAL + "The following tasks are unhealthy (stopped sending heartbeats):", VICTIM),
        ("/job:jax_worker/replica:0/task:1", VICTIM),
        (TASKS, VICTIM),
        ("", VICTIM),
        ("RPC: /tensorflow.CoordinationService/PollForError [type.googleapis.com/]", VICTIM),
    ],
    "the exit barrier has failed": [
        (
            "E1120 10:39:31.449545   29408 coordination_service.cc:1520] [14021522766568433236] "
            "Shutdown barrier in coordination service has failed:",
            VICTIM,
        ),
        ("DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::14021522766568433236::0.", VICTIM),
        ("# of tasks that reached the barrier: 2/3.", VICTIM),
        ("The first task at the barrier: 2. Some timed out task names:", VICTIM),
        ("1", VICTIM),
        (" [type.googleapis.com/tensorflow.BarrierError='\\n\\x1eShutdown::140']", VICTIM),
        ("This suggests that the workers are out of sync. Either at least one worker", VICTIM),
        (FATAL.replace("UNAVAILABLE", "INTERNAL") + "Shutdown barrier has failed.", VICTIM),
        ("Barrier result: 'DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::140", VICTIM),
    ],
    "TERM": [
        (TERM_CAUGHT, TERM),
        (
            "2026-11-20 10:33:34.786065: W external/xla/xla/tsl/distributed_runtime/preemption/"
            "preemption_notifier.cc:89] SIGTERM caught at 2026-11-20T10:33:34.786016891+00:00",
            TERM,
        ),
        ("SIGTERM caught at noon", None),
    ],
    "a traceback of one's own": [
        ("Traceback (most recent call last):", None),
        ('  File "fail.py", line 38, in <module>', None),
        ("ValueError: Connection reset by peer", None),
        ("", None),
        ("RPC: /x", None),
    ],
    "a victim's exception has a cause and an effect": [
        ("step 3: loss 0.5", None),
        ("Traceback (most recent call last):", TRACEBACK),
        ('  File "fail.py", line 38, in step', TRACEBACK),
        ("step 4: loss 0.4", None),
        ("    total(a)", TRACEBACK),
        ("    ~~~~~^^^", TRACEBACK),
        (LOST_PEER, TRACEBACK),
        ("--------------------", VICTIM),
        ("For simplicity, JAX has removed its internal frames from the traceback of", VICTIM),
        ("step 5: loss 0.4", None),
        ("During handling of the above exception, another exception occurred:", TRACEBACK),
        ("", TRACEBACK),
        ("Traceback (most recent call last):", TRACEBACK),
        ('  File "fail.py", line 12, in main', TRACEBACK),
        ("train.Failed: no checkpoint", TRACEBACK),
        ("step 6: loss 0.4", None),
        ("Traceback (most recent call last):", TRACEBACK),
        ('  File "fail.py", line 38, in step', TRACEBACK),
        ("jaxlib._jax.XlaRuntimeError: UNAVAILABLE: Failed to send RPC: Socket closed", TRACEBACK),
        (
            "Additional GRPC error information from remote target coordination_service while "
            "calling /xla.coordination.CoordinationService/GetKeyValue:",
            VICTIM,
        ),
        (':UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"recvmsg"}.', VICTIM),
        ("", VICTIM),
        ("RPC: /xla.coordination.CoordinationService/PollForError [type.googleapis.com/t]", VICTIM),
        ("KeyError: 3", None),
    ],
    "an exception of one's own has an effect": [
        ("Traceback (most recent call last):", None),
        ("KeyError: 3", None),
        ("", None),
        ("During handling of the above exception, another exception occurred:", None),
        ("", None),
        ("Traceback (most recent call last):", None),
        ("ValueError: 4", None),
    ],
    "another thread's line comes in between": [
        ("Traceback (most recent call last):", TRACEBACK),
        ('  File "fail.py", line 38, in <module>', TRACEBACK),
        ("    ^^^^^^^^" + FATAL, TRACEBACK),
        (':UNKNOWN:Error received from peer  {grpc_message:"Socket closed"}', VICTIM),
        (LOST_PEER, TRACEBACK),
        (FRAME, STACK),
    ],
    "another thread's line has begun before": [
        ("    ^^^^^^^^" + FATAL, None),
        (':UNKNOWN:Error received from peer  {grpc_message:"Socket closed"}', VICTIM),
        (FRAME, STACK),
    ],
    "no driver of CUDA's": [  # as in public logs of 2024 and 2026
        (
            "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
            STUB,
        ),
        ("I0000 00:00:1777215668.929972  450463 cudart_stub.cc:31] " + NO_DRIVER, STUB),
        (
            "2024-06-07 14:17:16.238228: I external/local_tsl/tsl/cuda/cudart_stub.cc:32] "
            + NO_DRIVER,
            STUB,
        ),
        (
            "E0000 00:00:1730685902.578881  118380 cuda_dnn.cc:8310] Unable to register cuDNN factory: "
            "Attempting to register factory for plugin cuDNN when one has already been registered",
            STUB,
        ),
        ("E0000 00:00:1730685902.578881  118380 cuda_platform.cc:51] failed call to cuInit", None),
        ("mine: " + NO_DRIVER, None),
    ],
    "a stack of one's own": [
        ("F1120 10:33:29.981010   26150 buffer.cc:12] Check failed: size > 0", None),
        ("*** Check failure stack trace: ***", None),
        (FRAME, None),
    ],
    "JAX's words in a traceback": [
        ("jax.errors.JaxRuntimeError: UNAVAILABLE: Failed to send RPC", None),
        (
            "Additional GRPC error information from remote target coordination_service while "
            "calling /xla.coordination.CoordinationService/Barrier:",
            None,
        ),
        (':UNKNOWN:Error received from peer  {grpc_message:"Socket closed"}', None),
        ("# of tasks that reached the barrier: 2/3.", None),
    ],
}


@pytest.mark.parametrize("name", STREAMS)
def test_kinds(name: str) -> None:
    listener, lines = LineClassifier(), [line for line, _ in STREAMS[name]]
    text = "\n".join([*lines, ""]).encode()
    listener.expect(text, lambda traceback: TRACEBACK if traceback.is_victims else None)
    for line, kind in STREAMS[name]:
        assert listener.kind(line.encode()) is kind, line


@pytest.mark.parametrize("name", [name for name in STREAMS if "exception" not in name])
def test_noise_is_left_out_of_quotes(name: str) -> None:
    """Its own tracebacks stay, whatever they say."""
    kept = [line for line, kind in STREAMS[name] if kind in (None, TRACEBACK) or "^^F" in line]
    assert without_noise([line for line, _ in STREAMS[name]]) == (
        kept,
        len(STREAMS[name]) - len(kept),
    )


OUT, ERR = Stream(0, frames.STDOUT, b"0: "), Stream(0, frames.STDERR, b"0: ")


def rendered(pieces: list[Piece], plain: Plain) -> bytes:
    out = []
    for piece in pieces:
        out += plain.lines(piece) if isinstance(piece, Lines) else plain.fragment(piece, 0.0)
    return b"".join(out)


def shown(chunks: list[bytes], stream: Stream, noise: NoiseFilter, at: float = 0.0) -> bytes:
    """What is shown of a stream's chunks."""
    unfinished, plain, out = UnfinishedLines(), Plain(), b""
    for chunk in chunks:
        for piece in unfinished.feed(stream, chunk, at):
            out += rendered(noise.feed(piece, at), plain)
    return out


def last_notes(noise: NoiseFilter) -> list[str]:
    """What the user is told at the end about hidden lines."""
    return [line for hidden in noise.hidden for line in hidden.take()]


def passed(noise: NoiseFilter, stream: Stream, text: bytes, at: float) -> bytes:
    """What goes through the filter at once of whole lines."""
    return bytes_of(noise.feed(whole_lines(stream, text), at))


def bytes_of(pieces: list[Piece]) -> bytes:
    return b"".join(piece.text for piece in pieces)


def by_rank(pieces: list[Piece]) -> list[tuple[int, bytes]]:
    ranks = dict.fromkeys(piece.stream.rank for piece in pieces)
    return [(rank, bytes_of([p for p in pieces if p.stream.rank == rank])) for rank in ranks]


def cuts(data: bytes) -> list[list[bytes]]:
    """The same bytes, cut in many ways."""
    rng, ways = random.Random(1), [[data], [data[n : n + 1] for n in range(len(data))]]
    for _ in range(40):
        at = sorted(rng.sample(range(len(data)), 9))
        ways.append([data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])
    return ways


@pytest.mark.parametrize("name", STREAMS)
def test_chunk_borders_do_not_matter(name: str) -> None:
    stream = OUT if "Gloo" in name else ERR
    lines = [(line.encode(), kind) for line, kind in STREAMS[name]]
    kept = b"".join(b"0: " + line + b"\n" for line, kind in lines if kind is None)
    count = sum(kind not in (None, Noise.GLOO, Noise.STUB) for _, kind in lines)
    for chunks in cuts(b"".join(line + b"\n" for line, _ in lines)):
        noise = NoiseFilter()
        noise.fold_victims(None, own_term=True, now=0.0)
        plain, said = Plain(), shown(chunks, stream, noise)
        assert said + rendered(noise.expire(CHAIN_S), plain) == kept
        notes = last_notes(noise)
        assert [note.split()[1] for note in notes] == ([str(count)] if count else [])


def test_what_mixed_lines_leave_behind() -> None:
    both = "[Gloo] Rank [Gloo] Rank 00 is connected to  is connected to 11"
    rest = " peer ranks.  peer ranks. " + CONNECTED[-46:-1]
    for mixed in (f"{both}{rest}{CONNECTED[-46:-1]}11\n\n", f"{both}{rest}1\n1\n"):
        for chunks in cuts(f"a\n{mixed}\n1\nb\n".encode()):
            assert shown(chunks, OUT, NoiseFilter()) == b"0: a\n0: \n0: 1\n0: b\n"
    for chunks in cuts(f"{CONNECTED}\n\n3\n".encode()):
        assert shown(chunks, OUT, NoiseFilter()) == b"0: \n0: 3\n"


def test_a_line_that_has_been_shown_in_part_is_shown_whole() -> None:
    unfinished, noise, plain = UnfinishedLines(patience_s), NoiseFilter(), Plain()
    assert unfinished.feed(OUT, b"[Gloo] Ra", 0.0) == []
    assert unfinished.deadline == MOMENT_S
    begun = [piece for part in unfinished.expire(MOMENT_S) for piece in noise.feed(part, MOMENT_S)]
    assert rendered(begun, plain) == b"0: [Gloo] Ra"
    rest = CONNECTED.encode()[9:] + b"\n"
    [part] = unfinished.feed(OUT, rest, 1.0)
    assert noise.feed(part, 1.0) == [Fragment(OUT, rest)]
    assert last_notes(noise) == []


def test_a_line_from_gloo_gets_more_time() -> None:
    unfinished, noise = UnfinishedLines(patience_s), NoiseFilter()
    assert unfinished.feed(OUT, b"[Gloo] Rank 0 is", 5.0) == []
    assert unfinished.deadline == 5.0 + MOMENT_S + GLOO_S
    assert unfinished.expire(5.0 + GLOO_S) == []
    [whole] = unfinished.feed(OUT, CONNECTED.encode()[16:] + b"\n", 5.0 + GLOO_S)
    assert noise.feed(whole, 5.0 + GLOO_S) == []


def test_a_flood_goes_through_as_it_is() -> None:
    line = CONNECTED.encode() + b"\n"
    flood = whole_lines(OUT, line * 1000)
    [same] = NoiseFilter().feed(flood, 0.0)
    assert same is flood


def test_an_unfinished_line_goes_on_behind_gloos() -> None:
    line = CONNECTED.encode() + b"\n"
    for chunks in (
        [b"a 50%" + line, b" 100%\nb\n"],
        [b"a 50%", line[:12], line[12:14], line[14:], b" 100%\nb\n"],
    ):
        for wait in (False, True):  # until the line is shown in part
            unfinished, noise, plain, out = UnfinishedLines(), NoiseFilter(), Plain(), b""
            for chunk in chunks:
                pieces = unfinished.feed(OUT, chunk, 0.0)
                pieces += unfinished.expire(MOMENT_S) if wait else []
                for piece in pieces:
                    out += rendered(noise.feed(piece, 0.0), plain)
            assert out == b"0: a 50% 100%\n0: b\n"
            assert noise.expire(math.inf) == []
    noise = NoiseFilter()
    [begun] = noise.feed(whole_lines(OUT, b"a " + line), 0.0)
    assert (begun, noise.expire(math.inf)) == (Fragment(OUT, b"a "), [Fragment(OUT, b"\n")])
    assert noise.feed(Fragment(OUT, b"b [Gloo] Rank "), 0.0) == [Fragment(OUT, b"b ")]
    assert noise.expire(math.inf) == [Fragment(OUT, b"[Gloo] Rank ")]


def test_hidden_lines_are_mentioned_after_a_moment_and_then_at_the_end() -> None:
    hidden = HiddenLines("of a kind")
    hidden.add(1, 0.0)
    hidden.add(1, 1.0)
    assert (hidden.deadline, hidden.expire(1.5)) == (1.0 + QUIET_S, [])
    assert hidden.expire(1.0 + QUIET_S) == ["hid 2 lines of a kind; -v shows them"]
    hidden.add(1, 9.0)
    assert hidden.deadline is None
    assert hidden.take() == ["hid 1 more line of a kind; -v shows them"]
    assert hidden.take() == []


def test_that_there_is_no_driver_is_hidden_at_any_time() -> None:
    noise = NoiseFilter()
    line = f"I0000 00:00:1777215668.929972  450463 cudart_stub.cc:31] {NO_DRIVER}\n".encode()
    assert passed(noise, ERR, b"one\n" + line + b"two\n", 0.0) == b"one\ntwo\n"


def test_nothing_is_hidden_before_a_failure() -> None:
    stack = f"*** Check failure stack trace: ***\n{FRAME}\n".encode()
    assert passed(NoiseFilter(), ERR, stack, 0.0) == stack


def test_a_victims_errors_are_held_until_the_failure_is_known() -> None:
    errors = (POLLED + "\n").encode()
    noise, streams = NoiseFilter(), [ERR, Stream(1, frames.STDERR)]
    for stream in streams:
        assert passed(noise, stream, errors, 5.0) == b""
        assert passed(noise, stream, b"next\n", 5.1) == b""
    assert noise.expire(5.2) == []
    assert noise.deadline == 5.0 + HOLD_S
    shown = noise.fold_victims(1, own_term=True, now=5.2)
    assert by_rank(shown) == [(0, b"next\n"), (1, errors + b"next\n")]
    assert last_notes(noise) == ["hid 1 line of follow-on errors; -v shows them"]
    assert passed(noise, streams[0], errors + b"next\n", 5.3) == b"next\n"
    assert passed(noise, streams[1], errors + b"next\n", 5.3) == errors + b"next\n"


def test_without_a_failure_they_are_shown() -> None:
    noise, errors = NoiseFilter(), (POLLED + "\n").encode()
    stream = Stream(3, frames.STDERR)
    assert passed(noise, stream, errors, 5.0) == b""
    assert by_rank(noise.expire(5.0 + HOLD_S)) == [(3, errors)]
    assert passed(noise, stream, b"next\n", 6.0) == b"next\n"


def test_not_too_much_is_held_back() -> None:
    noise, errors = NoiseFilter(), (POLLED + "\n").encode()
    passed(noise, ERR, errors, 0.0)
    flood = b"x" * MOST_HELD + b"\n"
    assert passed(noise, ERR, flood, 0.0) == errors + flood
    assert noise.deadline is None


def test_the_users_own_term_is_shown() -> None:
    line = (TERM_CAUGHT + "\n").encode()
    for own_term, kept in ((True, b""), (False, line)):
        noise = NoiseFilter()
        noise.fold_victims(None, own_term=True, now=0.0)
        noise.fold_victims(None, own_term=own_term, now=0.0)
        assert passed(noise, ERR, line, 0.0) == kept


def test_a_traceback_waits_for_its_last_line() -> None:
    begun = b"Traceback (most recent call last):\n  File 'x', line 1, in f\n"
    for ending in (False, True):
        noise = NoiseFilter()
        if ending:
            noise.fold_victims(1, own_term=True, now=0.0)
        assert passed(noise, ERR, begun, 5.0) == b""
        shown = passed(noise, ERR, b"ValueError: 3\n", 5.1)
        assert (shown, noise.deadline) == (b"", 5.1 + CHAIN_S)
        assert passed(noise, ERR, b"end\n", 5.15) == b""
        shown = bytes_of(noise.expire(5.1 + CHAIN_S))
        assert shown == begun + b"ValueError: 3\nend\n"
        assert noise.deadline is None
        assert passed(noise, ERR, begun, 6.0) == b""
        assert by_rank(noise.expire(6.0 + HOLD_S)) == ([] if ending else [(0, begun)])
        assert last_notes(noise) == []


def test_a_traceback_that_a_rank_does_not_finish_once_another_has_failed() -> None:
    """It is killed in the middle of it."""
    begun = b"Traceback (most recent call last):\n  File 'x', line 1, in f\n"
    noise = NoiseFilter()
    assert passed(noise, ERR, b"before\n" + begun, 5.0) == b""
    assert by_rank(noise.fold_victims(1, own_term=True, now=5.1)) == []
    assert noise.deadline is None
    assert by_rank(noise.expire(math.inf)) == [(0, b"before\n")]
    assert last_notes(noise) == ["hid 2 lines of follow-on errors; -v shows them"]


def test_a_traceback_that_a_rank_does_not_finish_when_none_has_failed() -> None:
    begun = b"Traceback (most recent call last):\n  File 'x', line 1, in f\n"
    noise = NoiseFilter()
    noise.fold_victims(None, own_term=True, now=5.0)
    assert passed(noise, ERR, begun, 5.0) == b""
    assert by_rank(noise.expire(5.0 + HOLD_S)) == [(0, begun)]


def test_a_victims_traceback_is_held_until_the_failure_is_known() -> None:
    text = f"Traceback (most recent call last):\n  File 'x'\n{LOST_PEER}\n".encode()
    noise = NoiseFilter()
    assert passed(noise, ERR, text, 5.0) == b""
    assert noise.fold_victims(1, own_term=True, now=5.1) == []
    assert last_notes(noise) == ["hid 3 lines of follow-on errors; -v shows them"]
    assert passed(noise, ERR, text, 5.2) == b""
    assert last_notes(noise) == ["hid 3 more lines of follow-on errors; -v shows them"]


def test_a_loss_that_is_the_effect_of_something_else_is_hidden_with_its_cause() -> None:
    lines = [
        "Traceback (most recent call last):",
        "StopIteration",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        LOST_PEER,
        "",
        "next",
    ]
    noise = NoiseFilter()
    noise.fold_victims(1, own_term=True, now=0.0)
    assert passed(noise, ERR, "\n".join([*lines, ""]).encode(), 0.0) == b"next\n"


@pytest.mark.parametrize("reported", [True, False])
def test_what_the_failed_rank_says_of_the_end_of_the_others(reported: bool) -> None:
    """It is the only trace of its own failure if it has not reported another."""
    own = ["Traceback (most recent call last):", LOST_PEER]
    echo = [POLLED, FATAL, FRAME]
    noise = NoiseFilter()
    noise.fold_victims(0, reported=reported, own_term=True, now=0.0)
    lines = [*own, *echo, "saved"]
    shown = passed(noise, ERR, "\n".join([*lines, ""]).encode(), 0.0).decode().splitlines()
    assert shown == ([*own, "saved"] if reported else lines)


def interrupt(line: int, library: int = 1) -> bytes:
    return (
        "Traceback (most recent call last):\n"
        f'  File "train.py", line {line}, in <module>\n'
        "    step()\n"
        f'  File "/venv/lib/python3.11/site-packages/jax/array.py", line {library}, in get\n'
        "KeyboardInterrupt\n"
    ).encode()


def test_an_interrupt_at_one_place_is_shown_once() -> None:
    noise = NoiseFilter()
    streams = [Stream(rank, frames.STDERR) for rank in range(4)]
    passed(noise, streams[0], interrupt(1), -1.0)
    assert bytes_of(noise.expire(0.0)) == interrupt(1)  # the program's own
    noise.fold_victims(None, own_term=False, now=0.0)
    for stream, place in zip(streams, [interrupt(1), interrupt(2), interrupt(1, 5)], strict=False):
        shown = b"" if place == interrupt(1, 5) else place
        assert passed(noise, stream, place, 0.0) == shown
    assert passed(noise, streams[3], interrupt(2) + b"next\n", 0.0) == b"next\n"
    kind = "of the same KeyboardInterrupt; -v shows them"
    assert last_notes(noise) == [f"hid 10 lines {kind}"]


def error(line: int, rank: int, name: str = "ValueError") -> bytes:
    """A traceback as one rank prints it: its own file in the library, a message of two lines."""
    return (
        "Traceback (most recent call last):\n"
        f'  File "train.py", line {line}, in <module>\n'
        f"{name}: of rank {rank}\nmore of it\n"
    ).encode()


@pytest.mark.parametrize("culprit", [0, 1, 2])
@pytest.mark.parametrize("late", [False, True])
def test_an_error_of_all_ranks_is_shown_once(culprit: int, late: bool) -> None:
    """Whoever is known to have failed first, and whether that is known before they say so."""
    noise, said = NoiseFilter(), b""
    if not late:
        noise.fold_victims(culprit, own_term=True, now=1.0)
    for rank in range(3):
        said += passed(noise, Stream(rank, frames.STDERR), error(9, rank), 1.0)
        said += bytes_of(noise.expire(1.0 + CHAIN_S))
    said += bytes_of(noise.fold_victims(culprit, own_term=True, now=1.0)) if late else b""
    assert said == error(9, 0)
    other = Stream(3, frames.STDERR)
    passed(noise, other, error(8, 3) + error(9, 3, "KeyError"), 2.0)
    assert bytes_of(noise.expire(3.0)).count(b"\n") == 8
    assert passed(noise, other, error(9, 3) + b"end\n", 1.0) == b"end\n"
    assert last_notes(noise) == ["hid 12 lines of the same error in ranks 1-3; -v shows them"]


def test_errors_of_one_moment_are_shown_once() -> None:
    """All have come before the first of them is shown, and before the job ends."""
    noise = NoiseFilter()
    for rank in range(3):
        assert passed(noise, Stream(rank, frames.STDERR), error(9, rank), 1.0) == b""
    assert bytes_of(noise.expire(1.0 + CHAIN_S)) == error(9, 0)
    assert noise.deadline == 1.0 + CHAIN_S + SAME_S
    assert bytes_of(noise.fold_victims(0, own_term=True, now=2.0)) == b""
    assert last_notes(noise) == ["hid 8 lines of the same error in ranks 1-2; -v shows them"]


def test_an_error_that_does_not_end_the_job_is_shown_by_each_rank() -> None:
    noise, streams = NoiseFilter(), [Stream(rank, frames.STDERR) for rank in range(2)]
    passed(noise, streams[0], error(9, 0), 1.0)
    assert bytes_of(noise.expire(1.0 + CHAIN_S)) == error(9, 0)
    passed(noise, streams[1], error(9, 1), 2.0)
    assert noise.deadline == 2.0 + SAME_S
    assert bytes_of(noise.expire(2.0 + SAME_S)) == error(9, 1)
    assert last_notes(noise) == []


def test_what_an_error_leads_to_belongs_to_it() -> None:
    """However a traceback comes: in pieces, as Python writes it."""
    chained = b"%s\n%s\n\n%s" % (error(1, 0), CHAINS[0], error(9, 0))
    for cut in range(0, len(chained), 7):
        noise, streams = NoiseFilter(), [Stream(rank, frames.STDERR) for rank in range(2)]
        said = shown([chained[:cut], chained[cut:]], streams[0], noise, 1.0)
        said += bytes_of(noise.expire(1.5))
        assert said.replace(b"0: ", b"") == chained
        noise.fold_victims(0, own_term=True, now=2.0)
        assert shown([chained[cut:], chained[:cut]][::-1], streams[1], noise, 2.0) == b""


def test_the_culprits_traceback_is_shown() -> None:
    noise = NoiseFilter()
    noise.fold_victims(0, own_term=True, now=0.0)
    text = f"Traceback (most recent call last):\n  File 'x'\n{LOST_PEER}\n".encode()
    assert passed(noise, ERR, text, 5.0) == text


@pytest.mark.parametrize("begun", [b"", b"step 3: "])
def test_nothing_that_was_held_back_is_lost(begun: bytes) -> None:
    errors = (POLLED + "\n").encode()
    text = b"Traceback (most recent call last):\n  File 'x'\nValueError: 3\n"
    noise = NoiseFilter()
    said = shown([begun, errors, text, b"end\n"], Stream(0, frames.STDERR), noise)
    said += bytes_of(noise.expire(HOLD_S))
    assert said == begun + errors + text + b"end\n"


def test_part_of_a_line_stays_behind_what_is_held_back() -> None:
    errors = whole_lines(ERR, (POLLED + "\n").encode())
    prompt = [Fragment(ERR, b"Name? "), Fragment(ERR, b"Bob\n")]
    for ending, kept in ((False, [errors, *prompt]), (True, prompt)):
        noise = NoiseFilter()
        for piece in (errors, *prompt):
            assert noise.feed(piece, 0.0) == []
        fold = noise.fold_victims(1, own_term=True, now=0.1) if ending else noise.expire(HOLD_S)
        assert fold == kept


def test_a_traceback_that_has_begun_to_show_is_shown_whole() -> None:
    noise = NoiseFilter()
    noise.fold_victims(1, own_term=True, now=0.0)
    begun = Fragment(ERR, b"Traceback (most recent")
    rest = Fragment(ERR, b" call last):\n")
    assert noise.feed(begun, 0.0) == [begun]
    text = f"  File 'x'\n{LOST_PEER}\n".encode()
    assert noise.feed(rest, 0.1) == [rest]
    assert passed(noise, ERR, text, 0.2) == text
