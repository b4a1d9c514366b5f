"""Decoding and encoding of the columns of a frame, in Spark's driver and tasks."""
