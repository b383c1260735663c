"""Part of the launcher that makes the job's certificate, and sends it to the hosts."""

from collections.abc import Iterable, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.mtls.certificate import NoCertificate, make
from mcjax_launch.features.mtls.choice import check_versions, explain_missing_tls
from mcjax_launch.features.mtls.messages import Certificate
from mcjax_launch.features.mtls.options import TlsOptions
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.wire.messages import ToAgent


class JobCertificate(LauncherPart):
    """Part that sends all hosts of an attempt the same certificate."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._required = TlsOptions.of(launcher.job).mtls == "on"
        self._orders: list[ToAgent] | None = None

    def make_orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Send the certificate, the same to every host.

        Raises:
            LaunchError: --mtls on requires it, and it cannot be made, or a host's jax is too old.

        """
        if self._orders is None:
            self._orders = self._decide(plan)
        return self._orders

    def _decide(self, plan: Plan) -> list[ToAgent]:
        if self._required:
            check_versions(plan.jax)
        elif why := explain_missing_tls(plan.jax):
            self.launcher.console.show_detail(f"--mtls auto: {why}")
            return []
        try:
            text, key = make(plan.job_id)
        except NoCertificate as error:
            if self._required:
                raise LaunchError(f"--mtls on: {error}") from None
            self.launcher.console.say(f"--mtls auto: any process can join this job: {error}")
            return []
        self.launcher.console.show_detail("--mtls: only processes of this job may join it")
        return [Certificate(text, key, self._required)]


PART = JobCertificate
