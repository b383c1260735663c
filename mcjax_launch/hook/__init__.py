"""Code that runs inside a rank's Python: uses only the standard library, `wire`, `machine`.

A rank has the folder `site` first on PYTHONPATH; it contains only `sitecustomize`.
"""
