"""The latest values of a table's keys, by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.records.columns import binary_values

if TYPE_CHECKING:
    import pyarrow as pa


class TableContents:
    """The value of each key. One thread applies records, others read without a lock.

    A lock would be held in a forked child if the parent's thread held it at the fork. Each step replaces one dictionary
    or changes it in one call, which the interpreter does at once.
    """

    def __init__(self) -> None:
        self._by_partition: dict[int, dict[bytes, bytes]] = {}
        self._all: tuple[dict[bytes, bytes], ...] = ()

    def find(self, key: object) -> bytes | None:
        """Return the value of a key; ``None`` if the table does not have it."""
        for values in self._all:
            value = values.get(key)  # type: ignore[call-overload]
            if value is not None:
                return value  # type: ignore[no-any-return]
        return None

    def __len__(self) -> int:
        return sum(map(len, self._all))

    def copy(self) -> dict[bytes, bytes]:
        """Return all keys and values."""
        contents: dict[bytes, bytes] = {}
        for values in self._all:
            contents.update(values)
        return contents

    def changed_keys(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> list[bytes]:
        """Return the keys whose values records would change."""
        latest = dict(zip(binary_values(keys), binary_values(values), strict=True))
        return [key for key, value in latest.items() if key is not None and self.find(key) != value]

    def apply(self, partition: int, keys: pa.BinaryArray, values: pa.BinaryArray) -> bytes | None:
        """Apply records of a partition; return a key that another partition has, too."""
        latest: dict[bytes | None, bytes | None] = dict(zip(binary_values(keys), binary_values(values), strict=True))
        latest.pop(None, None)  # records without a key are ignored
        deleted = [key for key, value in latest.items() if value is None] if values.null_count else []
        own = self._by_partition.get(partition)
        if own is None:
            own = self._by_partition[partition] = {}
            self._all = (*self._all, own)
        # Other partitions that have some of the keys: Kafka does not order their records and these.
        others = [each for each in self._all if each is not own and not latest.keys().isdisjoint(each)]
        shared = next((key for each in others for key in latest if key in each), None)
        if not deleted:
            own.update(latest)  # type: ignore[arg-type]
        else:
            own.update({key: value for key, value in latest.items() if value is not None})  # type: ignore[misc]
            for key in deleted:
                own.pop(key, None)  # type: ignore[arg-type]
        for each in others:  # the record that was read last counts, although their order is unknown
            for key in latest:
                each.pop(key, None)  # type: ignore[arg-type]
        return shared
