#!/bin/sh
# Joint DSP by how many heads stay: chosen early, by 35 % of the steps, or late, by 65 %.
#
#     WORK=/tmp/kheads-few sh experiments/few_heads/run.sh
#
# Everything but the schedule is as in experiments/made_nli.toml, whose runs of seeds 0 and 1 are the late ones. A run whose
# result is in results/runs is skipped; in the end all of them are packed into results.jsonl.gz.
set -eu
here=$(dirname "$0")
: "${WORK:?a folder for the models}"
RESULTS=${RESULTS:-$here/results}
mkdir -p "$WORK" "$RESULTS/runs"

run() { # name, k, seed, options...
    name=$1 k=$2 seed=$3
    shift 3
    [ -e "$RESULTS/runs/$name.json" ] && return 0
    kheads prune minilm -k "$k" --task made-nli --max-steps 280 --set warmup_steps=28 --batch-size 32 --lr 2e-4 \
        --method dsp --set few=0 --seed "$seed" --overwrite -o "$WORK/$name" "$@"
    cp "$WORK/$name/result.json" "$RESULTS/runs/$name.json"
    rm -r "${WORK:?}/$name"
}

for k in ${KS:-1 3 6 12 24}; do
    for seed in 0 1 2; do
        run "k$k-$seed" "$k" "$seed" \
            --set warmup=0.2 --set budget_cooldown=0.15 --set cooldown=0.15 --set noise_cooldown=0.35
    done
    run "late-k$k-2" "$k" 2
done
kheads pack "$RESULTS" --overwrite
