"""The hosts that may receive tokens of a cloud provider.

A broker that receives a bearer token can use it in the client's name: a token of Amazon MSK for 15 minutes at any
cluster of its region, a token of Google for an hour at most services of Google Cloud. Users who can only set options
could otherwise send such tokens to a server that they control. Tokens of Azure are only valid at the host that they are
sent to, so they need no rule.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import printable
from pyspark_kafka_direct.options.security_settings import AwsTokens, GoogleTokens
from pyspark_kafka_direct.options.spark_definitions import TOKEN_HOSTS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.options.security_settings import TokenSource

REGION: Final = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2}")

_FLAGS: Final = re.IGNORECASE | re.ASCII
_LABELS: Final = r"(?:[a-z0-9_-]+\.)+"
_AWS: Final = r"amazonaws\.com(?:\.cn)?"
# b-1.NAME.ID.c2.kafka.REGION.amazonaws.com, boot-ID.c1.kafka-serverless.REGION.amazonaws.com, and their VPC endpoints.
_MSK_HOST: Final = re.compile(rf"{_LABELS}kafka(?:-serverless)?\.({REGION.pattern})\.(?:vpce\.)?{_AWS}", _FLAGS)
# An endpoint of any VPC service. Its region is known, but not who provides the service.
_VPC_HOST: Final = re.compile(rf"{_LABELS}({REGION.pattern})\.vpce\.{_AWS}", _FLAGS)
# bootstrap.CLUSTER.REGION.managedkafka.PROJECT.cloud.goog; the id of a project can have the name of a domain.
# Any customer can give the names API.endpoints.PROJECT.cloud.goog an address (Cloud Endpoints), and API can have dots.
_GOOGLE_HOST: Final = re.compile(
    rf"(?!(?:{_LABELS})?endpoints\.){_LABELS}managedkafka\.{_LABELS}cloud\.goog",
    _FLAGS,
)
# A name server ends a name at NUL, and older ones read an address before a blank.
_BELOW_DOMAIN: Final = re.compile(rf"{_LABELS}[a-z0-9_-]+", _FLAGS)


def region_of_hosts(hosts: Iterable[str]) -> str | None:
    """Return the AWS region in the first host name that has one."""
    matches = (pattern.fullmatch(host) for host in hosts for pattern in (_MSK_HOST, _VPC_HOST))
    return next((match[1].lower() for match in matches if match is not None), None)


def token_host_problem(source: TokenSource, host: str) -> str | None:
    """Return why a host must not receive a token of this source, or None if it may."""
    match source:
        case AwsTokens():
            service, name = _MSK_HOST, "Amazon MSK (*.kafka.REGION.amazonaws.com)"
        case GoogleTokens():
            service, name = _GOOGLE_HOST, "Google's Kafka service (*.managedkafka.PROJECT.cloud.goog)"
        case _:
            return None
    if service.fullmatch(host) or any(_is_allowed(host, entry) for entry in source.allowed_hosts):
        return None
    return (
        f"{printable(host)!r} is no host of {name}, and could use the token in the client's name; if it may receive "
        f"the token, list the host in the environment variable {TOKEN_HOSTS_VARIABLE} of the driver"
    )


def _is_allowed(host: str, entry: str) -> bool:
    host, entry = host.lower(), entry.lower()
    if entry.startswith("*."):
        return host.endswith(entry[1:]) and _BELOW_DOMAIN.fullmatch(host) is not None
    return host == entry
