"""--mtls: JAX's coordinator takes only processes of this job."""
