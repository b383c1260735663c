"""Connections to hosts: starting their agents, and carrying frames to and from them."""
