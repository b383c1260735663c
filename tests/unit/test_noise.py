"""What JAX prints that is no news: the words are those of real runs (jax 0.12.0, 0.10.2, 0.6.0)."""

import random

import pytest

from mcjax_launch.console.lines import MOMENT_S, Plain, Source
from mcjax_launch.console.noise_filter import HOLD_S, MOST_HELD, QUIET_S, Calm
from mcjax_launch.jax_messages.noise import Listener, Noise, without_noise
from mcjax_launch.jax_messages.tracebacks import whose
from mcjax_launch.protocol import frames

GLOO, TERM, VICTIM, STACK = Noise.GLOO, Noise.TERM, Noise.VICTIM, Noise.STACK
TRACEBACK = Noise.TRACEBACK
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
        ("say: " + CONNECTED, None),
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
        ("During handling of the above exception, another exception occurred:", None),
        ("", None),
        ("Traceback (most recent call last):", None),
        ('  File "fail.py", line 12, in main', None),
        ("train.Failed: no checkpoint", None),
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
    listener, lines = Listener(), [line for line, _ in STREAMS[name]]
    listener.expect(whose("\n".join([*lines, ""]).encode()))
    for line, kind in STREAMS[name]:
        assert listener.kind(line.encode()) is kind, line


@pytest.mark.parametrize("name", [name for name in STREAMS if "exception" not in name])
def test_what_a_rank_is_quoted_without(name: str) -> None:
    """Its own tracebacks stay, whatever they say."""
    kept = [line for line, kind in STREAMS[name] if kind in (None, TRACEBACK) or "^^F" in line]
    assert without_noise([line for line, _ in STREAMS[name]]) == (
        kept,
        len(STREAMS[name]) - len(kept),
    )


def shown(chunks: list[bytes], stream: int, calm: Calm, at: float = 0.0) -> bytes:
    """What rank 0 is shown to have said."""
    source, plain, out = Source(b"0: "), Plain(), b""
    for chunk in chunks:
        data = calm.feed(0, stream, source, chunk, at)
        out += b"".join(plain.feed(source, data, at)) if data else b""
    return out


def cuts(data: bytes) -> list[list[bytes]]:
    """The same bytes, cut in many ways."""
    rng, ways = random.Random(1), [[data], [data[n : n + 1] for n in range(len(data))]]
    for _ in range(40):
        at = sorted(rng.sample(range(len(data)), 9))
        ways.append([data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])
    return ways


@pytest.mark.parametrize("name", STREAMS)
def test_any_cut_leaves_out_the_same(name: str) -> None:
    stream = frames.STDOUT if "Gloo" in name else frames.STDERR
    lines = [(line.encode(), kind) for line, kind in STREAMS[name]]
    kept = b"".join(b"0: " + line + b"\n" for line, kind in lines if kind is None)
    count = sum(kind is not None for _, kind in lines)
    for chunks in cuts(b"".join(line + b"\n" for line, _ in lines)):
        calm = Calm()
        calm.fold_victims(None, own_term=True)
        assert shown(chunks, stream, calm) == kept
        words = calm.words()
        assert [text.split()[2] for text in words] == ([str(count)] if count else [])


def test_what_mixed_lines_leave_behind() -> None:
    both = "[Gloo] Rank [Gloo] Rank 00 is connected to  is connected to 11"
    rest = " peer ranks.  peer ranks. " + CONNECTED[-46:-1]
    for mixed in (f"{both}{rest}{CONNECTED[-46:-1]}11\n\n", f"{both}{rest}1\n1\n"):
        for chunks in cuts(f"a\n{mixed}\n1\nb\n".encode()):
            assert shown(chunks, frames.STDOUT, Calm()) == b"0: a\n0: \n0: 1\n0: b\n"
    for chunks in cuts(f"{CONNECTED}\n\n3\n".encode()):
        assert shown(chunks, frames.STDOUT, Calm()) == b"0: \n0: 3\n"


def test_a_line_that_has_been_shown_in_part_is_shown_whole() -> None:
    calm, source, plain = Calm(), Source(b"0: "), Plain()
    assert calm.feed(0, frames.STDOUT, source, b"[Gloo] Ra", 0.0) == b"[Gloo] Ra"
    plain.feed(source, b"[Gloo] Ra", 0.0)
    assert source.due == MOMENT_S
    assert b"".join(plain.expire(source)) == b"0: [Gloo] Ra"
    rest = CONNECTED.encode()[9:] + b"\n"
    assert calm.feed(0, frames.STDOUT, source, rest, 1.0) == rest
    assert calm.words() == []


def test_it_is_told_after_a_moment_and_then_at_the_end() -> None:
    calm, line = Calm(), CONNECTED.encode() + b"\n"
    for at in (0.0, 1.0):
        assert calm.feed(0, frames.STDOUT, Source(b""), line, at) == b""
    assert calm.due == 1.0 + QUIET_S
    assert calm.words(1.5) == []
    words = 'of Gloo\'s, "[Gloo] Rank 0 is connected ..."; -v shows them'
    assert calm.words(1.0 + QUIET_S) == [f"left out 2 lines {words}"]
    calm.feed(0, frames.STDOUT, Source(b""), line, 9.0)
    assert calm.due is None
    assert calm.words() == [f"left out 1 more line {words}"]
    assert calm.words() == []


def test_victims_are_left_alone_as_long_as_nothing_has_failed() -> None:
    calm = Calm()
    stack = f"*** Check failure stack trace: ***\n{FRAME}\n".encode()
    assert calm.feed(0, frames.STDERR, Source(b""), stack, 0.0) == stack


def test_the_words_of_a_victim_wait_for_the_news() -> None:
    words = (POLLED + "\n").encode()
    calm = Calm()
    for rank in range(2):
        assert calm.feed(rank, frames.STDERR, Source(b""), words, 5.0) == b""
        assert calm.feed(rank, frames.STDERR, Source(b""), b"next\n", 5.1) == b""
    assert calm.expire(5.2) == []
    assert calm.due == 5.0 + HOLD_S
    both = [(0, words + b"next\n"), (1, words + b"next\n")]
    assert calm.fold_victims(1, own_term=True) == both
    assert calm.feed(0, frames.STDERR, Source(b""), both[0][1], 5.2) == b"next\n"
    assert calm.feed(1, frames.STDERR, Source(b""), both[1][1], 5.2) == both[1][1]


def test_without_news_they_are_shown() -> None:
    calm, words = Calm(), (POLLED + "\n").encode()
    assert calm.feed(3, frames.STDERR, Source(b""), words, 5.0) == b""
    assert calm.expire(5.0 + HOLD_S) == [(3, words)]
    assert calm.feed(3, frames.STDERR, Source(b""), b"next\n", 6.0) == b"next\n"


def test_not_too_much_is_held_back() -> None:
    calm, words = Calm(), (POLLED + "\n").encode()
    calm.feed(0, frames.STDERR, Source(b""), words, 0.0)
    flood = b"x" * MOST_HELD
    assert calm.feed(0, frames.STDERR, Source(b""), flood, 0.0) == words + flood
    assert calm.due is None


def test_the_users_own_term_is_news() -> None:
    line = (TERM_CAUGHT + "\n").encode()
    for own_term, kept in ((True, b""), (False, line)):
        calm = Calm()
        calm.fold_victims(None, own_term=True)
        calm.fold_victims(None, own_term=own_term)
        assert calm.feed(0, frames.STDERR, Source(b""), line, 0.0) == kept


def test_a_traceback_waits_for_its_last_line() -> None:
    begun = b"Traceback (most recent call last):\n  File 'x', line 1, in f\n"
    for over in (False, True):
        calm, source = Calm(), Source(b"")
        if over:
            calm.fold_victims(1, own_term=True)
        assert calm.feed(0, frames.STDERR, source, begun, 5.0) == b""
        assert (
            calm.feed(0, frames.STDERR, source, b"ValueError: 3\n", 5.1)
            == begun + b"ValueError: 3\n"
        )
        assert calm.due is None
        assert calm.feed(0, frames.STDERR, source, begun, 6.0) == b""
        assert calm.expire(6.0 + HOLD_S) == [(0, begun)]
    assert calm.words() == []


def test_a_victims_traceback_waits_for_the_news() -> None:
    text = f"Traceback (most recent call last):\n  File 'x'\n{LOST_PEER}\n".encode()
    calm, source = Calm(), Source(b"")
    assert calm.feed(0, frames.STDERR, source, text, 5.0) == b""
    assert calm.fold_victims(1, own_term=True) == [(0, text)]
    assert calm.feed(0, frames.STDERR, source, text, 5.1) == b""
    assert calm.words() == [
        "left out 3 lines about the end of the job in other ranks; -v shows them"
    ]


def test_the_culprits_traceback_is_shown() -> None:
    calm, source = Calm(), Source(b"")
    calm.fold_victims(0, own_term=True)
    text = f"Traceback (most recent call last):\n  File 'x'\n{LOST_PEER}\n".encode()
    assert calm.feed(0, frames.STDERR, source, text, 5.0) == text


def test_nothing_that_was_held_back_is_lost() -> None:
    words = (POLLED + "\n").encode()
    text = b"Traceback (most recent call last):\n  File 'x'\nValueError: 3\n"
    for begun in (b"", b"step 3: "):
        calm = Calm()
        said = shown([begun, words, text, b"end\n"], frames.STDERR, calm)
        said += b"".join(data for _, data in calm.expire(HOLD_S))
        assert said.endswith(words + text + b"end\n")
