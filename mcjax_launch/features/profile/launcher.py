"""Part of the launcher that asks ranks for profiles, and says where these are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mcjax_launch.features.profile.messages import Profiled
from mcjax_launch.features.profile.options import ProfileOptions
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.ranks import format_ranks, group_by_key
from mcjax_launch.wire.messages import FromHook

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Rank
    from mcjax_launch.journal.summary import Summary
    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import ToLauncher

_OPEN = "open a trace.json.gz below it at ui.perfetto.dev, or all in TensorBoard"


class Profiles(LauncherPart):
    """Part that says where the profiles of ranks are, and which are missing."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        # By rank: why its profile is missing; "" if it is there.
        self._why_not = dict.fromkeys(launcher.state.ranks, "the rank ended before it was written")

    def get_variable(self, rank: Rank) -> str:
        """Return a rank's profile: seconds after initialize(), and its folder."""
        own = ProfileOptions.of(self.launcher.job)
        folder = os.path.join(own.profile or "", str(rank.process_id))
        return f"{own.profile_after:g} {folder}"

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Record what has become of a rank's profile."""
        if isinstance(message, FromHook) and isinstance(message.message, Profiled):
            self._why_not[message.rank] = message.message.why_not

    def on_summary(self, summary: Summary) -> None:
        """Say where the profiles are, and which are missing."""
        folder = ProfileOptions.of(self.launcher.job).profile
        groups = group_by_key((why, rank) for rank, why in sorted(self._why_not.items()))
        for why, ranks in groups.items():
            whose = format_ranks(ranks)
            line = f"profile of {whose}: {folder}/RANK ({_OPEN})"
            self.launcher.console.note(f"no profile of {whose} in {folder}: {why}" if why else line)


PART = Profiles
