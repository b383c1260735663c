"""Actions when a forked rank's program first imports preloaded modules."""

from __future__ import annotations

from ....hook import devices
from ..messages import SetTooLate

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ....hook.agent_link import AgentLink
    from .comparison import StateComparison
    from .fresh_start import FreshStart
    from .layers import Layer


class FirstImports:
    """Actions on first imports: start the rank afresh if the import would differ, else complete it.

    Args:
        layers: layers that were imported.
        comparison: comparison of the rank's present and initial states.
        fresh_start: initial state with which the rank can start afresh.
        link: link to the agent.
        environ: environment with which the rank was started.

    """

    def __init__(
        self,
        layers: Iterable[Layer],
        comparison: StateComparison,
        fresh_start: FreshStart,
        link: AgentLink,
        environ: Mapping[str, str],
    ) -> None:
        self._layers = list(layers)
        self._comparison = comparison
        self._fresh_start = fresh_start
        self._link = link
        self._environ = environ
        self._filtering: set[Layer] = set()  # layers whose filters of warnings are in effect
        self._imported: set[Layer] = set()
        if all("jax" not in layer.packages for layer in self._layers):
            link.send_held()  # the program finds JAX imported, or imports it itself

    def check_before_import(self, packages: Collection[str]) -> None:
        """Start the rank afresh if an import would differ now; if too late, only report it.

        Args:
            packages: packages that the program is about to import.

        """
        for layer in self._select_layers(packages):
            if "jax" in layer.packages and layer not in self._imported:
                self._comparison.set_flags(layer)
            missed = (
                () if layer in self._imported else tuple(self._comparison.find_differences(layer))
            )
            if missed:
                afresh = self._fresh_start.is_possible()
                self._link.send(SetTooLate(layer.name, missed, afresh))
                if afresh:
                    self._fresh_start.start_afresh()

    def finish(self, packages: Collection[str]) -> None:
        """Apply the imports' other effects: filters of warnings, and variables.

        Args:
            packages: packages that the program has just imported.

        """
        for layer in self._select_layers(packages):
            if layer not in self._filtering:
                self._filtering.add(layer)
                layer.add_filters()
            if layer.name in packages:
                self._imported.add(layer)
                layer.set_variables()
                self._comparison.add_variables(layer.settings)
        if "jax" in packages:
            self._fresh_start.send_uncounted(self._link.send_held)
            devices.assign_gpus(self._environ)
            self._comparison.begin_jax()
        if len(self._imported) == len(self._layers):
            self._fresh_start.rule_out()

    def _select_layers(self, packages: Collection[str]) -> list[Layer]:
        return [layer for layer in self._layers if not layer.packages.isdisjoint(packages)]
