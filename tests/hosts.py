"""Processes whose host names and process numbers really differ, as on several machines."""

import shutil
import subprocess
import sys

import pytest


def on_host(name: str, *command: str) -> list[str]:
    """The command on a host of this name, with process numbers of its own."""
    return ["unshare", "--uts", "--pid", "--fork", "sh", "-c", 'hostname "$0" && exec "$@"', name, *command]


def need_hosts() -> None:
    """Skip where other host names are not permitted."""
    if sys.platform != "linux" or shutil.which("unshare") is None or shutil.which("hostname") is None:
        pytest.skip("needs the programs unshare and hostname of Linux")
    done = subprocess.run(on_host("east", "hostname"), capture_output=True, text=True, check=False)
    if done.returncode or done.stdout.strip() != "east":
        pytest.skip(f"needs the right to make namespaces: {done.stderr.strip()}")
