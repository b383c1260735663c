"""Part of the agent for profiles: it passes on what ranks report."""

from __future__ import annotations

from ...agent.part import AgentPart

PART = AgentPart
