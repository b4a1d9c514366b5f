"""A real KDC in a folder, on a free port, and what a machine needs to run it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from pyspark_kafka_direct.broker.probe import free_ports

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

REALM = "TEST.REALM"

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
_TOOLS = ("krb5-config", "krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime")
_LIMIT = 60.0  # seconds; a call takes a fraction of a second

_CLIENT_CONFIG = """\
[libdefaults]
 dns_lookup_kdc = false
 dns_lookup_realm = false
 udp_preference_limit = 1
 {defaults}
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""

_KDC_CONFIG = """\
[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
[logging]
 default = FILE:{folder}/kdc.log
"""


def missing_packages() -> str:
    """Return a sentence about the packages of the operating system that the tests need, or nothing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=_PATH) is None]
    if not missing:
        return ""
    return (
        f"The Kerberos tests need {', '.join(missing)}: apt-get install gcc krb5-kdc krb5-admin-server krb5-user "
        "libkrb5-dev faketime"
    )


def missing_requirements() -> str:
    """Return a sentence about what the tests need, or nothing."""
    if find_spec("gssapi") is None:
        return "The Kerberos tests need gssapi: run make test-kerberos"
    return missing_packages()


class Kdc:
    """A KDC with a realm, and a second one with the same principals whose clock is ``skew`` seconds ahead."""

    def __init__(self, folder: Path, skew: int = 0) -> None:
        self.folder = folder
        self.port, self.skewed_port = free_ports(2)
        self._skew = skew
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by port
        self._config = self.client_config("admin", self.port)
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def __enter__(self) -> Self:
        try:
            self._start(self.port)
            if self._skew:
                self._start(self.skewed_port, "faketime", "-f", f"+{self._skew}s")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the processes; connections to them are then refused."""
        for port, process in self._processes.items():
            # faketime starts another process, and does not pass signals on.
            os.kill(int(self._pid_file(port).read_text()), signal.SIGTERM)
            process.wait(_LIMIT)
        self._processes.clear()

    def client_config(self, name: str, port: int, *defaults: str, default_realm: str = REALM) -> Path:
        """Write a ``krb5.conf`` for clients and brokers; ``defaults`` are lines of ``[libdefaults]``."""
        lines = [*defaults, *([f"default_realm = {default_realm}"] if default_realm else [])]
        path = self.folder / f"{name}.conf"
        path.write_text(_CLIENT_CONFIG.format(defaults="\n ".join(lines), realm=REALM, port=port))
        return path

    def add(self, principal: str, *options: str) -> Path:
        """Add a principal with a random key, and return its keytab; ``options`` are those of ``addprinc``."""
        self.admin("addprinc", "-randkey", *options, principal)
        return self.new_key(principal)

    def foreign_keytab(self, principal: str) -> Path:
        """Return a keytab with a key of another realm's principal."""
        path = self.folder / f"{principal}.keytab"
        commands = f"addent -password -p {principal} -k 1 -e aes256-cts\nsecret\nwkt {path}\n"
        self._run("ktutil", commands=commands)
        return path

    def new_key(self, principal: str) -> Path:
        """Change the key of a principal, and return a new keytab, which does not have the old keys."""
        path = self.folder / f"{principal.replace('/', '-')}.{time.monotonic_ns()}.keytab"
        self.admin("ktadd", "-k", str(path), principal)
        return path

    def admin(self, *command: str) -> None:
        """Run a command of ``kadmin.local``."""
        self._run("kadmin.local", "-r", REALM, *command)

    def kinit(self, principal: str, keytab: Path, *options: str) -> Path:
        """Return a file with tickets, which the command ``kinit`` writes."""
        path = self.folder / f"{principal}.{time.monotonic_ns()}.tickets"
        self._run("kinit", "-c", f"FILE:{path}", "-k", "-t", str(keytab), *options, principal)
        return path

    def _start(self, port: int, *prefix: str) -> None:
        command = [*prefix, "krb5kdc", "-n", "-P", str(self._pid_file(port))]
        with (self.folder / "kdc.out").open("ab") as output:
            process = subprocess.Popen(command, env=self._environment(port), stdout=output, stderr=output)
        deadline = time.monotonic() + _LIMIT
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                self._processes[port] = process
                return
            time.sleep(0.02)
        process.kill()
        raise RuntimeError(f"The KDC did not start: {(self.folder / 'kdc.out').read_text()}")

    def _pid_file(self, port: int) -> Path:
        return self.folder / f"{port}.pid"

    def _run(self, *command: str, commands: str = "") -> None:
        environment = self._environment(self.port)
        result = subprocess.run(
            command, env=environment, input=commands, capture_output=True, text=True, timeout=_LIMIT
        )
        is_error = result.returncode or " while " in result.stderr  # kadmin.local always succeeds
        assert not is_error, f"{command}: {result.stdout} {result.stderr}"

    def _environment(self, port: int) -> dict[str, str]:
        profile = self.folder / f"kdc-{port}.conf"
        profile.write_text(_KDC_CONFIG.format(realm=REALM, port=port, folder=self.folder))
        return {"PATH": _PATH, "KRB5_CONFIG": str(self._config), "KRB5_KDC_PROFILE": str(profile)}
