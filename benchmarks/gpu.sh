#!/usr/bin/env bash
# What is owed to a GPU, in calls of under ten minutes each: benchmarks/gpu.sh PART
#
# Without PART it lists them.  All that they need is in the environment of `make .venv/.ready-dev`,
# and the extra cuda.  A part writes its rows under benchmarks/results, or says where they are;
# `python -m benchmarks owed paid NUMBER` strikes what it pays.  A run that the limit (LIMIT=570, in
# seconds) stops goes on in the next call of its part.  With TINY=1 all is of a size that a CPU does
# in minutes, to see that it works; such rows go to $OUT (runs/gpu).
set -euo pipefail
cd "$(dirname "$0")/.."

part=${1:-}
limit=${LIMIT:-570}
out=${OUT:-runs/gpu}
worlds=4096 physics=mjx platforms=cuda,cpu train=(--steps 200000000 --evals 20) duel=(--only go1)
batches=(--many 4096 --batch 32768 --rounds 200) seeds=() rows=() judged=() crossed=()
if [ "${TINY:-}" ]; then
    worlds=4 physics=native platforms=cpu train=(--steps 400 --evals 1 --eval-episodes 1 --agent.hidden 32)
    seeds=(--pairs 1 --steps 50000 --replay-steps 4000)
    batches=(--many 64 --batch 512 --rounds 10 --pairs 1) rows=(--results "$out")
    judged=(--episodes 2 --results "$out/walking.jsonl")
    crossed=(--physics native --episodes 2 --steps 100 --results "$out/crossing.jsonl")
    duel=(--only cartpole --duel-worlds 4 --duel-steps 2000 --pairs 1)
fi
export JAX_PLATFORMS=${JAX_PLATFORMS:-$platforms} XLA_PYTHON_CLIENT_PREALLOCATE=false

needs() { # MODULE EXTRA
    python -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$1'))" && return
    echo "error: $part needs the extra $2: pip install --constraint constraints.txt --editable '.[$2]'" >&2
    exit 1
}
on_gpu() {
    [ "${TINY:-}" ] || python -c "import jax, sys; sys.exit(jax.default_backend() != 'gpu')" && return
    echo "error: JAX finds no GPU here (JAX_PLATFORMS=$JAX_PLATFORMS): nvidia-smi says whether there is one, and JAX takes it with the extra cuda" >&2
    exit 1
}
may() { # what python -m takes
    local code=0
    on_gpu
    mkdir -p "$out"
    timeout --signal=TERM --kill-after=20 "$limit" python -m "$@" || code=$?
    if [ $code = 124 ] || [ $code = 137 ]; then
        echo "$part was stopped after its $limit s. Said again, a run that it trains goes on; LIMIT=SECONDS gives it longer." >&2
    fi
    return $code
}
walk() { # NAME ENV PHYSICS
    if [ -e "$out/$1/manifest.json" ]; then
        may experiments.walk --resume "$out/$1"
    else
        may experiments.walk --env "$2" --num-envs "$worlds" --physics "$3" "${train[@]}" --no-video --out "$out/$1"
    fi
}

case "$part" in
seeds) may benchmarks.speed seeds "${seeds[@]}" "${rows[@]}" ;;                       # 2: seeds of SAC side by side
offline) may benchmarks.speed offline --learners 10 "${rows[@]}" ;;                   # 12
go1) walk go1 go1-joystick-flat "$physics" ;;                                         # 7: return 26 within 5 minutes
go1-end) may benchmarks.walking "$out/go1" --kicked --name go1-joystick-flat/end "${judged[@]}" ;;
go2) walk go2 go2-joystick-flat "$physics" ;;                                         # 8
go2-end) may benchmarks.walking "$out/go2" --kicked --name go2-joystick-flat/end "${judged[@]}" ;;
batches) may benchmarks.speed large_batch "${batches[@]}" "${rows[@]}" ;;             # 16
pictures) needs pytest dev && may pytest tests/test_warp_render.py -m "slow or not slow" ;; # 18
duel) needs mujoco_playground playground && may benchmarks.speed playground "${duel[@]}" "${rows[@]}" ;; # 20
go1-warp) needs warp warp && walk go1-warp go1-joystick-flat warp ;;                  # 21: policies of one physics ...
crossing) may benchmarks.crossing "$out/go1" "$out/go1-warp" benchmarks/policies/go1-joystick-flat "${crossed[@]}" ;;
*)
    [ -z "$part" ] || echo "error: there is no part $part" >&2
    echo "benchmarks/gpu.sh PART, of:$(sed -n 's/^\([a-z0-9-]*\)) .*/ \1/p' "$0" | tr -d '\n')"
    [ -z "$part" ] || exit 2
    ;;
esac
