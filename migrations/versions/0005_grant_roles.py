"""Give the application role what it needs, and no more."""

from migrations.sql import run_sql_file

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file("0005_grant_roles.up.sql")


def downgrade() -> None:
    run_sql_file("0005_grant_roles.down.sql")
