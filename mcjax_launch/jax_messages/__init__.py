"""What JAX and Python print, as patterns: noise, lost peers, known errors."""
