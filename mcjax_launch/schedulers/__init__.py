"""Schedulers: being inside one, and writing what makes one run the same job."""
