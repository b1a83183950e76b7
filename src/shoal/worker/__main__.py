"""`python -m shoal.worker`: a worker process. See process.py."""

from __future__ import annotations

import gc
import os
import sys

if __name__ == "__main__":
    # Modules are never garbage: collecting while they load takes a twelfth of the start-up time.
    gc.disable()
    from shoal.worker.process import main

    # Not sys.exit, which waits for threads that still wait for the store or an output.
    code = main()
    sys.stderr.flush()
    os._exit(code)
