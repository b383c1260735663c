"""IPython's extension: `%load_ext mcjax_launch`, then `%mcjax` and `%%mcjax`."""
