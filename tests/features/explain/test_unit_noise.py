"""What JAX prints that is no news: the words are those of real runs (jax 0.12.0, 0.10.2, 0.6.0)."""

import math
import random
import re

import pytest
from histories import STREAMS
from records import failure

from mcjax_launch.console.pieces import Fragment, Lines, Piece, Stream, make_lines
from mcjax_launch.console.unfinished import MOMENT_S, UnfinishedLines
from mcjax_launch.features.explain.jax_messages import noise as lines_of
from mcjax_launch.features.explain.jax_messages.noise import (
    NeverShown,
    is_term,
    tells_of_loss,
    without_noise,
)
from mcjax_launch.features.explain.noise_filter import HOLD_S, MOST_HELD, REST_S, NoiseFilter
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.wire import frames

CONNECTED, TERM_CAUGHT = STREAMS["Gloo"][0][0], STREAMS["TERM"][0][0]
POLLED, FATAL, TRACEBACK, _, LOST_PEER, _, FRAME, _ = [
    line for line, _ in STREAMS["the coordinator is gone"][5:]
]
LOSS = f"{POLLED}\n".encode()
BEGUN = f"{TRACEBACK}\n  File 'x', line 1, in f\n".encode()
VICTIMS = BEGUN + f"{LOST_PEER}\n".encode()
FOLLOW_ON = "hid {} of follow-on errors; -v shows them"
GPU_ENDS = [name for name in STREAMS if "on a GPU ends" in name]

OUT, ERR = Stream(0, frames.STDOUT), Stream(0, frames.STDERR)


def err(rank: int) -> Stream:
    return Stream(rank, frames.STDERR)


def bytes_of(pieces: list[Piece]) -> bytes:
    return b"".join(piece.text for piece in pieces)


def passed(noise: NoiseFilter, stream: Stream, text: bytes, at: float = 0.0) -> bytes:
    """What goes through the filter at once of whole lines."""
    return bytes_of(noise.feed(make_lines(stream, text), at))


def job_ends(noise: NoiseFilter, *verdicts: tuple[int, Verdict], own_term: bool = True) -> None:
    """Let the job end, with these verdicts on ranks that have reported their failures."""
    for rank, verdict in verdicts:
        noise.set_verdict(rank, verdict, failure())
    assert noise.fold_victims(own_term=own_term, now=0.0) == []


def cuts(data: bytes) -> list[list[bytes]]:
    """The same bytes, cut in many ways."""
    rng, ways = random.Random(1), [[data], [data[n : n + 1] for n in range(len(data))]]
    for _ in range(40):
        at = sorted(rng.sample(range(len(data)), 9))
        ways.append([data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])
    return ways


# --- lines ---


@pytest.mark.parametrize("colour", ["", "\x1b[1;35m"])
@pytest.mark.parametrize("name", STREAMS)
def test_lines_are_known_by_their_beginnings(name: str, colour: str) -> None:
    """Also in colours, as a program may print them."""
    reset = "\x1b[0m" if colour else ""
    never = NeverShown()
    for line, kind in STREAMS[name]:
        data = re.sub(r"\S.*", rf"{colour}\g<0>{reset}", line).encode()
        assert never.recognize(data) == (kind in ("STUB", "END")), line
        if not colour:
            assert is_term(data) == (kind == "TERM"), line
            assert lines_of.is_gloo(data) == (kind == "GLOO"), line
            assert not tells_of_loss(data) or kind == "VICTIM" or "^F" in line, line


@pytest.mark.parametrize("name", [name for name in STREAMS if "exception" not in name])
def test_noise_is_left_out_of_quotes(name: str) -> None:
    """Not every line of such a message, but all that says what it is."""
    kept, hidden = without_noise([line for line, _ in STREAMS[name]])
    assert len(kept) + hidden == len(STREAMS[name])
    noisy = {line for line, kind in STREAMS[name] if kind in ("GLOO", "STUB", "END", "TERM")}
    assert not noisy & set(kept) - {line for line, kind in STREAMS[name] if kind is None}
    assert not any(tells_of_loss(line.encode()) for line in kept)
    if not any(kind for _, kind in STREAMS[name]):
        assert hidden == 0


# --- what is never shown ---


def test_gloos_lines_are_hidden_however_they_come() -> None:
    for chunks in cuts(f"a\n{CONNECTED}\n\n3\n{CONNECTED}\nb\n".encode()):
        noise = NoiseFilter()
        unfinished, out = UnfinishedLines(noise.get_patience_s), b""
        for chunk in chunks:
            for piece in unfinished.feed(OUT, chunk, 0.0):
                out += bytes_of(noise.feed(piece, 0.0))
        assert out == b"a\n\n3\nb\n"
        assert noise.pop_mentions() == []


def test_line_from_gloo_gets_more_time() -> None:
    noise = NoiseFilter()
    unfinished = UnfinishedLines(noise.get_patience_s)
    assert unfinished.feed(OUT, b"[Gloo] Rank 0 is", 5.0) == []
    assert unfinished.deadline == 5.0 + MOMENT_S + REST_S
    [whole] = unfinished.feed(OUT, CONNECTED.encode()[16:] + b"\n", 5.0 + REST_S)
    assert noise.feed(whole, 5.0 + REST_S) == []


def test_partly_shown_line_is_shown_whole() -> None:
    noise = NoiseFilter()
    job_ends(noise, (1, Verdict.FAILED))
    for stream, line in ((OUT, CONNECTED.encode() + b"\n"), (ERR, VICTIMS[:35])):
        for part in (line[:9], line[9:]):
            piece = Fragment(stream, part)
            assert noise.feed(piece, 0.0) == [piece]


def test_flood_passes_unchanged() -> None:
    for stream, line in ((OUT, CONNECTED.encode() + b"\n"), (ERR, LOSS)):
        flood = make_lines(stream, line * 1000)
        [same] = NoiseFilter().feed(flood, 0.0)
        assert same is flood


@pytest.mark.parametrize("name", [*GPU_ENDS, "no driver of CUDA's"])
@pytest.mark.parametrize("ending", [False, True])
def test_lines_of_every_job_are_hidden(name: str, ending: bool) -> None:
    """Also in one that ends well; another thread's lines are shown."""
    lines = [(line.encode() + b"\n", kind) for line, kind in STREAMS[name]]
    noise = NoiseFilter()
    if ending:
        job_ends(noise, (1, Verdict.FAILED))
    shown = b"".join(passed(noise, ERR, line) for line, _ in lines)
    assert shown == b"".join(line for line, kind in lines if kind is None)
    assert noise.pop_mentions() == noise.expire(math.inf) == []


def test_the_users_own_term_is_shown() -> None:
    line = f"{TERM_CAUGHT}\n".encode()
    for own_term, kept in ((True, b""), (False, line)):
        noise = NoiseFilter()
        assert passed(noise, ERR, line) == line
        job_ends(noise, own_term=own_term)
        assert passed(noise, ERR, line) == kept


# --- what is held back, and what of it is shown ---


@pytest.mark.parametrize("first", [LOSS, VICTIMS, BEGUN + b"ValueError: 3\n"])
def test_what_a_program_survives_is_shown_half_a_second_later(first: bytes) -> None:
    noise = NoiseFilter()
    assert passed(noise, ERR, b"before\n" + first, 5.0) == b"before\n"
    assert passed(noise, ERR, b"next\n", 5.1) == b""
    assert noise.feed(Fragment(ERR, b"prompt "), 5.2) == []
    assert (noise.deadline, noise.expire(5.2)) == (5.0 + HOLD_S, [])
    assert passed(noise, err(1), b"other\n", 5.3) == b"other\n"
    assert bytes_of(noise.expire(5.0 + HOLD_S)) == first + b"next\nprompt "
    assert (noise.deadline, noise.pop_mentions()) == (None, [])
    assert passed(noise, ERR, b"end\n", 6.0) == b"end\n"


@pytest.mark.parametrize("printed", [LOSS, VICTIMS, VICTIMS + LOSS])
@pytest.mark.parametrize("when", ["before", "after"])
def test_follow_on_errors_are_counted(printed: bytes, when: str) -> None:
    """Printed before it is known that another rank has failed, or after it."""
    noise = NoiseFilter()
    if when == "after":
        job_ends(noise, (1, Verdict.FAILED))
    assert passed(noise, ERR, printed) == b""
    if when == "before":
        job_ends(noise, (1, Verdict.FAILED))
    assert noise.deadline is None
    assert passed(noise, ERR, b"rest\n") == b""
    assert noise.expire(math.inf) == []
    assert noise.pop_mentions() == [FOLLOW_ON.format(f"{printed.count(bytes([10])) + 1} lines")]
    assert noise.pop_mentions() == []


def test_all_that_a_victim_prints_is_counted() -> None:
    noise = NoiseFilter()
    assert passed(noise, ERR, VICTIMS) == b""
    job_ends(noise, (1, Verdict.FAILED), (0, Verdict.VICTIM))
    assert passed(noise, ERR, b"closing files\n") == b""
    assert noise.expire(math.inf) == []
    assert noise.pop_mentions() == [FOLLOW_ON.format("4 lines")]


def test_what_ended_ranks_say_is_shown() -> None:
    """A rank that the launcher ends may save, and tell of that, or fail at it."""
    noise = NoiseFilter()
    job_ends(noise, (1, Verdict.FAILED))
    assert passed(noise, ERR, b"saving\n") == b"saving\n"
    own = BEGUN + b"OSError: disk full\n"
    assert passed(noise, ERR, own) == b""
    noise.set_verdict(0, Verdict.STOPPED, None)
    assert bytes_of(noise.expire(math.inf)) == own


@pytest.mark.parametrize("reported", [True, False])
def test_reaction_of_the_failed_rank_is_hidden_if_it_reported_its_failure(reported: bool) -> None:
    """It is the only trace of its own failure if it has not reported another."""
    own, echo = BEGUN + b"ValueError: 3\n", f"{POLLED}\n{FATAL}\n{FRAME}\n".encode()
    noise = NoiseFilter()
    noise.set_verdict(0, Verdict.FAILED, failure() if reported else None)
    job_ends(noise)
    assert passed(noise, ERR, own + echo) == b""
    assert bytes_of(noise.expire(HOLD_S)) == (own if reported else own + echo)
    assert noise.pop_mentions() == ([FOLLOW_ON.format("3 lines")] if reported else [])


def test_not_too_much_is_held_back() -> None:
    noise, much = NoiseFilter(), b"x" * (MOST_HELD // 4) + b"\n"
    assert passed(noise, ERR, LOSS) == b""
    shown = b"".join(passed(noise, ERR, much) for _ in range(4))
    assert shown == LOSS + 4 * much
    assert noise.deadline is None


@pytest.mark.parametrize("name", STREAMS)
def test_held_back_text_is_never_lost(name: str) -> None:
    lines = [line.encode() for line, kind in STREAMS[name] if kind not in ("STUB", "END")]
    for chunks in cuts(b"".join(line + b"\n" for line in lines)):
        noise = NoiseFilter()
        unfinished, shown = UnfinishedLines(), b""
        for chunk in chunks:
            for piece in unfinished.feed(ERR, chunk, 0.0):
                shown += bytes_of(noise.feed(piece, 0.0))
        assert shown + bytes_of(noise.expire(HOLD_S)) == b"".join(line + b"\n" for line in lines)


# --- errors that several ranks have ---


def error(line: int, rank: int, name: str = "ValueError", library: int = 1) -> bytes:
    """A traceback as one rank prints it: its own file in the library, a message of two lines."""
    return (
        "Traceback (most recent call last):\n"
        f'  File "train.py", line {line}, in <module>\n'
        "    step()\n"
        f'  File "/venv/lib/python3.11/site-packages/jax/array.py", line {library + rank}, in get\n'
        "    more()\n"
        f"{name}: of rank {rank}\nmore of it\n"
    ).encode()


USAGE = b"usage: train.py [-h] --lr LR\n                [--steps N]\ntrain.py: error: no --lr\n"
SYNTAX = b'  File "x.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'
GROUP = (
    b'  + Exception Group Traceback (most recent call last):\n  |   File "x.py", line 3\n  | G: x\n'
)


@pytest.mark.parametrize("known", ["before", "after"])
@pytest.mark.parametrize("text", [None, USAGE, SYNTAX])
def test_an_error_of_all_ranks_is_shown_once(text: bytes | None, known: str) -> None:
    """Whether the verdicts come before they print it, or after; its messages may differ."""
    noise = NoiseFilter()
    for rank in range(3):
        if known == "before":
            job_ends(noise, (rank, Verdict.FAILED))
        assert passed(noise, err(rank), text or error(9, rank)) == b""
        if known == "after":
            job_ends(noise, (rank, Verdict.FAILED))
    assert bytes_of(noise.expire(HOLD_S)) == (text or error(9, 0))
    count = 2 * (text or error(9, 0)).count(b"\n")
    same = f"hid {count} lines of the same error in ranks 1-2; -v shows them"
    assert noise.pop_mentions() == [same]


@pytest.mark.parametrize("other", [error(8, 1), error(9, 1, "KeyError"), error(9, 1) + b"saved\n"])
def test_another_error_is_shown(other: bytes) -> None:
    noise = NoiseFilter()
    job_ends(noise, (0, Verdict.FAILED), (1, Verdict.FAILED))
    for rank, text in ((0, error(9, 0)), (1, other)):
        passed(noise, err(rank), text)
    assert bytes_of(noise.expire(HOLD_S)) == error(9, 0) + other


def test_nonfatal_error_is_shown_for_each_rank() -> None:
    noise = NoiseFilter()
    for rank in range(2):
        passed(noise, err(rank), error(9, rank))
    assert bytes_of(noise.expire(HOLD_S)) == error(9, 0) + error(9, 1)
    assert noise.pop_mentions() == []


@pytest.mark.parametrize("text", [b"usage: 80 %\nmemory usage: 3 GB\n", BEGUN, GROUP])
def test_text_that_is_no_whole_error_is_shown_for_each_rank(text: bytes) -> None:
    noise = NoiseFilter()
    job_ends(noise, (0, Verdict.FAILED), (1, Verdict.FAILED))
    shown = b"".join(passed(noise, err(rank), text) for rank in range(2))
    assert shown + bytes_of(noise.expire(HOLD_S)) == 2 * text


def test_users_lines_of_an_interrupt_are_shown_once() -> None:
    noise = NoiseFilter()
    job_ends(noise, own_term=False)
    for rank in range(3):
        assert passed(noise, err(rank), error(9 + rank, rank, "KeyboardInterrupt")) == b""
    shown = bytes_of(noise.expire(math.inf))
    assert shown == b"".join(
        line
        for line in error(9, 0, "KeyboardInterrupt").splitlines(keepends=True)
        if b"site-packages" not in line and b"more()" not in line
    )
    assert noise.pop_mentions() == ["hid 16 lines of KeyboardInterrupt; -v shows them"]


def test_held_pieces_keep_their_order() -> None:
    pieces: list[Lines | Fragment] = [make_lines(ERR, LOSS), Fragment(ERR, b"Name? ")]
    pieces.append(Fragment(ERR, b"Bob\n"))
    noise = NoiseFilter()
    assert [noise.feed(piece, 0.0) for piece in pieces] == [[], [], []]
    assert noise.stop_holding(1) == []
    assert noise.stop_holding(0) == pieces
