"""Kafka's wire protocol: message schemas, their codec, error codes. Nothing here opens a connection."""
