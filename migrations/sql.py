"""Running the SQL file of a revision exactly as it is written."""

from pathlib import Path

from alembic import op

VERSIONS = Path(__file__).parent / "versions"


def run_sql_file(name: str) -> None:
    """Run a file of ``versions/``, such as ``0001_create_tables.up.sql``, in the revision's transaction.

    Past ``op.execute``, which would read ``:word`` as a bind parameter. With ``no_parameters``, psycopg
    leaves every ``%`` alone and sends many statements at once. In ``--sql`` mode the file is printed.
    """
    statements = (VERSIONS / name).read_text(encoding="utf-8")
    context = op.get_context()
    if context.as_sql:
        context.impl.static_output(statements)
    else:
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
