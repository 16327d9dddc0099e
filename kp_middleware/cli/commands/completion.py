"""The command that prints what a shell needs to complete words."""

from typing import Final

import click
from click.shell_completion import get_completion_class

_SHELLS: Final = ("bash", "zsh", "fish")
_INSTALL: Final = {
    "bash": 'eval "$({name} completion bash)"    in ~/.bashrc',
    "zsh": 'eval "$({name} completion zsh)"    in ~/.zshrc',
    "fish": "{name} completion fish > ~/.config/fish/completions/{name}.fish    once",
}
_PROGRAMS: Final = ("kp-middleware", "kp-mw")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print what makes your shell complete commands, options, ids, domains, tools and states.

    \b
    eval "$(kp-middleware completion bash)"    in ~/.bashrc
    eval "$(kp-middleware completion zsh)"     in ~/.zshrc
    kp-middleware completion fish > ~/.config/fish/completions/kp-middleware.fish
    """
    root = context.find_root()
    name = root.info_name if root.info_name in _PROGRAMS else _PROGRAMS[0]
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has all three
    click.echo(made(root.command, {}, name, variable).source())
    click.echo(f"# To install: {_INSTALL[shell].format(name=name)}")
