"""--preview: runs single ranks of a job, each alone, and reports what their programs need."""
