"""`python -m shoal.worker`: a worker process. What it does is in process.py."""

from __future__ import annotations

import gc
import os
import sys

if __name__ == "__main__":
    # What is loaded stays: to look for garbage in it takes a twelfth of the start.
    gc.disable()
    from shoal.worker.process import main

    # Not sys.exit: threads that still wait for the store or an output must not hold up the end.
    code = main()
    sys.stderr.flush()
    os._exit(code)
