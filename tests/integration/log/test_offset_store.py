"""The offset store on a real broker: a run loads what the previous run saved, and fences it."""

from __future__ import annotations

import contextlib
import pickle
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from confluent_kafka import Producer
from tests.integration.log.store_helpers import new_name, records, store_of
from tests.integration.transactional_batches import cluster_of

from pyspark_kafka_direct.client.admin import describe_topic_config
from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    InvalidOffsetsError,
    OptionError,
    ProducerFencedError,
    RecordError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from pyspark_kafka_direct.log import KafkaOffsetStore
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.compacted_partition import COMPACTED_TOPIC_CONFIGS
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.offsets import OffsetStore

MakeStore: TypeAlias = "Callable[..., KafkaOffsetStore]"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture
def topic() -> str:
    """The name of a store topic that does not exist yet."""
    return new_name()


@pytest.fixture
def make(kafka: EmbeddedKafka, topic: str) -> Iterator[MakeStore]:
    """Create stores in the test's topic: ``make("query")``; they are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(query: str = "q", **more: Any) -> KafkaOffsetStore:
            store = store_of(kafka.bootstrap_servers, more.pop("topic", topic), query, **more)
            stack.callback(store.close)
            return store

        yield make


def test_the_next_run_loads_saved_offsets(make: MakeStore) -> None:
    with make() as store:
        assert store.load() == {}
        store.save({A0: 5, B0: 7})
        store.save({A0: 6})
        assert store.load() == {A0: 6, B0: 7}
    with make() as store:
        assert store.load() == {A0: 6, B0: 7}
        assert store.load(["b"]) == {B0: 7}
        store.save({A1: 1, A0: 2})  # lower offsets, too: the latest save counts
    assert make().load() == {A0: 2, A1: 1, B0: 7}


def test_it_implements_the_protocol_offset_store(make: MakeStore) -> None:
    store: OffsetStore = make()
    assert store.load() == {}
    store.save({A0: 1})


def test_the_format_of_the_records(kafka: EmbeddedKafka, topic: str, make: MakeStore, make_topic: MakeTopic) -> None:
    known = make_topic(1)
    topic_id = cluster_of(kafka.bootstrap_servers).topics([known])[known].topic_id
    with make("näme") as store:
        store.save({TopicPartition(known, 0): 5, A0: 3})
        store.delete([A0])
    (first, run), (second, saved), (third, unknown_topic), (fourth, deleted) = records(kafka.bootstrap_servers, topic)
    assert first == ["näme"]
    assert run.keys() == {"run", "host", "process", "began"}
    assert (second, saved) == (["näme", known, 0], {"offset": 5, "topicId": str(topic_id), "run": run["run"]})
    assert (third, unknown_topic) == (["näme", "a", 0], {"offset": 3, "run": run["run"]})
    assert (fourth, deleted) == (["näme", "a", 0], None)


def test_records_of_other_programs_count(kafka: EmbeddedKafka, topic: str, make: MakeStore) -> None:
    """An offset can be set by hand while no run is active."""
    with make() as store:
        store.save({A0: 5, A1: 6})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b'{"offset": 1}', b'["q","a",0]', partition=0)
    producer.produce(topic, None, b'["q","a",1]', partition=0)
    assert producer.flush(300) == 0
    assert make().load() == {A0: 1}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ('["q","a",0]', "no JSON"),
        ('["q","a",0]', '{"offset": -1}'),
        ('["q","a",0]', "{}"),
        ('["q","a"]', '{"offset": 1}'),
        ('["q","a","0"]', '{"offset": 1}'),
        ('["q"]', "7"),
    ],
    ids=["no-json", "negative", "no-offset", "no-partition", "partition-as-string", "no-run"],
)
def test_an_invalid_record_is_an_error(kafka: EmbeddedKafka, topic: str, make: MakeStore, key: str, value: str) -> None:
    make("other").load()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, value.encode(), key.encode(), partition=0)
    assert producer.flush(300) == 0
    with pytest.raises(RecordError, match=r"is not a record of an offset store.*write a valid record"):
        make().open()
    assert make("other").load() == {}


def test_queries_are_isolated(make: MakeStore) -> None:
    """Also if the name of one is a prefix of the other."""
    with make("q") as one, make("q2") as two, make('q","a') as three:
        one.save({A0: 1})
        two.save({A0: 2, B0: 3})
        three.save({A1: 4})
        one.save({A0: 5})
    assert make("q").load() == {A0: 5}
    assert make("q2").load() == {A0: 2, B0: 3}
    assert make('q","a').load() == {A1: 4}


def test_a_second_run_fences_the_first(make: MakeStore) -> None:
    first = make().open()
    first.save({A0: 1})
    second = make().open()
    assert second.load() == {A0: 1}
    with pytest.raises(
        ProducerFencedError, match=f"acquired by run {second._run_id}, process .*stop it, or give one of the two"
    ):
        first.save({A0: 2})
    second.save({A0: 3})
    for _ in range(2):  # permanently
        with pytest.raises(ProducerFencedError):
            first.save({A0: 4})
    assert second.load() == {A0: 3}
    assert make().load() == {A0: 3}


def test_runs_of_other_queries_and_topics_are_not_fenced(make: MakeStore) -> None:
    first = make("q").open()
    make("r").open()
    make("q", topic=new_name()).open()
    first.save({A0: 1})


def test_names_with_dots_do_not_collide(make: MakeStore, topic: str) -> None:
    """The query "eu.q" of the topic "offsets", and "q" of "offsets.eu"."""
    first = make("eu.q").open()
    second = make("q", topic=f"{topic}.eu").open()
    first.save({A0: 1})
    second.save({A0: 2})
    assert (first.load(), second.load()) == ({A0: 1}, {A0: 2})


def test_of_concurrent_runs_one_remains(make: MakeStore) -> None:
    """The others get errors."""
    opened: list[KafkaOffsetStore] = []
    failed: list[
        BrokerError
    ] = []  # not always ProducerFencedError: a broker may respond that the transaction has ended
    make().open()
    barrier = threading.Barrier(4)

    def start() -> None:
        store = make()
        barrier.wait(600)
        try:
            opened.append(store.open())
        except BrokerError as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert len(opened) + len(failed) == 4
    saved = []
    for number, store in enumerate(opened):
        try:
            store.save({A0: number})
            saved.append(number)
        except BrokerError as error:
            failed.append(error)
    assert (len(saved), len(failed)) == (1, 3)
    assert make().load() == {A0: saved[0]}


def test_an_open_transaction_of_a_dead_run_is_aborted(make: MakeStore) -> None:
    """The next run aborts it at once, before its timeout."""
    dead = make(transaction_timeout_ms=300_000).open()
    dead.save({A0: 1})
    leave_open(dead, {A0: 2})
    assert make(params={"default.api.timeout.ms": 10_000}).load() == {A0: 1}


def test_open_waits_for_transactions_of_other_queries(make: MakeStore) -> None:
    """Records of an open transaction may be of this query."""
    other = make("other").open()
    make().open().save({A0: 1})
    leave_open(other, {B0: 2})
    with pytest.raises(
        BrokerTimeoutError, match=r"The content of the offset store cannot be read: a transaction of another"
    ):
        make(params={"default.api.timeout.ms": 2_000}).open()
    loaded: list[dict[TopicPartition, int]] = []
    waiting = threading.Thread(target=lambda: loaded.append(make().load()))
    waiting.start()
    waiting.join(1)
    assert waiting.is_alive()
    assert make("other").load() == {}  # aborts the transaction
    waiting.join(600)
    assert loaded == [{A0: 1}]


def leave_open(store: KafkaOffsetStore, offsets: dict[TopicPartition, int]) -> None:
    """Simulate a run that dies during a save."""

    class Died(BaseException):
        pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionalProducer, "commit", lambda _: (_ for _ in ()).throw(Died))
        patch.setattr(TransactionalProducer, "abort", lambda _: None)
        with pytest.raises(Died):
            store.save(offsets)


def test_the_topic_is_created_compacted(kafka: EmbeddedKafka, topic: str, make: MakeStore) -> None:
    make(create={"replication_factor": 1, "configs": {"segment.ms": 60_000}}).open()
    cluster = cluster_of(kafka.bootstrap_servers)
    assert describe_topic_config(cluster, topic, COMPACTED_TOPIC_CONFIGS) == {
        **COMPACTED_TOPIC_CONFIGS,
        "segment.ms": "60000",
    }
    assert len(cluster.topics([topic])[topic].partitions) == 1


def test_without_create_the_topic_must_exist(make: MakeStore, make_topic: MakeTopic) -> None:
    with pytest.raises(TopicNotFoundError, match="topic of the offset store does not exist"):
        make(create=None).open()
    existing = make_topic(1, cleanup_policy="compact")
    assert make(create=None, topic=existing).load() == {}


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_deletes_records_is_rejected(make: MakeStore, make_topic: MakeTopic, policy: str) -> None:
    with pytest.raises(
        OptionError, match=f"offset store has cleanup.policy={policy}, and so loses the offsets.*--alter"
    ):
        make(topic=make_topic(1, cleanup_policy=policy)).open()


def test_a_store_uses_the_first_partition_of_its_topic(make: MakeStore, make_topic: MakeTopic) -> None:
    several = make_topic(3, cleanup_policy="compact")
    make(topic=several).open().save({TopicPartition("t", number): number for number in range(50)})
    assert make(topic=several).load() == {TopicPartition("t", number): number for number in range(50)}


def test_offsets_of_a_recreated_topic(bench: Workbench, make: MakeStore) -> None:
    flights, other = bench.make_topic(), bench.make_topic()
    with make() as store:
        store.save({TopicPartition(flights, 0): 5, TopicPartition(other, 0): 6})
    bench.recreate_topic(flights)
    with pytest.raises(
        TopicRecreatedError, match=r'deleted and recreated.*"0":5.*on_topic_recreated="discard"'
    ) as caught:
        make().open()
    assert caught.value.topic_id == bench.topic_id(flights)
    with make(on_topic_recreated="discard") as store:
        assert store.load() == {TopicPartition(other, 0): 6}
        assert f'"{flights}":{{"0":-1}}' in store.starting_offsets_json([flights, other], "latest")
        store.save({TopicPartition(flights, 0): 5})  # the same offset, but of the new topic
    assert make().load() == {TopicPartition(flights, 0): 5, TopicPartition(other, 0): 6}


def test_offsets_of_a_deleted_topic_remain(bench: Workbench, make: MakeStore) -> None:
    """A query that reads it gets an error; others name the topics they read, or delete the offsets."""
    flights = bench.make_topic()
    make().open().save({TopicPartition(flights, 0): 5, A0: 1})
    bench.delete_topic(flights)
    with make() as store:
        assert store.load() == {TopicPartition(flights, 0): 5, A0: 1}
        assert store.load(["a"]) == {A0: 1}
        with pytest.raises(TopicNotFoundError):
            store.starting_offsets_json([flights])
        store.delete([TopicPartition(flights, 0)])
        assert store.load() == {A0: 1}
    assert make().load() == {A0: 1}


def test_starting_offsets_json(make: MakeStore, make_topic: MakeTopic) -> None:
    old, new = make_topic(3, prefix="a"), make_topic(2, prefix="b")
    with make() as store:
        assert store.starting_offsets_json(old) == f'{{"{old}":{{"0":-2,"1":-2,"2":-2}}}}'
        assert store.starting_offsets_json([old], "latest") == f'{{"{old}":{{"0":-1,"1":-1,"2":-1}}}}'
        store.save({TopicPartition(old, 0): 5, TopicPartition(old, 2): 0})
        # A new partition of a topic that was read starts at its first record, or records would be lost.
        expected = f'{{"{old}":{{"0":5,"1":-2,"2":0}},"{new}":{{"0":-1,"1":-1}}}}'
        assert store.starting_offsets_json(f"{old}, {new}", "latest") == expected
        with pytest.raises(OptionError, match="default must be earliest or latest, got 'none'"):
            store.starting_offsets_json(old, "none")
        with pytest.raises(TopicNotFoundError):
            store.starting_offsets_json([old, "no-such-topic"])
        assert store.starting_offsets_json(f"{old},, {new},", "latest") == expected  # as Spark parses the option
        for nothing in ("", " , "):
            with pytest.raises(OptionError, match="topics must name the topics"):
                store.starting_offsets_json(nothing)


def test_new_partitions_start_at_their_first_record(make: MakeStore, make_topic: MakeTopic) -> None:
    """A direct stream would start them by ``auto.offset.reset``, and "latest" would skip their records."""
    old, new = make_topic(3, prefix="a"), make_topic(2, prefix="b")
    saved = {TopicPartition(old, 1): 5}
    with make() as store:
        assert store.load([old, new]) == {}
        store.save(saved)
        assert store.load() == saved
        assert store.load([old, new]) == {
            TopicPartition(old, 0): 0,
            TopicPartition(old, 1): 5,
            TopicPartition(old, 2): 0,
        }
        store.save({A0: 7})  # of a topic that does not exist
        assert store.load(["a"]) == {A0: 7}


def test_unchanged_offsets_are_not_written_again(kafka: EmbeddedKafka, topic: str, make: MakeStore) -> None:
    """For example when Spark reruns a batch whose offsets were saved."""
    with make() as store:
        store.save({A0: 5, B0: 7})
        before = records(kafka.bootstrap_servers, topic)
        store.save({A0: 5, B0: 7})
        store.save({})
        assert records(kafka.bootstrap_servers, topic) == before
        store.save({A0: 5, B0: 8})
        assert [key for key, _ in records(kafka.bootstrap_servers, topic)[len(before) :]] == [["q", "b", 0]]


def test_a_save_is_atomic(kafka: EmbeddedKafka, topic: str, make: MakeStore) -> None:
    """Also if it needs several record batches."""
    many = {TopicPartition("t" * 200, number): number for number in range(4000)}
    store = make().open()
    store.save(many)
    leave_open(store, {tp: offset + 1 for tp, offset in many.items()})
    assert len(records(kafka.bootstrap_servers, topic, "read_uncommitted")) > 4001
    assert make().load() == many


def test_threads_save_one_at_a_time(make: MakeStore) -> None:
    with make() as store:

        def save(partition: TopicPartition) -> None:
            for offset in range(1, 11):
                store.save({partition: offset})

        threads = [threading.Thread(target=save, args=(partition,)) for partition in (A0, A1, B0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
    assert make().load() == {A0: 10, A1: 10, B0: 10}


def test_a_recreated_store_topic_is_detected(bench: Workbench, make: MakeStore) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    store = make(topic=topic).open()
    store.save({A0: 1, B0: 2})
    bench.delete_topic(topic)
    make("other", topic=topic).open()
    for _ in range(2):
        with pytest.raises(BrokerError, match=r"was truncated|is missing") as caught:
            store.save({A0: 3})
        assert not isinstance(caught.value, ProducerFencedError)
    assert make(topic=topic).load() == {}


def test_misuse_is_an_error(kafka: EmbeddedKafka, make: MakeStore) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    store = make()
    with pytest.raises(RuntimeError, match="the offset store is new: open it when the query starts"):
        store.save({A0: 1})
    with store:
        wrongs: tuple[Any, ...] = ({"a": 1}, {("a", -1): 1}, {A0: -1}, {A0: True}, {A0: 1.5}, [A0])
        for wrong in wrongs:
            with pytest.raises(InvalidOffsetsError):
                store.save(wrong)
        with pytest.raises(TypeError, match="cannot be pickled: use it only on the driver"):
            pickle.dumps(store)
    with pytest.raises(RuntimeError, match="is closed"):
        store.save({A0: 1})
    with pytest.raises(RuntimeError, match="is closed"):
        store.load()
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("", "q", servers), {}),
        (("t", " ", servers), {}),
        (("t", "q", {}), {}),
        (("t", "q", servers), {"on_topic_recreated": "never"}),
        (("t", "q", servers), {"create": {"partitions": 3}}),
        (("t", "q", servers), {"create": {"replicas": 3}}),
        *((("t", "q", servers), {"transaction_timeout_ms": wrong}) for wrong in (0, -1, 30.5, "30000", True)),
    ]
    for given, more in arguments:
        with pytest.raises(OptionError):
            KafkaOffsetStore(*given, **more)
    assert repr(store) == f"KafkaOffsetStore({store.topic!r}, 'q', closed)"
