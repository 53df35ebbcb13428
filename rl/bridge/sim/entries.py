"""A list in a JSON file, of each entry of which a dataclass is made."""

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

WORDS = {str: "text", int: "whole number", float: "number"}
FAR = 1e300  # beyond which a whole number may be no float


def entries(path: Path, what: str, made: Any, wrong: Callable[[Any], str]) -> list[Any]:
    """All that is `made`; ValueError if the file is no `what`, or `wrong` says why one is none."""
    try:
        told = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"There is no {what} {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no {what}: it is no JSON.") from error
    if not isinstance(told, list):
        raise ValueError(f"{path} is no {what}: it is no list.")
    found: list[Any] = []
    for number, entry in enumerate(told, 1):
        if why := _unmade(entry, made) or wrong(made(**entry)):
            raise ValueError(f"{path} is no {what}: entry {number}: {why}.")
        found.append(made(**entry))
    return found


def _unmade(entry: Any, made: Any) -> str:
    """Why it cannot be made of this; "" if it can."""
    known = {field.name: field for field in fields(made)}
    names = ", ".join(known)
    if not isinstance(entry, dict):
        return f"it needs braces around {names}"
    for name in entry:
        if name not in known:
            return f"it has {name!r}, which is none of {names}"
    for name, field in known.items():
        if name not in entry and field.default is MISSING:
            return f"it has no {name!r}"
        if name in entry and not _is(entry[name], field.type):
            return f"its {name!r} is no {WORDS[field.type]}"
    return ""


def _is(value: Any, kind: Any) -> bool:
    """Neither true nor NaN is a number."""
    if kind is str:
        return isinstance(value, str)
    return type(value) in (int, kind) and -FAR < value < FAR
