"""Parser of the options of schema registries."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote, urlsplit

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.connection_definitions import LOOPBACK_HOSTS
from pyspark_kafka_direct.options.hints import either
from pyspark_kafka_direct.options.oauth_parser import UNAMBIGUOUS_NETLOC, parse_token_url
from pyspark_kafka_direct.options.payload_formats import format_row, needed_format
from pyspark_kafka_direct.options.payload_settings import SIDES, Side, SidePayload, subject_name
from pyspark_kafka_direct.options.registry_settings import (
    ID_FRAMINGS,
    REGISTRY_PREFIX,
    RegistryCredentials,
    RegistrySettings,
)
from pyspark_kafka_direct.options.security_settings import (
    ClientCredentials,
    EndpointTokens,
    FileTokens,
    OAuthSettings,
    Secret,
)
from pyspark_kafka_direct.options.tls_parser import parse_tls
from pyspark_kafka_direct.options.unused_options import UnusedOptions
from pyspark_kafka_direct.options.value_types import INT32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.registry_settings import FramingName, SubjectNameStrategy
    from pyspark_kafka_direct.options.security_settings import SecuritySettings, TlsSettings

REGISTRY_URL: Final = "schema.registry.url"
_BASIC: Final = "schema.registry.basic.auth."
_BASIC_SOURCE: Final = f"{_BASIC}credentials.source"
_USER_INFO: Final = f"{_BASIC}user.info"
_BEARER: Final = "schema.registry.bearer.auth."
_BEARER_SOURCE: Final = f"{_BEARER}credentials.source"
_TOKEN: Final = f"{_BEARER}token"
_ENDPOINT: Final = f"{_BEARER}issuer.endpoint.url"
_CLOUD_HEADERS: Final = {
    f"{_BEARER}logical.cluster": "target-sr-cluster",
    f"{_BEARER}identity.pool.id": "Confluent-Identity-Pool-Id",
}
_SUBJECT_OPTIONS: Final = ("Subject", "SubjectNameStrategy", "SchemaVersion")
NEEDS_REGISTRY: Final = f"a registry; set {REGISTRY_URL}"
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]+")


def parse_registry(parsed: ParsedConfig, security: SecuritySettings, warnings: list[str]) -> RegistrySettings | None:
    """Return the settings of the registry, or None if there is none; ``security`` are the settings of the brokers."""
    urls = parsed.get_list(REGISTRY_URL)
    if not urls:
        unused = UnusedOptions(parsed)
        for name in parsed.given_names:
            if name.startswith(REGISTRY_PREFIX) and name != REGISTRY_URL:
                unused.add(name, NEEDS_REGISTRY)
        unused.check()
        return None
    urls_and_users = [_parse_url(url, parsed.name_of(REGISTRY_URL)) for url in urls]
    tls = replace(parse_tls(parsed.below(REGISTRY_PREFIX), warnings), prefix=REGISTRY_PREFIX)
    settings = RegistrySettings(
        urls=tuple(dict.fromkeys(url for url, _ in urls_and_users)),
        credentials=_parse_credentials(parsed, security, [user_info for _, user_info in urls_and_users], tls),
        tls=tls,
        read_timeout_ms=parsed.get_int("schema.registry.http.read.timeout.ms"),
        api_timeout_ms=parsed.get_int("schema.registry.api.timeout.ms"),
        retry_backoff_ms=parsed.get_int("schema.registry.retries.wait.ms"),
        retry_backoff_max_ms=parsed.get_int("schema.registry.retries.max.wait.ms"),
    )
    warnings += _network_warnings(parsed, settings)
    return settings


def parse_read_registry(
    parsed: ParsedConfig, security: SecuritySettings, warnings: list[str], formats: Mapping[Side, str]
) -> RegistrySettings | None:
    """Return the registry of keys and values, or None if no format needs one. Nothing is requested for JSON."""
    settings = parse_registry(parsed, security, warnings)
    _check_read_options(parsed, formats, has_registry=settings is not None)
    if settings is None:
        return None
    sides = [side for side in SIDES if _is_read_with_registry(parsed, side)]
    if not sides:
        # JSON with schema ids is decoded without the registry, so its options are accepted, but have no effect.
        has_ids = any(parsed.values.get(f"{side}Framing") in ID_FRAMINGS for side in SIDES)
        if not has_ids:
            json_sides = [side for side, each in formats.items() if format_row(each).registry_has_fields]
            names = " and ".join(f"{side}Framing" for side in json_sides)
            advice = f"; if schema ids are in front of JSON, set {names}" if names else ""
            warnings += unused_registry_warnings(parsed, f"nothing is decoded from Avro or Protobuf{advice}")
        return None
    warnings += [
        _ignored(parsed, f"{side}{name}", f"{side}Schema is the schema to read with")
        for side in sides
        for name in _SUBJECT_OPTIONS
        if f"{side}Schema" in parsed.given_names and f"{side}{name}" in parsed.given_names
    ]
    return settings


def _is_read_with_registry(parsed: ParsedConfig, side: Side) -> bool:
    """Return whether keys or values are read with a schema of the registry, if there is one."""
    row = format_row(parsed.get_string(f"{side}Format") or "")
    return row.encoded_by_schema or (row.registry_has_fields and f"{side}Schema" not in parsed.given_names)


def unused_registry_warnings(parsed: ParsedConfig, reason: str) -> list[str]:
    """Return warnings about all given options of the access to a registry, which is not needed."""
    return [_ignored(parsed, name, reason) for name in parsed.given_names if name.startswith(REGISTRY_PREFIX)]


def with_schema_id(payload: SidePayload, parsed: ParsedConfig) -> SidePayload:
    """Return a side with the id that all keys or values have, if it is given, and where it is."""
    side = payload.side
    name, framing = f"{side}SchemaId", parsed.get_string(f"{side}Framing") or "confluent"
    value = parsed.get_string(name)
    if value is None:
        return payload
    if framing not in ID_FRAMINGS:
        raise OptionError(
            f"{parsed.name_of(name)} and {parsed.name_of(f'{side}Framing')}={framing} exclude each other; set only one "
            "of them"
        )
    is_guid = not value.isdecimal()
    schema_id = value.lower() if is_guid else INT32.parse(value, parsed.name_of(name))
    return replace(payload, framing=framing, schema_id=schema_id)


def _check_read_options(parsed: ParsedConfig, formats: Mapping[Side, str], *, has_registry: bool) -> None:
    """Reject options that say how keys and values are read and that would have no effect."""
    unused = UnusedOptions(parsed)
    reads_ids = False  # whether a registry has the schemas of ids in keys or values, so that new ones may appear
    for side, payload_format in formats.items():
        framing, schema_id = f"{side}Framing", f"{side}SchemaId"
        subject_options = [f"{side}{name}" for name in _SUBJECT_OPTIONS]
        row = format_row(payload_format)
        if not row.encoded_by_schema:
            if not (has_registry and _is_read_with_registry(parsed, side)):  # JSON may have its fields from there
                for name in subject_options:
                    unused.add(name, needed_format(side, lambda each: each.encoded_by_schema))
            unused.add(schema_id, needed_format(side, lambda each: each.encoded_by_schema))
            if not row.framings:
                unused.add(framing, needed_format(side, lambda each: each.framings))
        elif has_registry:
            reads_ids = reads_ids or (parsed.get_string(framing) or "confluent") in ID_FRAMINGS
            if schema_id in parsed.given_names:
                raise OptionError(
                    f"{parsed.name_of(schema_id)} and {parsed.name_of(REGISTRY_URL)} exclude each other, because a "
                    "registry has the schemas of all ids; set only one of them"
                )
        else:  # the schema is an option
            for name in subject_options:
                unused.add(name, NEEDS_REGISTRY)
            if schema_id not in parsed.given_names and parsed.values.get(framing) in ID_FRAMINGS:
                unused.add(
                    framing,
                    f"a registry, which has the schemas of the ids; set {REGISTRY_URL}, or {schema_id} to the id that "
                    f"all {side}s have",
                )
    if not reads_ids:
        unused.add("schemaEvolutionMode", f"Avro or Protobuf with schema ids; set {REGISTRY_URL} to their registry")
    unused.check()


def parse_side(parsed: ParsedConfig, side: Side) -> SidePayload:
    """Return how keys or values are decoded or encoded; an error if the format does not have the framing."""
    payload_format = parsed.get_string(f"{side}Format") or ""
    row, framing = format_row(payload_format), parsed.get_string(f"{side}Framing")
    if framing is not None and row.framings and framing not in row.framings:
        raise OptionError(
            f"{parsed.name_of(f'{side}Framing')} is {either(row.framings)} with {side}Format={payload_format}"
        )
    # Without a framing, JSON has no ids with a registry, too: keys are often plain JSON. If the fields are those of the
    # registry, reader_schemas changes that.
    default = "confluent" if row.encoded_by_schema and parsed.get_list(REGISTRY_URL) else "none"
    return SidePayload(
        side,
        payload_format,
        schema=parsed.get_string(f"{side}Schema"),
        message=parsed.get_string(f"{side}Message") or None,
        framing=cast("FramingName", framing or default),
        charset=parsed.get_string(f"{side}Charset"),
        subject=parsed.get_string(f"{side}Subject"),
        strategy=cast("SubjectNameStrategy", parsed.get_string(f"{side}SubjectNameStrategy")),
        version=parsed.get_string(f"{side}SchemaVersion") or "",
        has_given_framing=framing is not None and row.registry_has_fields,
    )


def with_subject(payload: SidePayload, topic: str | None) -> SidePayload:
    """Return a side with the subject that follows from the only topic that is read."""
    if payload.subject is None and payload.strategy == "topic" and topic is not None:
        return replace(payload, subject=subject_name(payload.strategy, topic, payload.side, record_name=""))
    return payload


def _ignored(parsed: ParsedConfig, name: str, reason: str) -> str:
    return option_messages.ignored_warning(parsed.source, parsed.given_names[name], reason)


def _parse_url(url: str, name: str) -> tuple[str, Secret | None]:
    """Return a URL without its credentials, and these; errors do not show it because it may contain them."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a number
    except ValueError:
        parts = urlsplit("")  # rejected below
    user_info, _, netloc = parts.netloc.rpartition("@")
    if (
        parts.scheme not in ("https", "http")
        or not url.isprintable()
        or UNAMBIGUOUS_NETLOC.fullmatch(netloc) is None
        or parts.query
        or parts.fragment
    ):
        raise OptionError(f"{name} must be URLs such as https://host:8081, separated by commas")
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}", Secret(user_info) if user_info else None


def _parse_credentials(
    parsed: ParsedConfig, security: SecuritySettings, url_users: list[Secret | None], tls: TlsSettings
) -> RegistryCredentials:
    """Return the credentials of all URLs; ``url_users`` has ``user:password`` of each URL, or None."""
    basic = [given for name, given in parsed.given_names.items() if name.startswith(_BASIC)]
    bearer = [given for name, given in parsed.given_names.items() if name.startswith(_BEARER)]
    if bearer and (basic or any(url_users)):
        raise OptionError(
            f"{bearer[0]} and {basic[0] if basic else f'the user in {parsed.name_of(REGISTRY_URL)}'} exclude each "
            "other; set only one of them"
        )
    return _parse_bearer(parsed, security, tls) if bearer else _parse_basic(parsed, security, url_users)


def _parse_basic(
    parsed: ParsedConfig, security: SecuritySettings, url_users: list[Secret | None]
) -> RegistryCredentials:
    """Return a user and a password: those of the URLs, of an option, or of the brokers; or none."""
    user_info = parsed.get_secret(_USER_INFO)
    source = parsed.get_string(_BASIC_SOURCE) or ("URL" if user_info is None else "USER_INFO")
    if user_info is not None and source != "USER_INFO":
        raise OptionError(f"{parsed.name_of(_USER_INFO)} has no effect with {parsed.name_of(_BASIC_SOURCE)}={source}")
    if source != "URL" and any(url_users):
        raise OptionError(f"{parsed.name_of(REGISTRY_URL)} contains a user, but the credentials are given otherwise")
    if source == "SASL_INHERIT":
        if security.sasl is None or not security.sasl.username:
            raise OptionError(f"{parsed.name_of(_BASIC_SOURCE)}=SASL_INHERIT needs kafka.sasl.username, or JAAS")
        return RegistryCredentials(security.sasl.username, security.sasl.password)
    if source == "URL":
        if len(set(url_users)) > 1:
            raise OptionError(f"{parsed.name_of(REGISTRY_URL)}: the user and the password of all URLs must be the same")
        if url_users[0] is None:
            if _BASIC_SOURCE in parsed.given_names:
                raise OptionError(f"{parsed.name_of(_BASIC_SOURCE)}=URL needs https://user:password@host:8081")
            return RegistryCredentials()
        username, _, password = url_users[0].reveal().partition(":")
        return RegistryCredentials(unquote(username), Secret(unquote(password)))
    # The source is USER_INFO.
    username, separator, password = (user_info.reveal() if user_info else "").partition(":")
    if not username or not separator:
        raise OptionError(f"{parsed.name_of(_USER_INFO)} must be user:password")
    return RegistryCredentials(username, Secret(password))


def _parse_bearer(parsed: ParsedConfig, security: SecuritySettings, tls: TlsSettings) -> RegistryCredentials:
    """Return a token, or the source of tokens: an endpoint for registries, or that of the brokers."""
    token = parsed.get_secret(_TOKEN)
    default = "STATIC_TOKEN" if token is not None else "OAUTHBEARER"
    source = parsed.get_string(_BEARER_SOURCE) or default
    headers = tuple(
        (header, _header_value(parsed, name)) for name, header in _CLOUD_HEADERS.items() if parsed.get_string(name)
    )
    if source == "STATIC_TOKEN":
        if token is None or _HEADER_VALUE.fullmatch(token.reveal()) is None:
            raise OptionError(f"{parsed.name_of(_TOKEN)} must be a token: printable ASCII without blanks")
        return RegistryCredentials(token=token, headers=headers)
    if token is not None:
        raise OptionError(f"{parsed.name_of(_TOKEN)} has no effect with {parsed.name_of(_BEARER_SOURCE)}={source}")
    if source == "SASL_OAUTHBEARER_INHERIT":
        if security.sasl is None or security.sasl.oauth is None:
            raise OptionError(f"{parsed.name_of(_BEARER_SOURCE)}={source} needs kafka.sasl.mechanism=OAUTHBEARER")
        return RegistryCredentials(oauth=security.sasl.oauth, headers=headers)
    return RegistryCredentials(oauth=OAuthSettings(_parse_endpoint(parsed, tls)), headers=headers)


def _parse_endpoint(parsed: ParsedConfig, tls: TlsSettings) -> EndpointTokens | FileTokens:
    url, name = parsed.get_string(_ENDPOINT), parsed.name_of(_ENDPOINT)
    if not url:
        raise _missing_for_endpoint(name)
    url_parts = parse_token_url(url, name, parsed.name_of(f"{_BEARER}client.secret"))
    if url_parts.scheme == "file":  # contains a token
        return FileTokens(unquote(url_parts.path), url_option=name)
    client_id, client_secret = parsed.get_string(f"{_BEARER}client.id"), parsed.get_secret(f"{_BEARER}client.secret")
    if not client_id or not client_secret:
        missing = "client.secret" if client_id else "client.id"
        raise _missing_for_endpoint(parsed.name_of(f"{_BEARER}{missing}"))
    timeout = "schema.registry.http.read.timeout.ms"
    return EndpointTokens(
        url,
        ClientCredentials(client_id, client_secret),
        scope=parsed.get_string(f"{_BEARER}scope") or None,
        tls=tls,
        connect_timeout_ms=parsed.get_int(timeout),
        read_timeout_ms=parsed.get_int(timeout),
        url_option=name,
        timeout_options=timeout,
        ca_advice=f"set its CA in {REGISTRY_PREFIX}ssl.truststore.certificates, with that of the registry",
    )


def _missing_for_endpoint(name: str) -> OptionError:
    return OptionError(f"{name} is missing; the endpoint of tokens needs it")


def _header_value(parsed: ParsedConfig, name: str) -> str:
    value = parsed.get_string(name) or ""
    if _HEADER_VALUE.fullmatch(value) is None:
        raise OptionError(f"{parsed.name_of(name)} must be printable ASCII without blanks")
    return value


def _network_warnings(parsed: ParsedConfig, settings: RegistrySettings) -> list[str]:
    """Return warnings about credentials that are sent unencrypted, and about TLS settings without effect."""
    plaintext_urls = [url for url in settings.urls if url.startswith("http:")]
    tls_names = [given for name, given in parsed.given_names.items() if name.startswith(f"{REGISTRY_PREFIX}ssl.")]
    warnings = []
    if settings.credentials != RegistryCredentials() and any(
        urlsplit(url).hostname not in LOOPBACK_HOSTS for url in plaintext_urls
    ):
        warnings.append(f"{parsed.name_of(REGISTRY_URL)} sends credentials unencrypted over the network; use https")
    # A token endpoint of the registry uses these TLS settings, too. That of the brokers has its own.
    oauth = settings.credentials.oauth
    endpoint = None if oauth is None else oauth.source
    token_urls = [endpoint.url] if isinstance(endpoint, EndpointTokens) and endpoint.tls is settings.tls else []
    if tls_names and not any(url.startswith("https:") for url in (*settings.urls, *token_urls)):
        warnings.append(
            f"No URL of {parsed.name_of(REGISTRY_URL)} is https, so this has no effect: {', '.join(tls_names)}"
        )
    return warnings
