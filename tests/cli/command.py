"""The command line as tests call it, and what it answers."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.returncode == 0, self.stderr
        output: dict[str, Any] = json.loads(self.stdout)
        return output


Engram = Callable[..., Done]
