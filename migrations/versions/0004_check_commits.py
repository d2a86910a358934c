"""Check at commit what must agree between rows."""

from migrations.sql import run_sql_file

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file("0004_check_commits.up.sql")


def downgrade() -> None:
    run_sql_file("0004_check_commits.down.sql")
