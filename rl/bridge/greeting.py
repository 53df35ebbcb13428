"""Whether who greets follows the same spec, and if not, in what it differs: in words."""

import json
from dataclasses import asdict
from typing import Any

from rl.bridge.wire import Message
from rl.spec import Spec


def check_hello(spec: Spec, message: Message, whose: str) -> None:
    """Raise ValueError naming the first difference between our spec and that of a hello."""
    if message.hash == spec.hash:
        return
    try:
        theirs = json.loads(message.text)
        sensors = [str(x["name"]) for x in theirs["sensors"]]
        actuators = [str(x["name"]) for x in theirs["actuators"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{whose} sent a hello that cannot be read.") from None
    if theirs.get("name") != spec.name:
        raise ValueError(f"{whose} is named {theirs.get('name')}, and not {spec.name}.")
    spec.require(sensors, actuators, whose)
    ours = json.loads(json.dumps(asdict(spec)))
    what = next((name for name in ours if theirs.get(name) != ours[name]), "version")
    raise ValueError(f"{whose} is of another spec: {_difference(what, theirs, ours)}.")


def _difference(what: str, theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Where the field `what` of two specs is not the same."""
    other, mine = theirs.get(what), ours.get(what)
    if isinstance(mine, list) and isinstance(other, list):
        for x, y in zip(other, mine, strict=False):
            if isinstance(x, dict) and (k := next((k for k in y if x.get(k) != y[k]), "")):
                return f"of its {what} the {k} of {y['name']} is {x.get(k)}, and not {y[k]}"
        return f"it has {len(other)} of its {what}, and not {len(mine)}"
    return f"its {what} is {other}, and not {mine}"
