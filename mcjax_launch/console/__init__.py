"""The ranks' output on its way to the user: a pipeline from raw chunks to prefixed lines.

    tee -> unfinished lines -> noise filter -> collapse -> renderer -> sink

`console.py` wires the stages. Each holds back only what is its own, knows when that is due
(`deadline`, in seconds of time.monotonic), and hands it on in `expire(now)`. All but the two ends,
which do the writing, are pure.
"""
