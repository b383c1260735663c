"""--mtls: lets only processes of this job join at JAX's coordinator."""
