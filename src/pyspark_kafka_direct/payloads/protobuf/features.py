"""Differences of the syntaxes ``proto2`` and ``proto3``, and the choices of files with an edition."""

from __future__ import annotations

from typing import Final, NamedTuple


class Features(NamedTuple):
    """The features of a file, type or field. They apply to what is in it, unless it has its own."""

    implicit_presence: bool = False  # a field that is 0 is not written
    required: bool = False
    closed_enums: bool = False
    packed: bool = True
    checks_strings: bool = True  # strings must be UTF-8
    delimited: bool = False  # messages are written like groups

    def with_feature(self, name: str, value: str) -> Features:
        """Return the features with one that a schema sets; others do not concern the bytes of messages."""
        match name:
            case "field_presence":
                return self._replace(implicit_presence=value == "IMPLICIT", required=value == "LEGACY_REQUIRED")
            case "enum_type":
                return self._replace(closed_enums=value == "CLOSED")
            case "repeated_field_encoding":
                return self._replace(packed=value == "PACKED")
            case "utf8_validation":
                return self._replace(checks_strings=value == "VERIFY")
            case "message_encoding":
                return self._replace(delimited=value == "DELIMITED")
        return self

    def with_numbers(self, numbers: dict[int, int]) -> Features:
        """Return the features with those of a descriptor."""
        features = self
        for number, (name, values) in _FEATURES.items():
            if number in numbers:
                features = features.with_feature(name, values.get(numbers[number], ""))
        return features


_FEATURES: Final = {
    1: ("field_presence", {1: "EXPLICIT", 2: "IMPLICIT", 3: "LEGACY_REQUIRED"}),
    2: ("enum_type", {1: "OPEN", 2: "CLOSED"}),
    3: ("repeated_field_encoding", {1: "PACKED", 2: "EXPANDED"}),
    4: ("utf8_validation", {2: "VERIFY", 3: "NONE"}),
    5: ("message_encoding", {1: "LENGTH_PREFIXED", 2: "DELIMITED"}),
}
"""The names and values of features, by the numbers of google.protobuf.FeatureSet."""

PROTO2: Final = Features(closed_enums=True, packed=False, checks_strings=False)
SYNTAXES: Final = {"proto2": PROTO2, "proto3": Features(implicit_presence=True)}
EDITIONS: Final = {"2023": Features(), "2024": Features()}
EDITION_NUMBERS: Final = {1000: "2023", 1001: "2024"}
"""The editions by their numbers in descriptors."""

SUPPORTED: Final = "use proto2, proto3, or the edition 2023 or 2024"
