"""Each example of docs/command-line.md, and of the help of each command, with a real broker."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from pyspark_kafka_direct import write_arrow
from pyspark_kafka_direct.cli.main import COMMANDS

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

_EXAMPLE = re.compile(r"^ +kafka-direct ((?!COMMAND).+)$", re.MULTILINE)
_PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"
_HELP = [import_module(f"pyspark_kafka_direct.cli.{name}_command").EXAMPLES for name in COMMANDS]

_LINES = {line for text in (_PAGE.read_text(), *_HELP) for line in _EXAMPLE.findall(text)}
EXAMPLES = sorted(line for line in _LINES if "--watch" not in line)  # those would not end


def test_each_command_has_an_example_on_the_page() -> None:
    shown = {line.split()[0] for line in _EXAMPLE.findall(_PAGE.read_text())}
    assert shown == COMMANDS.keys()


@pytest.fixture
def flights(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    """A topic of 20 flights as JSON."""
    topic = make_topic(2)
    values = pa.table({"value": [b'{"carrier":"UA","flight":%d}' % number for number in range(20)]})
    write_arrow(topic, values, {"bootstrap.servers": kafka.bootstrap_servers}, transactional_id=f"{topic}-writer")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic}-query"})
    consumer.commit(offsets=[TopicPartition(topic, 1, 5)], asynchronous=False)
    consumer.close()
    return topic


@pytest.fixture
def checkpoint(flights: str, tmp_path: Path) -> Path:
    """The checkpoint of a query of the topic."""
    for folder, lines in (("offsets", ["v1", "{}", f'{{"{flights}":{{"0":3,"1":4}}}}']), ("commits", ["v1", "{}"])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(kafka: EmbeddedKafka, flights: str, checkpoint: Path, example: str) -> None:
    pattern = re.escape(flights)
    text = example.replace("localhost:9092", kafka.bootstrap_servers).replace("'fli.*'", f"'{pattern}'")
    text = text.replace("flights.checkpoint", str(checkpoint))
    arguments = shlex.split(re.sub(r"\bflights\b", flights, text))
    program = "import sys; from pyspark_kafka_direct.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True, timeout=300
    )
    if arguments[1] == "abort":  # no transaction is open
        assert (done.returncode, "so there is nothing to abort" in done.stderr or "no such open" in done.stderr) == (
            1,
            True,
        )
        return
    assert (done.returncode, done.stderr) == (0, "")
    if arguments[0] in ("checkpoint", "lag"):
        assert f"{flights}-1" in done.stdout
    elif arguments[0] == "consume":
        assert 3 <= done.stdout.count("UA") <= 20, done.stdout
    else:
        assert done.stdout or "--json" in arguments
