"""mcjax-launch: starts, watches and ends the processes of multi-controller JAX programs."""

__version__ = "0.2.0"
