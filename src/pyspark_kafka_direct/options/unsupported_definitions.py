"""Client settings that no API applies: each is ignored with a warning, or rejected, and the reason is shown.

The names are those of Kafka 4.4's ``ConsumerConfig``, ``ProducerConfig`` and ``AdminClientConfig``, and of librdkafka's
CONFIGURATION.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.options.config_option import (
    APIS,
    OPTION_OR_PARAMETER,
    PARAMS_APIS,
    PRODUCER_APIS,
    RANGE_APIS,
    Api,
    ConfigOption,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.consumer_definitions import NO_GROUP_REASON
from pyspark_kafka_direct.options.producer_definitions import NO_TRANSACTIONS_OF_LOG_REASON
from pyspark_kafka_direct.options.security_definitions import OPTION_PARAMETER_OR_JAAS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.config_option import Role


def _ignored(
    reason: str,
    names: str,
    *,
    accepted_values: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    rejected_by: Mapping[Api, str] | None = None,
) -> list[ConfigOption]:
    """Return settings that every API ignores for one reason, except those that reject them for another one."""
    ignored = UnsupportedPolicy(reason, accepted_values=accepted_values)
    rejections = {api: replace(ignored, reason=text, reject=True) for api, text in (rejected_by or {}).items()}
    return _unsupported(names, {**dict.fromkeys(APIS, ignored), **rejections}, aliases=aliases)


def _rejected(
    names: str,
    reason: str,
    *,
    role: Role | None = None,
    apis: tuple[Api, ...] = APIS,
    accepted_values: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    log_reason: str = "",
) -> list[ConfigOption]:
    """Return settings that these APIs reject; a log may have another reason."""
    policy = UnsupportedPolicy(reason, reject=True, accepted_values=accepted_values)
    policies = {**dict.fromkeys(apis, policy), "log": replace(policy, reason=log_reason or reason)}
    return _unsupported(names, policies, role=role, aliases=aliases)


def _unsupported(
    names: str,
    policies: Mapping[Api, UnsupportedPolicy],
    *,
    role: Role | None = None,
    aliases: tuple[str, ...] = (),
) -> list[ConfigOption]:
    """Return settings, whose names are separated by blanks."""
    return [
        ConfigOption(
            name,
            role=role,
            apis=(),
            is_client=True,
            aliases=aliases,
            unsupported=policies,
            # TLS settings may also be those of a token endpoint, inside sasl.jaas.config.
            source_keys=OPTION_PARAMETER_OR_JAAS if name.startswith("ssl.") else OPTION_OR_PARAMETER,
        )
        for name in names.split()
    ]


_produce: Final = partial(_rejected, role="produce", apis=PRODUCER_APIS)

PROVIDER_ADVICE: Final = (
    "Java classes cannot run here; set the option oauthTokenProvider to module:factory, a Python function that returns "
    "a provider of tokens"
)
# The reasons of all settings that every API ignores.
_OTHER_CLIENTS: Final = "it configures a part of another Kafka client that this package does not have"
_NO_POLLS: Final = "there is no poll loop; records are fetched by offset, in Arrow batches"
_SENDING: Final = "batch.size, buffer.memory and delivery.timeout.ms control how records are sent"
_NAMED_TOPICS: Final = "topics are not created on demand, and internal topics are read only if you name them"

# Tables, formatted by hand.
# fmt: off
_CONNECTION: Final = (
    *_rejected("client.dns.lookup",
        "all addresses of a host are tried (use_all_dns_ips); instead of an alias for several hosts, list these hosts "
        "in kafka.bootstrap.servers", accepted_values=("use_all_dns_ips",)),
    *_rejected("bootstrap.controllers", "controllers serve no records; list brokers in kafka.bootstrap.servers"),
    *_rejected("topic.blacklist", "topics cannot be excluded; use a subscribePattern that does not match them"),
    *_rejected("plugin.library.paths", "librdkafka plug-ins cannot be loaded; remove the setting"),
    *_rejected("config.providers",
        "Java config providers cannot run here; resolve the values before you set the options"),
)

_TLS: Final = (
    *_rejected("enable.ssl.certificate.verification",
        "certificates are always verified; set the CA in kafka.ssl.truststore.certificates or "
        "kafka.ssl.truststore.location (only if the certificate of a broker does not contain its host name, set "
        "kafka.ssl.endpoint.identification.algorithm to an empty string)", accepted_values=("true",)),
    *_rejected("ssl.engine.factory.class",
        "Java classes cannot run here; set certificates and the key with kafka.ssl.truststore.* and "
        "kafka.ssl.keystore.*"),
    *_rejected("ssl.crl.location", "certificate revocation lists are not supported"),
    *_rejected("ssl.engine.location", "OpenSSL engines are not supported; set the key as PEM or PKCS12"),
    *_rejected("ssl.providers", "OpenSSL providers are not supported; set the key as PEM or PKCS12"),
    *_rejected("ssl.ca.certificate.stores",
        "export the CAs to a PEM file and set kafka.ssl.truststore.location"),
    *_rejected("ssl.trustmanager.algorithm",
        "Java code cannot verify certificates here; OpenSSL verifies them as PKIX does",
        accepted_values=("PKIX", "SunX509", "X.509")),
    *_rejected("ssl.curves.list ssl.sigalgs.list",
        "Python's ssl module cannot restrict them; restrict them in the configuration file of OpenSSL (Groups and "
        "SignatureAlgorithms), and remove the setting"),
)

_SASL: Final = (
    *_rejected("sasl.client.callback.handler.class", PROVIDER_ADVICE,
        accepted_values=("*software.amazon.msk.auth.iam.IAMClientCallbackHandler",
                         "*software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler")),
    *_rejected("sasl.login.class", PROVIDER_ADVICE),
    *_rejected("sasl.oauthbearer.method",
        "remove it; set kafka.sasl.oauthbearer.token.endpoint.url or the option oauthTokenProvider instead",
        accepted_values=("oidc", "default")),
    *_rejected("sasl.oauthbearer.config",
        "set the claims in kafka.sasl.jaas.config, for example: org.apache.kafka.common.security.oauthbearer."
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'),
    *_rejected("enable.sasl.oauthbearer.unsecure.jwt",
        "set unsecuredLoginStringClaim_sub in kafka.sasl.jaas.config instead", accepted_values=("false",)),
)

_RECORDS: Final = (
    *_rejected("interceptor.classes", "Java interceptors cannot run here; use DataFrame operations instead",
        log_reason="Java interceptors cannot run here; remove the parameter"),
    *_produce("transactional.id", "set deliveryGuarantee to exactly-once, and transactionalIdPrefix",
        log_reason=NO_TRANSACTIONS_OF_LOG_REASON),
    *_produce("partitioner.class",
        "Java classes cannot run here. Partitions are chosen like in Java's default partitioner; for any other "
        "choice, add the column partition, or replace UniformStickyPartitioner by kafka.partitioner.ignore.keys",
        aliases=("partitioner",),
        accepted_values=("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "murmur2_random"),
        log_reason="Java classes cannot run here. Partitions are chosen like in Java's default partitioner"),
    *_produce("transaction.two.phase.commit.enable", "each transaction ends with its batch",
        accepted_values=("false",), log_reason=NO_TRANSACTIONS_OF_LOG_REASON),
)

_IGNORED: Final = (
    *_ignored(_OTHER_CLIENTS,
        # connections and metadata
        "api.version.fallback.ms api.version.request api.version.request.timeout.ms bootstrap.resolve.timeout.ms "
        "broker.address.ttl broker.version.fallback log.connection.close max.in.flight message.copy.max.bytes "
        "metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy receive.message.max.bytes "
        "socket.blocking.max.ms socket.keepalive.enable socket.max.fails socket.nagle.disable "
        "topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse "
        # metrics and debugging
        "auto.include.jmx.reporter client.software.name client.software.version debug enable.metrics.push "
        "enable.random.seed internal.termination.signal internal.throw.on.fetch.stable.offset.unsupported log.queue "
        "log.thread.name log_level metric.reporters metrics.num.samples metrics.recording.level "
        "metrics.sample.window.ms statistics.interval.ms "
        # TLS by Java or an OpenSSL engine
        "security.providers ssl.engine.id ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation "
        # Kerberos: a command and a thread that renew tickets
        "sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.jitter "
        # tokens: a thread that refreshes them, and their validation by brokers
        "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor "
        "sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms "
        "sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer "
        "sasl.oauthbearer.clock.skew.seconds "
        "sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer "
        "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name"),
    *_ignored(_NO_POLLS,
        "consume.callback.max.messages enable.partition.eof fetch.error.backoff.ms fetch.queue.backoff.ms "
        "max.poll.interval.ms max.poll.records queued.max.messages.kbytes queued.min.messages"),
    *_ignored(NO_GROUP_REASON,
        "auto.commit.interval.ms coordinator.query.interval.ms enable.auto.offset.store group.instance.id "
        "group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms "
        "internal.leave.group.on.close offset.store.method offset.store.path offset.store.sync.interval.ms "
        "partition.assignment.strategy session.timeout.ms share.acknowledgement.mode share.acquire.mode"),
    *_ignored(_SENDING,
        "batch.num.messages buffer.memory.allocation.strategy linger.ms max.block.ms metadata.max.idle.ms "
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.rack.aware "
        "queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms sticky.partitioning.linger.ms"),
    *_ignored(_SENDING, "message.send.max.retries retries", accepted_values=("2147483647",)),
    *_ignored(_SENDING, "enable.gapless.guarantee", accepted_values=("false",),
        rejected_by={"log": "a log continues after a failed record, whose future reports the error"}),
    *_ignored(_NAMED_TOPICS, "allow.auto.create.topics", aliases=("allow.auto.create.topic",),
        accepted_values=("false",)),
    *_ignored(_NAMED_TOPICS, "exclude.internal.topics", accepted_values=("true",),
        rejected_by={
            "direct": "subscribePattern never matches internal topics; to read one, name it in subscribe or assign"
        }),
)
# fmt: on


def _serde_options(part: str) -> tuple[ConfigOption, ConfigOption]:
    """Return ``key.deserializer`` and ``key.serializer``, or those of values."""
    decode = UnsupportedPolicy(
        "keys and values are binary; set keyFormat and valueFormat, or decode them with DataFrame operations, for "
        "example value.cast('string')",
        reject=True,
    )
    pass_decoder = UnsupportedPolicy(
        "Java deserializers cannot run here; remove it. Keys and values are bytes unless you pass Python functions as "
        "keyDecoder and valueDecoder, for example bytes.decode for strings",
        reject=True,
        accepted_values=_byte_array_classes("Deserializer"),
    )
    encode = UnsupportedPolicy(
        "keys and values are written as strings, bytes or JSON by the types of their columns; for Avro and Protobuf, "
        "set keyFormat and valueFormat",
        reject=True,
    )
    bytes_of_log = UnsupportedPolicy("the keys and values of a log are bytes", reject=True)
    deserializer = ConfigOption(
        f"{part}.deserializer",
        role="fetch",
        apis=(),
        is_client=True,
        unsupported={
            **dict.fromkeys(RANGE_APIS, decode),
            "continuous": UnsupportedPolicy(
                "keys and values are binary; set keyFormat and valueFormat, or decode them in the query's function",
                reject=True,
            ),
            **dict.fromkeys(PARAMS_APIS, pass_decoder),
            "log": replace(bytes_of_log, accepted_values=_byte_array_classes("Deserializer")),
        },
    )
    serializer = ConfigOption(
        f"{part}.serializer",
        role="produce",
        apis=(),
        is_client=True,
        unsupported={
            "sink": encode,
            "log": replace(bytes_of_log, accepted_values=_byte_array_classes("Serializer")),
        },
    )
    return deserializer, serializer


def _byte_array_classes(kind: str) -> tuple[str, str]:
    return f"ByteArray{kind}", f"*.ByteArray{kind}"


UNSUPPORTED_OPTIONS: Final = (
    *_CONNECTION,
    *_TLS,
    *_SASL,
    *_RECORDS,
    *_IGNORED,
    *_serde_options("key"),
    *_serde_options("value"),
)
