"""Adapters to PySpark that all APIs use: worker processes, tasks, checkpoints, offset commits and versions of Spark."""
