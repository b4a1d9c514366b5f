"""The DDL of a column, which an option has."""

from __future__ import annotations

import re
from typing import Final

_TYPE: Final = re.compile(r"\s*(struct\s*<|variant\s*$)", re.IGNORECASE)  # otherwise, the fields of a struct
_OTHER_TYPE: Final = re.compile(
    r"\s*(?!variant\b)(\w+\s*(\([^)]*\))?|(array|map)\s*<.*>)\s*$", re.IGNORECASE | re.DOTALL
)


def is_type(ddl: str) -> bool:
    """Return whether DDL is a type that is neither a struct nor a VARIANT."""
    return _OTHER_TYPE.match(ddl) is not None


def as_type(ddl: str) -> str:
    """Return the type of DDL, which may be the fields of a struct."""
    return ddl if _TYPE.match(ddl) else f"struct<{ddl}>"
