from __future__ import annotations

import pickle
import re

import pytest

import pyspark_kafka_direct
from pyspark_kafka_direct import errors
from pyspark_kafka_direct.errors import DataLossError, KafkaDirectError

ERROR_TYPES = [
    error_type
    for error_type in vars(errors).values()
    if isinstance(error_type, type) and issubclass(error_type, KafkaDirectError)
]


def test_the_docstring_shows_the_error_tree() -> None:
    """Each class is below its parent, with its builtin parent in parentheses."""
    documented = re.findall(r"^    ([│├└─ ]*)(\w+Error)(?: \((\w+)\))?(?=\s|$)", errors.__doc__ or "", re.MULTILINE)
    above: list[str] = []
    for branches, name, builtin in documented:
        depth = len(branches) // 4
        error_type = getattr(errors, name)
        parents = [*above[depth - 1 : depth], *([builtin] if builtin else [])]
        assert [parent.__name__ for parent in error_type.__bases__] == (parents or ["Exception"]), name
        above[depth:] = [name]
    assert {name for _, name, _ in documented} == {error_type.__name__ for error_type in ERROR_TYPES}


def test_all_can_be_imported_from_the_package() -> None:
    assert {error_type.__name__ for error_type in ERROR_TYPES} <= set(pyspark_kafka_direct.__all__)


@pytest.mark.parametrize("error_type", ERROR_TYPES)
def test_an_error_has_its_location_and_can_be_pickled(error_type: type[KafkaDirectError]) -> None:
    error = error_type("It broke.", topic="flights", partition=3, offset=42, broker="one:9092")
    error.message += " Fix it."
    error.add_note("seen twice")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is error_type
    assert str(again) == "It broke. Fix it. [topic flights, partition 3, offset 42, broker one:9092]"
    assert (again.topic, again.partition, again.offset, again.broker) == ("flights", 3, 42, "one:9092")
    assert again.__notes__ == ["seen twice"]


def test_the_message_has_the_known_parts_of_the_location() -> None:
    assert str(DataLossError("Missing.")) == "Missing."
    assert str(DataLossError("Missing.", topic="flights", partition=0)) == "Missing. [topic flights, partition 0]"
