# MuJoCo's own names come from compiled modules without stubs; its Python submodules are read as is.
from typing import Any

def __getattr__(name: str) -> Any: ...
