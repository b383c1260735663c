"""Reaches hosts: starts their agents and carries frames to and from them."""
