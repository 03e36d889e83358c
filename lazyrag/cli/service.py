"""The commands of the service: its processes, MCP, and tokens."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lazyrag.cli import output, terminal
from lazyrag.cli.base import PATH, app, store_option
from lazyrag.cli.output import Output
from lazyrag.errors import ConfigError

if TYPE_CHECKING:
    from lazyrag.server.core.access import Access


_OPEN_TO_ALL = (
    "There is no token yet: every program on this machine may do everything, and so may clients of"
    " a proxy that sends no X-Forwarded-For. See lazyrag token create --help."
)


@app.command()
@click.argument("path", default=".", metavar="[PATH|CONFIG]", type=PATH)
@store_option
@click.option("--host", help="Address to listen on. Default: 127.0.0.1; any other needs a token.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Default: 8400, or a free one if that is taken."
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    help="Web processes. Default: one per core, at most 4.",
)
@click.option("--root-path", help="Path of a proxy in front of the service, such as /rag.")
@click.pass_obj
def serve(as_json: bool, /, path: Path, store: Path | None, **options: Any) -> Output:
    """Serve the folder PATH over HTTP until Ctrl-C.

    Its index is kept in sync. CONFIG is a .toml file that names several folders, models and limits
    instead: see docs/service.md.
    """
    from lazyrag.server import load

    def show(url: str, needs_token: bool) -> None:
        lines = [f"Listening on {url}. Open it in a browser; Ctrl-C ends it."]
        if not needs_token:
            lines += terminal.wrap(_OPEN_TO_ALL)
        output.write(
            [output.as_json("serve", {"url": url, "needs_token": needs_token})]
            if as_json
            else lines
        )

    load("supervisor", "lazyrag serve").serve(path, store, options, show)
    return Output({"stopped": True}, [])


@app.command()
@click.argument("path", default=".", metavar="[PATH|CONFIG]", type=PATH)
@click.option(
    "--url", help="Pass the calls on to this service instead, such as http://127.0.0.1:8400."
)
@click.option(
    "--token", envvar="LAZYRAG_TOKEN", help="Token of that service. Default: LAZYRAG_TOKEN."
)
@click.option(
    "--write",
    is_flag=True,
    help="With --url: also offer the tool add_text. Without it, nothing is changed.",
)
def mcp(path: Path, url: str | None, token: str | None, write: bool) -> Output:
    """Serve the index of PATH to an MCP client.

    Assistants start this command, and talk to it on its standard input and output: see docs/mcp.md.
    """
    from lazyrag.server import load

    load("mcp", "lazyrag mcp").serve_stdio(path, url, token, writes=write)
    return Output({"stopped": True}, [])


@app.group()
def token() -> None:
    """Create, list and revoke tokens of the service."""


_service_option = click.option(
    "--at",
    type=PATH,
    default=Path(),
    metavar="PATH",
    help="Served folder or configuration file. Default: this folder.",
)


def _access(path: Path, *, must_exist: bool = True) -> Access:
    from lazyrag.server import load

    config = load("core.config", "lazyrag token").read_config(path)
    if must_exist and not config.server.state.exists():
        raise ConfigError(
            f"No service has run at {terminal.home(path.absolute())} yet. Name its folder with"
            " --at."
        )
    access: Access = load("core.access", "lazyrag token").Access(config.server.state)
    return access


@token.command("create")
@click.option(
    "--scope", type=click.Choice(["read", "write", "admin"]), default="read", help="Default: read."
)
@click.option(
    "--label", multiple=True, metavar="LABEL", help="Only documents with this label. Repeatable."
)
@click.option("--expires", metavar="PERIOD", help="Such as 12h, 90d or 8w. Default: never.")
@click.option("--name", default="", help="Name of the token, for people.")
@_service_option
def create_token(
    scope: str, label: tuple[str, ...], expires: str | None, name: str, at: Path
) -> Output:
    """Create a token, and print it: it is shown once.

    As soon as there is a token, every request to the service needs one.
    """
    created, text = _access(at, must_exist=False).create(
        scope, name=name, labels=label or None, expires=expires
    )
    return Output({**asdict(created), "token": text}, [text])


@token.command("list")
@_service_option
def list_tokens(at: Path) -> Output:
    """List the tokens, without their secrets."""
    tokens = _access(at).tokens()
    rows = [["ID", "SCOPE", "LABELS", "EXPIRES", "LAST USED", "NAME"]]
    for token_info in tokens:
        expires = "never"
        if token_info.revoked:
            expires = "revoked"
        elif token_info.expires is not None:
            expires = time.strftime("%Y-%m-%d", time.gmtime(token_info.expires))
        labels = ", ".join(token_info.labels or ["all"])
        used = token_info.used or "never"
        rows.append([token_info.id, token_info.scope, labels, expires, used, token_info.name])
    return Output({"tokens": tokens}, terminal.table(rows) if tokens else ["There are no tokens."])


@token.command("revoke")
@click.argument("token_id", metavar="ID")
@_service_option
def revoke_token(token_id: str, at: Path) -> Output:
    """Revoke a token and its browser sessions, from the next request on."""
    _access(at).revoke(token_id)
    return Output({"id": token_id}, [f"Revoked {token_id}."])
