"""The ranks' output on its way to the user: a pipeline from raw chunks to prefixed lines.

    tee -> unfinished lines -> noise filter -> collapse -> renderer -> sink

`console.py` connects the stages. Each stage holds back only output that it cannot decide about yet,
says when that is due (`deadline`, in time.monotonic's seconds), and passes it on in `expire(now)`.
All stages are pure, except for the two ends, which write.
"""
