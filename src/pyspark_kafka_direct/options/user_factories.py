"""Functions of the user that an option names as ``module:factory``."""

from __future__ import annotations

import importlib
import socket
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def is_factory(value: str) -> bool:
    """Return whether the value of an option, which may also have other values, is the name of a factory."""
    return ":" in value


def check_allowed(option: str, factory: str, allowed: Collection[str], *, variable: str, where: str) -> None:
    """Reject a factory that the driver's environment variable does not list; ``where`` names who would call it."""
    # Users who may set options, but run no code on the driver, could otherwise call any function that can be imported.
    if factory not in allowed:
        raise OptionError(
            f"{option}: {factory!r} is not allowed, because this function would run on {where}. Before Spark starts, "
            f"set the environment variable {variable} of the driver to the allowed functions, separated by commas"
        )


def load_factory(option: str, name: str, result: str, where: str) -> Callable[..., Any]:
    """Import a factory.

    Args:
        option: The name of the option, for messages.
        name: The value ``module:factory``.
        result: What the factory returns, for messages.
        where: The processes that have to import it, for messages.

    Raises:
        OptionError: It cannot be imported in this process, or it is not a function.
    """
    module_name, _, path = name.partition(":")
    try:
        factory: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise OptionError(
            f"option {option}: {name!r} cannot be imported on {socket.gethostname()} ({error}); the module must be "
            f"importable on {where} (install it there, or use spark.submit.pyFiles)"
        ) from error
    try:
        for part in path.split("."):  # `Class.method` is a factory, too
            factory = getattr(factory, part)
    except AttributeError:
        raise OptionError(f"option {option}: the module {module_name} has no {path}") from None
    if not callable(factory):
        raise OptionError(f"option {option}: {name!r} is not a function that returns {result}")
    return factory  # type: ignore[no-any-return]
