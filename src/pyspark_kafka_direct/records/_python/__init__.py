"""The decoder in Python: the native one's oracle, and its stand-in."""

from pyspark_kafka_direct.records._python._batch_scan import scan_leader_epoch, scan_next_offset
from pyspark_kafka_direct.records._python._decoder import PythonDecoder

__all__ = ["PythonDecoder", "scan_leader_epoch", "scan_next_offset"]
