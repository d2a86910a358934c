"""The work itself, values in, values out: store (bytes), parse, chunk, embed.

A stage raises ``StageFailed`` when it knows why it failed; any other exception is a fault of the program.

Two libraries here keep threads that do not survive a fork: kreuzberg (parse) and obstore (an S3 store). Used
in a process that forks afterwards, they hang for ever in its child. So both are imported and used lazily:
call ``parse``, ``read_source`` and ``open_store("s3://…")`` only where nothing is forked afterwards, which
in a Celery worker is the pool child.
"""
