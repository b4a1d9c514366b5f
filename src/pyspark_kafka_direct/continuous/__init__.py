"""Continuous queries: long-running tasks, and epochs."""
