"""Values to try: by the type of an option, or by its name if the value has its own format."""

from __future__ import annotations

from typing import Final

SECRET: Final = "hunter2"
"""Part of every value that must not be shown."""

_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_OAUTH_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_OAUTH: Final = f"{_OAUTH_PACKAGE}.OAuthBearerLoginModule"

TYPED: Final = ("5", "true", '["a", "b"]', "null", "1.5", '{"a": 1}')
"""JSON of values that are not strings."""

STRINGS: Final = ("text-1", "", " ", " text-1 ")
SECRETS: Final = (SECRET, "", f" {SECRET} ")
BOOLEANS: Final = ("true", "false", "TRUE", " true ", "", "yes", "1", "tru")
LISTS: Final = ("x", "x, y", "x,,x", "", ",")
DURATIONS: Final = (
    "5",
    "500ms",
    "30s",
    "15m",
    "2h",
    "1d",
    "3us",
    "4min",
    " 5S ",
    "0",
    "-1s",
    "1.5s",
    "5 s",
    "abc",
    "",
    "5w",
)
DOUBLES: Final = ("1.5", "0", "1", "-0.5", "1e3", "1,5", ".5", "abc", "", " 1 ", "inf", "nan")


def integers(low: int, high: int, default: int | None) -> tuple[str, ...]:
    """A valid integer, the limits, the integers just beyond them, and strings that are not integers."""
    valid = low + 1 if default is None else min(max(default, low) + 1, high)
    limits = (str(low), str(low - 1), str(high), str(high + 1))
    return (str(valid), *limits, f" {valid} ", f"+{valid}", f"0{valid}", "", "abc", "1.5", "1_0", "٣", "9" * 20)


def enum_values(allowed: tuple[str, ...]) -> tuple[str, ...]:
    """The allowed values, variants of the first in case and blanks, and values that are not allowed."""
    first = allowed[0]
    return (*allowed, first.swapcase(), f" {first} ", first[:-1], "nonsense", "", "1")


_OFFSETS: Final = (
    '{"t":{"0":23,"1":-2}}',
    '{"t":"earliest"}',
    "earliest",
    "latest",
    "committed",
    "EARLIEST",
    " latest ",
    '{"t":{"0":-1}}',
    '{"t":{"0":-3}}',
    '{"t":{"0":"x"}}',
    '{"t":5}',
    "{}",
    "[]",
    "nonsense",
    "",
)
_TIMES: Final = ('{"t":{"0":1700000000000}}', '{"t":{"0":-1}}', '{"t":{"0":"x"}}', "{}", "[]", "nonsense", "", "5")

BY_NAME: Final[dict[str, tuple[str, ...]]] = {
    "assign": ('{"t":[0,1]}', '{"t":[]}', "{}", '{"t":[-1]}', '{"t":["x"]}', '{"t":[0,0]}', '{"":[0]}', "[]", "x", ""),
    "subscribe": ("t", "t,u", " t , u ", "t,t", "t,", "", ",", "a b"),
    "subscribePattern": ("t.*", "t.*|u", "(", "", "[a-z&&[^b]]+", "\\p{Lower}", "(?<x>a)\\k<x>", "a{2,1}"),
    "startingOffsets": _OFFSETS,
    "endingOffsets": _OFFSETS,
    "startingOffsetsByTimestamp": _TIMES,
    "endingOffsetsByTimestamp": _TIMES,
    "startingOffsetsByTimestampStrategy": enum_values(("error", "latest")),
    "committedOffsetsFallback": enum_values(("error", "earliest", "latest")),
    "offsetRanges": (
        '[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]',
        '[{"topic":"t","partition":0,"fromOffset":9,"untilOffset":5}]',
        '[{"topic":"t","partition":0,"fromOffset":5}]',
        '[{"topic":"t","partition":"0","fromOffset":5,"untilOffset":9}]',
        "[]",
        "{}",
        "x",
        "",
    ),
    "oauthTokenProvider": ("module:factory", "package.module:Class.make", "module", ":factory", "", "1:x"),
    "rackEnvironmentVariable": ("RACK", "_R1", "1R", "A-B", "", " RACK "),
    "bootstrap.servers": ("a:1,b:2", "a", "a:0", "a:65536", "a:x", "[::1]:9092", "SSL://a:1", "a:1, a:1", "", ","),
    "security.protocol": enum_values(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    "ssl.truststore.location": ("/ca.pem", "probe", "", " /ca.pem "),
    "ssl.enabled.protocols": (
        "TLSv1.2",
        "TLSv1.3",
        "TLSv1.2,TLSv1.3",
        "TLSv1.1,TLSv1.2",
        "TLSv1",
        "SSLv3",
        "TLSv9",
        "",
    ),
    "ssl.cipher.suites": (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_NONSENSE",
        "",
    ),
    "sasl.mechanism": (
        *("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        *("plain", " PLAIN ", "GSSAPI", "AWS_MSK_IAM", "PLAIN,GSSAPI", "nonsense", ""),
    ),
    "sasl.jaas.config": (
        f'{_PLAIN} required username="u" password="{SECRET}";',
        f'kafkashaded.{_PLAIN} required username="u" password="{SECRET}";',
        f'{_SCRAM} required username="u" password="{SECRET}" tokenauth="true";',
        f'{_OAUTH} required clientId="i" clientSecret="{SECRET}" scope="s" extension_traceId="7";',
        f'{_OAUTH} required unsecuredLoginStringClaim_sub="alice";',
        f'{_PLAIN} required username="u" password="{SECRET}"',
        f'{_PLAIN} required username="u";',
        f'{_PLAIN} sometimes username="u" password="{SECRET}";',
        f'com.sun.security.auth.module.Krb5LoginModule required principal="{SECRET}";',
        f'com.example.Module required password="{SECRET}";',
        f"{SECRET}",
        "",
    ),
    "sasl.oauthbearer.token.endpoint.url": (
        *("https://t/token", "http://t/token", "file:///token", "ftp://t/", "t", "", "https://u:" + SECRET + "@t/"),
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        *(f"{_OAUTH_PACKAGE}.{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File", "JwtBearer")),
        *(f"kafkashaded.{_OAUTH_PACKAGE}.DefaultJwtRetriever", "com.example.Retriever", "JwtBearerJwtRetriever", ""),
    ),
    "sasl.oauthbearer.extensions": ("a=b", "a=b, c=d", "auth=b", "a1=b", "a", "a=", ""),
}
"""Values by the name of the option, without ``kafka.``."""

BY_PREFIX: Final[dict[str, tuple[str, ...]]] = {
    "spark.streaming.kafka.consumer.poll": DURATIONS,
    "spark.network.": DURATIONS,
    "spark.streaming.kafka.assume": BOOLEANS,
    "spark.streaming.kafka.m": ("10", "0", "-1", "1.5", "abc", "", " 7 ", "1_0"),
    "spark.streaming.backpressure.enabled": BOOLEANS,
    "spark.streaming.backpressure.initialRate": ("10", "0", "-1", "1.5", "abc", ""),
    "spark.streaming.backpressure.rateEstimator": ("pid", "PID", "other", ""),
    "spark.streaming.backpressure.pid.": (*DOUBLES, "-1"),
}
"""Values of Spark configuration properties, by a prefix of their names."""

JAAS: Final[dict[str, tuple[str, ...]]] = {
    "clientId": STRINGS,
    "clientSecret": SECRETS,
    "scope": STRINGS,
    "extension_a": STRINGS,
    "extension_auth": ("b",),
    "unsecuredLoginStringClaim_sub": ("alice", ""),
    "unsecuredLoginNumberClaim_n": ("1.5", "x"),
    "unsecuredLoginListClaim_l": (",a,b", ""),
    "unsecuredLoginLifetimeSeconds": ("60", "0", "x"),
    "unsecuredLoginPrincipalClaimName": STRINGS,
}
"""Options of the OAUTHBEARER login module that are not client settings."""
