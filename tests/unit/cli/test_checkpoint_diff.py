"""``kafka-direct checkpoint diff`` on two checkpoints in the formats of Spark."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.test_checkpoint_command import write

from pyspark_kafka_direct.cli.checkpoint_diff import differing_ends
from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest


def test_a_checkpoint_and_a_copy_from_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write(a, 0, '{"s":{"0":2},"t":{"0":5,"1":7},"u":{"0":1}}', "5", '{"v":{"0":1,"1":1}}')
    shutil.copytree(a, b)
    assert main(["checkpoint", "diff", str(a), str(b)]) == 0
    assert "The offsets are the same." in capsys.readouterr().out
    write(b, 1, '{"s":{"0":2},"t":{"0":9,"1":6,"2":3},"u":{"0":1}}', "6", '{"v":{"0":1,"1":3}}', commit=False)
    assert main(["checkpoint", "diff", str(a), str(b), "--json"]) == 1
    output = capsys.readouterr()
    assert [tuple(json.loads(line).values()) for line in output.out.splitlines()] == [
        ("0", "t-0", 5, 9, 0, 4),
        ("0", "t-1", 7, 6, 1, 0),
        ("0", "t-2", None, 3, None, None),
        ("2", "v-1", 1, 3, 0, 2),
    ]
    assert output.err == ""
    assert main(["checkpoint", "diff", str(a), str(b)]) == 1
    assert capsys.readouterr().out.startswith("A  batch 0, committed\nB  batch 1, unfinished\n\nSOURCE  PARTITION")


ENDS = st.dictionaries(
    st.sampled_from(["0", "1", "b"]),
    st.dictionaries(st.sampled_from([TopicPartition(*each) for each in (("t", 0), ("t", 10), ("t", 2), ("u", 0))]),
                    st.integers(0, 3), max_size=4),
    max_size=3,
)  # fmt: skip


@given(ENDS, ENDS)
def test_each_end_that_differs(
    a: Mapping[str, Mapping[TopicPartition, int]], b: Mapping[str, Mapping[TopicPartition, int]]
) -> None:
    keys = {(source, tp) for each in (a, b) for source, ends in each.items() for tp in ends}
    pairs = {key: (a.get(key[0], {}).get(key[1]), b.get(key[0], {}).get(key[1])) for key in sorted(keys)}
    assert [tuple(row.values()) for row in differing_ends(a, b)] == [
        (source, str(tp), one, two)
        + ((None, None) if one is None or two is None else (len(range(two, one)), len(range(one, two))))
        for (source, tp), (one, two) in pairs.items()
        if one != two
    ]


def test_both_versions_of_the_log_and_other_query_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write(a, 0, '{"t":{"0":5}}')
    write(b, 3, 'flights:{"t":{"0":5}}', version="v2")
    (b / "metadata").write_text('{"id":"other"}')
    assert main(["checkpoint", "diff", str(a), str(b), "--json"]) == 1
    output = capsys.readouterr()
    assert [json.loads(line)["source"] for line in output.out.splitlines()] == ["0", "flights"]
    assert "different query ids" in output.err
