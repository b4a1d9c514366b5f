"""Fetches offset ranges and partitions into Arrow batches, on top of ``client`` and ``records``, without Spark."""
