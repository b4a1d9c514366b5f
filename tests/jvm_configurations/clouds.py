"""Documented configurations of hosted services."""

from __future__ import annotations

from typing import Final

from tests.jvm_configurations.configuration import JvmConfiguration, documented

_MSK_README: Final = ("Amazon MSK Library for AWS IAM", "https://github.com/aws/aws-msk-iam-auth")
_GOOGLE: Final = (
    "Google Cloud Managed Service for Apache Kafka Client Auth",
    "https://github.com/googleapis/managedkafka",
)
_CONFLUENT_OAUTH: Final = (
    "https://docs.confluent.io/cloud/current/security/authenticate/workload-identities/identity-providers/oauth/clients"
)
_KPOW: Final = ("Aiven: Use Kpow with Aiven for Apache Kafka", "https://aiven.io/docs/products/kafka/howto/kpow")
_VARIABLES: Final = "yes; there, the names are variables"

CLOUDS: Final[tuple[JvmConfiguration, ...]] = (
    documented(
        _MSK_README,
        "Amazon MSK: IAM",
        r"""
bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098
security.protocol = SASL_SSL
sasl.mechanism = AWS_MSK_IAM
sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler
""",
        compared="yes",
        needs="the extra `msk`",
    ),
    documented(
        _MSK_README,
        "Amazon MSK: IAM with a named profile",
        r"""
bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098
security.protocol = SASL_SSL
sasl.mechanism = AWS_MSK_IAM
sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="msk_client";
sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler
""",
        compared="yes",
        needs="the extra `msk`",
    ),
    documented(
        _MSK_README,
        "Amazon MSK: IAM with a role",
        r"""
bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required \
  awsRoleArn="arn:aws:iam::123456789012:role/msk_client_role" \
  awsRoleSessionName="producer" \
  awsStsRegion="us-west-2" \
  awsAddDefaultProviders="false";
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
""",
        compared="yes",
        needs="the extra `msk`",
    ),
    documented(
        _MSK_README,
        "Amazon MSK: IAM by OAUTHBEARER",
        r"""
bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
sasl.login.callback.handler.class=software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler
""",
        compared="yes",
        needs="the extra `msk`",
    ),
    documented(
        (
            "Amazon MSK: Configure clients for IAM access control",
            "https://docs.aws.amazon.com/msk/latest/developerguide/configure-clients-for-iam-access-control.html",
        ),
        "Amazon MSK: IAM with a trust store",
        r"""
bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098
ssl.truststore.location=<PATH_TO_TRUST_STORE_FILE>
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
""",
        compared="yes",
        needs="the extra `msk`",
    ),
    documented(
        (
            "Amazon MSK: Connecting to your cluster with sign-in credentials",
            "https://docs.aws.amazon.com/msk/latest/developerguide/msk-password-tutorial-connect.html",
        ),
        "Amazon MSK: SCRAM",
        r"""
bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9096
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" \
password="alice-secret";
""",
        compared="yes; there, the login is in a JAAS file",
        needs="the login module of the JAAS file in `kafka.sasl.jaas.config`",
        is_run=True,
    ),
    documented(
        (
            "Amazon MSK: Set up a client to use authentication",
            "https://docs.aws.amazon.com/msk/latest/developerguide/msk-authentication-client.html",
        ),
        "Amazon MSK: mutual TLS",
        r"""
bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9094
security.protocol=SSL
ssl.truststore.location=/tmp/kafka_2.12-2.2.1/kafka.client.truststore.jks
ssl.keystore.location=/tmp/kafka_2.12-2.2.1/kafka.client.keystore.jks
ssl.keystore.password=Your-Store-Pass
ssl.key.password=Your-Key-Pass
""",
        compared="yes",
        is_run=True,
    ),
    documented(
        (
            "Azure Event Hubs: Using Apache Spark",
            "https://github.com/Azure/azure-event-hubs-for-kafka/tree/master/tutorials/spark",
        ),
        "Azure Event Hubs: connection string",
        r"""
kafka.bootstrap.servers=mynamespace.servicebus.windows.net:9093
kafka.sasl.mechanism=PLAIN
kafka.security.protocol=SASL_SSL
kafka.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" \
password="Endpoint=sb://mynamespace.servicebus.windows.net/;SharedAccessKeyName=XXXXXX;SharedAccessKey=XXXXXX";
kafka.request.timeout.ms=60000
kafka.session.timeout.ms=60000
kafka.group.id=GROUP_ID
""",
        compared="yes",
        is_run=True,
        warnings=("`kafka.session.timeout.ms` is ignored", "`kafka.group.id` is ignored"),
    ),
    documented(
        (
            "Azure Event Hubs: OAuth with a client secret",
            "https://github.com/Azure/azure-event-hubs-for-kafka/tree/master/tutorials/oauth/java/appsecret",
        ),
        "Azure Event Hubs: a callback handler",
        r"""
bootstrap.servers=mynamespace.servicebus.windows.net:9093
group.id=$Default
request.timeout.ms=60000
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
sasl.login.callback.handler.class=CustomAuthenticateCallbackHandler
""",
        compared="yes",
        needs="the extra `azure`, and credentials that azure-identity finds",
        warnings=("`kafka.group.id` is ignored",),
    ),
    documented(
        _GOOGLE,
        "Google Managed Kafka: its callback handler",
        r"""
bootstrap.servers=bootstrap.mycluster.europe-west1.managedkafka.myproject.cloud.goog:9092
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
""",
        compared="yes",
        needs="the extra `gcp`",
    ),
    documented(
        _GOOGLE,
        "Google Managed Kafka: its local token server",
        r"""
bootstrap.servers=bootstrap.mycluster.europe-west1.managedkafka.myproject.cloud.goog:9092
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url=http://localhost:14293
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule \
  required clientId="admin" clientSecret="unused";
""",
        compared="yes",
        is_run=True,
    ),
    documented(
        (
            "Google: Configure SASL authentication",
            "https://cloud.google.com/managed-service-for-apache-kafka/docs/authentication-kafka",
        ),
        "Google Managed Kafka: PLAIN with a service account's key",
        r"""
bootstrap.servers=bootstrap.mycluster.europe-west1.managedkafka.myproject.cloud.goog:9092
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
  username="client@myproject.iam.gserviceaccount.com" \
  password="ewogICJ0eXBlIjogInNlcnZpY2VfYWNjb3VudCIsCn0K==";
""",
        is_run=True,
    ),
    documented(
        (
            "Confluent: `confluent kafka client-config create java`",
            "https://github.com/confluentinc/examples/blob/master/clients/docs/includes/configs/cloud/java.config",
        ),
        "Confluent Cloud: API key",
        r"""
bootstrap.servers=pkc-12345.eu-west-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='{{ CLUSTER_API_KEY }}' \
password='{{ CLUSTER_API_SECRET }}';
sasl.mechanism=PLAIN
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
""",
        compared="yes",
        is_run=True,
        warnings=("`kafka.session.timeout.ms` is ignored", "`kafka.acks` is ignored: it applies to writes only"),
    ),
    documented(
        (
            "Confluent Cloud: Configure Java Clients for OAuth/OIDC",
            f"{_CONFLUENT_OAUTH}/java-clients.html",
        ),
        "Confluent Cloud: OAuth with an identity pool",
        r"""
bootstrap.servers=pkc-12345.eu-west-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.oauthbearer.token.endpoint.url=https://myidp.example.com/oauth2/default/v1/token
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.mechanism=OAUTHBEARER
sasl.jaas.config= \
  org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
    clientId='<client_id>' \
    scope='<requested_scope>' \
    clientSecret='<client_secret>' \
    extension_logicalCluster='lkc-12345' \
    extension_identityPoolId='pool-abcd';
""",
        compared="only the handler",
        is_run=True,
    ),
    documented(
        (
            "Confluent Cloud: OAuth Configuration Reference",
            f"{_CONFLUENT_OAUTH}/configuration-reference.html",
        ),
        "Confluent Cloud: OAuth with Confluent's handler",
        r"""
bootstrap.servers=pkc-12345.eu-west-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=io.confluent.kafka.clients.plugins.auth.token.TokenUserLoginCallbackHandler
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
  oauth.token.endpoint.uri="https://myidp.example.com/oauth2/default/v1/token" \
  oauth.client.id="<client_id>" \
  oauth.client.secret="<client_secret>" \
  oauth.scope="<requested_scope>" \
  oauth.logical.cluster="lkc-12345" \
  oauth.identity.pool.id="pool-abcd";
""",
        compared="only the names; the page has no example",
        rejected="Java classes cannot run here",
    ),
    documented(
        (
            "Aiven: Configure properties for Apache Kafka toolbox",
            "https://aiven.io/docs/products/kafka/howto/kafka-tools-config-file",
        ),
        "Aiven: mutual TLS with PKCS12 and JKS",
        r"""
bootstrap.servers=mykafka-myproject.aivencloud.com:12345
security.protocol=SSL
ssl.protocol=TLS
ssl.keystore.type=PKCS12
ssl.keystore.location=client.keystore.p12
ssl.keystore.password=changeit
ssl.key.password=changeit
ssl.truststore.location=client.truststore.jks
ssl.truststore.password=changeit
ssl.truststore.type=JKS
""",
        compared="yes",
        is_run=True,
    ),
    documented(
        _KPOW,
        "Aiven: SASL with a PEM file",
        r"""
bootstrap.servers=mykafka-myproject.aivencloud.com:12345
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="<SASL_USERNAME>" \
password="<SASL_PASSWORD>";
ssl.truststore.location=/path/to/ca.pem
ssl.truststore.type=PEM
""",
        compared=_VARIABLES,
        is_run=True,
    ),
    documented(
        _KPOW,
        "Aiven: mutual TLS with PEM files",
        r"""
bootstrap.servers=mykafka-myproject.aivencloud.com:12345
security.protocol=SSL
ssl.truststore.location=/path/to/ca.pem
ssl.truststore.type=PEM
ssl.keystore.location=/path/to/keystore.pem
ssl.keystore.type=PEM
""",
        compared=_VARIABLES,
        is_run=True,
    ),
    documented(
        (
            "IBM Event Streams: consumer of the Liberty sample",
            "https://github.com/ibm-messaging/event-streams-samples/blob/master/kafka-java-liberty-sample/resources/"
            "consumer.properties",
        ),
        "IBM Event Streams: API key",
        r"""
bootstrap.servers=broker-0-abc.kafka.svc01.eu-de.eventstreams.cloud.ibm.com:9093
client.id=event-streams-sample
group.id=event-streams-sample
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="token" password="APIKEY";
""",
        compared="yes",
        is_run=True,
        warnings=("`kafka.group.id` is ignored",),
    ),
    documented(
        ("Heroku: Kafka demo in Java", "https://github.com/heroku/heroku-kafka-demo-java"),
        "Heroku: mutual TLS with stores of the environment's certificates",
        r"""
bootstrap.servers=ec2-1-2-3-4.compute-1.amazonaws.com:9096,ec2-5-6-7-8.compute-1.amazonaws.com:9096
security.protocol=SSL
ssl.endpoint.identification.algorithm=
ssl.truststore.type=PKCS12
ssl.truststore.location=/tmp/env-keystore1pkcs12
ssl.truststore.password=<random password>
ssl.keystore.type=PKCS12
ssl.keystore.location=/tmp/env-keystore2pkcs12
ssl.keystore.password=<random password>
""",
        compared="yes",
        is_run=True,
        warnings=("`kafka.ssl.endpoint.identification.algorithm` disables host name verification",),
    ),
)
