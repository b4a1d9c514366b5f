"""JSON values that Spark's ``parse_json`` and the VARIANT decoders of this package read, and where results differ."""

from __future__ import annotations

from typing import Final

from tests.integration.from_json_cases import LONG_NAME as FROM_JSON_LONG_NAME
from tests.integration.from_json_cases import VALUES as FROM_JSON_VALUES

_LONG_NAME: Final = b'{"' + b"k" * 50_001 + b'":1}'
_LONG_STRING: Final = b'"' + b"x" * 20_000_001 + b'"'
_LONG_NUMBER: Final = b"1." + b"3" * 1000
_NUMBERS: Final = (
    *["0", "-0", "127", "128", "-128", "-129", "32767", "32768", "-32769", "2147483647", "2147483648", "-2147483649"],
    *["9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"],
    *["1.0", "-0.0", "0.5", "999999999.0", "9999999.99", "1234567890.5", "0.000000001", "0.0000000001"],
    *["123456789.123456789", "0.123456789012345678", "0.1234567890123456789", "99999999999999999.9"],
    *[
        "9" * 38,
        "-" + "9" * 38,
        "9" * 39,
        "0." + "0" * 37 + "1",
        "0." + "0" * 38 + "1",
        "0." + "9" * 38,
        "1." + "0" * 38,
    ],
    *["0." + "0" * 50, "-0." + "0" * 50, "1e0", "-1E5", "1.5e-7", "0e0", "-0e0", "1e400", "-1e400", "1e-400", "5e-324"],
    *[
        "1.7976931348623157e308",
        "9007199254740993",
        "9007199254740993.0",
        "90071992547409930e-1",
        "123456789012345678.9",
    ],
    *[
        "9" * 400,
        "9" * 1000,
        "9" * 1001,
        "0." + "3" * 1000,
        "0." + "3" * 1001,
        "1e" + "0" * 1100 + "1",
        "01",
        "-01",
        "00",
    ],
    *["1." + "3" * 999, "1." + "3" * 1000, "[1." + "3" * 999 + "]", "[1." + "3" * 1000 + "]", "[1e" + "0" * 1000 + "]"],
    *[
        "+1",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "-",
        "--1",
        "1.5.5",
        "1x",
        "1_000",
        "0x10",
        "NaN",
        "Infinity",
        "-Infinity",
    ],
    *["-INF", "+INF", "1 2", "1,2", "1]", " 1 "],
)
_STRINGS: Final = (
    *[
        '""',
        '"a"',
        '"' + "x" * 63 + '"',
        '"' + "x" * 64 + '"',
        '"' + "é" * 31 + '"',
        '"' + "é" * 32 + '"',
        '"\U0001f600"',
    ],
    *[
        '"\\u00e9\\n\\t\\b\\f\\r\\/\\\\\\""',
        '"\\ud83d\\ude00"',
        '"\\ud83d"',
        '"\\ude00"',
        '"\\ud83dx"',
        '"\\ude00\\ud83d"',
    ],
    *[
        '"\\ud83d\\u0041"',
        '"\\x"',
        '"\\\'"',
        '"\\u12"',
        '"\\u00g0"',
        '"a\tb"',
        '"a\\u0000b"',
        '"\x7f"',
        "'a'",
        '"a',
        '"\\',
    ],
    *['"\ufeff"', '"\uffff"', '"a" x', '"a""b"'],
)
_OBJECTS: Final = (
    *['{"a":1}', '{"b":1,"a":2}', '{"a":{"b":{"a":1}},"b":[{"c":1},{"a":2}]}', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}'],
    *['{"a":{"b":1,"b":1}}', '[{"a":1},{"a":1}]', '{"":1}', '{"":1,"":2}', '{"a":null}', '{"a":[]}', '{"a":{}}'],
    *['{"\uffff":1,"\U0001f600":2,"\ue000":3,"\ud7ff":4}', '{"aa":1,"a":2,"A":3,"é":4,"Z":5,"ab":6,"":7}'],
    *[
        '{"\\ud83d":1}',
        "{'a':1}",
        "{a:1}",
        '{"a":1,}',
        '{"a"}',
        '{"a":}',
        '{"a" 1}',
        "{,}",
        "{1:2}",
        '{"a":1}}',
        "{}{}",
    ],
    "{" + ",".join(f'"k{number}":{number}' for number in range(255)) + "}",
    "{" + ",".join(f'"k{number}":{number}' for number in range(256)) + "}",
    "{" + ",".join(f'"k{number}":{number}' for number in range(257, 0, -1)) + "}",
    "{" + ",".join(f'"k{number}":"{number}"' for number in range(70_000)) + "}",
    '{"a":"' + "x" * 70_000 + '","b":1}',
    '{"a":"' + "x" * 17_000_000 + '","b":{"c":[1]}}',
)
_ARRAYS: Final = (
    *[
        "[]",
        "[[]]",
        "[1,[2,[3]],{}]",
        "[null,true,false]",
        "[1,]",
        "[,1]",
        "[,]",
        "[1 2]",
        "[1}",
        "[1",
        "[",
        "]",
        "[]]",
    ],
    "[" + ",".join("1" for _ in range(255)) + "]",
    "[" + ",".join("1" for _ in range(256)) + "]",
    "[" + ",".join("1" for _ in range(70_000)) + "]",
    *("[" * levels + "]" * levels for levels in (999, 1000, 1001, 10_000)),
    *('{"a":' * levels + "1" + "}" * levels for levels in (999, 1000, 1001, 10_000)),
    "[" * 500 + '{"a":' * 500 + "1" + "}" * 500 + "]" * 500,
)
_OTHERS: Final = (
    *[
        "null",
        "true",
        "false",
        "nul",
        "nullx",
        "null x",
        "True",
        "truefalse",
        "",
        " ",
        "\n",
        "x",
        "/**/1",
        "1//",
        "\ufeff1",
    ],
    *["\ufeff{}", "\x0c1", "1\x00", "\x00", "\u00a01", "[1\u00a0]"],
)
_BYTES: Final = (
    b'"\xff"',
    b'"a\xe2\x82b\xf0\x9f\x98"',
    b'{"\xff":1}',
    b'{"\xff":1,"\xfe":2}',
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b'"\xf4\x90\x80\x80"',
    b"\xff1",
    b'"\\u00e9\xa9"',
)

VALUES: Final = (
    *dict.fromkeys(
        [
            *(text.encode("utf-8", "surrogatepass") for text in (*_NUMBERS, *_STRINGS, *_OBJECTS, *_ARRAYS, *_OTHERS)),
            *_BYTES,
            *FROM_JSON_VALUES,
            _LONG_NAME,
            _LONG_STRING,
        ]
    ),
)
DIFFERENCES: Final = {
    # Spark ignores what follows the value.
    **dict.fromkeys(
        (
            *(b"1 2", b'"a" x', b'"a""b"', b'{"a":1}}', b"{}{}", b"[]]", b"null x"),
            *(b'{"i":1} x', b'{"i":1} {"i":2}', b'{"i":1}}', b'{"i":1}\x00'),
        ),
        "trailing",
    ),
    **dict.fromkeys((b'"\xed\xa0\x80"', b'{"s":"\xed\xa0\x80"}'), "surrogates in UTF-8"),
    **dict.fromkeys((_LONG_NAME, FROM_JSON_LONG_NAME), "names over 50,000 characters"),
    _LONG_STRING: "strings over 20,000,000 characters",
    _LONG_NUMBER: "1,001 digits without another character",
}
"""Values whose results differ, and the line of the table in docs/typed-json.md."""

STRUCT_SCHEMA: Final = "i int, v variant, o struct<v variant>, a array<variant>, _corrupt_record string"

STRUCT_VALUES: Final = (
    b'{"i":1,"v":{"b":[1,2.5,"x"],"a":null}}',
    b'{"v":null,"i":1}',
    b'{"i":1}',
    b"",
    b"null",
    b"[]",
    b'{"v":1,"v":{"a":2},"i":3}',
    b'{"v":{"a":2},"v":1,"i":3}',
    b'{"v":{"a":1,"a":2},"i":3}',
    b'{"v":{"a":{"x":1,"x":1}},"i":3}',
    b'{"v":"\\ud83d","i":3}',
    b'{"v":1,"v":{"a":1,"a":2},"i":3}',
    b"{'v':{'a':'b\\'c'},'i':3}",
    b'{"v":NaN,"i":3}',
    b'{"v":[-INF,"NaN",+Infinity],"i":3}',
    b'{"v":[1,],"i":3}',
    b'{"v":[1',
    b'{"v":tru,"i":3}',
    b'{"o":{"v":[{"a":1},{"a":2}]},"i":3}',
    b'{"o":{"v":{"a":1}},"o":{"v":2},"i":3}',
    b'{"o":null,"a":null,"i":3}',
    b'{"a":[1,null,{"a":[]},"x"],"i":3}',
    b'{"a":[1,{"a":1,"a":1}],"i":3}',
    b'{"a":[1],"a":[2,3],"i":3}',
    b'{"a":1,"i":3}',
    b'{"i":"x","v":{"i":1}}',
    b'{"v":' + b"[" * 999 + b"]" * 999 + b',"i":1}',
    b'{"v":' + b"[" * 1000 + b"]" * 1000 + b',"i":1}',
    b'{"v":"\xff","i":1}',
    b'{"v":{"a":1} "i":1}',
    b'{"v" : { "a" : [ 1 , 2 ] } , "i" : 1 }',
)
"""Objects that ``from_json`` reads with a VARIANT within a struct."""

STRUCT_DIFFERENCES: Final = {
    b'{"v":{"a":{"x":1,"x":1}},"i":3}': "Spark reads the fields after the repeated key as those of the VARIANT",
    b'{"v":'
    + b"[" * 1000
    + b"]" * 1000
    + b',"i":1}': "Spark reads the fields after a VARIANT that is nested too deeply",
}
