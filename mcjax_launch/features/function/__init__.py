"""Functions called in ranks, and what they return: `mcjax_launch.run`."""
