"""Decisions without I/O: which partitions, which offsets, which ranges, what is loss.

Nothing here talks to a broker, to Spark or to Arrow. Where a decision needs numbers only brokers know, it says which
(``resolve.lookups``) or is given a function that finds them (``batch.LookUp``).
"""
