"""Protobuf: schemas, their Spark types, and programs that decode messages."""
