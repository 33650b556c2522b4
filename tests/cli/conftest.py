"""What the tests of the command line share."""

import pytest
from tests.cli.command import Done, Engram

from engram.cli import main


@pytest.fixture
def engram(capsys: pytest.CaptureFixture[str]) -> Engram:
    """The command line, in this process: starting another one for each command would take seconds."""

    def call(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Done(stopped.value.code, out, err)

    return call
