"""Settings of the access to a schema registry. Tasks unpickle them, so this module imports little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pyspark_kafka_direct.options.security_settings import NO_SECRET, OAuthSettings, Secret, TlsSettings

REGISTRY_PREFIX: Final = "schema.registry."
"""Begins the names of all options of the registry."""

SubjectNameStrategy: TypeAlias = Literal["topic", "record", "topic-record"]

FramingName: TypeAlias = Literal["confluent", "header", "single-object", "none"]

ID_FRAMINGS: Final[tuple[FramingName, ...]] = ("confluent", "header")
"""With the id of a schema."""

EvolutionMode: TypeAlias = Literal["none", "restart"]


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """Credentials of a registry: a user and a password, a token, tokens of a source, or none."""

    username: str | None = None
    password: Secret = NO_SECRET
    token: Secret | None = None
    oauth: OAuthSettings | None = None
    headers: tuple[tuple[str, str], ...] = ()  # of Confluent Cloud, sent with a token


REGISTRY_TLS: Final = TlsSettings(prefix=REGISTRY_PREFIX)


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Frozen, hashable and picklable; the key of the clients of a process."""

    urls: tuple[str, ...]  # of equivalent registries, without credentials and without a slash at the end
    credentials: RegistryCredentials = RegistryCredentials()
    tls: TlsSettings = REGISTRY_TLS
    read_timeout_ms: int = 10_000  # of one request to one URL, its connection included
    api_timeout_ms: int = 60_000  # of an operation with all its retries
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
