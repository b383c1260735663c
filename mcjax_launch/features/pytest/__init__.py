"""Tests marked `mcjax`, which run in the ranks of jobs: a plugin of pytest (`plugin.py`)."""
