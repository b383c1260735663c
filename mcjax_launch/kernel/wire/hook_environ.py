"""The variables that tell a hook what it needs."""

#: The agent's unix socket.
SOCKET = "MCJAX_HOOK_SOCKET"
#: The folder on PYTHONPATH that holds the hook.
FOLDER = "MCJAX_HOOK_FOLDER"
#: Where rank 0's coordination service listens, for the coordinator that the launcher chose.
BIND = "MCJAX_HOOK_BIND"
#: The path of a unix socket on which it may listen instead, out of the reach of others.
COORDINATOR = "MCJAX_HOOK_COORDINATOR"
#: The folder with this job's certificate, as `on:FOLDER` or `auto:FOLDER` (--mtls).
MTLS = "MCJAX_HOOK_MTLS"
#: Seconds that initialize() may take in all, where the user gave a limit.
JOIN_TIMEOUT = "MCJAX_HOOK_JOIN_TIMEOUT"
#: Set where ranks are to outlive one another (--on-rank-failure).
SURVIVES = "MCJAX_HOOK_SURVIVES"
#: This rank's own address for jax.device_put between CPU processes.
TRANSFER = "MCJAX_HOOK_TRANSFER"
#: The first rank of each slice, where the user has asked for slices (--slices): `0,4`.
SLICES = "MCJAX_HOOK_SLICES"
#: The GPUs that the launcher has given this rank, as JAX_LOCAL_DEVICE_IDS: `0,1`.
GPUS = "MCJAX_HOOK_GPUS"
#: This host's address, where its own name does not lead to one that others can use.
ADDRESS = "MCJAX_HOOK_ADDRESS"
#: Set where an uncaught exception opens a debugger (--pdb).
PDB = "MCJAX_HOOK_PDB"
#: A process that has called initialize(), for those that it starts: its pid, number and address.
MEMBER = "MCJAX_HOOK_MEMBER"
#: Where to write a profile, and when: seconds after initialize(), length in seconds, folder.
PROFILE = "MCJAX_HOOK_PROFILE"
#: Set where the launcher lets programs run (--verify-spmd).
VERIFY_SPMD = "MCJAX_HOOK_VERIFY_SPMD"
#: Set where somebody may look at the run: the hook says where the main thread is (--status).
LOOKS = "MCJAX_HOOK_LOOKS"
#: How a rank shares what it compiles (--compile-once): mode, folders and size, as JSON.
COMPILE_ONCE = "MCJAX_HOOK_COMPILE_ONCE"
#: Set in a process that is not to run the program: `feature:what it is to do instead`.
INSTEAD = "MCJAX_HOOK_INSTEAD"
