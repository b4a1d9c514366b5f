"""The options of schema registries. Those of access have the names of Confluent's clients."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Final

from pyspark_kafka_direct.options.config_option import (
    PARAMS_APIS,
    SINK_API,
    SOURCE_APIS,
    WRITES_ONLY,
    Api,
    ConfigOption,
    ConfigSource,
    SourceKey,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.payload_settings import LATEST_VERSION
from pyspark_kafka_direct.options.registry_settings import REGISTRY_PREFIX
from pyspark_kafka_direct.options.security_definitions import TLS_OPTIONS
from pyspark_kafka_direct.options.value_types import BOOLEAN, INT64, LIST, POSITIVE_INT32, SECRET, Enum, Text

DECODED_BY_ARROW: Final[dict[Api, UnsupportedPolicy]] = dict.fromkeys(
    PARAMS_APIS, UnsupportedPolicy("decode with rdd.arrow(valueFormat=...), or with a Python function", reject=True)
)
_ID_OF_REGISTRY: Final = UnsupportedPolicy("a write has the id from a registry; set schema.registry.url", reject=True)

_registry: Final = partial(
    ConfigOption, role="plan", apis=(*SOURCE_APIS, *SINK_API), field="", unsupported=DECODED_BY_ARROW
)
_schema_id: Final = partial(_registry, apis=SOURCE_APIS, unsupported={**DECODED_BY_ARROW, "sink": _ID_OF_REGISTRY})
_written: Final = partial(
    _registry, apis=SINK_API, unsupported={**DECODED_BY_ARROW, **dict.fromkeys(SOURCE_APIS, WRITES_ONLY)}
)
_SUBJECT: Final = Text(pattern=re.compile(r".+", re.DOTALL), expected="the name of a subject")
_VERSION: Final = Text(
    pattern=re.compile(rf"{LATEST_VERSION}|[1-9][0-9]{{0,8}}"), expected=f"{LATEST_VERSION} or the number of a version"
)
_STRATEGY: Final = Enum(("topic", "record", "topic-record"))
_SCHEMA_ID: Final = Text(
    pattern=re.compile(r"0|[1-9][0-9]{0,9}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    expected="the id of a schema: an integer from 0 to 2147483647, or a GUID",
)
_FRAMING: Final = Enum(("confluent", "header", "single-object", "none"))


def _tls_of_registry(option: ConfigOption) -> ConfigOption:
    doc = option.doc.replace("that verify brokers", "that verify the registry")
    doc = doc.replace("certificate of a broker", "certificate of the registry")
    return replace(
        _registry(f"{REGISTRY_PREFIX}{option.name}"),
        value_type=option.value_type,
        default=option.default,
        doc=doc,
        aliases=tuple(f"{REGISTRY_PREFIX}{alias}" for alias in option.aliases),
        source_keys=(SourceKey(ConfigSource.OPTION), SourceKey(ConfigSource.PARAMETER)),
    )


# A table, formatted by hand: a line for each option, and its documentation.
# fmt: off
REGISTRY_OPTIONS: Final = (
    _registry("schema.registry.url", LIST,
        doc="URLs of a schema registry with Confluent's REST API, separated by commas: `https://host:8081`. If one "
            "fails, the next one is used."),
    _registry("schema.registry.basic.auth.credentials.source", Enum(("USER_INFO", "URL", "SASL_INHERIT")),
        aliases=("basic.auth.credentials.source",),
        doc="Where user and password of the registry are: in `schema.registry.basic.auth.user.info` (`USER_INFO`), "
            "in its URL (`URL`), or those of the brokers (`SASL_INHERIT`)."),
    _registry("schema.registry.basic.auth.user.info", SECRET, aliases=("basic.auth.user.info",),
        doc="`user:password` for the registry."),
    _registry("schema.registry.bearer.auth.credentials.source",
        Enum(("STATIC_TOKEN", "OAUTHBEARER", "SASL_OAUTHBEARER_INHERIT")),
        aliases=("bearer.auth.credentials.source",),
        doc="Where tokens for the registry are from: `schema.registry.bearer.auth.token` (`STATIC_TOKEN`), a token "
            "endpoint (`OAUTHBEARER`), or those of the brokers (`SASL_OAUTHBEARER_INHERIT`)."),
    _registry("schema.registry.bearer.auth.token", SECRET, aliases=("bearer.auth.token",),
        doc="A token for the registry."),
    _registry("schema.registry.bearer.auth.issuer.endpoint.url", aliases=("bearer.auth.issuer.endpoint.url",),
        doc="URL of the token endpoint for the registry. The rules of `sasl.oauthbearer.token.endpoint.url` apply."),
    _registry("schema.registry.bearer.auth.client.id", aliases=("bearer.auth.client.id",),
        doc="Client id for the registry's token endpoint."),
    _registry("schema.registry.bearer.auth.client.secret", SECRET, aliases=("bearer.auth.client.secret",),
        doc="Client secret for the registry's token endpoint."),
    _registry("schema.registry.bearer.auth.scope", aliases=("bearer.auth.scope",),
        doc="Scope to request from the registry's token endpoint."),
    _registry("schema.registry.bearer.auth.logical.cluster", aliases=("bearer.auth.logical.cluster",),
        doc="Logical cluster of the registry in Confluent Cloud."),
    _registry("schema.registry.bearer.auth.identity.pool.id", aliases=("bearer.auth.identity.pool.id",),
        doc="Identity pool in Confluent Cloud."),
    _registry("schema.registry.http.read.timeout.ms", POSITIVE_INT32, "10000",
        doc="Timeout of one request to a registry, in ms."),
    _registry("schema.registry.api.timeout.ms", POSITIVE_INT32, "60000",
        doc="Timeout of an operation with all its retries and registries, in ms."),
    _registry("schema.registry.retries.wait.ms", INT64, "100", doc="Delay before the first retry of a request to "
            "the registry, in ms."),
    _registry("schema.registry.retries.max.wait.ms", INT64, "1000",
        doc="Upper limit of the growing delay between retries of a request to the registry, in ms."),
    *(_tls_of_registry(option) for option in TLS_OPTIONS if option.name.startswith("ssl.")),
)

SUBJECT_OPTIONS: Final = (
    _registry("keySubject", _SUBJECT, verbatim=True, doc="The same as `valueSubject`, for keys."),
    _registry("valueSubject", _SUBJECT, verbatim=True,
        doc="Subject of the schema in the registry. By default, it follows from `valueSubjectNameStrategy`."),
    _registry("keySubjectNameStrategy", _STRATEGY, "topic", doc="The same as `valueSubjectNameStrategy`, for keys."),
    _registry("valueSubjectNameStrategy", _STRATEGY, "topic",
        doc="Name of the subject: `topic` (`orders-value`), `record` (the full name of the record or message, or "
            "the title of the JSON Schema) or `topic-record` (`orders-` and this name)."),
    _registry("keySchemaVersion", _VERSION, LATEST_VERSION, doc="The same as `valueSchemaVersion`, for keys."),
    _registry("valueSchemaVersion", _VERSION, LATEST_VERSION,
        doc="Version of the subject: `latest` when the query is planned, or a number."),
    _schema_id("keySchemaId", _SCHEMA_ID, doc="The same as `valueSchemaId`, for keys."),
    _schema_id("valueSchemaId", _SCHEMA_ID,
        doc="The id or the GUID of `valueSchema`, to read values [without a "
            "registry](schema-registry.md#one-schema-id-without-a-registry)."),
    _registry("keyFraming", _FRAMING, doc="The same as `valueFraming`, for keys."),
    _registry("valueFraming", _FRAMING,
        doc="Where the [schema id](schema-registry.md#where-the-schema-id-of-a-value-is) of a value is. With a "
            "registry or `valueSchemaId`, the default is `confluent`, otherwise `none`. For JSON, it is `none` unless "
            "the registry has the fields."),
    _written("auto.register.schemas", BOOLEAN, "false",
        doc="Whether a write [registers](schema-registry.md#write-with-a-registry) its schema (`true` in "
            "Confluent's serializers)."),
    _written("use.latest.version", BOOLEAN,
        doc="Whether to write with the [latest schema](schema-registry.md#write-with-a-registry) of the subject "
            "(`false` in Confluent's serializers). The default is `true`, unless `valueSchema` or "
            "`auto.register.schemas` is given."),
    _registry("schemaEvolutionMode", Enum(("none", "restart")), "none", apis=SOURCE_APIS,
        doc="What to do [when schemas change](schema-registry.md#when-schemas-change): `none` ignores new fields. "
            "`restart` fails the query, so that it can be started with the new version."),
)
