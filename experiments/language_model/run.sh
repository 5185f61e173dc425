#!/bin/sh
# SmolLM2-135M on WikiText-2 without training: key-value groups 90 -> 75, 60, 45, and heads and neurons within a share of the
# parameters, before and after the repair. Embeddings are 21 % of the parameters, so SMALLER of 8, 16 and 24 is 10, 20 and 30 % of the
# layers'.
#
#     MODEL=folder/of/smollm2 DATA=folder/with/wikitext2 WORK=/tmp/kheads-smollm2 sh experiments/language_model/run.sh
#
# `smollm2.py` makes the model's folder. A run whose result is already in results/runs is skipped; in the end all of them are
# packed into results.jsonl.gz. SEEDS, KS, METHODS and SMALLER choose a part. The training text is used without labels of any kind; blocks of 256 tokens.
set -eu
here=$(dirname "$0")
: "${MODEL:?the folder of the model}"
: "${DATA:?the folder with train.txt.gz and dev.txt.gz}"
: "${WORK:?a folder for the models}"
RESULTS=${RESULTS:-$here/results}
mkdir -p "$WORK" "$RESULTS/runs"

run() { # name, options...
    name=$1
    shift
    [ -e "$RESULTS/runs/$name.json" ] && return 0
    kheads prune "$MODEL" --task clm --train "$DATA/train.txt.gz" --eval "$DATA/dev.txt.gz" --max-length 256 \
        --max-eval 40 --batch-size 4 --no-training --set estimate_examples=32 --overwrite -o "$WORK/$name" "$@"
    sed "s#$DATA/#wikitext2/#g; s#$WORK/##g; s#$MODEL#smollm2#g" "$WORK/$name/result.json" > "$RESULTS/runs/$name.json"
    python "$here/../budgets/shorten.py" "$RESULTS/runs/$name.json"
    rm -r "${WORK:?}/$name"
}

for seed in ${SEEDS:-0 1 2}; do
    for k in ${KS-75 60 45}; do
        for method in ${METHODS:-surgeon michel random}; do
            case $method in
            surgeon) run "surgeon-k$k-$seed" -k "$k" --seed "$seed" --set repair_examples=64 ;;
            michel) run "michel-k$k-$seed" -k "$k" --method michel --set per_round=90 --seed "$seed" --set repair_examples=64 ;;
            random) run "random-k$k-$seed" -k "$k" --method random --seed "$seed" --set repair_examples=64 ;;
            esac
        done
    done
    for less in ${SMALLER-8 16 24}; do
        run "surgeon-s$less-$seed" --smaller "$less%" --seed "$seed" --set repair_examples=64
    done
done
kheads pack "$RESULTS" --overwrite
