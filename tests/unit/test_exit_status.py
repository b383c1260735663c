"""From what went wrong to an exit status."""

import errno

import pytest

from mcjax_launch.kernel.wire import exit_status

OF_ERRORS = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), 127),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.E2BIG, errno.ELOOP), 126),
    **dict.fromkeys((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.EISDIR), 126),
}


@pytest.mark.parametrize("code", OF_ERRORS)
def test_of_a_command_that_cannot_be_started(code: int) -> None:
    assert exit_status.of_spawn_error(code) == OF_ERRORS[code]


def test_of_a_process() -> None:
    assert [exit_status.of_wait(status) for status in (0, 3, -9, -15)] == [0, 3, 137, 143]
