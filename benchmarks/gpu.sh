#!/usr/bin/env bash
# What is owed to a GPU, in calls of under ten minutes each: benchmarks/gpu.sh [PART] [TINY]
#
# Without PART it lists them.  A part writes its rows under benchmarks/results, or says where they
# are; `python -m benchmarks owed paid NUMBER` strikes what it pays.  With TINY=1 in the environment
# each is of a size that a CPU does in minutes, to see that it runs.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=${LIMIT:-570} # s that a part may take
out=${OUT:-runs/gpu}
if [ "${TINY:-}" ]; then worlds=16 steps=4000 platforms=cpu physics=native
else worlds=4096 steps=200000000 platforms=cuda,cpu physics=mjx; fi
export JAX_PLATFORMS=${JAX_PLATFORMS:-$platforms} XLA_PYTHON_CLIENT_PREALLOCATE=false

may() { timeout --signal=TERM --kill-after=20 "$limit" "$@"; } # a run that is stopped saves
walk() { # NAME ENV: goes on where an earlier call was stopped
    if [ -e "$out/$1/manifest.json" ]; then may python -m experiments.walk --resume "$out/$1"
    else may python -m experiments.walk --env "$2" --num-envs "$worlds" --steps "$steps" --physics "${3:-$physics}" --no-video --evals 20 --out "$out/$1"; fi
}

seeds() { may python -m benchmarks.speed seeds; }                                   # OWED 2: ten of SAC in less than twice the time of one
offline() { may python -m benchmarks.speed offline --learners 10; }                 # OWED 12
duel() { may python -m benchmarks.speed playground --only "${TINY:+cheetah}${TINY:-go1}"; } # beside Playground's, MJX and Warp
batches() { may python -m benchmarks.speed large_batch --many "$worlds" --batch $((worlds * 8)) --rounds 200; } # OWED 16
go1() { walk go1 go1-joystick-flat; }                                               # OWED 7: return 26 within 5 minutes
go2() { walk go2 go2-joystick-flat; }                                               # OWED 8
warp() { walk go1-warp go1-joystick-flat warp; }                                    # and as long on Warp
crossing() { may python -m benchmarks.crossing "$out/go1" "$out/go1-warp" benchmarks/policies/go1-joystick-flat; }
walking() { may python -m benchmarks.walking "$out/go1" --kicked --name go1-joystick-flat/end; }
pictures() { may python -m pytest tests/test_warp_render.py -m slow; }              # OWED 18

parts="seeds offline duel batches go1 go2 warp crossing walking pictures"
case " $parts " in
*" ${1:-none} "*) "$1" ;;
*) echo "benchmarks/gpu.sh PART, of: $parts" ;;
esac
