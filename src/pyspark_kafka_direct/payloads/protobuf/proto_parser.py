"""Parser of ``.proto`` files with the syntaxes ``proto2`` and ``proto3``, or an edition.

It reads what decoders need: message types, enums, their fields and features. Services, extensions and other options are
skipped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark_kafka_direct.payloads.protobuf.features import EDITIONS, PROTO2, SUPPORTED, SYNTAXES
from pyspark_kafka_direct.payloads.protobuf.literals import joined, parse_integer, unescape
from pyspark_kafka_direct.payloads.protobuf.proto_types import (
    MAX_FIELD_NUMBER,
    MAX_NESTED_TYPES,
    MAX_SCHEMA_BYTES,
    NO_ONEOF,
    SCALAR_TYPES,
    ProtobufSchemaError,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.payloads.protobuf.features import Features

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>\.?[0-9](?:[eE][+-]|[\w.])*)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<symbol>[{}()\[\]<>=;,.:+/-])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_NEXT: Final = re.compile(r"\s*(\S?)")
_DEFINITION: Final = re.compile(r"\s*\w+\s*(\{|//|/\*)")  # or the start of a comment before the brace
_FEATURES: Final = re.compile(r"option\s+features\b")
_VISIBILITY: Final = re.compile(r"(export|local)\s+(message|enum)\s+\w+\s*\{")
_MAP_ENTRY: Final = re.compile(r"option\s+map_entry\s*=\s*true\s*;")
_LABELS: Final = ("optional", "required", "repeated")
_OPENING: Final = {"{": "}", "[": "]", "(": ")"}
_CLOSING: Final = frozenset(_OPENING.values())
_MAP_KEYS: Final = SCALAR_TYPES - {"double", "float", "bytes"}


def parse_proto(text: str) -> ProtoFile:
    """Parse the text of a file; names of types are not yet resolved."""
    if len(text.encode(errors="replace")) > MAX_SCHEMA_BYTES:
        raise ProtobufSchemaError(f"the schema has more than {MAX_SCHEMA_BYTES} bytes")
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Iterator[tuple[str, str, int]] = self._scan()
        # The current token: a group of _TOKEN, empty at the end of the text; its characters; their position.
        self._kind, self._word, self._at = next(self._tokens)
        self._features = PROTO2  # of the current scope
        self._file = ProtoFile()

    def file(self) -> ProtoFile:
        """Parse a file: its syntax, if it has one, and then statements in any order."""
        if self._word in ("syntax", "edition"):
            is_edition = self._next() == "edition"
            self._expect("=")
            syntax = self._string()
            features = (EDITIONS if is_edition else SYNTAXES).get(syntax)
            if features is None:
                self._fail(f"the syntax {syntax} is not supported; {SUPPORTED}")
            self._features = features
            self._expect(";")
        while self._kind:
            match self._word:
                case "import":
                    self._next()
                    if self._word in ("public", "weak", "option"):
                        self._next()
                    self._file.imports.append(self._string())
                    self._expect(";")
                case "package":
                    self._next()
                    self._file.package = self._full_name()
                    self._expect(";")
                case "message":
                    self._file.messages.append(self._message(self._file.package, 0))
                case "enum":
                    self._file.enums.append(self._enum(self._file.package))
                case "option" if _FEATURES.match(self._text, self._at):
                    self._features_option(is_first=not self._file.messages and not self._file.enums)
                case "service" | "extend" | "option" | ";":
                    self._skip_statement()
                case "export" | "local" if _VISIBILITY.match(self._text, self._at):  # before a message or enum
                    self._next()
                case _:
                    self._fail(f"unexpected {self._word!r}; the schema is the text of a .proto file, not its path")
        return self._file

    def _message(self, scope: str, depth: int) -> ProtoMessage:
        self._expect("message")
        return self._message_body(_join(scope, self._name()), depth)

    def _message_body(self, name: str, depth: int) -> ProtoMessage:
        """Parse what is in braces; in fields, a keyword can also be the name of a type, so what follows it decides."""
        if depth > MAX_NESTED_TYPES:
            self._fail(f"types are nested more than {MAX_NESTED_TYPES} levels deep")
        message = ProtoMessage(name)
        self._expect("{")
        oneofs, outer_features = 0, self._features
        while self._word != "}":
            match self._word:
                case "message" if self._is_definition():
                    message.messages.append(self._message(name, depth + 1))
                case "enum" if self._is_definition():
                    message.enums.append(self._enum(name))
                case "oneof" if self._is_definition():
                    self._oneof(message, depth, index=oneofs)
                    oneofs += 1
                case "option" if _MAP_ENTRY.match(self._text, self._at):  # Confluent writes maps like this
                    message.is_map_entry = True
                    self._skip_statement()
                case "option" if _FEATURES.match(self._text, self._at):
                    self._features_option(is_first=not message.fields and not message.messages and not message.enums)
                case "option" | "extensions" | "reserved" | "extend" | ";":
                    self._skip_statement()
                case "export" | "local" if _VISIBILITY.match(self._text, self._at):
                    self._next()
                case "map" if self._peek() == "<":
                    self._map_field(message)
                case label if label in _LABELS:
                    self._field(message, depth, label=self._next())
                case _:
                    self._field(message, depth)
        self._expect("}")
        self._features = outer_features
        return message

    def _oneof(self, message: ProtoMessage, depth: int, index: int) -> None:
        self._expect("oneof")
        self._name()
        self._expect("{")
        outer_features, fields_before = self._features, len(message.fields)
        while self._word != "}":
            if _FEATURES.match(self._text, self._at):
                self._features_option(is_first=len(message.fields) == fields_before)
            elif self._word == "option":
                self._skip_statement()
            else:
                self._field(message, depth, label="oneof", oneof=index)
        self._expect("}")
        self._features = outer_features

    def _field(self, message: ProtoMessage, depth: int, label: str = "", oneof: int = NO_ONEOF) -> None:
        """Parse a field, or a group, which defines a message and a field of this type."""
        if self._word == "group" and self._peek() != ".":
            self._next()
            name = self._name()
            field = ProtoField(name.lower(), self._number_of_field(), "group", _join(message.name, name))
            features = self._options(field)
            group = self._message_body(field.type_name, depth + 1)  # without a semicolon after it
            group.has_index = False
            message.messages.append(group)
        else:
            type_name = self._full_name()
            name = self._name()
            field = ProtoField(name, self._number_of_field(), "", type_name)
            if type_name in SCALAR_TYPES:
                field.type, field.type_name = type_name, ""
            features = self._options(field)
            if field.type == "string" and field.default is not None:
                field.default = unescape(field.default).decode(errors="replace")
            self._expect(";")
        field.repeated = label == "repeated"
        field.packed = field.repeated and features.packed
        field.required = label == "required" or (label == "" and features.required)
        field.has_presence = not field.repeated and (not features.implicit_presence or label != "")
        field.checks_strings, field.delimited = features.checks_strings, features.delimited
        field.oneof = oneof
        message.fields.append(field)

    def _map_field(self, message: ProtoMessage) -> None:
        """Parse ``map<string, Item> items = 1;``, short for a repeated field of messages with a key and a value."""
        self._next()
        self._expect("<")
        key = self._name()
        if key not in _MAP_KEYS:
            self._fail(f"{key} cannot be the type of the keys of a map")
        self._expect(",")
        value = self._full_name()
        self._expect(">")
        name = self._name()
        entry_name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
        entry = ProtoMessage(_join(message.name, entry_name), is_map_entry=True)
        entry.has_index = False
        field = ProtoField(name, self._number_of_field(), "message", f".{entry.name}", repeated=True)
        features = self._options(field)
        field.has_presence, field.packed = False, features.packed
        is_scalar = value in SCALAR_TYPES
        value_field = ProtoField("value", 2, type=value if is_scalar else "", type_name="" if is_scalar else value)
        entry.fields = [ProtoField("key", 1, type=key), value_field]
        for each in entry.fields:
            each.has_presence = not features.implicit_presence
        for each in (field, *entry.fields):
            each.checks_strings, each.delimited = features.checks_strings, features.delimited
        self._expect(";")
        message.messages.append(entry)
        message.fields.append(field)

    def _enum(self, scope: str) -> ProtoEnum:
        self._expect("enum")
        outer_features = self._features
        name = self._name()
        enum = ProtoEnum(_join(scope, name), [], closed=False)
        self._expect("{")
        while self._word != "}":
            if _FEATURES.match(self._text, self._at):
                self._features_option(is_first=True)  # they concern the enum, and none of its values
                continue
            # A value may have such a name, too: option = 1.
            if self._word in ("option", "reserved", ";") and self._peek() != "=":
                self._skip_statement()
                continue
            name = self._name()
            self._expect("=")
            enum.values.append((name, self._integer(-(1 << 31), (1 << 31) - 1)))
            self._options(None)
            self._expect(";")
        self._expect("}")
        if not enum.values:
            self._fail(f"the enum {enum.name} has no values")
        enum.closed = self._features.closed_enums
        self._features = outer_features
        return enum

    def _features_option(self, *, is_first: bool) -> None:
        """Parse a statement that sets features of the current scope."""
        if not is_first:
            self._fail("options of features come before the types and fields that they apply to")
        self._next()
        self._features = self._parse_features(self._features)
        self._skip_statement()

    def _parse_features(self, features: Features) -> Features:
        """Parse ``features.enum_type = OPEN`` or ``features = { enum_type: OPEN }``, without those of languages."""
        self._next()
        if self._word == ".":
            self._next()
            if self._word == "(":  # such as features.(pb.java)
                return features
            name = self._name()
            self._expect("=")
            return features.with_feature(name, self._constant())
        self._expect("=")
        self._expect("{")
        while self._word != "}":
            name = self._name()
            self._expect(":")
            features = features.with_feature(name, self._constant())
            if self._word in (",", ";"):
                self._next()
        self._expect("}")
        return features

    def _options(self, field: ProtoField | None) -> Features:
        """Skip the options of a field except its default and its features, which it returns."""
        features = self._features
        if self._word != "[":
            return features
        self._next()
        while True:
            option = self._word
            if option in ("default", "packed") and field is not None:
                self._next()
                self._expect("=")
                value = self._constant()
                if option == "packed":
                    features = features._replace(packed=value == "true")
                else:
                    field.default = value
            elif option == "features":
                features = self._parse_features(features)
            while self._word not in (",", "]"):  # the rest of the option, or another one
                self._skip_token()
            if self._next() == "]":
                return features

    def _constant(self) -> str:
        if self._kind == "string":
            return joined(self._strings())
        sign = self._next() if self._word in ("-", "+") else ""
        if self._kind not in ("name", "number"):
            self._fail(f"unexpected {self._word!r}")
        return sign.removeprefix("+") + self._next()

    def _number_of_field(self) -> int:
        self._expect("=")
        return self._integer(1, MAX_FIELD_NUMBER)

    def _integer(self, smallest: int, largest: int) -> int:
        text = self._constant()
        try:
            number = parse_integer(text)
        except ValueError:
            self._fail(f"{text[:40]} is not an integer")
        if not smallest <= number <= largest:
            self._fail(f"{text[:40]} is not a number from {smallest} to {largest}")
        return number

    def _string(self) -> str:
        if self._kind != "string":
            self._fail(f"expected a string, not {self._word!r}")
        return "".join(self._strings())

    def _strings(self) -> Iterator[str]:
        while self._kind == "string":
            yield self._next()[1:-1]

    def _full_name(self) -> str:
        name = self._next() if self._word == "." else ""
        name += self._name()
        while self._word == ".":
            name += self._next() + self._name()
        return name

    def _name(self) -> str:
        if self._kind and self._kind != "name":
            self._fail(f"expected a name, not {self._word!r}")
        return self._next()

    def _is_definition(self) -> bool:
        """Return whether a keyword is followed by a name and a brace, so that it is not the type of a field."""
        return _DEFINITION.match(self._text, self._at + len(self._word)) is not None

    def _peek(self) -> str:
        """Return the next character after the token that is not white space."""
        found = _NEXT.match(self._text, self._at + len(self._word))
        return found[1] if found else ""

    def _skip_statement(self) -> None:
        """Skip up to a semicolon, or a body in braces that has none after it."""
        while self._word != ";":
            opened = self._word == "{"
            self._skip_token()
            if opened and self._word != ";":
                return
        self._next()

    def _skip_token(self) -> None:
        """Skip a token, or everything within brackets."""
        open_brackets: list[str] = []
        while True:
            token = self._next()
            if token in _OPENING:
                open_brackets.append(_OPENING[token])
            elif token in _CLOSING and (not open_brackets or token != open_brackets.pop()):
                self._fail(f"unexpected {token!r}")
            if not open_brackets:
                return

    def _expect(self, token: str) -> None:
        if self._word != token or self._kind == "string":
            self._fail(f"expected {token!r}, not {self._word!r}")
        self._next()

    def _next(self) -> str:
        """Return the token, and go to the next one."""
        token = self._word
        if not self._kind:
            self._fail("the schema ends within a definition")
        self._kind, self._word, self._at = next(self._tokens)
        return token

    def _scan(self) -> Iterator[tuple[str, str, int]]:
        for found in _TOKEN.finditer(self._text):
            kind = found.lastgroup or ""
            if kind == "other":
                self._at = found.start()  # for the line of the error
                self._fail(f"unexpected {found[0]!r}")
            if kind != "space":
                yield kind, found[0], found.start()
        yield "", "", len(self._text)  # the end

    def _fail(self, message: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise ProtobufSchemaError(f"line {line} of the Protobuf schema: {message[:200]}")


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
