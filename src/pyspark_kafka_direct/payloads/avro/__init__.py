"""Avro: schemas, their Spark types, and programs that decode the datums of a writer schema."""
