"""One lock for each program: who waits for it, who need not, and what happens without locks."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from mcjax_launch.features.compile_once.hook.locks import Locks


def test_second_rank_waits_and_names_the_first(tmp_path: Path) -> None:
    waits: list[int] = []
    is_waiting, order = threading.Event(), []

    def wait(rank: int) -> None:
        waits.append(rank)
        is_waiting.set()

    def second() -> None:
        with Locks(str(tmp_path), "5").hold("a", wait) as lock:
            order.append(lock.is_shared)

    with Locks(str(tmp_path), "12").hold("a", waits.append) as lock:
        assert lock.is_shared
        thread = threading.Thread(target=second)
        thread.start()
        assert is_waiting.wait(30)
        assert order == []
    thread.join()
    assert (waits, order) == ([12, -1], [True])


def test_threads_of_one_rank_wait_for_no_other_rank(tmp_path: Path) -> None:
    locks, waits = Locks(str(tmp_path), "5"), list[int]()
    is_waiting = threading.Event()

    def wait(rank: int) -> None:
        waits.append(rank)
        is_waiting.set()

    def second() -> None:
        with locks.hold("a", wait):
            pass

    with locks.hold("a", waits.append):
        thread = threading.Thread(target=second)
        thread.start()
        assert is_waiting.wait(30)
    thread.join()
    assert waits == [-1, -1]


def test_other_programs_do_not_wait(tmp_path: Path) -> None:
    locks, waits = Locks(str(tmp_path), "1"), list[int]()
    with locks.hold("a", waits.append), locks.hold("b", waits.append) as lock:
        assert lock.is_shared
    assert waits == []


def test_no_rank_waits_for_a_program_that_cannot_be_shared(tmp_path: Path) -> None:
    locks, waits = Locks(str(tmp_path), "1"), list[int]()
    with locks.hold("a", waits.append) as first:
        first.give_up_sharing()
        with locks.hold("a", waits.append) as second:  # while the first compiles
            assert not second.is_shared
    with locks.hold("a", waits.append) as later:
        assert not later.is_shared
    assert waits == []


def test_ranks_that_have_waited_compile_at_the_same_time_if_they_cannot_share(
    tmp_path: Path,
) -> None:
    waits, together = threading.Semaphore(0), threading.Barrier(2)
    met: list[bool] = []

    def wait(rank: int) -> None:
        if rank >= 0:
            waits.release()

    def compile_(rank: str) -> None:
        with Locks(str(tmp_path), rank).hold("a", wait) as lock:
            together.wait(30)
            met.append(not lock.is_shared)

    threads = [threading.Thread(target=compile_, args=(rank,)) for rank in "12"]
    with Locks(str(tmp_path), "0").hold("a", wait) as lock:
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waits.acquire(timeout=30)
        lock.give_up_sharing()
    for thread in threads:
        thread.join()
    assert met == [True, True]


def test_process_that_is_forked_meanwhile_does_not_hold_the_lock(tmp_path: Path) -> None:
    locks, waits = Locks(str(tmp_path), "1"), list[int]()
    ends, end = os.pipe()

    def let_end(rank: int) -> None:
        waits.append(rank)
        os.write(end, b"x")

    with locks.hold("a", waits.append):
        pid = os.fork()
        if not pid:
            os.read(ends, 1)
            os._exit(0)
    with locks.hold("a", let_end) as lock:
        assert lock.is_shared
    os.write(end, b"x")
    os.waitpid(pid, 0)
    os.close(ends)
    os.close(end)
    assert waits == []


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_nothing_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with Locks(str(tmp_path), "1").hold("a", lambda _: None) as lock:
        assert not lock.is_shared
    with Locks(str(tmp_path / "gone"), "1").hold("a", lambda _: None) as lock:
        assert not lock.is_shared
