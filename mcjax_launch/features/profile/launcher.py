"""Begins a profile when the user sends SIGPROF."""

from mcjax_launch.kernel.launcher.part import LauncherPart
from mcjax_launch.kernel.wire.messages import Forward
from mcjax_launch.kernel.wire.signals import PROFILE


class ProfileRequests(LauncherPart):
    """Passes the wish on."""

    def signalled(self, signum: int) -> None:
        """The user wants one."""
        if signum != PROFILE:
            return
        if self.launcher.job.profile is None:
            self.launcher.say("SIGPROF begins a profile only with --profile DIR")
        else:
            self.launcher.pool.send_all(Forward(PROFILE))


PART = ProfileRequests
