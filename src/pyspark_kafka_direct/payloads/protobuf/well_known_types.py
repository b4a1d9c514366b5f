"""The files that every Protobuf schema may import: those of Google, and others that registries have built in.

Those of ``confluent`` are in Confluent's registry and in Karapace, and the last one in Apicurio.
"""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.payloads.protobuf.descriptor_file import DESCRIPTOR_FILE

_WRAPPERS: Final = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")


def _google(definitions: str, package: str = "protobuf", imports: str = "") -> str:
    return f'syntax = "proto3"; package google.{package}; {imports} {definitions}'


def _common(definitions: str, *imports: str) -> str:
    return _google(definitions, "type", "".join(f'import "google/protobuf/{each}.proto";' for each in imports))


def _enum(name: str, first: str, others: str) -> str:
    values = enumerate([first, *others.split()])
    return f"enum {name} {{ {''.join(f'{value} = {number};' for number, value in values)} }}"


# Go and C# have another path.
_CONFLUENT_DECIMAL: Final = (
    'syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; '
    "int32 scale = 3; }"
)

WELL_KNOWN_FILES: Final = {
    "google/protobuf/any.proto": _google("message Any { string type_url = 1; bytes value = 2; }"),
    "google/protobuf/api.proto": _google(
        """
        message Api { string name = 1; repeated Method methods = 2; repeated Option options = 3; string version = 4;
          SourceContext source_context = 5; repeated Mixin mixins = 6; Syntax syntax = 7; string edition = 8; }
        message Method { string name = 1; string request_type_url = 2; bool request_streaming = 3; string
          response_type_url = 4; bool response_streaming = 5; repeated Option options = 6; Syntax syntax = 7; string
          edition = 8; }
        message Mixin { string name = 1; string root = 2; }
        """,
        imports='import "google/protobuf/source_context.proto"; import "google/protobuf/type.proto";',
    ),
    "google/protobuf/descriptor.proto": DESCRIPTOR_FILE,
    "google/protobuf/duration.proto": _google("message Duration { int64 seconds = 1; int32 nanos = 2; }"),
    "google/protobuf/empty.proto": _google("message Empty {}"),
    "google/protobuf/field_mask.proto": _google("message FieldMask { repeated string paths = 1; }"),
    "google/protobuf/source_context.proto": _google("message SourceContext { string file_name = 1; }"),
    "google/protobuf/struct.proto": _google(
        """
        message Struct { map<string, Value> fields = 1; }
        message Value {
          oneof kind {
            NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
            Struct struct_value = 5; ListValue list_value = 6;
          }
        }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }
        """
    ),
    "google/protobuf/timestamp.proto": _google("message Timestamp { int64 seconds = 1; int32 nanos = 2; }"),
    "google/protobuf/type.proto": _google(
        """
        message Type { string name = 1; repeated Field fields = 2; repeated string oneofs = 3; repeated Option options
          = 4; SourceContext source_context = 5; Syntax syntax = 6; string edition = 7; }
        message Field { enum Kind { TYPE_UNKNOWN = 0; TYPE_DOUBLE = 1; TYPE_FLOAT = 2; TYPE_INT64 = 3; TYPE_UINT64 =
          4; TYPE_INT32 = 5; TYPE_FIXED64 = 6; TYPE_FIXED32 = 7; TYPE_BOOL = 8; TYPE_STRING = 9; TYPE_GROUP = 10;
          TYPE_MESSAGE = 11; TYPE_BYTES = 12; TYPE_UINT32 = 13; TYPE_ENUM = 14; TYPE_SFIXED32 = 15; TYPE_SFIXED64 =
          16; TYPE_SINT32 = 17; TYPE_SINT64 = 18; } enum Cardinality { CARDINALITY_UNKNOWN = 0; CARDINALITY_OPTIONAL =
          1; CARDINALITY_REQUIRED = 2; CARDINALITY_REPEATED = 3; } Kind kind = 1; Cardinality cardinality = 2; int32
          number = 3; string name = 4; string type_url = 6; int32 oneof_index = 7; bool packed = 8; repeated Option
          options = 9; string json_name = 10; string default_value = 11; }
        message Enum { string name = 1; repeated EnumValue enumvalue = 2; repeated Option options = 3; SourceContext
          source_context = 4; Syntax syntax = 5; string edition = 6; }
        message EnumValue { string name = 1; int32 number = 2; repeated Option options = 3; }
        message Option { string name = 1; Any value = 2; }
        enum Syntax { SYNTAX_PROTO2 = 0; SYNTAX_PROTO3 = 1; SYNTAX_EDITIONS = 2; }
        """,
        imports='import "google/protobuf/any.proto"; import "google/protobuf/source_context.proto";',
    ),
    "google/protobuf/wrappers.proto": _google(
        "".join(f"message {name}Value {{ {name.lower()} value = 1; }}" for name in _WRAPPERS)
    ),
    "google/type/calendar_period.proto": _common(
        _enum("CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED", "DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR")
    ),
    "google/type/color.proto": _common(
        "message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }",
        "wrappers",
    ),
    "google/type/date.proto": _common("message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"),
    "google/type/datetime.proto": _common(
        """
        message DateTime {
          int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; int32 seconds = 6;
          int32 nanos = 7;
          oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }
        }
        message TimeZone { string id = 1; string version = 2; }
        """,
        "duration",
    ),
    "google/type/dayofweek.proto": _common(
        _enum("DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED", "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY")
    ),
    "google/type/decimal.proto": _common("message Decimal { string value = 1; }"),
    "google/type/expr.proto": _common(
        "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }"
    ),
    "google/type/fraction.proto": _common("message Fraction { int64 numerator = 1; int64 denominator = 2; }"),
    "google/type/interval.proto": _common(
        "message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }",
        "timestamp",
    ),
    "google/type/latlng.proto": _common("message LatLng { double latitude = 1; double longitude = 2; }"),
    "google/type/localized_text.proto": _common("message LocalizedText { string text = 1; string language_code = 2; }"),
    "google/type/money.proto": _common("message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"),
    "google/type/month.proto": _common(
        _enum(
            "Month",
            "MONTH_UNSPECIFIED",
            "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER",
        )
    ),
    "google/type/phone_number.proto": _common(
        """
        message PhoneNumber {
          message ShortCode { string region_code = 1; string number = 2; }
          oneof kind { string e164_number = 1; ShortCode short_code = 2; }
          string extension = 3;
        }
        """
    ),
    "google/type/postal_address.proto": _common(
        """
        message PostalAddress {
          int32 revision = 1; string region_code = 2; string language_code = 3; string postal_code = 4;
          string sorting_code = 5; string administrative_area = 6; string locality = 7; string sublocality = 8;
          repeated string address_lines = 9; repeated string recipients = 10; string organization = 11;
        }
        """
    ),
    "google/type/quaternion.proto": _common(
        "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }"
    ),
    "google/type/timeofday.proto": _common(
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
    "confluent/meta.proto": (
        'syntax = "proto3"; package confluent; message Rule { string name = 1; string doc = 2; string expr = 3; '
        "string sql = 4; } message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; "
        "repeated Rule rules = 4; }"
    ),
    **dict.fromkeys(("confluent/type/decimal.proto", "confluent/types/decimal.proto"), _CONFLUENT_DECIMAL),
    "confluent/type/variant.proto": (
        'syntax = "proto3"; package confluent.type; message Variant { bytes metadata = 1; bytes value = 2; }'
    ),
    "additionalTypes/decimal.proto": (
        'syntax = "proto3"; package additionalTypes; message Decimal { int64 units = 1; int32 fraction = 2; '
        "uint32 precision = 3; int32 scale = 4; }"
    ),
}
"""The definitions of files by their names, without what decoders skip."""

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
WRAPPERS: Final = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPERS)
