"""Slow ranks, found by polls of main threads: tables of histories."""

from collections.abc import Callable
from itertools import chain, cycle, islice
from types import SimpleNamespace
from typing import Any

import pytest
from records import run_of, say
from told import Told

from mcjax_launch.diagnosis.rules import apply_rules
from mcjax_launch.diagnosis.view import Fact, Occasion, View
from mcjax_launch.features.position_polls import agent as asking
from mcjax_launch.features.position_polls.launcher import PositionSampling, classify_position
from mcjax_launch.features.position_polls.messages import PollPositions, RanksPolled, ThreadPosition
from mcjax_launch.runs.polls import RECENT, PolledPosition, PositionPolls, ThreadState
from mcjax_launch.wire.hook_messages import Compiled, Compiling
from mcjax_launch.wire.messages import FromHook

SPOTS = {
    "w": PolledPosition(ThreadState.JAX),
    "c": PolledPosition(ThreadState.COMPILING),
    "?": PolledPosition(ThreadState.UNKNOWN),
    "l": PolledPosition(ThreadState.ELSEWHERE, "in load at data.py:41"),
    "m": PolledPosition(ThreadState.ELSEWHERE, "in load at data.py:43"),
    "s": PolledPosition(ThreadState.ELSEWHERE, "in save at ckpt.py:7"),
}


def always(spot: PolledPosition) -> Callable[[str], PolledPosition]:
    return lambda blocked: spot


def history(pattern: str, count: int) -> PositionPolls:
    """Return polls of ranks: a word for each poll, a letter for each rank.

    `w` waits in JAX, `W` in the same call as before; `l`, `m` load, `s` saves, `c` compiles, `-` has
    not answered, ` ` was not asked.
    """
    words = pattern.split("|")
    polls = PositionPolls(len(words[0]))
    for at, word in enumerate(islice(cycle(words), count)):
        look(polls, at, word, words[(at + 1) % len(words)] if at + 1 < count else "")
    return polls


def look(polls: PositionPolls, at: float, word: str, following: str = "") -> None:
    polls.begin(at, ())
    polls.record_question({rank: "" for rank, letter in enumerate(word) if letter != " "})
    for rank, letter in enumerate(word):
        if letter not in " -" and following[rank : rank + 1] != "W":
            polls.record_answer(rank, always(SPOTS[letter.lower()]))


LOAD, SAVE = "in load at data.py:41", "in save at ckpt.py:7"


def slow(rank: int, waited: int, place: str = LOAD, share: int | None = None) -> str:
    in_brackets = waited if share is None else share
    return f"rank {rank} is slow: the others waited {waited} % of the time for it; it was {place} ({in_brackets} %)"


def was_slow(rank: int, waited: int, place: str = LOAD) -> str:
    return f"rank {rank} was slow for a time: the others waited {waited} % of that time for it; it was {place} ({waited} %)"


# Pattern, polls, the lines at the end.
HISTORIES: dict[str, tuple[str, int, list[str]]] = {
    "slow": ("wwlw", 20, [slow(2, 100)]),
    "too early to say": ("wwlw", 11, []),
    "most of the time": ("wwlw|wwlw|wwww|llll|wwlw|wwmw|wwlw", 70, [slow(2, 71)]),
    "half of the time": ("wwlw|wwww", 70, []),
    "in several places": ("wwlw|wwsw|wwlw|wwlw", 40, [slow(2, 100, share=75)]),
    "all load": ("llll", 40, []),
    "all wait": ("wwww", 40, []),
    "equal, and none at the same time": ("lwww|wlww|wwlw|wwwl", 40, []),
    "two ranks": ("wl", 20, [slow(1, 100)]),
    "two of four, whom two wait for": ("wwll", 20, [slow(2, 100), slow(3, 100)]),
    "three of four": ("wlll", 20, []),
    "one that compiles": ("wwcw", 40, []),
    "one that loads while another compiles": ("wwlc", 40, []),
    "one of which nothing is known": ("ww?w", 40, []),
    "one that was not asked": ("ww w", 40, []),
    "one that never answers": ("ww-w", 40, []),
    "a checkpoint for 3 s of 30": ("swww" + 9 * "|wwww", 100, []),
    "one long checkpoint, in one wait": ("swww" + 39 * "|sWWW", 40, []),
    "checkpoints for most of the time": ("swww" + 3 * "|sWWW" + "|wwww", 40, [slow(0, 80, SAVE)]),
    "for a time": (40 * "wwww|" + 30 * "swww|" + 98 * "wwww|" + "wwww", 169, [was_slow(0, 75, SAVE)]),
    "four, one after the other": (40 * "lwww|" + 40 * "wlww|" + 40 * "wwlw|" + 39 * "wwwl|" + "wwwl", 160, [was_slow(rank, 100) for rank in range(3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_slow_ranks_are_found_in_a_history(name: str) -> None:
    pattern, count, lines = HISTORIES[name]
    state = run_of(4)
    state.polls = history(pattern, count)
    assert [found.words for found in apply_rules(View(state, 0.0), Occasion.OVER)] == lines


def test_slow_rank_notes_are_limited_to_three() -> None:
    """Of each only one, and of no more than three."""
    told = Told([], 4)
    told.state.polls = polls = PositionPolls(4)
    for word in 40 * ["lwww"] + 40 * ["wlww"] + 40 * ["wwlw"] + 40 * ["wwwl"]:
        look(polls, told.now, word)
        told.announcer.record_fact(Fact.POSITIONS, told.now)
        told.happens(3.0)
    assert told.notes == [slow(0, 100), slow(1, 62), slow(2, 62)]


def test_unanswered_polls_count_once_the_rank_answers() -> None:
    """A rank that has been in one call since then answers for all of these polls at once."""
    polls = history("wwlw" + 4 * "|wwl-", 5)
    assert sum(bool(poll.known) for poll in polls.kept) == 1
    polls.record_answer(3, always(SPOTS["w"]))
    assert [bool(poll.known) for poll in polls.kept] == 5 * [True]
    assert [3 in poll.stayed for poll in polls.kept] == [False, False, True, True, True]


def test_long_run_keeps_its_shares_in_little_memory() -> None:
    """An hour of it was slow, of ten; the last two minutes are whole."""
    polls = PositionPolls(4)
    for at, word in enumerate(chain(1_200 * ["wwlw"], 10_800 * ["wwww"])):
        look(polls, at, word)
    assert len(polls.kept) <= 512
    assert [poll.at for poll in polls.recent] == list(range(12_000 - RECENT, 12_000))
    slow = sum(poll.positions[2] == SPOTS["l"] for poll in polls.kept)
    assert slow / len(polls.kept) == pytest.approx(0.1, rel=0.05)


SITE = "/v/lib/python3.11/site-packages"


@pytest.mark.parametrize(("calls", "blocked", "beside", "doing"), [
    ([f"{SITE}/jax/_src/array.py:642:_value", "/me/train.py:12:f"], "futex_do_wait", False, ThreadState.JAX),
    ([f"{SITE}/jax/_src/array.py:642:_value", "/me/train.py:12:f"], "", False, ThreadState.JAX),
    (["/me/train.py:12:f"], "futex_do_wait", False, ThreadState.JAX),
    (["/me/train.py:12:f"], "", False, ThreadState.ELSEWHERE),
    (["/me/train.py:12:f"], "hrtimer_nanosleep", False, ThreadState.ELSEWHERE),
    ([f"{SITE}/numpy/linalg.py:3:svd", "/me/train.py:12:f"], "", False, ThreadState.ELSEWHERE),
    (["/usr/lib/python3.11/queue.py:171:get", "/me/train.py:12:f"], "futex_do_wait", False, ThreadState.ELSEWHERE),
    (["/usr/lib/python3.11/threading.py:9:join", "/me/train.py:12:f"], "futex_do_wait", True, ThreadState.JAX),
    ([f"{SITE}/jax/_src/pjit.py:3:trace_to_jaxpr_dynamic"], "", False, ThreadState.COMPILING),
    (["/usr/lib/python3.11/pdb.py:1:interaction", "/me/train.py:12:f"], "", False, ThreadState.UNKNOWN),
    ([], "futex_do_wait", False, ThreadState.UNKNOWN),
])  # fmt: skip
def test_main_thread_state_is_derived_from_its_calls(
    calls: list[str], blocked: str, beside: bool, doing: ThreadState
) -> None:
    state = run_of(2, joins=True)
    lines = ('  File "{}", line {} in {}'.format(*frame.rsplit(":", 2)) for frame in calls)
    text = "\n".join(("Stack (most recent call first):", *lines))
    spot = classify_position(state.ranks[0], text, beside, blocked)
    assert spot.doing is doing
    assert spot.place == ("in f at train.py:12" if doing is ThreadState.ELSEWHERE else "")


def test_rank_that_still_waits_is_not_woken_by_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not seem to stand still, and no hang would be told of."""
    waits = {7: "futex"}
    signalled: list[int] = []
    sent: list[Any] = []
    times: list[int] = []
    system = SimpleNamespace(
        find_blocking_call=waits.__getitem__,
        handles=lambda pid, signum: True,
        signal_without_interrupting=lambda pid, signum: signalled.append(pid) is None,
    )
    monkeypatch.setattr(asking, "system", system)
    hook: Any = SimpleNamespace(pid=7, rank=0)
    agent: Any = SimpleNamespace(
        hooks=SimpleNamespace(in_job=[hook]), link=SimpleNamespace(send=sent.append)
    )
    part = asking.PART(agent)
    for answers, waits[7] in ((0, "futex"), (0, "futex"), (1, "futex"), (0, ""), (0, "")):
        if answers:
            part.on_hook_message(hook, FromHook(0, ThreadPosition("x")))
        part.on_message(PollPositions())
        assert sent[-1] == RanksPolled((0,), (waits[7],))
        times.append(len(signalled))
    assert times == [1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("platform", "stall_timeout", "asked"),
    [
        ("gpu", None, [0.0, 3.0, 6.0, 9.0]),
        ("gpu", 600.0, [0.0, 3.0, 6.0, 9.0]),
        ("gpu", 16.0, [0.0, 3.0, 6.0, 9.0]),
        ("gpu", 8.0, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
        ("cpu", 8.0, []),
    ],
)
def test_ranks_on_accelerators_are_polled_without_a_status_line(
    platform: str, stall_timeout: float | None, asked: list[float]
) -> None:
    state, sent, now = run_of(2, joins=True), list[float](), 0.0
    say(state, 1, Compiling("jit_f", "", platform), 0.0)
    say(state, 1, Compiled(), 0.0)
    launcher: Any = SimpleNamespace(
        state=state,
        job=SimpleNamespace(stall_timeout=stall_timeout),
        pool=SimpleNamespace(send_all=lambda message: sent.append(now)),
    )
    part, link = PositionSampling(launcher), None
    while (deadline := part.deadline) is not None and deadline <= 10.0:
        now = deadline
        part.expire(now)
        part.on_message(link, RanksPolled((0, 1), ("", "")), now)  # type: ignore[arg-type]
        if now < 5.0:
            part.on_message(link, FromHook(1, ThreadPosition("x")), now)  # type: ignore[arg-type]
    assert sent == asked
    if asked:
        answered = max(at for at in asked if at < 5.0)
        assert state.activity.active_at == min(at for at in asked if at > answered)
        assert state.ranks[0].main_thread.silent_since == 0.0
