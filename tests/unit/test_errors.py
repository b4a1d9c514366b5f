from __future__ import annotations

import pickle
import re

import pytest

import pyspark_kafka_direct
from pyspark_kafka_direct import errors
from pyspark_kafka_direct.errors import DataLossError, KafkaDirectError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkaDirectError)]


def test_the_tree_is_the_one_that_is_drawn() -> None:
    """Each class stands in the docstring below its parent, with its builtin parent in brackets."""
    drawn = re.findall(r"^    ([│├└─ ]*)(\w+Error)(?: \((\w+)\))?(?=\s|$)", errors.__doc__ or "", re.MULTILINE)
    above: list[str] = []
    for branches, name, builtin in drawn:
        depth = len(branches) // 4
        kind = getattr(errors, name)
        parents = [*above[depth - 1 : depth], *([builtin] if builtin else [])]
        assert [parent.__name__ for parent in kind.__bases__] == (parents or ["Exception"]), name
        above[depth:] = [name]
    assert {name for _, name, _ in drawn} == {kind.__name__ for kind in KINDS}


def test_all_can_be_imported_from_the_package() -> None:
    assert {kind.__name__ for kind in KINDS} <= set(pyspark_kafka_direct.__all__)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_where_and_travels_between_processes(kind: type[KafkaDirectError]) -> None:
    error = kind("It broke.", topic="flights", partition=3, offset=42, broker="one:9092")
    error.message += " Mend it."
    error.add_note("seen twice")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "It broke. Mend it. [topic flights, partition 3, offset 42, broker one:9092]"
    assert (again.topic, again.partition, again.offset, again.broker) == ("flights", 3, 42, "one:9092")
    assert again.__notes__ == ["seen twice"]


def test_a_place_is_told_as_far_as_it_is_known() -> None:
    assert str(DataLossError("Gone.")) == "Gone."
    assert str(DataLossError("Gone.", topic="flights", partition=0)) == "Gone. [topic flights, partition 0]"
