"""For Python under libfaketime 0.9.10, which answers the call behind ``time.sleep`` with EINVAL when told to leave
the monotonic clock alone: sleeps by another call. Imported by Python itself at its start, from ``PYTHONPATH``.
"""

import select
import time


def sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


time.sleep = sleep  # type: ignore[assignment]  # it takes what float() takes
