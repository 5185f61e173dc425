#!/bin/sh
# Other ways to choose 12 heads of a trained model on rows that are not reported, 200 steps of batch 16, seed 0.
#
#     WORK=/tmp/kheads-trained sh experiments/trained/choosing.sh
#
# Needs the files and the trained model that `run.sh made` puts in WORK. Prints the metrics of each; nothing is packed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${WORK:?the folder of run.sh}"
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
OUT=$WORK/choosing
mkdir -p "$OUT"

run() { # name, model, k, options...
    name=$1 model=$2 k=$3
    shift 3
    [ -e "$OUT/$name/result.json" ] || kheads prune "$model" --train "$WORK/data/train.jsonl" \
        --eval "tune=$WORK/data/tune.jsonl" -k "$k" --batch-size 16 --seed 0 --overwrite -o "$OUT/$name" "$@"
    python -c "import json, sys
found = json.load(open(sys.argv[1]))['metrics']
print(sys.argv[2], {stage: value['tune']['accuracy'] for stage, value in found.items()}, flush=True)" \
        "$OUT/$name/result.json" "$name"
}

whole=$WORK/made-0
run surgeon "$whole" 12 --method surgeon --max-steps 200
run dsp "$whole" 12 --method dsp --max-steps 200
run gradients "$whole" 12 --method retrain --no-training
run from-gradients "$whole" 12 --method choosing:FromScores --set "scores_of=$OUT/gradients/result.json" --max-steps 200
run simple "$whole" 12 --method choosing:Simple --max-steps 200
run surgeon-24 "$whole" 24 --method surgeon --no-training
run on-the-repaired "$OUT/surgeon-24" 12 --method dsp --max-steps 200
