"""Payloads of records to Arrow: the formats that ``keyFormat`` and ``valueFormat`` name."""
