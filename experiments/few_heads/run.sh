#!/bin/sh
# Joint DSP with few heads: the others leave earlier than in the preset `short`, so that more steps are left for those that stay.
#
#     WORK=/tmp/kheads-few sh experiments/few_heads/run.sh
#
# Everything but the schedule is as in experiments/made_nli.toml. A run whose result is there is skipped.
set -eu
here=$(dirname "$0")
: "${WORK:?a folder for the models}"
RESULTS=${RESULTS:-$here/results}
mkdir -p "$WORK" "$RESULTS"
for k in 1 3 12; do
    for seed in 0 1; do
        [ -e "$RESULTS/k$k-$seed.json" ] && continue
        kheads prune minilm -k "$k" --task made-nli --max-steps 280 --warmup-steps 28 --batch-size 32 --lr 2e-4 \
            --warmup 0.2 --budget-cooldown 0.15 --cooldown 0.15 --noise-cooldown 0.35 --seed "$seed" --overwrite \
            -o "$WORK/k$k-$seed"
        cp "$WORK/k$k-$seed/result.json" "$RESULTS/k$k-$seed.json"
    done
done
