"""What we use of msgpack, which does not say its types."""

from collections.abc import Callable
from typing import Any, NamedTuple

class ExtType(NamedTuple):
    code: int
    data: bytes

class Timestamp:
    def __init__(self, seconds: int, nanoseconds: int = 0) -> None: ...

def packb(o: Any, *, default: Callable[[Any], Any] | None = None) -> bytes: ...
def unpackb(packed: Any, **limits: Any) -> Any: ...
