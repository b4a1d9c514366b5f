"""What SASL extensions may look like: in settings, and as a provider of tokens gives them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_extensions(pairs: Iterable[tuple[str, str]], source: str) -> tuple[tuple[str, str], ...]:
    """Check SASL extensions: letters as a name (not ``auth``), printable ASCII as a value (RFC 7628, 3.1).

    Raises:
        OptionError: A pair is not allowed; its value is not shown.
    """
    checked = dict(pairs)
    for name, value in checked.items():
        if re.fullmatch(r"[A-Za-z]+", name) is None or name == "auth":
            raise OptionError(
                f"{source}: the SASL extension name {name!r} is not allowed; write letters only, not auth"
            )
        if re.fullmatch(r"[\x21-\x7E \t\r\n]+", value) is None:
            raise OptionError(f"{source}: the value of the SASL extension {name} is not allowed; write printable ASCII")
    return tuple(checked.items())
