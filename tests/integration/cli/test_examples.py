"""Each example of docs/command-line.md, and of the help of each command, with a real broker."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.cli.audits import Auditor, Position
from tests.integration.cli.program import START, run
from tests.unit.cli.subcommands import subcommands_of

from pyspark_kafka_direct import write_arrow
from pyspark_kafka_direct.cli.main import COMMANDS, main
from pyspark_kafka_direct.offsets import TopicPartition as Partition
from pyspark_kafka_direct.offsets import record_first_start
from pyspark_kafka_direct.payloads.write_rows import HEADERS

if TYPE_CHECKING:
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka

_EXAMPLE = re.compile(r"^ +kafka-direct ((?!COMMAND).+)$", re.MULTILINE)
FILE = "flights.parquet"
_PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"
_MODULES = [
    *(f"{name}_command" for name in COMMANDS),
    *(f"{command}_{name}" for command in COMMANDS for name in subcommands_of(command)),
]
_HELP = [import_module(f"pyspark_kafka_direct.cli.{name}").EXAMPLES for name in _MODULES]

_LINES = {line for text in (_PAGE.read_text(), *_HELP) for line in _EXAMPLE.findall(text)}
EXAMPLES = sorted(line for line in _LINES if "--watch" not in line)  # those would not end


def test_each_command_has_an_example_on_the_page() -> None:
    shown = {line.split()[0] for line in _EXAMPLE.findall(_PAGE.read_text())}
    assert shown == COMMANDS.keys()


@pytest.fixture(scope="module")
def flights(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    """A topic of 20 flights as JSON, which no example changes."""
    topic = make_topic(2)
    values = pa.table({
        "value": [b'{"carrier":"UA","flight":%d}' % number for number in range(20)],
        "partition": pa.array([number % 2 for number in range(20)], pa.int32()),
    })  # fmt: skip
    write_arrow(topic, values, {"bootstrap.servers": kafka.bootstrap_servers}, transactional_id=f"{topic}-writer")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic}-query"})
    consumer.commit(offsets=[TopicPartition(topic, 1, 5)], asynchronous=False)
    consumer.close()
    return topic


@pytest.fixture
def checkpoint(flights: str, tmp_path: Path) -> Path:
    """The checkpoint of a query of the topic."""
    ends = {Partition(flights, 0): 3, Partition(flights, 1): 4}
    offsets = json.dumps(record_first_start(ends, dict.fromkeys(ends, 0)))
    for folder, lines in (("offsets", ["v1", "{}", offsets]), ("commits", ["v1", "{}"])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture(scope="module")
def copies(kafka: EmbeddedKafka, flights: str, make_topic: MakeTopic) -> str:
    """A topic with the source offsets of the flights, in headers and values."""
    Auditor(kafka.bootstrap_servers).write(topic := make_topic(), _positions(flights))
    return topic


@pytest.fixture(scope="module")
def table(flights: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the source offsets of the flights as columns."""
    rows = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in _positions(flights)]
    path = tmp_path_factory.mktemp("table") / FILE
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def _positions(flights: str) -> list[Position]:
    return [(flights, number % 2, number // 2) for number in range(20)]


@pytest.fixture
def dead_letters(kafka: EmbeddedKafka, flights: str, make_topic: MakeTopic) -> tuple[str, str]:
    """A topic with the dead letter of a flight, and one for its replay."""
    topic, again = make_topic(), make_topic(2)
    origin = {"topic": flights, "partition": 0, "offset": 3, "exception.class.name": "org.example.MalformedError"}
    headers = [{"key": f"__connect.errors.{name}", "value": str(value).encode()} for name, value in origin.items()]
    letter = pa.table({"value": [b"UA"], "headers": pa.array([headers], HEADERS)})
    write_arrow(topic, letter, {"bootstrap.servers": kafka.bootstrap_servers})
    return topic, again


def _one_of_each_command() -> set[str]:
    """Return an example of each command and subcommand."""
    examples = {
        (words[0], words[1] if subcommands_of(words[0]) else ""): each for each in EXAMPLES if (words := each.split())
    }
    return {*examples.values()}


_IN_ANOTHER_PROCESS = _one_of_each_command()


@pytest.mark.parametrize("example", [example for example in EXAMPLES if "--spark" not in example])
def test_example(
    request: pytest.FixtureRequest,
    kafka: EmbeddedKafka,
    flights: str,
    copies: str,
    table: Path,
    checkpoint: Path,
    example: str,
) -> None:
    """One example of each command has another process, which imports all that it needs."""
    pattern = re.escape(flights)
    text = example.replace("localhost:9092", kafka.bootstrap_servers).replace("'fli.*'", f"'{pattern}'")
    text = re.sub(r"(flights|copies)\.checkpoint", str(checkpoint), text).replace(FILE, str(table))
    if example.startswith("dlq"):
        dead_letters, again = request.getfixturevalue("dead_letters")
        text = text.replace("flights-dlq", dead_letters).replace("flights-again", again)
    arguments = shlex.split(re.sub(r"(?<!/)\bcopies\b", copies, re.sub(r"(?<!/)\bflights\b", flights, text)))
    done = _run_in_another_process(arguments) if example in _IN_ANOTHER_PROCESS else run(*arguments)
    if arguments[1] == "abort":  # no transaction is open
        assert (done.returncode, "so there is nothing to abort" in done.stderr or "no such open" in done.stderr) == (
            1,
            True,
        )
        return
    if arguments[:2] == ["dlq", "replay"]:
        outcome = "1 dead letters were written." if "--execute" in arguments else "Nothing was written."
        assert (done.returncode, outcome in done.stderr) == (0, True), done.stderr
        return
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    if arguments[:2] == ["checkpoint", "diff"]:  # of a checkpoint with itself
        assert "--json" in arguments or "The offsets are the same." in done.stdout
    elif arguments[0] in ("audit", "checkpoint", "lag"):
        assert f"{flights}-1" in done.stdout
    elif arguments[0] == "consume":
        assert 3 <= done.stdout.count("UA") <= 20, done.stdout
    else:
        assert done.stdout or "--json" in arguments


@pytest.mark.spark_app
@pytest.mark.parametrize("example", [example for example in EXAMPLES if "--spark" in example])
def test_example_with_spark(
    kafka: EmbeddedKafka, flights: str, make_spark: SparkSessions, capsys: pytest.CaptureFixture[str], example: str
) -> None:
    """In this process: test_doctor_spark.py runs the same command as another one."""
    make_spark.stop()
    make_spark.start_jvm()
    text = example.replace("localhost:9092", kafka.bootstrap_servers).replace("spark://master:7077", "local[2]")
    assert main(shlex.split(re.sub(r"\bflights\b", flights, text))) == 0
    output = capsys.readouterr().out
    assert "executor in the driver" in output
    assert flights in output


def _run_in_another_process(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*START, *arguments], check=False, capture_output=True, text=True, timeout=300)
