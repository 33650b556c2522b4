"""The command line: one file a verb. Nothing heavy is imported before a verb needs it."""

import sys
from collections.abc import Sequence

from engram.cli.app import app
from engram.core.errors import InputError

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 a check failed, 2 bad input, 130 interrupted.

    Bad input is one line on stderr that names the thing and what to do; never a traceback.
    """
    import click

    from engram.cli.output import fail

    try:
        code = app(args=arguments, prog_name="engram", standalone_mode=False)
    except InputError as error:
        fail(str(error))
    except click.ClickException as error:
        fail(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        fail("interrupted: what was finished is kept", code=130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    sys.exit(code if isinstance(code, int) else 0)
