"""The Python decoder and encoder: oracles and replacements of the native ones."""

from pyspark_kafka_direct.records.python.avro_decoder import PythonAvroDecoder
from pyspark_kafka_direct.records.python.avro_encoder import PythonAvroEncoder
from pyspark_kafka_direct.records.python.batch_scan import scan_leader_epoch, scan_next_offset
from pyspark_kafka_direct.records.python.batch_writer import is_valid_batch, set_producer_state, split_batch
from pyspark_kafka_direct.records.python.decoder import PythonDecoder
from pyspark_kafka_direct.records.python.encoder import PythonEncoder
from pyspark_kafka_direct.records.python.json_decoder import create_json_decoder
from pyspark_kafka_direct.records.python.json_encoder import encode_json
from pyspark_kafka_direct.records.python.protobuf_decoder import PythonProtobufDecoder
from pyspark_kafka_direct.records.python.protobuf_encoder import PythonProtobufEncoder

__all__ = [
    "PythonAvroDecoder",
    "PythonAvroEncoder",
    "PythonDecoder",
    "PythonEncoder",
    "PythonProtobufDecoder",
    "PythonProtobufEncoder",
    "create_json_decoder",
    "encode_json",
    "is_valid_batch",
    "scan_leader_epoch",
    "scan_next_offset",
    "set_producer_state",
    "split_batch",
]
