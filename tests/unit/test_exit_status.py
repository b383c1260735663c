"""From what went wrong to an exit status."""

import errno

from mcjax_launch.wire import exit_status


def test_exit_status_of_a_command_that_cannot_start() -> None:
    for code in (errno.ENOENT, errno.ENOTDIR):
        assert exit_status.compute_spawn_status(code) == 127
    for code in (errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.ENOMEM):
        assert exit_status.compute_spawn_status(code) == 126


def test_exit_status_of_a_process_follows_the_shell() -> None:
    assert [exit_status.compute_exit_status(status) for status in (0, 3, -9, -15)] == [
        0,
        3,
        137,
        143,
    ]
