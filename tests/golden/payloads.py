"""JSON, Avro and Protobuf: what decoders read of random and damaged values, and what encoders write of it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_avro import CASES, damaged
from tests.golden.plain_values import decoded, optional_bytes, optional_text
from tests.unit.payloads import avro_data, protobuf_data
from tests.unit.payloads import test_json_types as json_types
from tests.unit.payloads.protobuf_data import ALL_TYPES, CLOSED, PROTO2
from tests.unit.payloads.random_json import RandomJson
from tests.unit.payloads.random_messages import random_message, unknown_symbols
from tests.unit.payloads.test_decoded_size import FIELDS as SIZED_FIELDS
from tests.unit.payloads.test_json_decoders import FIELDS as JSON_FIELDS
from tests.unit.payloads.test_protobuf_decoders import mutated

from pyspark_kafka_direct.payloads.avro import encoder_program as avro_encoder
from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError, RecordType
from pyspark_kafka_direct.payloads.avro.avro_values import AvroDecoder
from pyspark_kafka_direct.payloads.avro.resolution import resolve
from pyspark_kafka_direct.payloads.encoded_values import (
    AvroEncoder,
    InvalidValueError,
    PayloadEncoding,
    ProtobufEncoder,
)
from pyspark_kafka_direct.payloads.json.json_types import encodable, encode_json
from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder
from pyspark_kafka_direct.payloads.protobuf import encoder_program as protobuf_encoder
from pyspark_kafka_direct.payloads.protobuf.program import make_program
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.protobuf_values import ProtobufDecoder
from pyspark_kafka_direct.payloads.protobuf.schema import parse_protobuf_schema

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_kafka_direct.payloads.column_encoder import EncoderProgram
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues
    from pyspark_kafka_direct.payloads.encoded_values import PayloadEncoder
    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoMessage

_JSON: Final = {"plain": JSON_FIELDS, "types": json_types.FIELDS, "variant": None, "sized": SIZED_FIELDS}
_PROTOBUF: Final = {
    "all": (ALL_TYPES, "test.all.Everything"),
    "two": (PROTO2, "test.two.Legacy"),
    "closed": (CLOSED, "test.closed.Closed"),
}
_LIMITS: Final = (1, 50, 300, 1000, 5000)  # in bytes, of a batch


def json_values(source: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(1100):
        fields = source.choice(list(_JSON))
        names = () if fields == "variant" else JSON_FIELDS.names if fields == "plain" else SIZED_FIELDS.names
        rows = [
            json_types.Values(source).value() if fields == "types" else RandomJson(source, names).row()
            for _ in range(source.randint(1, 5))
        ]
        yield {
            "fields": fields,
            "zone": source.choice(json_types.ZONES),
            "values": [optional_text(row) for row in rows],
            "limit": _limit(source),
        }


def json_answer(case: dict[str, Any]) -> Any:
    fields = _JSON[case["fields"]]
    corrupt = next((name for name in ("corrupt", "_bad") if fields is not None and name in fields.names), "")
    decoder = _json_decoder(case["fields"], corrupt, case["zone"], *case["limit"].values())
    answer, values = _batches(decoder.decode, case["values"])
    if case["fields"] in ("plain", "types"):
        answer.append([optional_text(text) for batch in values for text in encode_json(batch).to_pylist()])
    if case["fields"] == "types":
        times = [batch.flatten()[1].cast(pa.timestamp("us", case["zone"])) for batch in values]
        structs = [pa.StructArray.from_arrays([column], ["t"]) for column in times]
        answer.append([optional_text(text) for batch in structs for text in encode_json(batch).to_pylist()])
    return answer


def avro_datums(source: random.Random) -> Iterator[dict[str, Any]]:
    drawn: list[dict[str, Any]] = []

    @settings(
        max_examples=900,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(avro_data.records(), st.data())
    def draw(typed: avro_data.Typed, data: st.DataObject) -> None:
        schema, values = typed
        reader = data.draw(st.none() | avro_data.reader_schemas(schema))
        datums = [
            avro_data.encode_in_blocks(schema, value, source)
            for value in data.draw(st.lists(values, min_size=1, max_size=3))
        ]
        drawn.append({"writer": schema, "reader": reader, "datums": datums})

    draw()
    records = [case for case in CASES if isinstance(avro_data.parse(case.reader or case.writer), RecordType)]
    for _ in range(700):
        case = source.choice(records)
        datums = source.choices(case.datums, k=source.randint(1, 6))
        drawn.append({"writer": case.writer, "reader": case.reader, "datums": datums})
    for each in drawn:
        changed = [
            datum if datum is None or source.random() < 0.5 else damaged(source, datum) for datum in each["datums"]
        ]
        yield {**each, "datums": [optional_text(datum) for datum in changed], "limit": _limit(source)}


def avro_answer(case: dict[str, Any]) -> Any:
    writer = avro_data.parse(case["writer"])
    reader = writer if case["reader"] is None else avro_data.parse(case["reader"])
    fields = avro_data.arrow_fields(reader)
    decoder = AvroDecoder(fields, **case["limit"])
    decoder.add_program(resolve(writer, reader, fields))
    answer, values = _batches(decoder.decode, case["datums"])
    try:
        program = avro_encoder.compile_encoder(reader, pa.struct(fields), "value")
    except AvroSchemaError as error:
        return [*answer, str(error)]
    return [*answer, _encoded(AvroEncoder, program.numbers, program.constants, values)]


def protobuf_messages(source: random.Random) -> Iterator[dict[str, Any]]:
    classes = {name: protobuf_data.message_class(*each) for name, each in _PROTOBUF.items()}
    for _ in range(650):
        name = source.choice(list(classes))
        others = unknown_symbols(classes[name].DESCRIPTOR, source)
        messages = [random_message(classes[name], source, source.randrange(3)) for _ in range(source.randint(1, 3))]
        values = [mutated(each.SerializePartialToString(), source, others) for each in messages]
        yield {
            "schema": name,
            "defaults": source.random() < 0.3,
            "values": [optional_text(value) for value in values],
            "limit": _limit(source),
        }


def protobuf_answer(case: dict[str, Any]) -> Any:
    decoder = _protobuf_decoder(case["schema"], case["defaults"], *case["limit"].values())
    answer, values = _batches(decoder.decode, case["values"])
    values = [encodable(batch, "Protobuf") for batch in values]
    try:
        program = _protobuf_encoding(case["schema"], values[0].type)
    except ProtobufSchemaError as error:
        return [*answer, str(error)]
    return [*answer, _encoded(ProtobufEncoder, program.numbers, program.constants, values)]


@functools.cache  # many cases have the same decoder, and a new one takes longer than decoding a case
def _json_decoder(fields: str, corrupt: str, zone: str, *max_bytes: int) -> JsonDecoder:
    return JsonDecoder(_JSON[fields], corrupt, zone, *max_bytes)


@functools.cache
def _protobuf_decoder(name: str, emits_defaults: bool, *max_bytes: int) -> ProtobufDecoder:
    schema, message = _protobuf_schema(name)
    fields = protobuf_data.arrow_fields(schema, message)
    program = make_program(schema, message, fields, emits_defaults=emits_defaults)
    return ProtobufDecoder(pa.schema(fields), program, *max_bytes)


@functools.cache
def _protobuf_encoding(name: str, data_type: pa.DataType) -> EncoderProgram:
    return protobuf_encoder.compile_encoder(*_protobuf_schema(name), data_type, "value")


@functools.cache
def _protobuf_schema(name: str) -> tuple[ProtobufSchema, ProtoMessage]:
    schema = parse_protobuf_schema(_PROTOBUF[name][0])
    return schema, schema.message(None)


def _limit(source: random.Random) -> dict[str, int]:
    return {"max_bytes": source.choice(_LIMITS)} if source.random() < 0.3 else {}


def _batches(
    decode: Callable[[pa.BinaryArray], DecodedValues], values: list[str | None]
) -> tuple[list[Any], list[pa.StructArray]]:
    """Decode a column as callers do; return the answer, and the values that are not malformed."""
    rest = pa.array([optional_bytes(value) for value in values], pa.binary())
    answer, batches = [], []
    while len(rest):
        found = decode(rest)
        answer.append(decoded(found))
        valid = found.values if found.malformed is None else found.values.filter(found.malformed.reasons.is_null())
        batches.append(valid)
        rest = rest.slice(len(found.values))
    return answer, batches


def _encoded(
    create: Callable[[PayloadEncoding], PayloadEncoder],
    numbers: tuple[int, ...],
    constants: tuple[bytes, ...],
    batches: Sequence[pa.StructArray],
) -> list[Any]:
    encoder = create(PayloadEncoding(numbers, constants, b"\1"))
    answers: list[Any] = []
    for batch in batches:
        try:
            answers.append([optional_text(value) for value in encoder.encode(batch).to_pylist()])
        except InvalidValueError as error:
            answers.append(["invalid", error.row, error.node, int(error.reason), error.other])
    return answers
