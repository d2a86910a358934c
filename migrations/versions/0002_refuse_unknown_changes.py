"""Let only the known changes of a row pass."""

from migrations.sql import run_sql_file

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file("0002_refuse_unknown_changes.up.sql")


def downgrade() -> None:
    run_sql_file("0002_refuse_unknown_changes.down.sql")
