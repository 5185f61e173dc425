#!/bin/sh
# Every method on real MNLI sentences with the embedded model: K = 12 of 72 heads, 600 steps of batch 32.
#
#     DATA=folder/with/mnli WORK=/tmp/kheads-mnli sh experiments/mnli_minilm/run.sh
#
# A run whose result is already in results/runs is skipped, so the script can be started again at any time; in the end all
# of them are packed into results.jsonl.gz. Michel and the pipelined run start from the unpruned model of the first run.
# Tune on "matched"; report "mismatched".
set -eu
here=$(dirname "$0")
: "${DATA:?the folder with train.jsonl.gz, dev_matched.jsonl.gz and dev_mismatched.jsonl.gz}"
: "${WORK:?a folder for the models}"
mkdir -p "$WORK" "$here/results/runs"

run() { # name, model, options...
    name=$1 model=$2
    shift 2
    [ -e "$here/results/runs/$name.json" ] && return 0
    kheads prune "$model" --train "$DATA/train.jsonl.gz" \
        --eval "matched=$DATA/dev_matched.jsonl.gz" --eval "mismatched=$DATA/dev_mismatched.jsonl.gz" --max-eval 3000 \
        --max-length 96 --batch-size 32 --max-steps 600 --lr 1e-4 --resume --overwrite \
        -o "$WORK/$name" "$@"
    sed "s#$DATA/#mnli/#g; s#$WORK/##g" "$WORK/$name/result.json" > "$here/results/runs/$name.json"
}

# The recipe for short budgets against prune-and-retrain in as many steps: three seeds decide.
contest() { # k, seed
    run "dsp-short-k$1-$2" minilm -k "$1" --method dsp --set preset=short --set few=0 --seed "$2"
    run "retrain-k$1-$2" minilm -k "$1" --method michel --set per_round=72 --set normalised=true --set estimate_examples=4000 \
        --max-steps 200 --recover-steps 400 --no-repair --seed "$2"
}

run none-0 minilm --method none --seed 0
contest 12 0
contest 6 0
run ste-k12-0 minilm -k 12 --method ste --seed 0
run michel-k12-0 "$WORK/none-0" -k 12 --method michel --trained --set estimate_examples=4000 --recover-steps 200 --no-repair --seed 0
run pipelined-k12-0 "$WORK/none-0" -k 12 --method dsp --set preset=paper --pipelined --trained --set gate_steps=200 --no-repair --seed 0
run dsp-paper-k12-0 minilm -k 12 --method dsp --set preset=paper --seed 0
run voita-k12-0 minilm -k 12 --method voita --seed 0
for seed in 1 2; do
    contest 12 "$seed"
    contest 6 "$seed"
done
kheads pack "$here/results" --overwrite
