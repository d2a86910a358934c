"""``documents retry``, ``cancel`` and ``delete``: one transaction a document, and a line for each."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click
from sqlalchemy import Connection

from domain.cancel import cancel_document
from domain.delete import delete_document
from domain.errors import DomainError, NotFound
from domain.policy import read_policies
from domain.retry import failed_documents, retry_document
from tasks.cli_errors import FAILED
from tasks.cli_output import print_json
from tasks.database import run_transaction, transaction
from tasks.messages import send_claim_hint

Change = Callable[[Connection, int], Any]


def retry_documents(
    document_ids: Iterable[int], failed: bool, failure_type: str | None, owner: str | None, as_json: bool
) -> int:
    """Retry the named documents, or all that failed; 1 when one could not be retried.

    Raises:
        click.UsageError: neither or both were asked for.
        NotFound: there is no such failure type.
    """
    named = list(document_ids)
    if bool(named) == (failed or failure_type is not None):
        raise click.UsageError("say which: ID…, or --failed, or --type TYPE")
    if not named:
        with transaction() as connection:
            if failure_type is not None:
                failure_type = failure_type.upper()
                known = sorted(policy.failure_type for policy in read_policies(connection))
                if failure_type not in known:
                    raise NotFound("failure type", f"{failure_type}; there are {', '.join(known)}. {failure_type}")
            named = failed_documents(connection, failure_type, owner)
    code = change_each(named, partial(retry_document, owner_id=owner), "retried", as_json)
    if named:
        send_claim_hint()
    return code


def cancel_documents(document_ids: Iterable[int], owner: str | None, as_json: bool) -> int:
    """Cancel the live jobs of the documents; 1 when one had none."""
    return change_each(document_ids, partial(cancel_document, owner_id=owner), "cancelled", as_json)


def delete_documents(document_ids: Iterable[int], owner: str | None, as_json: bool) -> int:
    """Delete the documents with their content; 1 when one does not exist."""
    return change_each(document_ids, partial(delete_document, owner_id=owner), "deleted", as_json)


def change_each(document_ids: Iterable[int], change: Change, done: str, as_json: bool) -> int:
    """Change one document after the other: what cannot be done to one keeps no other back."""
    changed: list[int] = []
    refused: dict[int, str] = {}
    for document_id in document_ids:
        try:
            run_transaction(lambda connection, document_id=document_id: change(connection, document_id))  # type: ignore[misc]
        except DomainError as error:
            refused[document_id] = str(error)
            if not as_json:
                click.echo(f"Error: {error}", err=True)
        else:
            changed.append(document_id)
            if not as_json:
                click.echo(f"document {document_id} {done}")
    if as_json:
        print_json({done: changed, "refused": [{"id": one, "why": why} for one, why in refused.items()]})
    elif not changed and not refused:
        click.echo(f"nothing to be {done}")
    return FAILED if refused else 0
