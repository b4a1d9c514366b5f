"""Spark's Structured data source: the batch reader of ``format("kafka-direct")``."""
