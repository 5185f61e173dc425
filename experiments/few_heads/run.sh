#!/bin/sh
# Joint DSP with few heads: the others leave earlier than in the preset `short`, so that more steps are left for those that stay.
#
#     WORK=/tmp/kheads-few sh experiments/few_heads/run.sh
#
# Everything but the schedule is as in experiments/made_nli.toml. A run whose result is in results/runs is skipped; in the
# end all of them are packed into results.jsonl.gz.
set -eu
here=$(dirname "$0")
: "${WORK:?a folder for the models}"
RESULTS=${RESULTS:-$here/results}
mkdir -p "$WORK" "$RESULTS/runs"
for k in 1 3 12; do
    for seed in 0 1; do
        [ -e "$RESULTS/runs/k$k-$seed.json" ] && continue
        kheads prune minilm -k "$k" --task made-nli --max-steps 280 --set warmup_steps=28 --batch-size 32 --lr 2e-4 \
            --set warmup=0.2 --set budget_cooldown=0.15 --set cooldown=0.15 --set noise_cooldown=0.35 \
            --seed "$seed" --overwrite -o "$WORK/k$k-$seed"
        cp "$WORK/k$k-$seed/result.json" "$RESULTS/runs/k$k-$seed.json"
    done
done
kheads pack "$RESULTS" --overwrite
