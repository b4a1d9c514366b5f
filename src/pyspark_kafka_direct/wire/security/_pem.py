r"""PEM text, as people really have it: with lost line ends, with ``\n`` written out, with prose around the blocks.

    -----BEGIN <label>-----
    base64, 64 characters a line, for old-style keys after header lines ("Proc-Type: 4,ENCRYPTED")
    -----END <label>-----

OpenSSL wants the lines; Kafka's own reader (``DefaultSslEngineFactory``) takes any white space, so settings made for
Java often hold one long line.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class PemBlock:
    """One block: its label, and the whole of it with proper lines."""

    label: str
    text: str

    @property
    def is_certificate(self) -> bool:
        """Whether it is a certificate (under any of OpenSSL's three labels)."""
        return self.label.endswith("CERTIFICATE")

    @property
    def is_key(self) -> bool:
        """Whether it is a private key, encrypted or not."""
        return self.label.endswith("PRIVATE KEY")

    def __repr__(self) -> str:
        return f"PemBlock({self.label})"


def looks_like_pem(text: str) -> bool:
    """Tell whether a text holds PEM, and is not, say, a path."""
    return "-----BEGIN" in text


def read_pem(text: str) -> list[PemBlock]:
    """Give the blocks of a text in their order; what is no well-formed block is passed over."""
    blocks = []
    for label, body in _BLOCK.findall(text.replace("\\r", "").replace("\\n", "\n")):
        if ":" in body:  # header lines: only the ends of the lines can be mended
            content = "\n".join(line.strip() for line in body.strip().splitlines())
        else:
            content = "".join(body.split())
            if _BASE64.fullmatch(content) is None:
                continue
            content = "\n".join(textwrap.wrap(content, 64))
        blocks.append(PemBlock(label, f"-----BEGIN {label}-----\n{content}\n-----END {label}-----\n"))
    return blocks
