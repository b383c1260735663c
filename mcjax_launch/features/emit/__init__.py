"""--emit: batch scripts and manifests of jobs, made from templates."""
