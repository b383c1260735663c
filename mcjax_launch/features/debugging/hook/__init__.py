"""Debuggers in a rank."""

from __future__ import annotations

from .debuggers import Debuggers

PART = Debuggers
