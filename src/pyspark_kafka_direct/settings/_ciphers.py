"""Names of cipher suites: Java's (IANA's) into OpenSSL's.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256     ->  ECDHE-RSA-AES128-GCM-SHA256
    TLS_RSA_WITH_AES_256_CBC_SHA              ->  AES256-SHA
    TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256 ->  DHE-RSA-CHACHA20-POLY1305

TLS 1.3 has suites of its own (``TLS_AES_128_GCM_SHA256`` and the like) that Python's ssl module can't choose among.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.security import TlsVersion

_TLS_13: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)
_IANA: Final = re.compile(
    r"(?:TLS|SSL)_(?P<exchange>ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CCM|CCM_8|CBC)(?:_(?P<hash>SHA256|SHA384|SHA))?"
    r"|(?P<chacha>CHACHA20_POLY1305)_SHA256)"
)


def read_cipher_suites(
    value: str | None, name: str, versions: tuple[TlsVersion, TlsVersion]
) -> tuple[tuple[str, ...], tuple[TlsVersion, TlsVersion]]:
    """Read ``ssl.cipher.suites``.

    A list without a TLS 1.3 suite rules TLS 1.3 out, and one of nothing else rules TLS 1.2 out, as in Java.

    Args:
        value: Names separated by commas or colons; OpenSSL's own cipher strings pass through.
        name: The setting as it was written, for messages.
        versions: Lowest and highest TLS version wanted.

    Returns:
        OpenSSL names for TLS 1.2, and the TLS versions left.

    Raises:
        OptionError: A name is unknown, or no TLS version is left.
    """
    suites = [suite for suite in re.split(r"[,:\s]+", value or "") if suite]
    if not suites:
        return (), versions
    older = tuple(_openssl_name(suite, name) for suite in suites if suite not in _TLS_13)
    newer = [suite for suite in suites if suite in _TLS_13]
    least, most = versions
    if not newer:
        most = "TLSv1.2"
    if not older:
        least = "TLSv1.3"
    if least > most:
        raise OptionError(
            f"{name} has no suite for {' or '.join(sorted(set(versions)))}, the versions of "
            "ssl.protocol and ssl.enabled.protocols"
        )
    return older, (least, most)


def _openssl_name(suite: str, name: str) -> str:
    if not suite.startswith(("TLS_", "SSL_")):
        return suite
    match = _IANA.fullmatch(suite)
    if match is None:
        raise OptionError(
            f"{name}: the cipher suite {suite!r} is unknown or too weak; leave the option out, or write OpenSSL's names"
        )
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    if match["chacha"]:
        return f"{exchange}CHACHA20-POLY1305"
    mode = "" if match["mode"] == "CBC" else "-" + match["mode"].replace("CCM_8", "CCM8")
    digest = f"-{match['hash']}" if match["hash"] and "CCM" not in mode else ""
    return f"{exchange}AES{match['bits']}{mode}{digest}"
