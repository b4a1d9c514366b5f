"""Producers and transactions: encodes Arrow batches as record batches and sends them to Kafka. Independent of Spark."""
