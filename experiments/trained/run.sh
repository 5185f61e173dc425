#!/bin/sh
# From a trained model: what choose, cut, repair and 200 further steps keep, beside prune-and-retrain and joint DSP.
#
#     WORK=/tmp/kheads-trained sh experiments/trained/run.sh made
#     WORK=/tmp/kheads-trained DATA=folder/with/mnli ROWS=1500 BF16=yes RESULTS=experiments/trained/mnli \
#         sh experiments/trained/run.sh mnli
#     WORK=/tmp/kheads-trained sh experiments/trained/run.sh fresh
#
# A run whose result is already in results/runs is skipped, so the script can be started again at any time; in the end all
# of them are packed into results.jsonl.gz, or beside RESULTS. SEEDS, KS, METHODS and EXTRAS choose a part. The runs of
# `surgeon` have the metrics after the cut and after the repair, too, which is what --no-training gives. `further` has
# the unpruned model beside it, trained on for as many steps. BF16=yes trains and evaluates in bfloat16, which some
# processors do more than twice as fast. What was tuned was tuned on other rows: made_files.py has some, and MNLI the
# matched ones. `fresh` starts from the pretrained model, with as many steps in all as the runs of
# experiments/made_nli.toml, whose retrain has two seeds.
set -eu
here=$(dirname "$0")
task=$1
: "${WORK:?a folder for the models}"
RESULTS=${RESULTS:-$here/results}
mkdir -p "$WORK" "$RESULTS/runs"
precision=${BF16:+--set bf16=true}

if [ "$task" = fresh ]; then
    for seed in ${SEEDS:-0 1 2}; do
        for k in ${KS:-12 24 6 3}; do
            for method in ${METHODS-surgeon retrain}; do
                name=fresh-$method-k$k-$seed
                [ -e "$RESULTS/runs/$name.json" ] && continue
                case $method in surgeon) set -- --fresh ;; retrain) set -- --no-repair --set estimate_examples=512 ;; esac
                kheads prune minilm -k "$k" --task made-nli --max-steps 280 --set warmup_steps=28 --batch-size 32 --lr 2e-4 \
                    --method "$method" --seed "$seed" --overwrite -o "$WORK/run/$name" "$@"
                cp "$WORK/run/$name/result.json" "$RESULTS/runs/$name.json"
                rm -r "$WORK/run/$name"
            done
        done
    done
    kheads pack "$RESULTS" --overwrite
    exit
elif [ "$task" = made ]; then
    [ -e "$WORK/data/report.jsonl" ] || python "$here/made_files.py" "$WORK/data"
    set -- --train "$WORK/data/train.jsonl" --eval "report=$WORK/data/report.jsonl" --max-eval "${ROWS:-1000}"
else
    set -- --train "$DATA/train.jsonl.gz" --eval "mismatched=$DATA/dev_mismatched.jsonl.gz" --max-length 96 \
        --max-eval "${ROWS:-2000}"
fi

teacher() { # seed, data...
    seed=$1
    shift
    [ -e "$WORK/$task-$seed/result.json" ] && return 0
    if [ "$task" = made ]; then
        kheads prune minilm --method none --task made-nli --max-steps 800 --set warmup_steps=80 --lr 2e-4 \
            --seed "$seed" --resume -o "$WORK/$task-$seed"
    else
        kheads prune minilm --method none "$@" --max-steps 600 --lr 1e-4 --seed "$seed" $precision --resume \
            -o "$WORK/$task-$seed"
    fi
}

run() { # name, seed, options...
    name=$task-$1-$2 seed=$2
    shift 2
    [ -e "$RESULTS/runs/$name.json" ] && return 0
    kheads prune "$WORK/$task-$seed" "$@" --batch-size 16 --max-steps 200 --seed "$seed" $precision --overwrite \
        -o "$WORK/run/$name"
    sed "s#$WORK/##g; s#${DATA:-$WORK}/#$task/#g" "$WORK/run/$name/result.json" > "$RESULTS/runs/$name.json"
    rm -r "$WORK/run/$name"
}

for seed in ${SEEDS:-0 1 2}; do
    teacher "$seed" "$@"
    for k in ${KS-12 24 6 36 3}; do
        for method in ${METHODS-surgeon retrain dsp}; do
            case $method in
            surgeon) run "surgeon-k$k" "$seed" "$@" -k "$k" --method surgeon ;;
            retrain) run "retrain-k$k" "$seed" "$@" -k "$k" --method retrain --no-repair ;;
            dsp) run "dsp-short-k$k" "$seed" "$@" -k "$k" --method dsp --no-repair ;;
            esac
        done
    done
    for extra in ${EXTRAS-further dsp michel distil}; do
        case $extra in
        further) run "further-k36" "$seed" "$@" -k 36 --method surgeon --baseline ;;
        dsp) run "dsp-k12" "$seed" "$@" -k 12 --method dsp ;;
        michel) run "michel-k12" "$seed" "$@" -k 12 --method michel --recover-steps 200 ;;
        distil) run "surgeon-distil-k12" "$seed" "$@" -k 12 --method surgeon --distil ;;
        esac
    done
done
kheads pack "$RESULTS" --overwrite
