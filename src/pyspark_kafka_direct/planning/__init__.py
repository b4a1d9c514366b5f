"""Decisions without I/O: which partitions, which offsets, which ranges, and what is data loss.

No module here uses brokers, Spark or Arrow. A decision that needs offsets from brokers returns the required lookups
(``offset_resolution.required_lookups``) or gets a function for them (``offset_resolution.OffsetLookup``).
"""
