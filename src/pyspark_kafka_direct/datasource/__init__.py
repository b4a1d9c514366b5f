"""The data source ``format("kafka-direct")`` for Structured Streaming and batch queries."""
