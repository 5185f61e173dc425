#!/bin/sh
# MiniLM's embeddings at 1.5, 2 and 3 times its speed at 8 x 128, beside layers left out; Spearman on scored pairs.
#
#     WORK=/tmp/kheads-embedding TEXTS=texts.txt DATA=folder/with/stsb sh experiments/embedding/run.sh
#
# TEXTS has sentences to learn from, one a line and of another kind than those that are judged: premises and hypotheses of the
# first 6,000 rows of MNLI. DATA has dev.jsonl.gz with sentence1, sentence2 and score. A run whose result is in results/runs or layers is
# skipped; in the end the runs are packed into results.jsonl.gz. Every run has the model cut, repaired and trained on for
# STEPS steps in its record. SEEDS, SPEEDS, LAYERS and KINDS choose a part. Speeds are measured on two threads, so the machine should do
# nothing else meanwhile.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${WORK:?a folder to work in}" "${DATA:?a folder with dev.jsonl.gz}" "${TEXTS:?a file of sentences}"
RESULTS=${RESULTS:-$here/results}
STEPS=${STEPS:-300}
MODEL=${MODEL:-minilm}
mkdir -p "$RESULTS/runs" "$here/layers" "$WORK"

wanted() { # kind
    case " ${KINDS:-surgeon layers} " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}

for seed in ${SEEDS:-0 1 2}; do
    for speed in ${SPEEDS:-1.5 2 3}; do
        name=surgeon-x$speed-$seed
        if wanted surgeon && [ ! -e "$RESULTS/runs/$name.json" ]; then
            kheads prune "$MODEL" --set threads=2 --task embed --train "$TEXTS" --eval "sts=$DATA/dev.jsonl.gz" \
                --speedup "$speed" --at 8x128 --max-steps "$STEPS" --seed "$seed" --overwrite -o "$WORK/$name"
            sed "s#$WORK/##g; s#$DATA/#stsb/#g; s#$TEXTS#texts.txt#g" "$WORK/$name/result.json" > "$RESULTS/runs/$name.json"
            python "$here/../budgets/shorten.py" "$RESULTS/runs/$name.json"
            rm -r "$WORK/$name"
        fi
    done
    for count in ${LAYERS:-4 3 2}; do
        result=$here/layers/minilm-$count-$seed.json
        if wanted layers && [ ! -e "$result" ]; then
            python "$here/layers.py" "$MODEL" "$count" "$STEPS" "$TEXTS" "$DATA/dev.jsonl.gz" "$result" "$seed"
        fi
    done
done
kheads pack "$RESULTS" --overwrite
