"""From what went wrong to an exit status."""

import errno

from mcjax_launch.kernel.wire import exit_status


def test_of_a_command_that_cannot_be_started() -> None:
    for code in (errno.ENOENT, errno.ENOTDIR):
        assert exit_status.of_spawn_error(code) == 127
    for code in (errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.ENOMEM):
        assert exit_status.of_spawn_error(code) == 126


def test_of_a_process() -> None:
    assert [exit_status.of_wait(status) for status in (0, 3, -9, -15)] == [0, 3, 137, 143]
