"""What ranks say of staged files, in the user's own paths."""

import pytest

from mcjax_launch.transport.staged_paths import StagedPaths
from mcjax_launch.wire.hook_messages import Failed, Raised
from mcjax_launch.wire.messages import FromHook, Stacks

A, B = "/tmp/mcjax-0123456789ab/stage", "/var/tmp/mcjax-ba9876543210/stage"


def of(*paths: str, folders: tuple[str, ...] = (A, B)) -> StagedPaths:
    staged = StagedPaths(paths, "/home/me/work")
    for folder in folders:
        staged.add(folder)
    return staged


@pytest.mark.parametrize(
    ("synced", "said", "shown"),
    [
        ("train.py", f'File "{A}/train.py", line 3', 'File "/home/me/work/train.py", line 3'),
        (
            "train.py",
            f"{A}/train.py, {B}/train.py.",
            "/home/me/work/train.py, /home/me/work/train.py.",
        ),
        ("train.py", f"{A}/train.pyc {A}/train.py.bak {A}/train.py-1", None),
        ("train.py", f"{A} {A}/ckpt {A}/sub/train.py {A}2/train.py", None),  # there is no other
        ("pkg", f"{A}/pkg/deep/x.py {A}/pkg", "/home/me/work/pkg/deep/x.py /home/me/work/pkg"),
        ("pkg", f"{A}/pkg2/x.py", None),
        ("./src/../pkg/", f"{A}/pkg/x.py", "/home/me/work/pkg/x.py"),
        (".", f"{A}/new {A} {A}/x/y.py", "/home/me/work/new /home/me/work /home/me/work/x/y.py"),
        ("../lib", f"{A}/lib/x.py", "/home/me/lib/x.py"),
        ("/opt/our/lib", f"{B}/lib/x.py", "/opt/our/lib/x.py"),
        ("a+b (1)", f"{A}/a+b (1)/x.py", "/home/me/work/a+b (1)/x.py"),
        ('é "1"', f'{A}/é "1"/x.py {A}/é', f'/home/me/work/é "1"/x.py {A}/é'),
    ],
)
def test_staged_path_is_shown_as_the_original(synced: str, said: str, shown: str | None) -> None:
    for staged in (of(synced), of("other.py", synced, "zzz")):
        assert staged.in_bytes(said.encode()) == (shown or said).encode()
        assert staged.with_originals(Stacks(1, 2, said)) == Stacks(1, 2, shown or said)


def test_the_longest_of_several_paths_counts() -> None:
    staged = of("lib", "lib/own", "/opt/lib-2")
    said = f"{A}/lib/own/x {A}/lib/owner {A}/lib-2/y"
    shown = b"/home/me/work/lib/own/x /home/me/work/lib/owner /opt/lib-2/y"
    assert staged.in_bytes(said.encode()) == shown


def test_bytes_that_are_not_utf8_are_kept() -> None:
    assert of("x.py").in_bytes(b"\xff " + A.encode() + b"/x.py\n") == b"\xff /home/me/work/x.py\n"


def test_before_any_host_has_answered_nothing_changes() -> None:
    for staged in (of("x.py", folders=()), of("x.py", folders=("",))):
        assert staged.in_bytes(b"/x.py") == b"/x.py"
        assert staged.with_originals(Stacks(1, 2, f"{A}/x.py")) == Stacks(1, 2, f"{A}/x.py")


def test_messages_are_changed_in_every_field() -> None:
    def failed(folder: str) -> FromHook:
        where = f"{folder}/x.py:3 in f"
        causes = (Raised("KeyError", "KeyError: 1", where), Raised("E", f"E: {where}"))
        failure = Failed(1, True, where=where, traceback=where, handled=causes[0], causes=causes)
        return FromHook(2, failure, main=True, sent=(15,))

    staged = of("x.py")
    for folder in (A, B):
        assert staged.with_originals(failed(folder)) == failed("/home/me/work")
    untouched = Stacks(1, 2, "text")
    assert staged.with_originals(untouched) is untouched
