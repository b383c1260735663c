"""Profiles of ranks: some time after initialize(), and whenever the user sends SIGPROF."""

import os
import signal

from mcjax_launch.features.profile.messages import BeginProfile
from mcjax_launch.job.plan import Rank
from mcjax_launch.launcher.part import LauncherPart

# Length of a profile, in seconds.
_LENGTH_S = 5.0


class ProfileRequests(LauncherPart):
    """Part that passes the user's SIGPROF on to the ranks."""

    def get_variable(self, rank: Rank) -> str:
        """Return a rank's profile: seconds after initialize(), length in seconds, folder."""
        job = self.launcher.job
        if job.profile is None:
            return ""
        folder = os.path.join(job.profile, str(rank.process_id))
        return f"{job.profile_after:g} {_LENGTH_S:g} {folder}"

    def on_signal(self, signum: int) -> None:
        """Begin a profile in all ranks if the signal asks for it."""
        if signum != signal.SIGPROF:
            return
        if self.launcher.job.profile is None:
            self.launcher.console.say("SIGPROF begins a profile only with --profile DIR")
        else:
            self.launcher.pool.send_all(BeginProfile())


PART = ProfileRequests
