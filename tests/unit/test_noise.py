"""What JAX prints that is no news: the words are those of real runs (jax 0.12.0, 0.10.2, 0.6.0)."""

import math
import random
import re

import pytest
from histories import STREAMS, group
from records import failure

from mcjax_launch.console.pieces import Fragment, Lines, Piece, Stream, make_lines
from mcjax_launch.console.renderers import Plain
from mcjax_launch.console.unfinished import MOMENT_S, UnfinishedLines
from mcjax_launch.explain.jax_messages.line_classifier import LineClassifier, without_noise
from mcjax_launch.explain.jax_messages.noise import NO_NEWS, Noise
from mcjax_launch.explain.jax_messages.tracebacks import CHAINS
from mcjax_launch.explain.noise_filter import (
    CHAIN_S,
    HOLD_S,
    MOST_HELD,
    REST_S,
    SAME_S,
    NoiseFilter,
)
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.wire import frames

CONNECTED, TERM_CAUGHT = STREAMS["Gloo"][0][0], STREAMS["TERM"][0][0]
NO_DRIVER = STREAMS["no driver of CUDA's"][1][0]
POLLED, FATAL, TRACEBACK, _, LOST_PEER, _, FRAME, _ = [
    line for line, _ in STREAMS["the coordinator is gone"][5:]
]
ERRORS = f"{POLLED}\n".encode()
BEGUN = f"{TRACEBACK}\n  File 'x', line 1, in f\n".encode()
VICTIMS = BEGUN + f"{LOST_PEER}\n".encode()


@pytest.mark.parametrize("colour", ["", "\x1b[1;35m"])
@pytest.mark.parametrize("name", STREAMS)
def test_lines_are_classified(name: str, colour: str) -> None:
    """Also in colours, as Python's tracebacks are with FORCE_COLOR."""
    reset = "\x1b[0m" if colour else ""
    listener = LineClassifier()
    lines = [re.sub(r"\S.*", rf"{colour}\g<0>{reset}", line) for line, _ in STREAMS[name]]
    text = "\n".join([*lines, ""]).encode()
    listener.expect(text, lambda traceback: Noise.TRACEBACK if traceback.is_victims else None)
    for line, (_, kind) in zip(lines, STREAMS[name], strict=True):
        assert listener.classify(line.encode()) is kind, line


@pytest.mark.parametrize("name", [name for name in STREAMS if "exception" not in name])
def test_noise_is_left_out_of_quotes(name: str) -> None:
    """Its own tracebacks stay, whatever they say."""
    kept = [
        line for line, kind in STREAMS[name] if kind in (None, Noise.TRACEBACK) or "^^F" in line
    ]
    assert without_noise([line for line, _ in STREAMS[name]]) == (
        kept,
        len(STREAMS[name]) - len(kept),
    )


OUT, ERR = Stream(0, frames.STDOUT, b"0: "), Stream(0, frames.STDERR, b"0: ")


def rendered(pieces: list[Piece], plain: Plain) -> bytes:
    out = []
    for piece in pieces:
        out += (
            plain.render_lines(piece)
            if isinstance(piece, Lines)
            else plain.render_fragment(piece, 0.0)
        )
    return b"".join(out)


def shown(chunks: list[bytes], stream: Stream, noise: NoiseFilter, at: float = 0.0) -> bytes:
    """What is shown of a stream's chunks."""
    unfinished, plain, out = UnfinishedLines(), Plain(), b""
    for chunk in chunks:
        for piece in unfinished.feed(stream, chunk, at):
            out += rendered(noise.feed(piece, at), plain)
    return out


def job_ends(
    noise: NoiseFilter, culprit: int | None, *, own_term: bool, now: float, reported: bool = False
) -> list[Piece]:
    """Let the job end, for the failure of a rank or, if there is no culprit, another reason."""
    if culprit is not None:
        told = failure() if reported else None
        noise.failures.set_verdict(culprit, Verdict.FAILED, told)
    return noise.fold_victims(own_term=own_term, now=now)


def passed(noise: NoiseFilter, stream: Stream, text: bytes, at: float) -> bytes:
    """What goes through the filter at once of whole lines."""
    return bytes_of(noise.feed(make_lines(stream, text), at))


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
    shown_of = {line: line.partition(b"^F1120")[0] for line, _ in lines if b"^F1120" in line}
    shown_of = {line: begun + b"^" for line, begun in shown_of.items()}  # JAX's begins behind it
    kept = b"".join(
        b"0: " + shown_of.get(line, line) + b"\n" for line, kind in lines if kind is None
    )
    count = sum(
        kind not in (None, *NO_NEWS) or (kind is None and line in shown_of) for line, kind in lines
    )
    for chunks in cuts(b"".join(line + b"\n" for line, _ in lines)):
        noise = NoiseFilter()
        job_ends(noise, None, own_term=True, now=0.0)
        plain, said = Plain(), shown(chunks, stream, noise)
        assert said + rendered(noise.expire(CHAIN_S), plain) == kept
        notes = noise.pop_mentions()
        assert [note.split()[1] for note in notes] == ([str(count)] if count else [])


BAR = b" 50%|###  |"


@pytest.mark.parametrize("message", [TERM_CAUGHT, STREAMS["TERM"][1][0], POLLED, FATAL])
@pytest.mark.parametrize("begun", [BAR, b"\r 40%|##   |\r" + BAR, BAR * 2000, b"W1125 mine "])
@pytest.mark.parametrize("is_shown_before", [False, True])
def test_noise_after_an_unfinished_line_is_hidden(
    message: str, begun: bytes, is_shown_before: bool
) -> None:
    noise, said = NoiseFilter(), b""
    job_ends(noise, 1, own_term=True, now=0.0)
    end = message.encode() + b"\n"
    if is_shown_before:
        said += bytes_of(noise.feed(Fragment(ERR, begun), 0.0))
        said += bytes_of(noise.feed(Fragment(ERR, end), 0.0))
    else:
        said += passed(noise, ERR, begun + end, 0.0)
    said += passed(noise, ERR, b"next\n", 1.0) + bytes_of(noise.expire(math.inf))
    assert said == begun + b"\nnext\n"
    assert noise.pop_mentions() == ["hid 1 line of follow-on errors; -v shows them"]


def test_user_text_after_an_unfinished_line_is_shown() -> None:
    text = b"SIGTERM caught at noon"
    noise = NoiseFilter()
    job_ends(noise, 1, own_term=True, now=0.0)
    assert passed(noise, ERR, BAR + text + b"\n", 0.0) == BAR + text + b"\n"
    parts = [noise.feed(Fragment(ERR, part), 0.0) for part in (BAR, text + b"\n")]
    assert b"".join(map(bytes_of, parts)) == BAR + text + b"\n"
    users = NoiseFilter()
    job_ends(users, 1, own_term=False, now=0.0)
    line = BAR + TERM_CAUGHT.encode() + b"\n"
    assert passed(users, ERR, line, 0.0) == line


def test_mixed_noise_leaves_only_other_text() -> None:
    both = "[Gloo] Rank [Gloo] Rank 00 is connected to  is connected to 11"
    rest = " peer ranks.  peer ranks. " + CONNECTED[-46:-1]
    for mixed in (f"{both}{rest}{CONNECTED[-46:-1]}11\n\n", f"{both}{rest}1\n1\n"):
        for chunks in cuts(f"a\n{mixed}\n1\nb\n".encode()):
            assert shown(chunks, OUT, NoiseFilter()) == b"0: a\n0: \n0: 1\n0: b\n"
    for chunks in cuts(f"{CONNECTED}\n\n3\n".encode()):
        assert shown(chunks, OUT, NoiseFilter()) == b"0: \n0: 3\n"


def test_line_of_another_rank_is_not_the_rest_of_mixed_noise() -> None:
    mixed = f"[Gloo] Rank {CONNECTED}{CONNECTED[12:]}\n".encode()
    noise = NoiseFilter()
    assert passed(noise, OUT, mixed, 0.0) == b""
    assert passed(noise, Stream(1, frames.STDOUT), b"1\n\n", 0.0) == b"1\n\n"
    assert passed(noise, OUT, b"\n", 0.0) == b""


def test_partly_shown_line_is_shown_whole() -> None:
    noise = NoiseFilter()
    unfinished = UnfinishedLines(noise.get_patience_s)
    assert unfinished.feed(OUT, b"[Gloo] Ra", 0.0) == []
    assert unfinished.deadline == MOMENT_S
    begun = [piece for part in unfinished.expire(MOMENT_S) for piece in noise.feed(part, MOMENT_S)]
    assert bytes_of(begun) == b"[Gloo] Ra"
    rest = CONNECTED.encode()[9:] + b"\n"
    [part] = unfinished.feed(OUT, rest, 1.0)
    assert noise.feed(part, 1.0) == [Fragment(OUT, rest)]


def test_unfinished_line_stays_unfinished_whatever_it_says() -> None:
    begun, end = Fragment(ERR, NO_DRIVER.encode()), Fragment(ERR, b" and more\n")
    noise = NoiseFilter()
    assert (
        bytes_of(noise.feed(begun, 0.0)) + bytes_of(noise.feed(end, 0.0)) == begun.text + end.text
    )


def test_a_line_from_gloo_gets_more_time() -> None:
    noise = NoiseFilter()
    unfinished = UnfinishedLines(noise.get_patience_s)
    assert unfinished.feed(OUT, b"[Gloo] Rank 0 is", 5.0) == []
    assert unfinished.deadline == 5.0 + MOMENT_S + REST_S
    assert unfinished.expire(5.0 + REST_S) == []
    [whole] = unfinished.feed(OUT, CONNECTED.encode()[16:] + b"\n", 5.0 + REST_S)
    assert noise.feed(whole, 5.0 + REST_S) == []


def test_flood_passes_unchanged() -> None:
    line = CONNECTED.encode() + b"\n"
    flood = make_lines(OUT, line * 1000)
    [same] = NoiseFilter().feed(flood, 0.0)
    assert same is flood


@pytest.mark.parametrize("is_shown_before", [False, True])
@pytest.mark.parametrize("begun", [b"", b"a 50%", b"\r 40%|##  |\r 50%|###  |"])
def test_gloo_noise_after_an_unfinished_line_is_hidden(begun: bytes, is_shown_before: bool) -> None:
    line = CONNECTED.encode() + b"\n"
    for chunks in (
        [begun + line, b"b\n"],
        [begun, line + b"b\n"],
        [begun, line[:12], line[12:14], line[14:], b"b\n"],
        [begun + line[:20], line[20:-1], b"\nb\n"],
    ):
        unfinished, noise, out = UnfinishedLines(), NoiseFilter(), b""
        for chunk in chunks:
            pieces = unfinished.feed(OUT, chunk, 0.0)
            pieces += unfinished.expire(MOMENT_S) if is_shown_before else []
            out += b"".join(bytes_of(noise.feed(piece, 0.0)) for piece in pieces)
        assert out == (begun + b"\nb\n" if begun else b"b\n")


def test_empty_line_after_a_partly_shown_line_is_the_programs() -> None:
    """A newline that Gloo owes for two messages in one line is that of the next line."""
    unfinished, noise, out = UnfinishedLines(), NoiseFilter(), b""
    both = f"{CONNECTED.partition('.')[0]}. {CONNECTED}\n".encode()
    for chunk in (both, b"prompt ", b"yes\n", b"\nend\n"):
        pieces = unfinished.feed(OUT, chunk, 0.0) + unfinished.expire(MOMENT_S)
        out += b"".join(bytes_of(noise.feed(piece, 0.0)) for piece in pieces)
    assert out == b"prompt yes\n\nend\n"


def test_text_that_begins_like_gloo_is_shown_whole() -> None:
    unfinished, noise = UnfinishedLines(), NoiseFilter()
    out = b""
    for chunk in (b"a [Gloo] Rank ", b"7 of mine"):
        pieces = unfinished.feed(OUT, chunk, 0.0) + unfinished.expire(MOMENT_S)
        out += b"".join(bytes_of(noise.feed(piece, 0.0)) for piece in pieces)
    assert out == b"a "
    [end] = unfinished.finish()
    assert bytes_of(noise.feed(end, 0.0)) == b"[Gloo] Rank 7 of mine\n"


def test_missing_driver_message_is_always_hidden() -> None:
    noise = NoiseFilter()
    assert passed(noise, ERR, f"one\n{NO_DRIVER}\ntwo\n".encode(), 0.0) == b"one\ntwo\n"


@pytest.mark.parametrize("name", [name for name in STREAMS if "on a GPU ends" in name])
@pytest.mark.parametrize("ending", [False, True])
def test_a_gpus_end_is_hidden_in_every_job(name: str, ending: bool) -> None:
    """Also in one that ends well; another thread's lines are shown."""
    lines = [(line.encode() + b"\n", kind) for line, kind in STREAMS[name]]
    kept = b"".join(b"0: " + line for line, kind in lines if kind is None)
    for chunks in cuts(b"".join(line for line, _ in lines)):
        noise = NoiseFilter()
        if ending:
            job_ends(noise, 1, own_term=True, now=0.0)
        assert shown(chunks, ERR, noise) == kept
        assert noise.pop_mentions() == noise.expire(math.inf) == []


def test_a_line_of_a_gpus_end_gets_more_time() -> None:
    for line, kind in STREAMS["a rank on a GPU ends"]:
        begun = line.encode()[:20]
        assert NoiseFilter().get_patience_s(begun) == (REST_S if begun and kind else 0.0)


@pytest.mark.parametrize("begun", [b"", BAR])
@pytest.mark.parametrize("is_shown_before", [False, True])
def test_a_gpus_end_after_an_unfinished_line_is_hidden(begun: bytes, is_shown_before: bool) -> None:
    stream = STREAMS["a rank on a GPU ends after rank 0"]
    block = [line.encode() + b"\n" for line, kind in stream if kind is Noise.END]
    unfinished, noise, said = UnfinishedLines(), NoiseFilter(), b""
    for chunk in (begun, b"".join(block[:3]), b"".join(block[3:])):
        pieces = unfinished.feed(ERR, chunk, 0.0)
        pieces += unfinished.expire(MOMENT_S) if is_shown_before else []
        said += b"".join(bytes_of(noise.feed(piece, 0.0)) for piece in pieces)
    assert said == (begun + b"\n" if begun else b"")


def test_nothing_is_hidden_before_a_failure() -> None:
    stack = f"*** Check failure stack trace: ***\n{FRAME}\n".encode()
    assert passed(NoiseFilter(), ERR, stack, 0.0) == stack


def test_a_victims_errors_are_held_until_the_failure_is_known() -> None:
    noise, streams = NoiseFilter(), [ERR, Stream(1, frames.STDERR)]
    for stream in streams:
        assert passed(noise, stream, ERRORS, 5.0) == b""
        assert passed(noise, stream, b"next\n", 5.1) == b""
    assert noise.expire(5.2) == []
    assert noise.deadline == 5.0 + HOLD_S
    shown = job_ends(noise, 1, own_term=True, now=5.2)
    assert by_rank(shown) == [(0, b"next\n"), (1, ERRORS + b"next\n")]
    assert noise.pop_mentions() == ["hid 1 line of follow-on errors; -v shows them"]
    assert passed(noise, streams[0], ERRORS + b"next\n", 5.3) == b"next\n"
    assert passed(noise, streams[1], ERRORS + b"next\n", 5.3) == ERRORS + b"next\n"


@pytest.mark.parametrize(
    "name",
    ["a rank left, and another one waits at a barrier on a GPU", "the exit barrier has failed"],
)
def test_whole_blocks_are_held_until_the_failure_is_known(name: str) -> None:
    block = [line.encode() + b"\n" for line, kind in STREAMS[name] if kind]
    for cut in range(1, len(block)):
        noise = NoiseFilter()
        for part in (block[:cut], block[cut:]):
            assert passed(noise, ERR, b"".join(part), 5.0) == b""
        assert job_ends(noise, 1, own_term=True, now=5.2) == []
        assert noise.pop_mentions() == [
            f"hid {len(block)} lines of follow-on errors; -v shows them"
        ]


def test_not_too_much_is_held_back() -> None:
    noise, flood = NoiseFilter(), b"x" * MOST_HELD + b"\n"
    passed(noise, ERR, ERRORS, 0.0)
    assert passed(noise, ERR, flood, 0.0) == ERRORS + flood
    assert noise.deadline is None


def test_the_users_own_term_is_shown() -> None:
    line = f"{TERM_CAUGHT}\n".encode()
    for own_term, kept in ((True, b""), (False, line)):
        noise = NoiseFilter()
        job_ends(noise, None, own_term=True, now=0.0)
        job_ends(noise, None, own_term=own_term, now=0.0)
        assert passed(noise, ERR, line, 0.0) == kept


def test_a_traceback_waits_for_its_last_line() -> None:
    for ending in (False, True):
        noise = NoiseFilter()
        if ending:
            job_ends(noise, 1, own_term=True, now=0.0)
        assert passed(noise, ERR, BEGUN, 5.0) == b""
        shown = passed(noise, ERR, b"ValueError: 3\n", 5.1)
        assert (shown, noise.deadline) == (b"", 5.1 + CHAIN_S)
        assert passed(noise, ERR, b"end\n", 5.15) == b""
        assert bytes_of(noise.expire(5.1 + CHAIN_S)) == BEGUN + b"ValueError: 3\nend\n"
        assert noise.deadline is None
        assert passed(noise, ERR, BEGUN, 6.0) == b""
        assert by_rank(noise.expire(6.0 + HOLD_S)) == ([] if ending else [(0, BEGUN)])
        assert noise.pop_mentions() == []


def test_unfinished_traceback_is_released() -> None:
    """It is killed in the middle of it, once another has failed; or none has."""
    noise = NoiseFilter()
    assert passed(noise, ERR, b"before\n" + BEGUN, 5.0) == b""
    assert by_rank(job_ends(noise, 1, own_term=True, now=5.1)) == []
    assert noise.deadline is None
    assert by_rank(noise.expire(math.inf)) == [(0, b"before\n")]
    assert noise.pop_mentions() == ["hid 2 lines of follow-on errors; -v shows them"]
    noise = NoiseFilter()
    job_ends(noise, None, own_term=True, now=5.0)
    assert passed(noise, ERR, BEGUN, 5.0) == b""
    assert by_rank(noise.expire(5.0 + HOLD_S)) == [(0, BEGUN)]


def test_a_victims_traceback_is_held_until_the_failure_is_known() -> None:
    noise = NoiseFilter()
    assert passed(noise, ERR, VICTIMS, 5.0) == b""
    assert job_ends(noise, 1, own_term=True, now=5.1) == []
    assert noise.pop_mentions() == ["hid 3 lines of follow-on errors; -v shows them"]
    assert passed(noise, ERR, VICTIMS, 5.2) == b""
    assert noise.pop_mentions() == ["hid 3 lines of follow-on errors; -v shows them"]


def test_consequential_loss_is_hidden_with_its_cause() -> None:
    noise, chain = NoiseFilter(), b"%s\nStopIteration\n\n%s\n\n" % (TRACEBACK.encode(), CHAINS[0])
    job_ends(noise, 1, own_term=True, now=0.0)
    assert passed(noise, ERR, chain + VICTIMS + b"\nnext\n", 0.0) == b"next\n"


@pytest.mark.parametrize("reported", [True, False])
def test_reaction_of_the_failed_rank_is_hidden_if_it_reported_its_failure(reported: bool) -> None:
    """It is the only trace of its own failure if it has not reported another."""
    own = [TRACEBACK, LOST_PEER]
    echo = [POLLED, FATAL, FRAME]
    noise = NoiseFilter()
    job_ends(noise, 0, reported=reported, own_term=True, now=0.0)
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


def test_interrupt_traceback_is_shown_once() -> None:
    noise = NoiseFilter()
    streams = [Stream(rank, frames.STDERR) for rank in range(5)]
    passed(noise, streams[0], interrupt(1), -1.0)
    assert bytes_of(noise.expire(0.0)) == interrupt(1)  # the program's own
    job_ends(noise, None, own_term=False, now=0.0)
    places = interrupt(1), interrupt(2), interrupt(1, 5)
    for stream, place in zip(streams[1:], places, strict=False):
        shown = b"" if place == interrupt(1, 5) else users_part(place)
        assert passed(noise, stream, place, 0.0) == shown
    assert passed(noise, streams[4], interrupt(2) + b"next\n", 0.0) == b"next\n"
    assert noise.pop_mentions() == ["hid 12 lines of KeyboardInterrupt; -v shows them"]


def users_part(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if b"/lib/" not in line)


BEHIND_ANOTHER = (
    "Traceback (most recent call last):\n"
    '  File "/venv/lib/python3.11/site-packages/jax/cache.py", line 3, in get\n'
    "    return self[key]\n"
    "KeyError: 3\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (BEHIND_ANOTHER.encode() + interrupt(1), users_part(interrupt(1))),
        (interrupt(1).replace(b"train.py", b"/venv/lib/python3.11/site.py"), None),
        (interrupt(1).replace(b"KeyboardInterrupt", b"ValueError: bad"), None),
    ],
    ids=["chained", "no user's line", "another exception"],
)
def test_only_users_lines_of_an_interrupt_are_shown(printed: bytes, shown: bytes | None) -> None:
    noise = NoiseFilter()
    job_ends(noise, None, own_term=False, now=0.0)
    got = passed(noise, ERR, printed + b"next\n", 0.0) + bytes_of(noise.expire(math.inf))
    assert got == (shown or printed) + b"next\n"


def test_few_lines_behind_a_traceback_are_remembered() -> None:
    """A rank may go on for days after an error that it has handled."""
    noise = NoiseFilter()
    passed(noise, ERR, interrupt(1), 0.0)
    for number in range(1000):
        passed(noise, ERR, b"step %d\n" % number, 10.0 + number)
        noise.expire(10.5 + number)
    assert 0 < len(noise.failures._behind[ERR]) < 500


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
        job_ends(noise, culprit, own_term=True, now=1.0)
    for rank in range(3):
        said += passed(noise, Stream(rank, frames.STDERR), error(9, rank), 1.0)
        said += bytes_of(noise.expire(1.0 + CHAIN_S))
    said += bytes_of(job_ends(noise, culprit, own_term=True, now=1.0)) if late else b""
    assert said == error(9, 0)
    other = Stream(3, frames.STDERR)
    passed(noise, other, error(8, 3) + error(9, 3, "KeyError"), 2.0)
    assert bytes_of(noise.expire(3.0)).count(b"\n") == 8
    assert passed(noise, other, error(9, 3) + b"end\n", 1.0) == b"end\n"
    assert noise.pop_mentions() == ["hid 12 lines of the same error in ranks 1-3; -v shows them"]


def test_an_exception_group_of_all_ranks_is_shown_once() -> None:
    """It is printed without a traceback's first line, so only reports tell that it is the same."""
    noise, said = NoiseFilter(), b""
    failed = group("KeyError: 3")
    other = failed.copy_with(traceback=failed.traceback.replace("tasks", "steps"))
    for rank, told in enumerate((failed, failed, other)):
        noise.failures.announce(rank, told)
        said += passed(noise, Stream(rank, frames.STDERR), f"{told.traceback}end\n".encode(), 1.0)
    shown = [f"{failed.traceback}end\n", "end\n", f"{other.traceback}end\n"]
    assert said.decode() == "".join(shown)
    assert noise.pop_mentions() == ["hid 2 lines of the same error in rank 1; -v shows them"]


def test_late_end_of_an_error_belongs_to_it() -> None:
    """The last line of its message, also that of the rank that failed first."""
    noise, streams = NoiseFilter(), [Stream(rank, frames.STDERR) for rank in range(2)]
    job_ends(noise, 1, own_term=True, now=0.0)
    passed(noise, streams[0], error(9, 0), 1.0)
    assert bytes_of(noise.expire(1.0 + CHAIN_S)) == error(9, 0)
    message, end = error(9, 1)[:-11], error(9, 1)[-11:]
    assert passed(noise, streams[1], message, 2.0) == b""
    assert passed(noise, streams[1], end, 2.1) == b""


def test_simultaneous_equal_errors_are_shown_once() -> None:
    """All have come before the first of them is shown, and before the job ends."""
    noise = NoiseFilter()
    for rank in range(3):
        assert passed(noise, Stream(rank, frames.STDERR), error(9, rank), 1.0) == b""
    assert bytes_of(noise.expire(1.0 + CHAIN_S)) == error(9, 0)
    assert noise.deadline == 1.0 + CHAIN_S + SAME_S
    assert bytes_of(job_ends(noise, 0, own_term=True, now=2.0)) == b""
    assert noise.pop_mentions() == ["hid 8 lines of the same error in ranks 1-2; -v shows them"]


def test_nonfatal_error_is_shown_for_each_rank() -> None:
    noise, streams = NoiseFilter(), [Stream(rank, frames.STDERR) for rank in range(2)]
    passed(noise, streams[0], error(9, 0), 1.0)
    assert bytes_of(noise.expire(1.0 + CHAIN_S)) == error(9, 0)
    passed(noise, streams[1], error(9, 1), 2.0)
    assert noise.deadline == 2.0 + SAME_S
    assert bytes_of(noise.expire(2.0 + SAME_S)) == error(9, 1)
    assert noise.pop_mentions() == []


def test_each_error_may_be_continued_for_a_while() -> None:
    noise = NoiseFilter()
    passed(noise, ERR, error(1, 0), 1.0)
    passed(noise, ERR, error(2, 0), 1.05)
    assert noise.deadline == 1.05 + CHAIN_S


def test_chained_errors_stay_together() -> None:
    """However a traceback comes: in pieces, as Python writes it."""
    chained = b"%s\n%s\n\n%s" % (error(1, 0), CHAINS[0], error(9, 0))
    for cut in range(0, len(chained), 7):
        noise, streams = NoiseFilter(), [Stream(rank, frames.STDERR) for rank in range(2)]
        said = shown([chained[:cut], chained[cut:]], streams[0], noise, 1.0)
        said += bytes_of(noise.expire(1.5))
        assert said.replace(b"0: ", b"") == chained
        job_ends(noise, 0, own_term=True, now=2.0)
        assert shown([chained[cut:], chained[:cut]][::-1], streams[1], noise, 2.0) == b""


def test_the_culprits_traceback_is_shown() -> None:
    """Also where another rank has shown the same before the job ends."""
    noise = NoiseFilter()
    passed(noise, Stream(1, frames.STDERR), VICTIMS, 0.0)
    assert bytes_of(noise.expire(HOLD_S)) == VICTIMS
    job_ends(noise, 0, own_term=True, now=1.0)
    assert passed(noise, ERR, VICTIMS, 5.0) == VICTIMS


@pytest.mark.parametrize("begun", [b"", b"step 3: "])
def test_held_back_text_is_never_lost(begun: bytes) -> None:
    noise, chunks = NoiseFilter(), [begun, ERRORS, BEGUN, b"ValueError: 3\n", b"end\n"]
    said = shown(chunks, Stream(0, frames.STDERR), noise)
    assert said + bytes_of(noise.expire(HOLD_S)) == b"".join(chunks)


def test_partial_line_stays_behind_held_back_text() -> None:
    errors: Lines | Fragment = make_lines(ERR, ERRORS)
    prompt: list[Lines | Fragment] = [Fragment(ERR, b"Name? "), Fragment(ERR, b"Bob\n")]
    for ending, kept in ((False, [errors, *prompt]), (True, prompt)):
        noise = NoiseFilter()
        for piece in (errors, *prompt):
            assert noise.feed(piece, 0.0) == []
        fold = job_ends(noise, 1, own_term=True, now=0.1) if ending else noise.expire(HOLD_S)
        assert fold == kept


def test_partly_shown_traceback_is_shown_whole() -> None:
    noise = NoiseFilter()
    job_ends(noise, 1, own_term=True, now=0.0)
    for part in (VICTIMS[:20], VICTIMS[20:35]):
        piece = Fragment(ERR, part)
        assert noise.feed(piece, 0.0) == [piece]
    assert passed(noise, ERR, VICTIMS[35:], 0.2) == VICTIMS[35:]
