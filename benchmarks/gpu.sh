#!/usr/bin/env bash
# What is owed to a GPU, in calls of under ten minutes each: benchmarks/gpu.sh PART
#
# Without PART it lists them.  All that they need is in the environment of `make .venv/.ready-dev`,
# and the extra cuda.  A part writes its rows under benchmarks/results, or says where they are;
# OWED.md says which parts pay what, and `python -m benchmarks owed paid NUMBER` strikes it.  What
# the limit (LIMIT=570, in seconds) stops goes on in the next call of its part, where it trains or
# makes data, from what lies under $OUT (runs/gpu).  With TINY=1 all is of a size that a CPU does
# in minutes, to see that it works; its rows go to $OUT.
set -euo pipefail
cd "$(dirname "$0")/.."

part=${1:-}
limit=${LIMIT:-570}
out=${OUT:-runs/gpu}
results=benchmarks/results data=data platforms=cuda,cpu physics=mjx worlds=4096 episodes=300 sets=10 cubes=100
crossed=() judged=() few=() walker=(--steps 200000000 --evals 20) pixels=(--seeds 5 --evals 10)
seeds=(--together 10 --only sac) batches=(--many 4096 --batch 32768 --rounds 200 --pairs 1)
learners=10 updates=(--pairs 3) short= duel=(--pairs 1)
fit=(--steps 50000 --seeds 3 --evals 5)
if [ "${TINY:-}" ]; then
    results=$out data=$out platforms=cpu physics=native worlds=4 episodes=2 sets=2 cubes=1
    crossed=(--physics native --episodes 2 --steps 100) judged=(--episodes 2)
    few=(--steps 400 --evals 1 --eval-episodes 1)
    walker=(--agent.hidden 32) pixels=(--env.pixels 32 --learning-starts 100) fit=()
    seeds=(--together 2 --only sac --pairs 1 --replay-steps 4000)
    batches=(--many 64 --batch 512 --rounds 10 --pairs 1)
    learners=2 updates=(--updates 20 --pairs 1)
    short=cartpole duel=(--duel-worlds 4 --duel-steps 2000 --pairs 1)
fi
export JAX_PLATFORMS=${JAX_PLATFORMS:-$platforms} XLA_PYTHON_CLIENT_PREALLOCATE=false
export JAX_COMPILATION_CACHE_DIR=$out/compiled # so that what was stopped has that behind it

needs() { # MODULE EXTRA
    python -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$1'))" && return
    echo "error: $part needs the extra $2: pip install --constraint constraints.txt --editable '.[$2]'" >&2
    exit 1
}
on_gpu() {
    python -c "import jax" 2> /dev/null || { echo "error: there is no python with jax: source .venv/bin/activate" >&2; exit 1; }
    [ "${TINY:-}" ] || python -c "import jax, sys; sys.exit(jax.default_backend() != 'gpu')" 2> /dev/null && return
    echo "error: JAX finds no GPU here (JAX_PLATFORMS=$JAX_PLATFORMS): nvidia-smi says whether there is one, and JAX takes it with the extra cuda" >&2
    exit 1
}
may() { # what python -m takes: while the call's time lasts
    local code=0 left=$((limit - SECONDS))
    timeout --foreground --signal=TERM --kill-after=20 $((left > 0 ? left : 1)) python -m "$@" || code=$?
    if [ $code = 124 ] || [ $code = 137 ]; then
        echo "$part was stopped after its $limit s. Said again, what it trains or makes goes on; LIMIT=SECONDS gives it longer." >&2
    fi
    return $code
}
go() { # NAME EXPERIMENT FLAGS: a run that is begun, or goes on
    if [ -e "$out/$1/manifest.json" ]; then
        may "experiments.$2" --resume "$out/$1"
    else
        may "experiments.$2" "${@:3}" "${few[@]}" --no-video --out "$out/$1"
    fi
}
ended() { # NAME: what is judged has trained to its end
    grep -qs '"status": "done"' "$out/$1/manifest.json" && return
    echo "error: $out/$1 has not trained to its end: benchmarks/gpu.sh $1 begins it, and goes on with it" >&2
    exit 1
}
told() { # NAME SUBJECT: what a run has come to, as records
    may benchmarks report "$out/$1" --out "$out/$1-report" --records "$results/$2.jsonl"
}
speed() { # GROUP, what of it
    may benchmarks.speed "$@" --results "$results"
}
offline() { # AGENT
    speed offline --only "$1/$learners-seeds" --learners "$learners" "${updates[@]}"
}
duel() { # PHYSICS
    needs mujoco_playground playground
    speed playground --only "${short:-go1-joystick-flat/$1}" "${duel[@]}"
}
walk() { # NAME, PHYSICS, ENV and its flags
    go "$1" walk --num-envs "$worlds" --physics "$2" --env "${@:3}" "${walker[@]}"
}
drq() { # NAME, ENV and its flags
    go "$1" drq --env "$2" --env.pixels 84 --physics native "${@:3}" "${pixels[@]}"
    told "$1" drq
}
made() { # FILE, what makes it: unless it is there
    [ -e "$1" ] || may "${@:2}" --out "$1"
}
export -f may made
export part limit
cube() { # sets made side by side, each of 4 GB of memory, and the one that they come to
    export JAX_PLATFORMS=cpu
    seq "$sets" | xargs -P "$sets" -I{} bash -c 'made "$0/cube-{}.npz" experiments.make_ogbench --episodes "$1" --seed {} > "$0/cube-{}.log"' "$out" "$cubes"
    [ -e "$out/cube.npz" ] || may rl.data join "$out/cube.npz" "$out"/cube-*.npz
}
hopper() { # data and what ten critics learn of them, where the suite looks for both
    local data=$data/Hopper-v5-medium.npz name=calql-10-Hopper-v5
    made "$data" experiments.make_data --env Hopper-v5 --by benchmarks/policies/hopper-medium --episodes "$episodes"
    go $name offline --agent cql --agent.calibrated --agent.critics 10 --agent.subset 2 --agent.layer-norm \
        --agent.actions 4 --env Hopper-v5 --physics native --data "$data" "${fit[@]}"
    [ "${TINY:-}" ] || [ -e runs/$name ] || ln -s "$(realpath "$out/$name")" runs/$name
}
sweep() { # SUITE SEEDS JOBS, what of it
    if [ "${TINY:-}" ]; then
        may benchmarks run "$1" --seeds "$2" --jobs "$3" --only "${@:4}" --dry-run
        set -- smoke 1 0
    fi
    may benchmarks run "$1" --runs "$out" --seeds "$2" --jobs "$3" --only "${@:4}"
    may benchmarks report "$1" --runs "$out" --records "$results/$1.jsonl"
}

if [[ ! $limit =~ ^[1-9][0-9]*$ ]]; then
    echo "error: LIMIT is '$limit'; it takes a number of seconds" >&2
    exit 2
fi
if [ $# -gt 1 ] || [[ $part = *" "* ]]; then
    echo "error: '$*' are several parts; it takes one" >&2
    exit 2
fi
parts=$(sed -n 's/^\([a-z0-9-]*\)) .*/ \1/p' "$0" | tr -d '\n')
case "$parts " in
*" $part "*) on_gpu && mkdir -p "$out" "$data" runs ;;
*)
    [ -z "$part" ] || echo "error: there is no part $part" >&2
    echo "benchmarks/gpu.sh PART, of:$parts"
    [ -z "$part" ] && exit || exit 2
    ;;
esac

case "$part" in
seeds) speed seeds "${seeds[@]}" ;; # of SAC, side by side
offline-iql) offline iql ;;
offline-td3bc) offline td3bc ;;
offline-cql) offline cql ;;
batches) speed large_batch "${batches[@]}" ;;
duel-mjx) duel mjx ;;
duel-warp) needs warp warp && duel warp ;;
pictures) needs pytest dev && may pytest tests/test_warp_render.py -m "slow or not slow" ;;
go1) walk go1 "$physics" go1-joystick-flat --env.curriculum-on ;; # return 26 within 5 minutes
go1-end) ended go1 && may benchmarks.walking "$out/go1" --kicked --name go1-joystick-flat/end --target 26 "${judged[@]}" --results "$results/walking.jsonl" ;;
go2) walk go2 "$physics" go2-joystick-flat ;;
go2-end) ended go2 && may benchmarks.walking "$out/go2" --kicked --name go2-joystick-flat/end --target 26 "${judged[@]}" --results "$results/walking.jsonl" ;;
rough) walk rough "$physics" go2-joystick-rough ;;
rough-end) ended rough && may benchmarks.walking "$out/rough" --level 4 --name go2-joystick-rough/8cm "${judged[@]}" --results "$results/walking.jsonl" ;;
go1-warp) needs warp warp && walk go1-warp warp go1-joystick-flat --env.curriculum-on ;; # policies of one physics, on another's
crossing) ended go1 && ended go1-warp && may benchmarks.crossing "$out/go1" "$out/go1-warp" benchmarks/policies/go1-joystick-flat "${crossed[@]}" --results "$results/crossing.jsonl" ;;
crossq) sweep published 0 0 crossq crossq-1M ;;
simbav2) sweep published 0 0 simbav2 simbav2-1M ;;
large) sweep large_batch_gpu 1 1 fast_td3 fast_sac walk ;; # beside PPO, until a return of 26
hopper) hopper ;;
hopper-end) sweep offline_to_online 0 0 Hopper-v5 wsrl-10 calql-10 ;;
cube) needs ogbench ogbench && cube ;;
cube-end) go cube-fql fql --env ogbench:cube-single-singletask-v0 --data "$out/cube.npz" --steps 1000000 --evals 5 --eval-episodes 50 && told cube-fql cube ;;
drq-cartpole) drq drq-cartpole dmc-cartpole-swingup --env.repeat 8 --steps 12500 ;;
drq-reacher) drq drq-reacher dmc-reacher-hard --env.target-size 0.05 --env.repeat 4 --steps 25000 ;;
drq-walker) drq drq-walker dmc-walker-walk --env.repeat 2 --steps 50000 ;;
esac
