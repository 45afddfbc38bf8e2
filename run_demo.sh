#!/usr/bin/env bash
# Fine-tunes albert_mini, which comes with the package, on the messages of examples/, shows the
# scores of each topic, names the topics of three more messages, and writes a report.
#
#   ./run_demo.sh
#   ./run_demo.sh --from_nothing
#
# --from_nothing shows the whole way without any data or model at hand: it makes a small corpus, GLUE
# tasks and questions in an artificial language, trains a vocabulary, pre-trains a tiny model,
# fine-tunes it on the tasks, predicts, exports and asks. Both print scores and fail if one is not
# clearly above chance.
#
# Everything goes to ./demo_output (DEMO_DIR in the environment names another folder) and stays
# there; running it again resumes. Ctrl-C stops it at once. Uses PYTHON if set,
# else the active virtual environment, else .venv (made here, which takes a few minutes once).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit
source .ci/functions.sh

demo=own_texts extras='[plots]'
if [[ $# -eq 1 && $1 == --from_nothing ]]; then
  demo=from_nothing extras=''
elif [[ $# -gt 0 ]]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' run_demo.sh
  [[ $1 == --help || $1 == -h ]]
  exit
fi
out=${DEMO_DIR:-demo_output}
mkdir -p "$out/logs" || exit
set_up_python "$PWD" "$extras" || exit
stop_on_signals
step_number=0 failed=0

# step TEXT COMMAND…: runs one step; its output goes to a log, which is shown if it fails.
step() {
  local text=$1 log started=$SECONDS
  shift
  step_number=$((step_number + 1))
  log=$out/logs/$demo-$step_number.log
  printf '%d of %d. %s ... ' "$step_number" "$num_steps" "$text"
  if run_logged "$log" "$PYTHON" -m "$@"; then
    echo "$((SECONDS - started)) s"
  elif [[ -n $INTERRUPTED ]]; then
    echo "interrupted; the same command resumes here"
    exit "$INTERRUPTED"
  else
    printf 'failed; the end of %s:\n' "$log"
    tail -n 20 "$log"
    exit 1
  fi
}

# check NAME SCORE CHANCE NEEDED: one line of the table.
check() {
  local verdict=ok
  awk -v score="$2" -v needed="$4" 'BEGIN { exit !(score >= needed) }' || verdict='too low' failed=1
  printf '%-34s %8.3f %8s %8s   %s\n' "$1" "$2" "$3" "$4" "$verdict"
}

best_of() { # folder: the best value of the metric that picks checkpoints
  cut -d: -f3 "$1/best_trial.txt"
}

own_texts() {
  local run=$out/topics
  num_steps=3
  step "Fine-tuning albert_mini on 80 messages" albert.run_classifier --task_name=custom \
    --train_file=examples/messages_train.csv --validation_file=examples/messages_dev.csv \
    --text_column=message --label_column=topic --init_checkpoint=albert_mini --output_dir="$run" \
    --do_train --do_eval --learning_rate=1e-4 --train_step=40 --warmup_step=4 \
    --save_checkpoints_steps=20
  step "Naming the topics of three messages" albert.predict --model_dir="$run" --with_text \
    --input_file=examples/messages_new.txt --output_file="$out/answers.tsv"
  step "Writing a report" albert.report --runs="$run" --output="$out/topics.html"
  printf '\n%-34s %8s %8s %8s\n' 'on 32 messages not seen in training' score chance needed
  check 'topic: accuracy' "$(best_of "$run")" 0.25 0.70
  echo
  "$PYTHON" -c '
import json, sys
for topic in json.load(open(sys.argv[1]))["classes"]:
    print("  {name:9} {right} of {labels} found, predicted {predictions} times".format(**topic))
' "$run/run.json"
  printf '\nThree more messages:\n'
  awk -F '\t' 'NR > 1 { printf "  %-9s %s\n", $2, $NF }' "$out/answers.tsv"
  cat <<END

The report is $out/topics.html, the model is $run, the logs are in $out/logs.
It took $((SECONDS / 60)) min $((SECONDS % 60)) s. Next:
  $PYTHON -m albert.serve --model_dir=$run      (needs pip install '.[serve]')
  docs/own_data.md: the same with your own texts
  ./run_demo.sh --from_nothing: pre-training and other tasks
END
}

if [[ $demo == own_texts ]]; then
  own_texts
  exit "$failed"
fi

data=$out/data model=$out/model records=$out/records
mkdir -p "$model" "$records" || exit
num_steps=$(grep -cE '^(step|make_records|fine_tune) ' "${BASH_SOURCE[0]}")

make_records() { # split, passes over the text
  step "Making records of $1.txt" albert.create_pretraining_data \
    --input_file="$data/corpus/$1.txt" --output_file="$records/$1.tf_record" \
    --spm_model_file="$model/demo.model" --max_seq_length=64 --max_predictions_per_seq=10 \
    --dupe_factor="$2"
}

fine_tune() { # task, steps, further flags
  step "Fine-tuning on $1" albert.run_classifier --task_name="$1" --data_dir="$data/glue" \
    --output_dir="$out/$1" --init_checkpoint="$model" --do_train --do_eval --do_predict \
    --max_seq_length=64 --eval_batch_size=64 --predict_batch_size=64 --learning_rate=5e-4 \
    --train_step="$2" --warmup_step=40 --save_checkpoints_steps="$2" "${@:3}"
}

step "Making a corpus, tasks and questions" albert.make_demo_data --output_dir="$data"
step "Training a vocabulary" albert.train_vocab --input_file="$data/corpus/train.txt" \
  --output_prefix="$model/demo" --vocab_size=160
make_records train 5
make_records heldout 2
cat >"$model/albert_config.json" <<'END'
{
  "vocab_size": 160,
  "embedding_size": 64,
  "hidden_size": 128,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "intermediate_size": 256,
  "max_position_embeddings": 64,
  "initializer_range": 0.05
}
END
step "Pre-training a tiny model" albert.run_pretraining \
  --albert_config_file="$model/albert_config.json" --input_file="$records/train.tf_record" \
  --eval_input_file="$records/heldout.tf_record" --output_dir="$model" --do_train --do_eval \
  --max_seq_length=64 --max_predictions_per_seq=10 --train_batch_size=32 --optimizer=adamw \
  --learning_rate=1e-3 --num_train_steps=560 --num_warmup_steps=50 --save_checkpoints_steps=280
rm -rf "$out/export" # each run would add another
fine_tune SST-2 240 --export_dir="$out/export"
fine_tune RTE 80
fine_tune STS-B 80
step "Fine-tuning on questions" albert.run_squad_v1 --train_file="$data/squad/train.json" \
  --predict_file="$data/squad/dev.json" --output_dir="$out/SQuAD" --init_checkpoint="$model" \
  --do_train --do_predict --max_seq_length=64 --max_query_length=16 --predict_batch_size=64 \
  --learning_rate=5e-4 --num_train_epochs=1 --save_checkpoints_steps=75
text='At dawn, the baker tasted the fine soup in the kitchen.'
echo "$text" >"$out/text.txt"
step "Asking about a text" albert.ask --model_dir="$out/SQuAD" --context_file="$out/text.txt" \
  --question='Where was it?' --num_answers=1
answer=$(grep -o ' [01]\.[0-9]*  .*' "$out/logs/$demo-$step_number.log" | head -n 1)

printf '\n%-34s %8s %8s %8s\n' 'on data not seen in training' score chance needed
check 'pre-training: masked words' "$(best_of "$model")" 0.19 0.28
check 'pre-training: sentence order' \
  "$(sed -n 's/^sentence_order_accuracy = //p' "$model/eval_results.txt" | tail -n 1)" 0.61 0.75
check 'SST-2: accuracy' "$(best_of "$out/SST-2")" 0.50 0.90
check 'RTE: accuracy' "$(best_of "$out/RTE")" 0.50 0.80
check 'STS-B: Pearson correlation' "$(best_of "$out/STS-B")" 0.00 0.60
check 'SQuAD: F1, percent' "$(best_of "$out/SQuAD")" 14 60
printf '\nSST-2 predictions (1 is positive):\n'
paste <(cut -f 2 "$out/SST-2/submit_results.tsv") <(cut -f 2 "$data/glue/SST-2/test.tsv") |
  sed -n '2,4p'
printf '\nAsked "Where was it?" of "%s":\n%s\n' "$text" "$answer"
cat <<END

In $out: the data (data/), the pre-trained model (model/), for each task checkpoints, results and
predictions (SST-2/ RTE/ STS-B/ SQuAD/), the exported SST-2 model (export/) and the logs (logs/).
It took $((SECONDS / 60)) min $((SECONDS % 60)) s.
END
exit "$failed"
