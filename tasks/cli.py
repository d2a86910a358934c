"""``celery -A tasks documents …``: add documents, and ask what became of them.

Every ``celery`` command of this environment imports this module, so everything heavy is imported by the
command that needs it.

Exit codes tell the truth: 0 all good, 1 something failed, 2 could not tell.
"""

from typing import Any

import click

from tasks.cli_errors import TruthfulGroup

OWNER = "default"

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout; all else on stderr.")
whose = click.option("--owner", default=OWNER, show_default=True, help="Whose documents.")


@click.group(cls=TruthfulGroup, context_settings={"help_option_names": ["-h", "--help"]})
def documents() -> None:
    """Add documents, watch them being indexed, search them."""


@documents.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@whose
@click.option("--wait", is_flag=True, help="Stay until every document is searchable or has failed.")
@click.option("--force", is_flag=True, help="Index unchanged bytes again.")
@as_json
def add(paths: tuple[str, ...], owner: str, wait: bool, force: bool, as_json: bool) -> None:
    """Copy files into the store and enqueue them.

    PATH is a file, a folder (with all below it, hidden files skipped) or a pattern such as 'reports/*.pdf'. A
    document is called by its path as typed; the same path again with other content is a new version of it.

    Exit code 1: a file could not be read or, with --wait, a document failed.
    """
    from tasks.cli_add import add_documents

    raise SystemExit(add_documents(paths, owner, wait, force, as_json))


@documents.command()
@click.argument("document_id", type=int, required=False, metavar="[ID]")
@click.option("--owner", help="Only this owner's documents.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--after", type=int, help="Continue a list after this id.")
@click.option("--watch", is_flag=True, help="Show it anew each second until nothing is being indexed any more.")
@as_json
def status(
    document_id: int | None, owner: str | None, limit: int, after: int | None, watch: bool, as_json: bool
) -> None:
    """Show one document, or the newest ones.

    With an ID the exit code is 1 if its newest version failed.
    """
    from tasks.cli_status import show_document, show_documents

    if document_id is not None:
        raise SystemExit(show_document(document_id, owner, watch, as_json))
    show_documents(owner, limit, after, watch, as_json)


@documents.command()
@click.argument("document_id", type=int, metavar="ID")
@as_json
def history(document_id: int, as_json: bool) -> None:
    """Show every event of a document, as the database wrote it."""
    from tasks.cli_status import show_history

    show_history(document_id, as_json)


@documents.command()
@click.option("--owner", help="Only this owner's documents.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--after", type=int, help="Continue a list after this id.")
@as_json
def failures(owner: str | None, limit: int, after: int | None, as_json: bool) -> None:
    """List the documents that failed for good, each with the error of every attempt."""
    from tasks.cli_status import show_failures

    show_failures(owner, limit, after, as_json)


@documents.command()
@click.argument("words", nargs=-1, required=True)
@whose
@click.option("--limit", type=click.IntRange(1, 100), default=5, show_default=True)
@as_json
def search(words: tuple[str, ...], owner: str, limit: int, as_json: bool) -> None:
    """Find the passages that are nearest in meaning to WORDS.

    Exit code 2: a model by which some documents are embedded could not be asked; their passages are missing.
    """
    from tasks.cli_search import search_passages

    raise SystemExit(search_passages(" ".join(words), owner, limit, as_json))


@documents.group(cls=TruthfulGroup, invoke_without_command=True)
@as_json
@click.pass_context
def policy(context: click.Context, as_json: bool) -> None:
    """Show which failures are retried and when; `policy set` changes it."""
    from tasks.cli_policy import show_policies

    if context.invoked_subcommand is None:
        show_policies(as_json)


@policy.command("set")
@click.argument("failure_type", metavar="TYPE")
@click.option("--retryable/--no-retryable", default=None, help="Retry failures of this type, or not.")
@click.option("--base-delay", metavar="DURATION", help="Before the first retry: 10s, 5m, 1h30m.")
@click.option("--factor", type=float, help="Each further delay is this many times longer.")
@click.option("--max-delay", metavar="DURATION", help="No delay is longer.")
@as_json
def set_(failure_type: str, as_json: bool, **changes: Any) -> None:
    """Change the policy of one failure TYPE, from the next failure on.

    `--base-delay 0s` retries at once. How often is each document's own retry limit (MAX_RETRY_COUNT).
    """
    from tasks.cli_policy import change_policy

    change_policy(failure_type, changes, as_json)


@documents.command()
@click.argument("document_ids", type=int, nargs=-1, metavar="[ID…]")
@click.option("--failed", is_flag=True, help="Every document whose newest version failed.")
@click.option("--type", "failure_type", metavar="TYPE", help="Those that failed with this failure type.")
@click.option("--owner", help="Only this owner's documents.")
@as_json
def retry(
    document_ids: tuple[int, ...], failed: bool, failure_type: str | None, owner: str | None, as_json: bool
) -> None:
    """Try failed or cancelled documents again, each from the stage where it stopped.

    Text, chunks and vectors that are stored are used again. Exit code 1: some document could not be retried.
    """
    from tasks.cli_change import retry_documents

    raise SystemExit(retry_documents(document_ids, failed, failure_type, owner, as_json))


@documents.command()
@click.argument("document_ids", type=int, nargs=-1, required=True, metavar="ID…")
@click.option("--owner", help="Only if it is this owner's.")
@as_json
def cancel(document_ids: tuple[int, ...], owner: str | None, as_json: bool) -> None:
    """Cancel what is being built of documents; what is searchable stays so."""
    from tasks.cli_change import cancel_documents

    raise SystemExit(cancel_documents(document_ids, owner, as_json))


@documents.command()
@click.argument("document_ids", type=int, nargs=-1, required=True, metavar="ID…")
@click.option("--owner", help="Only if it is this owner's.")
@as_json
def delete(document_ids: tuple[int, ...], owner: str | None, as_json: bool) -> None:
    """Delete documents with their text, chunks and vectors. May be repeated."""
    from tasks.cli_change import delete_documents

    raise SystemExit(delete_documents(document_ids, owner, as_json))


@documents.command()
@as_json
def doctor(as_json: bool) -> None:
    """Look at database, broker, store, workers and stuck work, and name the command that repairs each.

    Exit code 1: something needs repair; 2: the database could not be asked. The rows themselves: `check`.
    """
    from tasks.cli_doctor import examine

    raise SystemExit(examine(as_json))


@documents.command()
@as_json
def check(as_json: bool) -> None:
    """Check every rule of the state machine on the live database.

    Exit code 1: a rule is broken, which only an owner or superuser of the database can do.
    """
    from tasks.cli_status import show_violations

    raise SystemExit(show_violations(as_json))
