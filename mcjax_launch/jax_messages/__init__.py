"""What JAX, Gloo and Python print, as patterns: a new release of JAX changes only this package."""
