"""Ranks that stay and make calls, one after another: `mcjax_launch.session` and `run`."""
