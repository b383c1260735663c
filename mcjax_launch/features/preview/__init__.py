"""--preview: runs single ranks of a job, each alone, and reports what their programs need."""

#: Modules whose work takes all ranks.
PATCHED = (
    "jax.experimental.multihost_utils",
    "orbax.checkpoint.checkpoint_manager",
    "orbax.checkpoint.checkpointers",
    "orbax.checkpoint.v1",
    "orbax.checkpoint.experimental.v1",
)
