"""What this package has to say in a Python process of Spark's, as lines like those of Spark's own log.

Nobody configures ``logging`` there, and so Python writes the bare text of a warning to standard error: no time, no
level, and nothing that tells it from what else is printed. Spark hands standard error on, a planner's to the driver's
and a task's to its executor's.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

LEVEL_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_LOG_LEVEL"

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME: Final = "%y/%m/%d %H:%M:%S"  # as Spark writes it

_ours = logging.getLogger("pyspark_kafka_direct")


def write_log_lines() -> None:
    """Write what is logged to standard error, unless somebody has configured ``logging``.

    Spark's own logging of Python workers (``spark.sql.pyspark.worker.logging.enabled``) counts as somebody.

    Raises:
        OptionError: The environment names a level that there is not.
    """
    if any(isinstance(handler, _StandardError) for handler in _ours.handlers):
        return
    _ours.addHandler(_StandardError())
    if os.environ.get(LEVEL_VARIABLE):
        # Where nothing is asked for, a worker does without the table of settings.
        from pyspark_kafka_direct.settings.environment import variable

        _ours.setLevel(variable(os.environ, LEVEL_VARIABLE) or logging.NOTSET)


class _StandardError(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT, _TIME))

    def emit(self, record: logging.LogRecord) -> None:
        stream = sys.stderr
        if stream is None or _is_handled(record.name):
            return
        try:
            stream.write(self.format(record) + "\n")  # in one piece: several processes share it
        except (OSError, ValueError):
            pass  # closed, or nobody reads it any more: no reason for a task to fail
        except Exception:
            self.handleError(record)


def _is_handled(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, _StandardError) for handler in logger.handlers):
            return True
        logger = logger.parent
    return False
