"""Remove from this process's environment what users choose there: tests must not depend on it."""

import os

# Colours and sizes of the output; how Python runs; options of JAX; the job around the tests.
_CHOICES = ("CLICOLOR", "COLUMNS", "FORCE_COLOR", "JAX_", "LINES", "MCJAX_", "NO_COLOR", "XLA_")
_OF_PYTHON = ("DONTWRITEBYTECODE", "FAULTHANDLER", "HASHSEED", "OPTIMIZE", "UNBUFFERED", "WARNINGS")
_OF_JOBS = ("GITHUB_", "OMPI_", "PMI", "SLURM_")


def remove_users_choices() -> None:
    """Remove the variables, for this process and all that it starts."""
    choices = (*_CHOICES, *_OF_JOBS, *(f"PYTHON{name}" for name in _OF_PYTHON))
    for name in [name for name in os.environ if name.startswith(choices)]:
        del os.environ[name]
