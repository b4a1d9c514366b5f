"""Documented configurations of Kafka, Spark, and distributions of them."""

from __future__ import annotations

from typing import Final

from tests.jvm_configurations.configuration import JvmConfiguration, documented

_DATABRICKS: Final = (
    "Databricks: Authentication",
    "https://docs.databricks.com/aws/en/connect/streaming/kafka/authentication",
)
_AZURE_DATABRICKS: Final = (
    "Azure Databricks: Authentication",
    "https://learn.microsoft.com/azure/databricks/connect/streaming/kafka/authentication",
)
_STRIMZI: Final = ("Strimzi: Deploying and Managing", "https://strimzi.io/docs/operators/latest/deploying")
_KAFKA: Final = (
    "Apache Kafka: Authentication using SASL",
    "https://kafka.apache.org/41/security/authentication-using-sasl",
)
_SPARK: Final = (
    "Spark: Structured Streaming + Kafka Integration Guide",
    "https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html#security",
)


PLATFORMS: Final[tuple[JvmConfiguration, ...]] = (
    documented(
        _KAFKA,
        "Apache Kafka: Kerberos",
        r"""
bootstrap.servers=host-1.example.com:9093
sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required \
    useKeyTab=true \
    storeKey=true  \
    keyTab="/etc/security/keytabs/kafka_client.keytab" \
    principal="kafka-client-1@EXAMPLE.COM";
security.protocol=SASL_SSL
sasl.mechanism=GSSAPI
sasl.kerberos.service.name=kafka
""",
        compared="yes",
        is_run=True,
        needs="the extra `kerberos`",
    ),
    documented(
        _KAFKA,
        "Apache Kafka: OAuth with a signed assertion",
        r"""
bootstrap.servers=broker.example.com:9093
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever
sasl.oauthbearer.assertion.private.key.file=/path/to/private.key
sasl.oauthbearer.assertion.algorithm=RS256
sasl.oauthbearer.assertion.claim.exp.seconds=600
sasl.oauthbearer.assertion.template.file=/path/to/template.json
sasl.oauthbearer.scope=my-application-scope
sasl.oauthbearer.token.endpoint.url=https://example.com/oauth2/v1/token
sasl.mechanism=OAUTHBEARER
""",
        compared="yes",
        is_run=True,
        environment={
            "PYSPARK_KAFKA_DIRECT_TOKEN_URLS": (
                "https://example.com/oauth2/v1/token,file:///path/to/private.key,file:///path/to/template.json"
            )
        },
        needs="the URL and the files in `PYSPARK_KAFKA_DIRECT_TOKEN_URLS`",
    ),
    documented(
        _SPARK,
        "Spark: Kerberos with a JAAS file",
        r"""
kafka.bootstrap.servers=host-1.example.com:9093
kafka.security.protocol=SASL_SSL
kafka.sasl.kerberos.service.name=kafka
""",
        compared="only the options of the JVMs",
        rejected="neither a keytab nor a ticket cache",
        spark={
            "spark.driver.extraJavaOptions": "-Djava.security.auth.login.config=/path/to/custom_jaas.conf",
            "spark.executor.extraJavaOptions": "-Djava.security.auth.login.config=/path/to/custom_jaas.conf",
        },
    ),
    documented(
        _SPARK,
        "Spark: delegation tokens",
        r"""
kafka.bootstrap.servers=host-1.example.com:9093
""",
        compared="yes; there, `--keytab` and `--principal`",
        needs="`enable(spark)`",
        spark={
            "spark.kerberos.keytab": "/path/to/alice.keytab",
            "spark.kerberos.principal": "alice@EXAMPLE.COM",
            "spark.kafka.clusters.production.auth.bootstrap.servers": "host-1.example.com:9093",
        },
    ),
    documented(
        _SPARK,
        "Spark: delegation tokens of two clusters",
        r"""
kafka.bootstrap.servers=host-1.example.com:9093
kafka.security.protocol=SASL_SSL
kafka.ssl.truststore.location=/path/to/truststore.jks
""",
        compared="only the names; the page has no example",
        needs="`enable(spark)`",
        spark={
            "spark.kafka.clusters.production.auth.bootstrap.servers": "host-1.example.com:9093",
            "spark.kafka.clusters.production.target.bootstrap.servers.regex": "host-[0-9].example.com:9093",
            "spark.kafka.clusters.production.sasl.kerberos.service.name": "kafka",
            "spark.kafka.clusters.production.sasl.token.mechanism": "SCRAM-SHA-512",
            "spark.kafka.clusters.production.ssl.truststore.location": "/path/to/truststore.jks",
            "spark.kafka.clusters.production.ssl.truststore.password": "change-me",
            "spark.kafka.clusters.test.auth.bootstrap.servers": "test-1.example.com:9092",
            "spark.kafka.clusters.test.target.bootstrap.servers.regex": "test-1.example.com:9092",
            "spark.kafka.clusters.test.security.protocol": "SASL_PLAINTEXT",
        },
    ),
    documented(
        (
            "Cloudera: Kerberos authentication using the ticket cache",
            "https://docs.cloudera.com/cdf-datahub/7.3.1/streams-messaging-gs/topics/cdf-datahub-kafka-ticket-cache.html",
        ),
        "Cloudera: Kerberos with a ticket cache",
        r"""
bootstrap.servers=host-1.example.com:9093
security.protocol=SASL_SSL
sasl.mechanism=GSSAPI
sasl.kerberos.service.name=kafka
ssl.truststore.location=/var/lib/cloudera-scm-agent/agent-cert/cm-auto-global_truststore.jks
sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;
""",
        compared="yes",
        is_run=True,
        needs="the extra `kerberos`",
    ),
    documented(
        (
            "Cloudera HDP: JAAS Configuration File for the Kafka Client",
            "https://docs.cloudera.com/HDPDocuments/HDP3/HDP-3.0.0/authentication-with-kerberos/content/"
            "kerberos_kafka_jaas_configuration_file_for_the_kafka_client.html",
        ),
        "Cloudera HDP: Kerberos with a keytab",
        r"""
bootstrap.servers=host-1.example.com:9093
security.protocol=SASL_SSL
sasl.mechanism=GSSAPI
sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required \
  useKeyTab=true \
  keyTab="/etc/security/keytabs/storm.service.keytab" \
  storeKey=true \
  useTicketCache=false \
  serviceName="kafka" \
  principal="storm@EXAMPLE.COM";
""",
        compared="only the login; there, it is in a JAAS file",
        is_run=True,
        needs="the extra `kerberos`, and the login module of the JAAS file in `kafka.sasl.jaas.config`",
    ),
    documented(
        _STRIMZI,
        "Strimzi: SCRAM with the secret of a `KafkaUser`",
        r"""
bootstrap.servers=my-cluster-kafka-bootstrap:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="my-user" \
password="generatedpassword";
ssl.truststore.location=/tmp/ca.p12
ssl.truststore.password=<truststore_password>
""",
        compared="only `sasl.jaas.config`",
        is_run=True,
    ),
    documented(
        _STRIMZI,
        "Strimzi: mutual TLS",
        r"""
bootstrap.servers=my-cluster-kafka-bootstrap:9093
security.protocol=SSL
ssl.truststore.location=/tmp/ca.p12
ssl.truststore.password=<truststore_password>
ssl.keystore.location=/tmp/user.p12
ssl.keystore.password=<keystore_password>
""",
        compared="yes",
        is_run=True,
    ),
    documented(
        _STRIMZI,
        "Strimzi: mutual TLS with PEM values",
        r"""
bootstrap.servers=broker.example.com:9094
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.certificates=<ca.crt_file_content>
ssl.keystore.type=PEM
ssl.keystore.certificate.chain=-----BEGIN CERTIFICATE-----\n<user_certificate_content>\n-----END CERTIFICATE-----
ssl.keystore.key=-----BEGIN PRIVATE KEY-----\n<user_key_content>\n-----END PRIVATE KEY-----
""",
        compared="yes",
        is_run=True,
    ),
    documented(
        _STRIMZI,
        "Strimzi: OAuth with its callback handler",
        r"""
bootstrap.servers=my-cluster-kafka-bootstrap:9093
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
ssl.truststore.location=/tmp/kafka-truststore.p12
ssl.truststore.password=$KAFKA_STOREPASS
ssl.truststore.type=PKCS12
sasl.login.callback.handler.class=io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
  oauth.token.endpoint.uri="https://auth.url.com/oauth/token" \
  oauth.client.id="kafka-client" \
  oauth.client.secret="client-secret" \
  oauth.ssl.truststore.location="/tmp/oauth-truststore.p12" \
  oauth.ssl.truststore.password="$OAUTH_STOREPASS" \
  oauth.ssl.truststore.type="PKCS12" \
  oauth.scope="example-scope" \
  oauth.audience="example-audience" ;
""",
        compared="yes",
        is_run=True,
    ),
    documented(
        _DATABRICKS,
        "Databricks: MSK with IAM",
        r"""
kafka.bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098
kafka.security.protocol=SASL_SSL
kafka.sasl.mechanism=AWS_MSK_IAM
kafka.sasl.jaas.config=shadedmskiam.software.amazon.msk.auth.iam.IAMLoginModule required;
kafka.sasl.client.callback.handler.class=shadedmskiam.software.amazon.msk.auth.iam.IAMClientCallbackHandler
""",
        needs="the extra `msk`",
    ),
    documented(
        _DATABRICKS,
        "Databricks: mutual TLS",
        r"""
kafka.bootstrap.servers=broker.example.com:9093
kafka.security.protocol=SSL
kafka.ssl.truststore.location=/Volumes/main/kafka/stores/kafka.client.truststore.jks
kafka.ssl.keystore.location=/Volumes/main/kafka/stores/kafka.client.keystore.jks
kafka.ssl.keystore.password=<keystore-password>
kafka.ssl.truststore.password=<truststore-password>
""",
        is_run=True,
    ),
    documented(
        _AZURE_DATABRICKS,
        "Databricks: Event Hubs with a service principal",
        r"""
kafka.bootstrap.servers=mynamespace.servicebus.windows.net:9093
kafka.sasl.jaas.config=kafkashaded.org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
clientId="<client-id>" clientSecret="<client-secret>" \
scope="https://mynamespace.servicebus.windows.net/.default" \
ssl.protocol="SSL";
kafka.sasl.oauthbearer.token.endpoint.url=https://login.microsoft.com/tenant/oauth2/v2.0/token
kafka.security.protocol=SASL_SSL
kafka.sasl.mechanism=OAUTHBEARER
kafka.sasl.login.callback.handler.class=kafkashaded.org.apache.kafka.common.security.oauthbearer.secured.\
OAuthBearerLoginCallbackHandler
""",
        is_run=True,
    ),
)
