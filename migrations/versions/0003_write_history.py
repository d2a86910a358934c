"""Write events, final failures and notifications by trigger."""

from migrations.sql import run_sql_file

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file("0003_write_history.up.sql")


def downgrade() -> None:
    run_sql_file("0003_write_history.down.sql")
