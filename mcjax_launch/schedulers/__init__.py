"""Schedulers: detecting one around the launcher, and writing what makes one run a job."""
