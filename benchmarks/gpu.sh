#!/usr/bin/env bash
# What is owed to a GPU, in calls of under ten minutes each: benchmarks/gpu.sh PART
#
# Without PART it lists them.  A part writes its rows under benchmarks/results, or says where they
# are; `python -m benchmarks owed paid NUMBER` strikes what it pays.  A run that the limit stops goes
# on in the next call of its part.  With TINY=1 all is of a size that a CPU does in minutes, to see
# that it works; such rows go to $OUT.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=${LIMIT:-570} # s that a part may take
out=${OUT:-runs/gpu}
worlds=4096 steps=200000000 physics=mjx platforms=cuda,cpu on=() duel=(--only go1)
if [ "${TINY:-}" ]; then
    worlds=16 steps=20000 physics=native platforms=cpu on=(--results "$out")
    duel=(--only cheetah --duel-worlds 4 --duel-steps 2000 --pairs 1)
fi
export JAX_PLATFORMS=${JAX_PLATFORMS:-$platforms} XLA_PYTHON_CLIENT_PREALLOCATE=false
mkdir -p "$out"

may() { timeout --signal=TERM --kill-after=20 "$limit" python -m "$@"; }
walk() { # NAME ENV PHYSICS
    if [ -e "$out/$1/manifest.json" ]; then
        may experiments.walk --resume "$out/$1"
    else
        may experiments.walk --env "$2" --num-envs "$worlds" --steps "$steps" --physics "$3" --evals 20 --no-video --out "$out/$1"
    fi
}

case "${1:-}" in
seeds) may benchmarks.speed seeds "${on[@]}" ;;                               # 2: seeds of SAC side by side
offline) may benchmarks.speed offline --learners 10 "${on[@]}" ;;             # 12
go1) walk go1 go1-joystick-flat "$physics" ;;                                 # 7: return 26 within 5 minutes
go1-end) may benchmarks.walking "$out/go1" --kicked --name go1-joystick-flat/end ;;
go2) walk go2 go2-joystick-flat "$physics" ;;                                 # 8
go2-end) may benchmarks.walking "$out/go2" --kicked --name go2-joystick-flat/end ;;
batches) may benchmarks.speed large_batch --many "$worlds" --batch $((worlds * 8)) --rounds 200 "${on[@]}" ;; # 16
pictures) may pytest tests/test_warp_render.py -m "slow or not slow" ;;                     # 18
duel) may benchmarks.speed playground "${duel[@]}" "${on[@]}" ;;              # 20: beside MuJoCo Playground
go1-warp) walk go1-warp go1-joystick-flat warp ;;                             # 21: policies of one physics ...
crossing) may benchmarks.crossing "$out/go1" "$out/go1-warp" benchmarks/policies/go1-joystick-flat ;; # ... on each other
*)
    echo "benchmarks/gpu.sh PART, of:$(sed -n 's/^\([a-z0-9-]*\)) .*/ \1/p' "$0" | tr -d '\n')"
    [ -z "${1:-}" ] || exit 2
    ;;
esac
