"""Ranks that stay and make calls, one after another: `mcjax_launch.session` and `run`.

The API starts the command in a session of its own and reads its journal (`python/job.py`);
`_MCJAX_LAUNCH_CLIENT` names the descriptors that both share. Calls are files without a name
(`client/calls.py`); values come back as frames, behind the output of the call.
"""
