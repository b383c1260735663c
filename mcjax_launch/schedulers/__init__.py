"""Schedulers: detecting that we run under one, and writing what makes one run a job."""
