#!/bin/sh
# Heads and neurons within a share of the FLOPs at 8 x 128, beside layers left out and beside magnitude; from a trained MiniLM.
#
#     WORK=/tmp/kheads-trained sh experiments/budgets/run.sh made
#     WORK=/tmp/kheads-trained DATA=folder/with/mnli sh experiments/budgets/run.sh mnli
#
# WORK has the trained models of experiments/trained/run.sh. A run whose result is in results/runs is skipped; in the end all
# of them are packed into results.jsonl.gz. SEEDS, SHARES and KINDS choose a part. The kinds `speed` and `far` ask for a
# measured speed-up (SPEEDS) of a batch (ATS) on two threads, which needs a machine that does nothing else meanwhile; `far` trains
# for 600 steps with the whole model as teacher. `parts` looks at ten budgets of heads alone and of both, without training, for
# figure.py, on such a machine, too. BF16=yes trains and evaluates in bfloat16. speeds.py measures what the results with a
# share of the FLOPs run at.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
task=$1
: "${WORK:?a folder with the trained models}"
RESULTS=${RESULTS:-$here/results}
mkdir -p "$RESULTS/runs"
precision=${BF16:+--set bf16=true}
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"

if [ "$task" = made ]; then
    train=$WORK/data/train.jsonl report=$WORK/data/report.jsonl rows=${ROWS:-1000}
else
    train=$DATA/train.jsonl.gz report=$DATA/dev_mismatched.jsonl.gz rows=${ROWS:-1500}
fi

run() { # name, seed, options...
    name=$task-$1-$2 seed=$2
    shift 2
    [ -e "$RESULTS/runs/$name.json" ] && return 0
    kheads prune "$WORK/$task-$seed" --train "$train" --eval "report=$report" --max-eval "$rows" --max-length 96 --batch-size 16 \
        --seed "$seed" $precision --overwrite -o "$WORK/run/$name" "$@"
    sed "s#$WORK/##g; s#${DATA:-$WORK}/#$task/#g" "$WORK/run/$name/result.json" > "$RESULTS/runs/$name.json"
    python "$here/shorten.py" "$RESULTS/runs/$name.json"
    rm -r "$WORK/run/$name"
}

wanted() { # kind
    case " ${KINDS:-surgeon heads layers magnitude dsp distil} " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}

for seed in ${SEEDS:-0 1 2}; do
    for share in ${SHARES:-50 33 67 20}; do
        wanted surgeon && run "surgeon-f$share" "$seed" --flops "$share%" --max-steps 200
        wanted magnitude && run "magnitude-f$share" "$seed" --flops "$share%" --max-steps 200 --distil \
            --method magnitude:Magnitude --uniform --no-repair
        wanted dsp && run "dsp-f$share" "$seed" --flops "$share%" --max-steps 200 --method dsp
        wanted distil && run "distil-f$share" "$seed" --flops "$share%" --max-steps 600 --distil
    done
    for less in ${SMALLER:-5 10 15}; do
        for parts in heads all; do
            wanted heads && run "$parts-s$less" "$seed" --smaller "$less%" --parts "$parts" --no-training
        done
    done
    for count in ${LAYERS:-3 2 4 1}; do
        mkdir -p "$here/layers"
        result=$here/layers/$task-$count-$seed.json
        if wanted layers && [ ! -e "$result" ]; then
            python "$here/layers.py" "$WORK/$task-$seed" "$count" 200 "$train" "$report" "$result" --seed "$seed" \
                --rows "$rows" ${BF16:+--bf16}
        fi
    done
    if wanted parts && [ ! -e "$here/parts/$task-$seed.json" ]; then
        mkdir -p "$here/parts"
        kheads preview "$WORK/$task-$seed" --train "$train" --eval "report=$report" --max-eval "$rows" --max-length 96 \
            --at 8x128 --seed "$seed" --json > "$WORK/parts.json"
        sed "s#$WORK/##g; s#${DATA:-$WORK}/#$task/#g" "$WORK/parts.json" > "$here/parts/$task-$seed.json"
    fi
    for at in ${ATS:-8x128 1x32}; do
        for speed in ${SPEEDS:-2 3 1.5 5}; do
            set -- --speedup "$speed" --at "$at" --set threads=2
            wanted speed && run "surgeon-x$speed-$at" "$seed" "$@" --max-steps 200
            wanted far && run "far-x$speed-$at" "$seed" "$@" --max-steps 600 --distil
        done
    done
done
kheads pack "$RESULTS" --overwrite
