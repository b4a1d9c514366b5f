"""Client settings that no API applies: each is ignored with a warning, or rejected, and the reason is shown.

The names are those of Kafka 4.4's ``ConsumerConfig``, ``ProducerConfig`` and ``AdminClientConfig``, and of librdkafka's
CONFIGURATION.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.config.config_option import (
    APIS,
    FETCH_APIS,
    OPTION_OR_PARAMETER,
    PARAMS_APIS,
    PRODUCER_APIS,
    RANGE_APIS,
    Api,
    ConfigOption,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.config.consumer_definitions import NO_COMMITS_OF_LOG_REASON, NO_GROUP_REASON
from pyspark_kafka_direct.config.producer_definitions import NO_TRANSACTIONS_OF_LOG_REASON
from pyspark_kafka_direct.config.security_definitions import OPTION_PARAMETER_OR_JAAS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.config.config_option import Role


def _unsupported(
    names: str,
    reason: str,
    *,
    role: Role = "connect",
    apis: tuple[Api, ...] = APIS,
    reject: bool = False,
    rejected_by: tuple[Api, ...] = (),
    aliases: tuple[str, ...] = (),
    accepted_values: tuple[str, ...] = (),
    reasons_by_prefix: tuple[tuple[str, str], ...] = (),
    reasons: Mapping[Api, str] | None = None,
) -> list[ConfigOption]:
    """Return settings, whose names are separated by blanks; ``reasons`` has the APIs with a reason of their own."""
    policy = UnsupportedPolicy(
        reason, reject=reject, accepted_values=accepted_values, reasons_by_prefix=reasons_by_prefix
    )
    policies = {
        api: replace(policy, reason=(reasons or {}).get(api, reason), reject=reject or api in rejected_by)
        for api in dict.fromkeys((*apis, *(reasons or {})))
    }
    return [
        ConfigOption(
            name,
            role=role,
            apis=(),
            client=True,
            aliases=aliases,
            unsupported=policies,
            source_keys=OPTION_PARAMETER_OR_JAAS if name.startswith("ssl.") else OPTION_OR_PARAMETER,
        )
        for name in names.split()
    ]


_ignored: Final = _unsupported
_rejected: Final = partial(_unsupported, reject=True)
_fetch: Final = partial(_unsupported, role="fetch", apis=FETCH_APIS)
_group: Final = partial(_unsupported, role="group", apis=FETCH_APIS)
_produce: Final = partial(_unsupported, role="produce", apis=PRODUCER_APIS)

MSK_ADVICE: Final = (
    "the Java classes for IAM authentication of Amazon MSK cannot run here. MSK accepts the same credentials with "
    "OAUTHBEARER: set kafka.sasl.mechanism=OAUTHBEARER and an oauthTokenProvider that calls "
    "aws-msk-iam-sasl-signer-python, and remove kafka.sasl.jaas.config and the callback handlers "
    "(docs/security.md has an example)"
)
_GOOGLE_ADVICE: Final = (
    "the Java class of Google Cloud cannot run here; set kafka.sasl.mechanism=OAUTHBEARER and an oauthTokenProvider "
    "that returns Google's tokens, and remove kafka.sasl.jaas.config (docs/security.md has an example)"
)
_VENDOR_ADVICE: Final = (("software.amazon.", MSK_ADVICE), ("com.google.cloud.", _GOOGLE_ADVICE))
_PROVIDER_ADVICE: Final = (
    "Java classes cannot run here; set the option oauthTokenProvider to module:factory, a Python function that returns "
    "a provider of tokens"
)
_OPEN_END_APIS: Final[tuple[Api, ...]] = ("continuous", "log")  # they read without an end

# Kafka's own classes, whose function is built in, are accepted, so that settings for Java can be reused. Databricks
# prefixes the names in its relocated client.
_OAUTH_PACKAGES: Final = tuple(
    f"{shaded}org.apache.kafka.common.security.oauthbearer." for shaded in ("", "kafkashaded.")
)
_KAFKA_CALLBACK_HANDLERS: Final = tuple(
    f"{package}{name}"
    for package in _OAUTH_PACKAGES
    for name in (
        "OAuthBearerLoginCallbackHandler",
        "secured.OAuthBearerLoginCallbackHandler",
        "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    )
)
_KAFKA_JWT_RETRIEVERS: Final = tuple(
    f"{package}{name}"
    for package in _OAUTH_PACKAGES
    for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
)

# A table, formatted by hand: the names of settings, and the reason.
# fmt: off
_CONNECTION: Final = (
    *_rejected("client.dns.lookup",
        "all addresses of a host are tried (use_all_dns_ips); instead of an alias for several hosts, list these hosts "
        "in kafka.bootstrap.servers", accepted_values=("use_all_dns_ips",)),
    *_rejected("bootstrap.controllers", "controllers serve no records; list brokers in kafka.bootstrap.servers"),
    *_ignored("metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms",
        "if no known broker responds, the bootstrap servers are always tried again"),
    *_ignored("bootstrap.resolve.timeout.ms", "names are resolved again with each attempt to connect"),
    *_ignored("metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms "
              "enable.metrics.push auto.include.jmx.reporter statistics.interval.ms client.software.name "
              "client.software.version",
        "there are no Java client metrics; use Spark's metrics and the log messages of this package"),
    *_ignored("api.version.request broker.version.fallback api.version.request.timeout.ms api.version.fallback.ms",
        "API versions are negotiated with each broker"),
    *_ignored("debug log_level log.queue log.thread.name log.connection.close "
              "internal.throw.on.fetch.stable.offset.unsupported internal.termination.signal message.copy.max.bytes "
              "receive.message.max.bytes max.in.flight socket.blocking.max.ms socket.keepalive.enable "
              "socket.nagle.disable socket.max.fails broker.address.ttl "
              "topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse "
              "topic.metadata.propagation.max.ms enable.random.seed",
        "it configures a Kafka client that this package does not use"),
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
    *_ignored("ssl.provider security.providers ssl.keymanager.algorithm ssl.secure.random.implementation "
              "ssl.engine.id",
        "it names Java code, which cannot run here"),
    *_rejected("ssl.trustmanager.algorithm",
        "Java code cannot verify certificates here; OpenSSL verifies them as PKIX does",
        accepted_values=("PKIX", "SunX509", "X.509")),
    *_rejected("ssl.curves.list ssl.sigalgs.list",
        "Python's ssl module cannot restrict them; restrict them in the configuration file of OpenSSL (Groups and "
        "SignatureAlgorithms), and remove the setting"),
)

_SASL: Final = (
    *_rejected("sasl.login.callback.handler.class", _PROVIDER_ADVICE,
        accepted_values=_KAFKA_CALLBACK_HANDLERS, reasons_by_prefix=_VENDOR_ADVICE),
    *_rejected("sasl.client.callback.handler.class", _PROVIDER_ADVICE, reasons_by_prefix=_VENDOR_ADVICE),
    *_rejected("sasl.login.class", _PROVIDER_ADVICE),
    *_rejected("sasl.oauthbearer.jwt.retriever.class", _PROVIDER_ADVICE, accepted_values=_KAFKA_JWT_RETRIEVERS),
    *_rejected("sasl.oauthbearer.method",
        "remove it; set kafka.sasl.oauthbearer.token.endpoint.url or the option oauthTokenProvider instead",
        accepted_values=("oidc", "default")),
    *_rejected("sasl.oauthbearer.config",
        "set the claims in kafka.sasl.jaas.config, for example: org.apache.kafka.common.security.oauthbearer."
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'),
    *_rejected("enable.sasl.oauthbearer.unsecure.jwt",
        "set unsecuredLoginStringClaim_sub in kafka.sasl.jaas.config instead", accepted_values=("false",)),
    *_rejected("sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file "
               "sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file",
        "signed assertions (the JWT bearer grant) are not supported; set the option oauthTokenProvider to "
        "module:factory, a Python function that returns a provider of tokens"),
    *_rejected("sasl.oauthbearer.grant.type",
        "only the client_credentials grant is supported; for other grants, set the option oauthTokenProvider",
        accepted_values=("client_credentials",)),
    *_ignored("sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud "
              "sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss "
              "sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds "
              "sasl.oauthbearer.assertion.claim.sub",
        "it configures signed assertions, which are not supported"),
    *_ignored("sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer "
              "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
              "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url "
              "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms "
              "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwt.validator.class "
              "sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name",
        "brokers validate tokens, clients do not"),
    *_ignored("sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds "
              "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.ms "
              "sasl.login.retry.backoff.max.ms",
        "a token is fetched when a connection needs one, and reused until shortly before it expires"),
    *_ignored("sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.keytab sasl.kerberos.kinit.cmd "
              "sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter "
              "sasl.kerberos.ticket.renew.window.factor",
        "Kerberos (GSSAPI) is not supported"),
)

_CONSUMER: Final = (
    *_fetch("allow.auto.create.topics", "reads never create topics", apis=APIS, aliases=("allow.auto.create.topic",),
        accepted_values=("false",),
        reasons={
            "sink": "writes never create topics",
            "log": "pass create=... to the log to create a compacted topic",
        }),
    *_fetch("exclude.internal.topics",
        "subscribePattern never matches internal topics; to read one, name it in subscribe or assign",
        accepted_values=("true",), rejected_by=("direct",),
        reasons={"log": "a log reads one topic, which can be internal"}),
    *_fetch("max.poll.records max.poll.interval.ms queued.min.messages queued.max.messages.kbytes "
            "fetch.queue.backoff.ms fetch.error.backoff.ms consume.callback.max.messages enable.partition.eof",
        "there is no poll loop; each task fetches its offset range in Arrow batches",
        reasons=dict.fromkeys(_OPEN_END_APIS, "there is no poll loop; records arrive in Arrow batches as the brokers "
            "return them")),
    *_fetch("interceptor.classes", "Java interceptors cannot run here; use DataFrame operations instead",
        apis=APIS, reject=True, reasons={"log": "Java interceptors cannot run here; remove the parameter"}),
    *_group("group.instance.id group.protocol group.protocol.type group.remote.assignor session.timeout.ms "
            "heartbeat.interval.ms partition.assignment.strategy internal.leave.group.on.close "
            "coordinator.query.interval.ms share.acknowledgement.mode share.acquire.mode",
        NO_GROUP_REASON),
    *_group("auto.commit.interval.ms enable.auto.offset.store offset.store.method offset.store.path "
            "offset.store.sync.interval.ms",
        "Spark manages the offsets, not the client", reasons={"log": NO_COMMITS_OF_LOG_REASON}),
)

_PRODUCER: Final = (
    *_produce("transactional.id", "set deliveryGuarantee to exactly-once, and transactionalIdPrefix", reject=True,
        reasons={"log": NO_TRANSACTIONS_OF_LOG_REASON}),
    *_produce("partitioner.class",
        "Java classes cannot run here. Partitions are chosen like in Java's default partitioner; for any other "
        "choice, add the column partition, or replace UniformStickyPartitioner by kafka.partitioner.ignore.keys",
        reject=True, aliases=("partitioner",),
        accepted_values=("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "murmur2_random"),
        reasons={"log": "Java classes cannot run here. Partitions are chosen like in Java's default partitioner"}),
    *_produce("transaction.two.phase.commit.enable", "each transaction ends with its batch", reject=True,
        accepted_values=("false",), reasons={"log": NO_TRANSACTIONS_OF_LOG_REASON}),
    *_produce("linger.ms queue.buffering.max.ms sticky.partitioning.linger.ms",
        "a record batch is sent when it is full or at the end of the task, so lingering has no use",
        reasons={"log": "records are sent immediately; records that arrive while requests are in flight share record "
            "batches"}),
    *_produce("retries message.send.max.retries",
        "transient errors are retried until kafka.delivery.timeout.ms expires", accepted_values=("2147483647",)),
    *_produce("buffer.memory.allocation.strategy batch.num.messages queue.buffering.max.messages "
              "queue.buffering.max.kbytes",
        "kafka.batch.size and kafka.buffer.memory limit the buffered bytes"),
    *_produce("max.block.ms",
        "kafka.default.api.timeout.ms limits metadata requests, and kafka.delivery.timeout.ms limits writes"),
    *_produce("metadata.max.idle.ms", "each task fetches the metadata of the topics that it writes to",
        reasons={"log": "a log writes to one topic, which is never idle"}),
    *_produce("partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.rack.aware",
        "rows without a key go to one partition for 16 KiB, or for a smaller batch.size",
        reasons={"log": "records without a key go to one partition until its record batch is full"}),
    *_produce("enable.gapless.guarantee", "a failed task is rerun with all of its rows", rejected_by=("log",),
        accepted_values=("false",),
        reasons={"log": "a log continues after a failed record, whose future reports the error"}),
)
# fmt: on


def _serde_options(part: str) -> tuple[ConfigOption, ConfigOption]:
    """Return ``key.deserializer`` and ``key.serializer``, or those of values."""
    decode = UnsupportedPolicy(
        f"{part}s are binary; set {part}Format, or decode them with DataFrame operations, for example "
        f"{part}.cast('string')",
        reject=True,
    )
    pass_decoder = UnsupportedPolicy(
        f"Java deserializers cannot run here; remove it. Keys and values are bytes unless you pass a Python function "
        f"as {part}Decoder, for example {part}Decoder=bytes.decode for strings",
        reject=True,
        accepted_values=_byte_array_classes("Deserializer"),
    )
    encode = UnsupportedPolicy(
        "keys and values are written as strings, bytes or JSON by the types of their columns; for Avro and Protobuf, "
        "set keyFormat and valueFormat",
        reject=True,
    )
    bytes_of_log = UnsupportedPolicy(f"the {part}s of a log are bytes", reject=True)
    deserializer = ConfigOption(
        f"{part}.deserializer",
        role="fetch",
        apis=(),
        client=True,
        unsupported={
            **dict.fromkeys(RANGE_APIS, decode),
            "continuous": UnsupportedPolicy(
                f"{part}s are binary; set {part}Format, or decode them in the function of the query", reject=True
            ),
            **dict.fromkeys(PARAMS_APIS, pass_decoder),
            "log": replace(bytes_of_log, accepted_values=_byte_array_classes("Deserializer")),
        },
    )
    serializer = ConfigOption(
        f"{part}.serializer",
        role="produce",
        apis=(),
        client=True,
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
    *_CONSUMER,
    *_PRODUCER,
    *_serde_options("key"),
    *_serde_options("value"),
)
