from __future__ import annotations

from pyspark_kafka_direct.broker._properties import Listener, Node, server_properties, to_text

PLAIN = Listener("PLAINTEXT", "PLAINTEXT")
MTLS = Listener("MTLS", "SSL", {"listener.name.mtls.ssl.client.auth": "required"})


def nodes(count: int) -> tuple[Node, ...]:
    return tuple(
        Node(number, {"CONTROLLER": 100 + number, "PLAINTEXT": 200 + number, "MTLS": 300 + number})
        for number in range(1, count + 1)
    )


def test_one_node_votes_for_itself_and_replicates_nothing() -> None:
    [node] = nodes(1)
    made = server_properties(node, (node,), (PLAIN,), "/data", {})
    assert made["controller.quorum.voters"] == "1@127.0.0.1:101"
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:201,CONTROLLER://127.0.0.1:101"
    assert made["advertised.listeners"] == "PLAINTEXT://127.0.0.1:201"
    assert made["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert made["offsets.topic.replication.factor"] == "1"
    assert made["log.dirs"] == "/data"


def test_three_nodes_know_each_other_and_differ_where_they_must() -> None:
    cluster = nodes(3)
    first, second, _ = (server_properties(node, cluster, (PLAIN, MTLS), f"/{node.id}", {}) for node in cluster)
    differing = {name for name in first if first[name] != second[name]}
    assert differing == {"node.id", "broker.rack", "listeners", "advertised.listeners", "log.dirs"}
    assert first["controller.quorum.voters"] == "1@127.0.0.1:101,2@127.0.0.1:102,3@127.0.0.1:103"
    assert first["transaction.state.log.replication.factor"] == "3"
    assert second["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,MTLS:SSL,CONTROLLER:PLAINTEXT"
    assert second["listener.name.mtls.ssl.client.auth"] == "required"


def test_given_properties_win() -> None:
    [node] = nodes(1)
    made = server_properties(node, (node,), (PLAIN,), "/data", {"auto.create.topics.enable": "true"})
    assert made["auto.create.topics.enable"] == "true"


def test_text_is_escaped_as_java_reads_it() -> None:
    assert to_text({"a": "b\\c", "d": "e\nf"}) == "a=b\\\\c\nd=e\\nf\n"
