"""One line for every error, and an exit code that tells the truth."""

import sys
from typing import Any

import click

FAILED = 1
COULD_NOT_TELL = 2


class TruthfulGroup(click.Group):
    """A group whose commands end in one line that says what to do, never in a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception as error:  # noqa: BLE001 - whatever it is, a person reads it
            line, code = explained(error)
            click.echo(f"Error: {line}", err=True)
            sys.exit(code)
        except SystemExit as end:
            # Settings that cannot be used: Python prints nothing of an exit with a code.
            if str(end) and type(end) is not SystemExit:
                click.echo(str(end), err=True)
            raise


def explained(error: Exception) -> tuple[str, int]:
    """The line to show, and the exit code."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    from domain.errors import DomainError
    from domain.failures import FailureType, StageFailed, clean_error_message
    from settings import settings
    from tasks.recording import classify_database_error

    secrets = settings().secrets
    if isinstance(error, DomainError):
        return clean_error_message(str(error), secrets=secrets), FAILED
    if isinstance(error, StageFailed):
        return clean_error_message(error.failure.message, secrets=secrets), COULD_NOT_TELL
    if isinstance(error, SQLAlchemyError):
        failure = classify_database_error(error)
        line = " ".join(clean_error_message(failure.message, secrets=secrets).split())
        if isinstance(error, DBAPIError) and failure.type == FailureType.STORAGE_UNAVAILABLE:
            line = f"{line}. Is it running, and is DATABASE_URL right?"
        return line[:500], COULD_NOT_TELL
    text = clean_error_message(f"{type(error).__name__}: {error}", secrets=secrets)
    return " ".join(text.split())[:500], COULD_NOT_TELL
