"""The decoder and the encoder in Python: oracles of the native ones, and their stand-ins."""

from pyspark_kafka_direct.records._python._batch_scan import scan_leader_epoch, scan_next_offset
from pyspark_kafka_direct.records._python._batch_writer import split, stamp
from pyspark_kafka_direct.records._python._decoder import PythonDecoder
from pyspark_kafka_direct.records._python._encoder import PythonEncoder

__all__ = ["PythonDecoder", "PythonEncoder", "scan_leader_epoch", "scan_next_offset", "split", "stamp"]
