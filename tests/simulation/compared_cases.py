"""The cases that run on a simulated and on a real broker with equal transcripts, and the run on a simulated one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from tests.simulation.cluster.cluster import ClusterSettings, SimulatedCluster
from tests.simulation.coordinator_sequences import CASES
from tests.simulation.log_caller import LogCaller, run_case
from tests.simulation.log_cases import LOG_CASES
from tests.simulation.network import Network
from tests.simulation.process import SimulatedProcess
from tests.simulation.scheduler import World

from pyspark_kafka_direct.options.settings import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# They take minutes with a real broker; data/coordinator_transcripts.json has its responses.
_SLOW = frozenset({"exhausted-epochs", "fenced-at-exhausted-epoch", "timed-out-transaction"})

COMPARED_CASES: Final[Mapping[str, Callable[[LogCaller], None]]] = {
    **{name: partial(LogCaller.run, steps=steps) for name, steps in LOG_CASES.items()},
    **{name: case for name, case in CASES.items() if name not in _SLOW},
}


def run_simulated(
    name: str, label: str, transaction_version: int, codec: Literal["tables", "kio"] = "tables"
) -> list[str]:
    """Run a case over a connection of a simulated process, and return its transcript."""
    world = World(label, codec=codec)
    network = Network(world)
    settings = ClusterSettings(transaction_version=transaction_version, replication_factor=1)
    cluster = SimulatedCluster(world, brokers=1, settings=settings)
    broker = cluster.brokers[1]
    network.brokers[broker.host, broker.port] = broker
    cluster.on_change(network.cluster_changed)
    process = SimulatedProcess(world, network, "client")

    def delete_records(topic: str, index: int, offset: int) -> None:
        target = cluster.partition((topic, index))
        assert target is not None
        cluster.advance_log_start(target, offset, "DeleteRecords")

    transcript: list[str] = []

    def run() -> None:
        transcript.extend(
            run_case(
                label,
                COMPARED_CASES[name],
                ConnectionSettings(((broker.host, broker.port),)),
                process,
                kip_890=transaction_version == 2,
                delete_records=delete_records,
            )
        )

    world.run([process.spawn("case", run)])
    world.close()
    if world.errors:
        raise world.errors[0][1]
    return transcript
