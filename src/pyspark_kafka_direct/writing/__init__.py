"""Arrow batches to acknowledged record batches: producers and transactions; wire and records joined, no Spark."""
