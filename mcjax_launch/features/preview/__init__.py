"""--preview: runs single ranks of a job, each alone, and reports what their programs need.

It is a job of some ranks (`Job.alone`), each without the others. Their hook joins a coordination
service with one member, and returns zeros in place of what programs over several processes would.
"""

#: Modules whose work takes all ranks.
PATCHED = (
    "jax.experimental.multihost_utils",
    "orbax.checkpoint.checkpoint_manager",
    "orbax.checkpoint.checkpointers",
    "orbax.checkpoint.v1",
    "orbax.checkpoint.experimental.v1",
)
