"""One offset range becomes Arrow batches: ``wire`` and ``records`` joined, still without Spark."""
