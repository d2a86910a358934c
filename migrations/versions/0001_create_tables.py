"""Create the tables, their row checks, keys and indexes."""

from migrations.sql import run_sql_file

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file("0001_create_tables.up.sql")


def downgrade() -> None:
    run_sql_file("0001_create_tables.down.sql")
