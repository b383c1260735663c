"""The ranks' output on its way to the user: a pipeline from raw chunks to prefixed lines."""
