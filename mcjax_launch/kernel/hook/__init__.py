"""What runs inside a rank's Python: only the standard library and `kernel.wire`.

A rank has the folder `site` first on PYTHONPATH: nothing is in it but `sitecustomize`.
"""
