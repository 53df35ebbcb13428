"""What a host is, for a bridge: each probe is a pure function of a text or of measurements."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rl.bridge.punctual import Lateness, unfit

GOOD, FAIR, BAD = "good", "fair", "bad"
CLOCKS = "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"
LEAST_BUFFER = 64 * 1024  # bytes that wait for a bridge that is late: some 100 states
STOLEN = 0.01  # share of its time that a machine beneath may take
STALL_S, SLOWEST = 5.0, 2e6  # s of a disk that stands still; bytes a second of the longest log
MORE_CORES = "a machine of 4 or more"
LIMITS = (
    "printf '%s - rtprio 60\\n%s - memlock unlimited\\n' $USER $USER | "
    "sudo tee /etc/security/limits.d/robot.conf, and log in again "
    "(of a container: --cap-add SYS_NICE --ulimit rtprio=60 --ulimit memlock=-1)"
)


class Finding(NamedTuple):
    what: str
    found: str
    grade: str  # GOOD; FAIR: better otherwise; BAD: not to be flown with
    mend: str = ""  # the command that makes it good


def wakes(late: Lateness, rate: float, beside: str) -> Finding:
    why = unfit(late, rate)
    found = f"{_spread(late.p50, late.p99, late.most)} late, {late.missed:.2%} "
    found += f"left out of {late.ticks} ticks{beside}"
    mend = "see below for what helps; or a lower --rate" if why else ""
    return Finding("wake-ups", found + (f": {why}" if why else ""), BAD if why else GOOD, mend)


def cores(count: int, load: float) -> Finding:
    found = f"{count}, load {load:.1f}"
    if load > count:
        return Finding("cores", f"{found}: others keep it busy", FAIR, "top, and end what is there")
    if count < 4:
        return Finding("cores", f"{found}: bridge, policy, pilot and log share them", FAIR,
                       MORE_CORES)  # fmt: skip
    return Finding("cores", found, GOOD)


def steal(before: str, after: str) -> Finding:
    """Of two readings of /proc/stat."""
    counts = [[int(x) for x in text.split("\n")[0].split()[1:9]] for text in (before, after)]
    spent = [y - x for x, y in zip(*counts, strict=True)]
    share = spent[7] / max(sum(spent), 1)
    mend = "a machine of its own, not a virtual one" if share > STOLEN else ""
    return Finding("stolen time", f"{share:.1%} while this measured", FAIR if mend else GOOD, mend)


def virtual(cpuinfo: str) -> Finding:
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.M):
        return Finding("machine", "virtual: what runs beside it may hold it up at any time", FAIR,
                       "a machine of its own")  # fmt: skip
    return Finding("machine", "its own", GOOD)


def granted(given: Sequence[str]) -> list[Finding]:
    """Of what rl.bridge.clock.steady was given."""
    found = []
    for what, name in (("priority", "SCHED_FIFO"), ("memory", "memory locked")):
        mine = next((x for x in given if x.startswith(name)), "")
        grade = GOOD if mine else FAIR
        found.append(Finding(what, mine or f"{name} is not granted", grade, "" if mine else LIMITS))
    return found


def governor(names: Sequence[str]) -> Finding:
    """Of each core; none where nobody may set any."""
    if not names:
        return Finding("governor", "none to be seen, as in virtual machines", GOOD)
    if set(names) == {"performance"}:
        return Finding("governor", "performance", GOOD)
    mend = "sudo cpupower frequency-set -g performance"
    return Finding("governor", ", ".join(sorted(set(names))), FAIR, mend)


def kernel(version: str, realtime: str) -> Finding:
    if realtime.strip() == "1" or "PREEMPT_RT" in version:
        return Finding("kernel", "real-time", GOOD)
    mend = (
        "sudo apt install linux-image-rt-amd64 (Debian); sudo pro enable realtime-kernel (Ubuntu)"
    )
    return Finding("kernel", "not a real-time one", FAIR, mend)


def isolated(cpus: str, last: int) -> Finding:
    """Of the system's list of them, and the number of its last core."""
    if cpus.strip():
        told = f"{cpus.strip()}: sudo taskset -cp {cpus.strip()} $(pgrep -f rl.bridge.robotd)"
        return Finding("isolated cores", told, GOOD)
    if last < 3:
        return Finding("isolated cores", "none, and too few to spare one", FAIR, MORE_CORES)
    mend = f"isolcpus={last} nohz_full={last} in GRUB_CMDLINE_LINUX of /etc/default/grub, "
    return Finding("isolated cores", "none", FAIR, mend + "sudo update-grub")


def quota(text: str) -> Finding:
    """Of cgroup's cpu.max."""
    most, _, period = text.strip().partition(" ")
    if not most or most == "max":
        return Finding("quota", "none", GOOD)
    of = f"{int(most) / int(period):.2g} cores: it stands still for the rest of each "
    return Finding("quota", f"{of}{int(period) / 1e3:g} ms", FAIR, "docker run without --cpus")


def clocksource(name: str) -> Finding:
    if (name := name.strip()) in CLOCKS:
        return Finding("clock source", name, GOOD)
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    return Finding("clock source", name or "not told", FAIR, f"echo tsc | sudo tee {path}")


def swap(swaps: str, locked: bool) -> Finding:
    if len(swaps.strip().splitlines()) < 2:
        return Finding("swap", "off", GOOD)
    if locked:
        return Finding("swap", "on, but a bridge's memory is locked", GOOD)
    return Finding("swap", "on, and memory is not locked", FAIR, "sudo swapoff -a")


def buffers(size: str) -> Finding:
    """Of net.core.rmem_default."""
    if not size.strip():
        return Finding("UDP buffers", "not told", GOOD)
    mend = "" if int(size) >= LEAST_BUFFER else "sudo sysctl -w net.core.rmem_default=212992"
    return Finding("UDP buffers", f"{int(size) / 1024:.0f} KiB", FAIR if mend else GOOD, mend)


def loopback(p50: float, p99: float, most: float, rate: float) -> Finding:
    """Round trips, s."""
    found = _spread(p50, p99, most)
    mend = "" if p99 < 0.1 / rate else "see cores and priority"
    return Finding("UDP round trip", found, FAIR if mend else GOOD, mend)


def disk(stall: float, speed: float) -> Finding:
    """The longest write, s, and bytes a second."""
    found = f"{speed / 1e6:.0f} MB/s, writes of up to {_ms(stall)}"
    grade = BAD if speed < SLOWEST else FAIR if stall > STALL_S else GOOD
    return Finding("disk", found, grade, "" if grade == GOOD else "--log on another disk")


def link(ping: str, rate: float) -> Finding:
    """Of what `ping -q` said."""
    lost, times = re.search(r"([\d.]+)% packet loss", ping), re.search(
        r"= ([\d.]+)/([\d.]+)/([\d.]+)", ping)  # fmt: skip
    if not lost or not times:
        return Finding("robot", "does not answer ping", BAD, "its cable, its address, this route")
    share, (_, mean, most) = float(lost[1]) / 100, (float(x) / 1e3 for x in times.groups())
    found = f"{_ms(mean)} round trip (most {_ms(most)}), {share:.0%} lost"
    if share > 0.05 or most > 0.1:
        return Finding("robot", found, BAD, "a cable; no wireless between a robot and its bridge")
    mend = "a cable" if share > 0 or most > 1 / rate else ""
    return Finding("robot", found, FAIR if mend else GOOD, mend)


def policy(runtime: str, said: Mapping[str, Any], period: float) -> Finding:
    """Of what rl.bridge.paced said; s."""
    what, other = f"policy, {runtime}", "numpy" if runtime == "jax" else "jax"
    if "error" in said:
        return Finding(what, str(said["error"]), FAIR, f"--runtime {other}")
    found = _spread(said["p50"], said["p99"], said["most"])
    if said["compiled"]:
        again = f"{found}, and compiled {said['compiled']} times while it ran"
        return Finding(what, again, BAD, f"--runtime {other}")
    if said["p99"] > period:
        return Finding(what, found, BAD, f"--runtime {other}; or more cores")
    mend = f"--runtime {other}" if said["p99"] > 0.5 * period else ""
    return Finding(what, found, FAIR if mend else GOOD, mend)


def verdict(found: Sequence[Finding], rate: float) -> str:
    """In words; it begins with "fit" where nothing is bad."""
    if bad := [x.what for x in found if x.grade == BAD]:
        return f"not fit for {rate:g} Hz: {', '.join(bad)}"
    fair = sum(x.grade == FAIR for x in found)
    return f"fit for {rate:g} Hz" + (f"; {fair} things could be better" if fair else "")


def _spread(p50: float, p99: float, most: float) -> str:
    return f"{_ms(p50)} (99%: {_ms(p99)}, most {_ms(most)})"


def _ms(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"
