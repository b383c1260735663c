"""Pipeline that turns raw chunks of the ranks' output into prefixed lines for the user.

    tee -> unfinished lines -> noise filter -> collapse -> renderer -> sink

`console.py` connects the stages. Each stage holds back only output that it cannot decide about yet,
has a time for it (`deadline`, in time.monotonic's seconds), and passes it on in `expire(now)`.
All stages are pure, except for the two ends, which write.
"""
