"""What runs inside a rank's Python: only the standard library and `protocol`.

A rank has this folder first on PYTHONPATH: nothing is in it but `sitecustomize` and `mcjax_hook`.
"""
