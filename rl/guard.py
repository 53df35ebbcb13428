"""How a program ends that cannot go on: in one sentence."""

import sys
from collections.abc import Callable


def guard(main: Callable[[], None]) -> None:
    """Call `main`; what is wrong, and where, is said without a traceback."""
    try:
        main()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(f"error: {where}{error.strerror or error}.")
    except ValueError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)  # as shells have it
