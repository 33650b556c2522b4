"""`--config FILE`: the options of a verb from a TOML file; those on the command line override it."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated

import typer

from engram.cli.signature import Verb, option, with_parameters
from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonObject


def with_config(verb: Verb) -> Verb:
    """A verb that also takes `--config FILE`, for arguments and options alike.

    Example:
        >>> def verb(*, lr: float = 0.1) -> None:
        ...     print(lr)
        >>> list(inspect.signature(with_config(verb)).parameters)
        ['lr', 'config']
        >>> with_config(verb)(lr=0.2, config=None)
        0.2
    """
    hint = Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A TOML file with arguments and options; those on the command line override it.",
            callback=_take_defaults,
            is_eager=True,
        ),
    ]

    @wraps(verb)
    def configured(*, config: Path | None = None, **options: Json) -> None:
        if config is not None and options.get("set_"):
            options["set_"] = _joined(read_defaults(config, options).get("set_", []), options["set_"])
        verb(**options)

    declared = inspect.signature(verb, eval_str=True).parameters.values()
    return with_parameters(configured, [*declared, option("config", hint, None)])


def _take_defaults(context: typer.Context, value: Path | None) -> Path | None:
    if value is not None and not context.resilient_parsing:
        known = {str(parameter.name) for parameter in context.command.params} - {"config", "help"}
        flags = {str(item.name) for item in context.command.params if getattr(item, "is_flag", False)}
        typed = {
            # As text: click would take true for 1.
            name: str(item) if isinstance(item, bool) and name not in flags else item
            for name, item in read_defaults(value, known).items()
        }
        context.default_map = {**(context.default_map or {}), **typed}
    return value


def _joined(in_file: Sequence[str], typed: Sequence[str]) -> list[str]:
    """The method's fields of the file, and those of the command line, which override them.

    Example:
        >>> _joined(["memory=50", "weight=0.5"], ["weight=0.3"])
        ['memory=50', 'weight=0.3']
    """
    fields = {pair.partition("=")[0].strip().replace("-", "_") for pair in typed}
    return [*(pair for pair in in_file if pair.partition("=")[0] not in fields), *typed]


def read_defaults(path: Path, known: Collection[str]) -> JsonObject:
    """The values of a TOML file by the names of a verb's parameters.

    Args:
        path: The file. Its keys are arguments and options without dashes in front; `set` is a table of the
            method's fields.
        known: The names of the verb's parameters.

    Raises:
        InputError: The file cannot be read, a key is unknown, or a key has several values.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "run.toml"
        >>> _ = file.write_text('method = "er"\\nbatch-size = 10\\nhidden = [64, 64]\\nset.memory = 50')
        >>> read_defaults(file, ["scenario", "method", "batch_size", "hidden", "set_"])
        {'method': 'er', 'batch_size': 10, 'hidden': '64,64', 'set_': ['memory=50']}
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read the configuration {path}: {error}") from error
    except RecursionError as error:
        raise InputError(f"cannot read the configuration {path}: it is nested too deeply") from error
    defaults: JsonObject = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        name = f"{name}_" if f"{name}_" in known else name
        if name not in known:
            shown = [option.rstrip("_").replace("_", "-") for option in known]
            wrong = unknown_name("key", key, sorted(shown), listed_by="engram run --help")
            raise InputError(f"{path}: {wrong}")
        defaults[name] = _value(path, key, value)
    return defaults


def _value(path: Path, key: str, value: Json) -> Json:
    """A value as the command line would have it."""
    if key == "set":
        if not isinstance(value, Mapping) or any(isinstance(item, Mapping | list) for item in value.values()):
            raise InputError(f"{path}: set must be a table of FIELD = VALUE, such as set.memory = 100")
        return [f"{field.replace('-', '_')}={item}" for field, item in value.items()]
    if key == "track":
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f'{path}: track must name trackers, such as track = ["tensorboard:logs"]')
        return texts
    if key == "hidden" and isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, Mapping | list):
        raise InputError(f"{path}: {key} must have one value; for several, run it with `engram sweep {path}`")
    return value
