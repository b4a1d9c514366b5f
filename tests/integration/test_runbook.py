"""Each recipe of docs/runbook.md: the commands and blocks of the page run in their order."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from pyspark.errors import StreamingQueryException
from tests.integration.cli.test_transactions import write_hanging_transaction
from tests.integration.read_back import values
from tests.integration.recipes import Recipe
from tests.integration.stream_queries import DEADLINE, produce
from tests.integration.test_avro_with_registry import V1, V2, Orders
from tests.integration.test_certificate_rotation import NEW_CA, RENEWAL_SECONDS, Broker
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until
from tests.shards.brokers import FEW_THREADS, new_kafka
from tests.unit.client.certified_keys import CertifiedKey

from pyspark_kafka_direct import DataLossError, error_of, write_arrow
from pyspark_kafka_direct.cli.topic_arguments import NewTopic, create_topics
from pyspark_kafka_direct.payloads.write_rows import HEADERS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.broker import EmbeddedKafka

SERVERS = "localhost:9092"
HOUR = 3_600_000  # ms


class Flights:
    """A topic with two partitions, which have five records from three hours ago each, and five from an hour ago."""

    def __init__(self, kafka: EmbeddedKafka, make_topic: MakeTopic, folder: Path, spark: SparkSession) -> None:
        self.servers = kafka.bootstrap_servers
        self.topic = make_topic(2)
        self.folder = folder
        self.spark = spark
        now = int(time.time() * 1000)
        for hours in (3, 1):
            self.produce(*(f"{hours}-{number}" for number in range(10)), timestamp=now - hours * HOUR)

    def produce(self, *written: str, timestamp: int = 0) -> None:
        produce(self.servers, self.topic, written, timestamp=timestamp)

    def recipe(self, title: str) -> Recipe:
        return Recipe(title, self.spark, self.folder, {SERVERS: self.servers, "flights": self.topic})

    def output(self) -> Counter[str]:
        """The values in the output of the query."""
        return values_in(self.spark.read.parquet(f"{self.folder}/flights.parquet"))


@pytest.fixture
def flights(kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, session: SparkSession) -> Flights:
    return Flights(kafka, make_topic, tmp_path, session)


OLD, NEW = ([f"{hours}-{number}" for number in range(10)] for hours in (3, 1))


def values_in(frame: DataFrame) -> Counter[str]:
    return Counter(row.value.decode() for row in frame.select("value").collect())


def run_to_end(recipe: Recipe, *, stop: bool = True) -> None:
    """Process all records, and stop the query."""
    recipe.names["query"].processAllAvailable()
    if stop:
        recipe.names["query"].stop()


def test_go_back_by_two_hours(flights: Flights) -> None:
    recipe = flights.recipe("Go back by two hours")
    recipe.start_query()
    run_to_end(recipe)
    recipe.wait_for_a_minute()
    dry = recipe.command()
    expected = [(f"{flights.topic}-{number}", "10", "5", "5") for number in range(2)]
    shown = [(row["PARTITION"], row["END"], row["TO"], row["AGAIN"]) for row in dry.table("SOURCE")]
    assert (dry.code, shown) == (0, expected)
    done = recipe.command()
    assert (done.code, "Appended the empty batch 1." in done.messages + done.output) == (0, True)
    recipe.run()
    run_to_end(recipe)
    audit = recipe.command()
    assert (audit.code, sum(int(row["DUPLICATES"]) for row in audit.table("PARTITION"))) == (1, 10)
    assert flights.output() == Counter(OLD) + Counter(NEW * 2)
    recipe.run()
    assert values_in(recipe.names["newest"]) == Counter(OLD + NEW)

    recipe.wait_for_a_minute()
    again = flights.recipe("Go back by two hours")
    assert [again.command().code, again.command().code] == [0, 0]  # a second rewind, before the query starts
    recipe.wait_for_a_minute()
    back = recipe.command()
    assert (back.code, [row["SKIPPED"] for row in back.table("SOURCE")]) == (0, ["5", "5"])
    flights.produce("new")
    recipe.start_query()
    run_to_end(recipe)
    assert flights.output() == Counter([*OLD, *NEW * 2, "new"])
    recipe.close()


def test_replay_dead_letters(flights: Flights) -> None:
    create_topics(flights.servers, [NewTopic(f"{flights.topic}-dlq", 1), NewTopic(f"{flights.topic}-again", 1)])
    rows = [
        {"topic": flights.topic, "partition": number, "offset": 3, "exception.class.name": "org.example.MalformedError"}
        for number in range(2)
    ]
    headers = [
        [{"key": f"__connect.errors.{name}", "value": str(each).encode()} for name, each in row.items()] for row in rows
    ]
    letters = pa.table({"value": [b"letter-0", b"letter-1"], "headers": pa.array(headers, HEADERS)})
    write_arrow(f"{flights.topic}-dlq", letters, {"bootstrap.servers": flights.servers})
    recipe = flights.recipe("Replay dead letters")
    counted = recipe.command()
    assert (counted.code, "MalformedError" in counted.output) == (0, True), counted
    recipe.start_query()
    dry = recipe.command()
    assert (dry.code, "Nothing was written." in dry.messages) == (0, True)
    done = recipe.command()
    assert (done.code, "2 dead letters were written." in done.messages) == (0, True)
    run_to_end(recipe)
    assert flights.output() == Counter([*OLD, *NEW, "letter-0", "letter-1"])
    second = flights.recipe("Replay dead letters")
    assert [second.run()[0].code, second.run()[0].code] == [0, 0]
    assert "There are no dead letters to replay." in second.command().output
    assert recipe.command().code == 0
    assert values(flights.servers, f"{flights.topic}-again") == ["letter-0", "letter-1"]
    recipe.close()


def test_end_a_transaction(session: SparkSession, tmp_path: Path) -> None:
    # A broker that accepts a late write to a transaction that its coordinator does not know, as before Kafka 3.6.
    with new_kafka(properties=FEW_THREADS | {"transaction.partition.verification.enable": "false"}) as kafka:
        servers = kafka.bootstrap_servers
        create_topics(servers, [NewTopic("flights", 1)])
        produce(servers, "flights", ["before"])
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "flights-writer", "log_level": 0})
        producer.init_transactions(DEADLINE)
        producer.begin_transaction()
        producer.produce("flights", b"open", partition=0)
        assert producer.flush(DEADLINE) == 0
        produce(servers, "flights", ["behind"])
        write_hanging_transaction(kafka, "flights", age=HOUR / 1000)
        produce(servers, "flights", ["last"])

        recipe = Recipe("End a transaction that blocks readers", session, tmp_path, {SERVERS: servers})
        recipe.names["query"] = query = recipe.names["start_query"](**{"kafka.isolation.level": "read_committed"})

        def output() -> Counter[str]:
            query.processAllAvailable()
            return values_in(session.read.parquet(f"{tmp_path}/flights.parquet"))

        assert output() == Counter(["before"])
        listed = recipe.command()
        rows = [(row["TRANSACTIONAL ID"], row["STATE"], row["BLOCKS"]) for row in listed.table("PARTITION")]
        assert (listed.code, rows[0], rows[1][1:]) == (1, ("flights-writer", "Ongoing", "yes"), ("hanging", "no"))
        dry, done = recipe.run()
        assert (dry.output[:11], done.code, done.output[:7]) == ("Would abort", 0, "Aborted")
        wait_until(lambda: output() == Counter(["before", "behind"]), "the records before the hanging transaction")
        dry, done = recipe.run()
        assert (dry.output[:11], done.code, done.output[:7]) == ("Would abort", 0, "Aborted")
        assert recipe.command() == (0, "No transaction is open.\n", "")
        wait_until(lambda: output() == Counter(["before", "behind", "last"]), "all records")
        with pytest.raises(KafkaException, match=r"fenced|epoch"):
            producer.commit_transaction(DEADLINE)
        recipe.close()


def test_backfill(flights: Flights) -> None:
    recipe = flights.recipe("Backfill")
    recipe.start_query()
    run_to_end(recipe, stop=False)
    assert f"{flights.topic}-1" in recipe.command().output
    flights.produce("new")
    recipe.run()
    assert values_in(flights.spark.read.parquet(f"{flights.folder}/flights-again.parquet")) == Counter(OLD)
    audit = recipe.command()
    assert (audit.code, [row["FOUND"] for row in audit.table("PARTITION")]) == (0, ["5", "5"])
    run_to_end(recipe, stop=False)
    recipe.run()
    mended = recipe.command()
    assert (mended.code, [row["FOUND"] for row in mended.table("PARTITION")]) == (0, ["11", "10"])
    assert recipe.names["query"].isActive
    assert flights.output() == Counter([*OLD, *NEW, "new"])
    recipe.close()


def test_move_from_the_jvm_connector_and_back(flights: Flights) -> None:
    recipe = flights.recipe("Move from the JVM connector and back")
    recipe.names["query"] = recipe.names["start_query"]("kafka")
    run_to_end(recipe)
    for number in range(2):
        flights.produce(f"new-{number}")
        check = recipe.command()
        assert (check.code, {row["STATE"] for row in check.table("PARTITION")}) == (0, {"ok"}), check
        recipe.run()
        run_to_end(recipe)
        if number == 0:
            assert recipe.command().code == 0
    assert flights.output() == Counter([*OLD, *NEW, "new-0", "new-1"])
    recipe.close()


def test_a_new_schema_version(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry, tmp_path: Path
) -> None:
    orders = Orders(kafka.bootstrap_servers, make_topic(1), registry)
    places = {SERVERS: kafka.bootstrap_servers, "http://localhost:8081": registry.url, "orders": orders.topic}
    recipe = Recipe("A new schema version", session, tmp_path, places)
    orders.write(V1, {"id": 1})
    recipe.run()
    run_to_end(recipe, stop=False)
    orders.write(V2, {"id": 2, "name": "b"})
    with pytest.raises(StreamingQueryException, match=r"version 2 of .*lacks: name"):
        recipe.names["query"].awaitTermination(DEADLINE)
    recipe.run()
    recipe.run()
    run_to_end(recipe)
    recipe.run()
    rows = recipe.names["orders"].orderBy("offset").select("id", "name").collect()
    assert [tuple(row) for row in rows] == [(1, None), (2, "b")]
    orders.write(V2, {"id": 3, "name": "c"})
    recipe.run()
    run_to_end(recipe)
    rows = session.read.option("mergeSchema", "true").parquet(f"{tmp_path}/orders.parquet").orderBy("offset").collect()
    assert [(row.id, row.name) for row in rows] == [(1, None), (2, "b"), (3, None)]
    recipe.close()


@pytest.mark.soak
def test_rotate_certificates(session: SparkSession, tmp_path: Path) -> None:
    with new_kafka(security=["MTLS"], authorizer=True, properties=FEW_THREADS) as kafka:
        broker, certificates = Broker(kafka), kafka.certificates
        old_ca = certificates.ca.read_text()
        new = CertifiedKey("second", NEW_CA, hosts="client", days=100)
        contents = {
            "ca.pem": old_ca,
            "new-ca.pem": NEW_CA.pem,
            "client.pem": certificates.client.read_text() + certificates.client_key.read_text(),
            "new-client.pem": new.pem + new.key_pem(),
        }
        settings = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.keystore.location": str(tmp_path / "client.pem"),
        }
        servers = kafka.listener("MTLS")
        contents["client.properties"] = "".join(
            f"{name}={value}\n" for name, value in {"bootstrap.servers": servers, **settings}.items()
        )
        for name, text in contents.items():
            (tmp_path / name).write_text(text)
        create_topics(kafka.bootstrap_servers, [NewTopic("flights", 1)])
        recipe = Recipe("Rotate certificates", session, tmp_path, {SERVERS: servers})
        query = recipe.names["start_query"](**{f"kafka.{name}": value for name, value in settings.items()})
        recipe.names["query"] = query
        written: list[str] = []

        def check(name: str) -> None:
            """Check that the query reads with the certificate of this subject."""
            other = {"client": "second", "second": "client"}[name]
            time.sleep(RENEWAL_SECONDS)
            broker.allow(name)
            broker.reject(other)
            written.append(name)
            produce(kafka.bootstrap_servers, "flights", [name])
            query.processAllAvailable()
            assert values_in(session.read.parquet(f"{tmp_path}/flights.parquet")) == Counter(written)

        check("client")
        broker.trust(old_ca, NEW_CA.pem)
        recipe.run()
        broker.allow("second")
        recipe.run()
        check("second")
        doctor = recipe.command()

        day = new.certificate.not_valid_after_utc.strftime("%Y-%m-%d")
        assert (doctor.code, f"CN=second, expires on {day}" in doctor.output) == (0, True), doctor
        broker.allow("client")
        recipe.run()
        check("client")
        recipe.close()


def test_a_query_that_fails_at_its_start(flights: Flights) -> None:
    recipe = flights.recipe("A query that fails at its start")
    recipe.start_query()
    run_to_end(recipe)
    flights.produce(*(f"lost-{number}" for number in range(6)))
    Admin(flights.servers).delete_records(flights.topic, 12)  # of partition 0, which has 13
    recipe.start_query()
    query = recipe.names["query"]
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(DEADLINE)
    assert isinstance(error_of(query.exception()), DataLossError)
    recipe.run()
    doctor = recipe.command()
    assert doctor.code == 0, doctor
    check = recipe.command()
    rows = [(row["STATE"], row["MISSING"]) for row in check.table("PARTITION")]
    assert (check.code, rows[0]) == (1, ("expired", "2")), check
    recipe.run()
    run_to_end(recipe, stop=False)
    recipe.run()
    flights.produce("new")
    run_to_end(recipe)
    lost = {"lost-0", "lost-2"}
    assert flights.output() == Counter([*OLD, *NEW, *({f"lost-{number}" for number in range(6)} - lost), "new"])
    recipe.close()
