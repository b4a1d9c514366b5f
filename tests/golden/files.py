"""The golden files: reading and writing them, and comparing the kernel with them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.golden import payloads, record_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER: Final = Path(__file__).parent / "data"
MAX_BYTES: Final = 1_000_000
"""Of all files."""


class Kind(NamedTuple):
    """A kind of inputs, which are values of JSON."""

    inputs: Callable[[random.Random], Iterator[Any]]
    answer: Callable[[Any], Any]


KINDS: Final = {
    "records": Kind(record_batches.damaged_batches, record_batches.decoded),
    "legacy": Kind(record_batches.damaged_messages, record_batches.decoded),
    "headers": Kind(record_batches.headers_to_scan, record_batches.scanned),
    "batches": Kind(record_batches.rows_to_encode, record_batches.encoded),
    "split": Kind(record_batches.batches_to_split, record_batches.split),
    "json": Kind(payloads.json_values, payloads.json_answer),
    "avro": Kind(payloads.avro_datums, payloads.avro_answer),
    "protobuf": Kind(payloads.protobuf_messages, payloads.protobuf_answer),
}


def path(name: str) -> Path:
    return FOLDER / f"{name}.jsonl.gz"


def write(name: str) -> None:
    """Write the inputs of a kind and their answers; the same code always writes the same lines."""
    kind = KINDS[name]
    cases = ([case, kind.answer(case)] for case in kind.inputs(random.Random(name)))
    lines = "".join(f"{json.dumps(case, ensure_ascii=False, separators=(',', ':'))}\n" for case in cases)
    path(name).write_bytes(gzip.compress(lines.encode(), mtime=0))


def cases(name: str) -> Iterator[tuple[Any, Any]]:
    """Return the inputs of a kind, each one with its right answer."""
    for line in gzip.decompress(path(name).read_bytes()).splitlines():
        case, answer = json.loads(line)
        yield case, answer


def differences(name: str) -> list[str]:
    """Return the inputs for which the kernel has another answer."""
    answer = KINDS[name].answer
    found = ((case, right, json.loads(json.dumps(answer(case)))) for case, right in cases(name))
    return [
        f"{name}: {json.dumps(case)}\n  right:  {json.dumps(right)}\n  kernel: {json.dumps(kernel)}"
        for case, right, kernel in found
        if kernel != right
    ]
