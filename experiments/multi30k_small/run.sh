#!/bin/sh
# German to English on Multi30k with the size `small` (6+6 layers, 72 heads): unpruned, and K = 12.
#
#     DATA=folder/with/multi30k WORK=/tmp/kheads-multi30k sh experiments/multi30k_small/run.sh
#     DATA=folder/with/multi30k WORK=/tmp/kheads-multi30k sh experiments/multi30k_small/run.sh trained
#
# `trained` cuts the unpruned model of seed 0, repairs it and trains it for 500 further steps; SEEDS are those of the cut,
# and METHODS chooses a part.
# A run whose result is already in results/runs is skipped, so the script can be started again at any time; in the end all
# of them are packed into results.jsonl.gz. Michel and the pipelined run start from the unpruned model of the first run.
# Tune on "val"; report "test2016". STEPS and MAX_EVAL are there to try the script out.
set -eu
here=$(dirname "$0")
: "${DATA:?the folder with train.de.gz, train.en.gz, val.de.gz, val.en.gz, test2016.de.gz and test2016.en.gz}"
: "${WORK:?a folder for the models}"
RESULTS=${RESULTS:-$here/results}
STEPS=${STEPS:-4000}
GATE_STEPS=${GATE_STEPS:-500} # one epoch
PAIRS=${PAIRS:-2000}
mkdir -p "$WORK" "$RESULTS/runs"

run() { # name, model, options...
    name=$1 model=$2
    shift 2
    [ -e "$RESULTS/runs/$name.json" ] && return 0
    kheads prune "$model" --task translation --set "train_source=$DATA/train.de.gz" --set "train_target=$DATA/train.en.gz" \
        --set "eval_source=val=$DATA/val.de.gz" --set "eval_target=val=$DATA/val.en.gz" \
        --set "eval_source=test2016=$DATA/test2016.de.gz" --set "eval_target=test2016=$DATA/test2016.en.gz" \
        ${MAX_EVAL:+--max-eval "$MAX_EVAL"} \
        --set batch_tokens=1024 --max-steps "$STEPS" --lr 2e-3 --set lr_schedule=linear --set warmup_steps=400 \
        --set save_steps=500 --resume --overwrite -o "$WORK/$name" "$@"
    sed "s#$DATA/#multi30k/#g; s#$WORK/##g" "$WORK/$name/result.json" > "$RESULTS/runs/$name.json"
}

further() { # name, options...
    name=$1
    shift
    [ -e "$RESULTS/runs/$name.json" ] && return 0
    kheads prune "$WORK/none-0" -k 12 --task translation \
        --set "train_source=$DATA/train.de.gz" --set "train_target=$DATA/train.en.gz" \
        --set "eval_source=${EVAL:-test2016}=$DATA/${EVAL:-test2016}.de.gz" \
        --set "eval_target=${EVAL:-test2016}=$DATA/${EVAL:-test2016}.en.gz" \
        ${MAX_EVAL:+--max-eval "$MAX_EVAL"} \
        --set batch_tokens=1024 --max-steps "${FURTHER:-500}" --lr 2e-3 --set lr_schedule=linear --set warmup_steps=50 \
        --overwrite -o "$WORK/$name" "$@"
    sed "s#$DATA/#multi30k/#g; s#$WORK/##g" "$WORK/$name/result.json" > "$RESULTS/runs/$name.json"
    rm -r "${WORK:?}/$name"
}

if [ "${1:-}" = trained ]; then
    run none-0 small --set vocab_size=6000 --method none --seed 0
    for seed in ${SEEDS:-0 1 2}; do
        for method in ${METHODS:-surgeon retrain dsp}; do
            case $method in
            surgeon) further "trained-surgeon-$seed" --method surgeon --set repair_examples=2048 --seed "$seed" ;;
            retrain) further "trained-retrain-$seed" --method retrain --no-repair --seed "$seed" ;;
            dsp) further "trained-dsp-short-$seed" --method dsp --set preset=short --no-repair --seed "$seed" ;;
            esac
        done
    done
    kheads pack "$RESULTS" --overwrite
    exit
fi

seed=${SEED:-0}
run "none-$seed" small --set vocab_size=6000 --method none --seed "$seed"
run "dsp-short-$seed" small --set vocab_size=6000 -k 12 --method dsp --set preset=short --seed "$seed"
run "retrain-$seed" small --set vocab_size=6000 -k 12 --method retrain --no-repair --set "estimate_examples=$PAIRS" --seed "$seed"
run "pipelined-$seed" "$WORK/none-$seed" -k 12 --method dsp --pipelined --trained --set "gate_steps=$GATE_STEPS" --no-repair --seed "$seed"
run "pipelined-frozen-$seed" "$WORK/none-$seed" -k 12 --method dsp --set preset=frozen --pipelined --trained \
    --set "gate_steps=$GATE_STEPS" --no-repair --seed "$seed"
run "michel-$seed" "$WORK/none-$seed" -k 12 --method michel --trained --no-repair --set "estimate_examples=$PAIRS" --seed "$seed"
run "dsp-$seed" small --set vocab_size=6000 -k 12 --method dsp --seed "$seed"
run "ste-$seed" small --set vocab_size=6000 -k 12 --method ste --seed "$seed"
run "voita-$seed" small --set vocab_size=6000 -k 12 --method voita --seed "$seed"
kheads pack "$RESULTS" --overwrite
