"""Groups of verbs, and their help. A verb is imported when it is called, which keeps the start-up short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from engram.cli.clicks import Click, UsageError
from engram.core.errors import unknown_name

Rows = Iterable[tuple[str, tuple[str, str] | None]]
"""Rows of help: the heading of the section, and the two columns; None for what is hidden."""


def write_sections(formatter: Click, rows: Rows) -> None:
    """Write rows of help in sections, in the order in which their headings first occur."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for heading, row in rows:
        if row is not None:
            sections.setdefault(heading, []).append(row)
    for heading, section in sections.items():
        with formatter.section(heading):
            formatter.write_dl(section)


def parameter_rows(command: Click, ctx: Click) -> Rows:
    """The arguments of a command, its options without a panel, then panel after panel."""
    arguments: list[tuple[str, Click]] = []
    options: list[tuple[str, Click]] = []
    in_panels: list[tuple[str, Click]] = []
    for parameter in command.get_params(ctx):
        row = parameter.get_help_record(ctx)
        if parameter.param_type_name == "argument":
            arguments.append(("Arguments", row))
        elif isinstance(parameter, TyperOption) and parameter.rich_help_panel:
            in_panels.append((parameter.rich_help_panel, row))
        else:
            options.append(("Options", row))
    return [*arguments, *options, *in_panels]


def first_paragraph(command: Click) -> str:
    """The first paragraph of a command's help, in one line.

    Example:
        >>> first_paragraph(TyperCommand("run", help="Run a method\\non a scenario.\\n\\nMore about it."))
        'Run a method on a scenario.'
    """
    return " ".join((command.help or "").partition("\n\n")[0].split())


class VerbCommand(TyperCommand):
    """A verb; its help shows the options in the sections that `engram.cli.arrange` puts them in."""

    def format_options(self, ctx: Click, formatter: Click) -> None:
        """Write the arguments and options."""
        write_sections(formatter, parameter_rows(self, ctx))


@dataclass(frozen=True, slots=True)
class LazyVerb:
    """A verb that is imported when it is called.

    Attributes:
        home: Its module and its name there, `module:name`; a function, or a group of verbs.
        summary: The first sentence of its help. A test compares the two.
        panel: The heading under which the help of its group lists it.
    """

    home: str
    summary: str
    panel: str = "Commands"

    def placeholder(self, name: str) -> TyperCommand:
        """A command that stands for the verb in the help of its group."""
        return VerbCommand(name, help=self.summary)

    def load(self, name: str) -> Click:
        """The command itself."""
        from engram.cli.arrange import arranged

        module, _, attribute = self.home.partition(":")
        verb = getattr(import_module(module), attribute)
        if not isinstance(verb, typer.Typer):
            function, verb = verb, typer.Typer(rich_markup_mode=None, add_completion=False)
            verb.command(name, cls=VerbCommand)(arranged(function))
        return get_command(verb)


class Verbs(TyperGroup):
    """A group of verbs: alone it prints its help, and for a wrong verb it suggests the nearest ones."""

    kind: ClassVar[str] = "command"
    lazy: ClassVar[Mapping[str, LazyVerb]] = {}

    def __init__(self, **settings: Click) -> None:
        super().__init__(**settings)
        for name, verb in self.lazy.items():
            self.commands[name] = verb.placeholder(name)

    def parse_args(self, ctx: Click, args: list[str]) -> list[str]:
        """The arguments; without any, those that print the help."""
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])

    def resolve_command(self, ctx: Click, args: list[str]) -> Click:
        """The verb and its arguments.

        Raises:
            InputError: There is no such verb.
        """
        name = args[0]
        if name in self.lazy:
            self.commands[name] = self.lazy[name].load(name)
        elif name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            raise unknown_name(self.kind, name, known, listed_by=f"{ctx.command_path} --help")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Click) -> Click:
        """Run the verb; a usage error always names the verb whose arguments are wrong."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            # The parser does not always say whose arguments it read.
            if error.ctx is None and command is not None:
                error.ctx = typer.Context(command, parent=ctx, info_name=ctx.invoked_subcommand)
            raise

    def format_options(self, ctx: Click, formatter: Click) -> None:
        """Write the options, and the verbs in their sections."""
        verbs = [
            (self.lazy[name].panel if name in self.lazy else "Commands", (name, first_paragraph(command)))
            for name, command in self.commands.items()
        ]
        write_sections(formatter, [*parameter_rows(self, ctx), *verbs])


def group_of_verbs(
    name: str,
    summary: str,
    group: type[Verbs] = Verbs,
    *,
    epilog: str | None = None,
    completion: bool = False,
) -> typer.Typer:
    """A group of verbs as a typer application.

    Args:
        name: What it is called.
        summary: The first line of its help.
        group: The class of the group.
        epilog: The last line of its help.
        completion: Whether it has the options that install completion.
    """
    return typer.Typer(
        name=name,
        help=summary,
        cls=group,
        epilog=epilog,
        add_completion=completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
