"""kafka-python's builders of record batches, as an independent implementation of the formats."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # kafka-python reads its message files through a deprecated function of importlib.
    warnings.filterwarnings("ignore", r"(read|open)_text is deprecated", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

__all__ = ["DefaultRecordBatchBuilder", "LegacyRecordBatchBuilder"]
