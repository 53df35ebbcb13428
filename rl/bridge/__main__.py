"""A policy and a robot, each in its own process; and what a policy reads and writes.

python -m rl.bridge show runs/ppo/artefact-0.zip
python -m rl.bridge sim runs/ppo/artefact-0.zip
python -m rl.bridge run runs/ppo/artefact-0.zip --command 0.5 0 0
python -m rl.bridge teleop 127.0.0.1:9871 runs/ppo/artefact-0.zip --keys
"""

from rl.guard import guard


def main() -> None:
    guard(_main)


def _main() -> None:
    from rl.bridge import programs  # slow, and Ctrl-C may come meanwhile

    programs.main()


if __name__ == "__main__":
    main()
