from __future__ import annotations

from pyspark_kafka_direct.broker.node_config import (
    Listener,
    NodeConfig,
    format_properties,
    server_properties,
)

PLAIN = Listener("PLAINTEXT", "PLAINTEXT")
MTLS = Listener("MTLS", "SSL", {"listener.name.mtls.ssl.client.auth": "required"})


def nodes(count: int) -> tuple[NodeConfig, ...]:
    return tuple(
        NodeConfig(number, {"CONTROLLER": 100 + number, "PLAINTEXT": 200 + number, "MTLS": 300 + number})
        for number in range(1, count + 1)
    )


def test_one_node_is_its_own_quorum_without_replication() -> None:
    [node] = nodes(1)
    properties = server_properties(node, (node,), (PLAIN,), "/data", {})
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:101"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:201,CONTROLLER://127.0.0.1:101"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:201"
    assert properties["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert properties["offsets.topic.replication.factor"] == "1"
    assert properties["log.dirs"] == "/data"


def test_three_nodes_form_a_quorum_and_differ_only_where_necessary() -> None:
    cluster = nodes(3)
    first, second, _ = (server_properties(node, cluster, (PLAIN, MTLS), f"/{node.id}", {}) for node in cluster)
    differing = {name for name in first if first[name] != second[name]}
    assert differing == {"node.id", "broker.rack", "listeners", "advertised.listeners", "log.dirs"}
    assert first["controller.quorum.voters"] == "1@127.0.0.1:101,2@127.0.0.1:102,3@127.0.0.1:103"
    assert first["transaction.state.log.replication.factor"] == "3"
    assert second["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,MTLS:SSL,CONTROLLER:PLAINTEXT"
    assert second["listener.name.mtls.ssl.client.auth"] == "required"


def test_extra_properties_override_others() -> None:
    [node] = nodes(1)
    properties = server_properties(node, (node,), (PLAIN,), "/data", {"auto.create.topics.enable": "true"})
    assert properties["auto.create.topics.enable"] == "true"


def test_values_are_escaped_for_java() -> None:
    assert format_properties({"a": "b\\c", "d": "e\nf"}) == "a=b\\\\c\nd=e\\nf\n"
