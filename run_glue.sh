#!/usr/bin/env bash
# Fine-tunes one model on the GLUE tasks, one after another, and makes a table of the scores.
#
#   GLUE_DIR=glue_data ALBERT_DIR=albert_base ./run_glue.sh
#
# Set in the environment:
#   GLUE_DIR     folder that holds the folders of the tasks (SST-2, MNLI, ...)          required
#   ALBERT_DIR   folder of the model: albert_config.json, model.ckpt-best.*, 30k-clean.model
#                (or vocab.txt); either this or ALBERT_HUB                              required
#   ALBERT_HUB   hub module of the model: a local folder or a URL
#   OUTPUT_DIR   results: one folder a task, logs/, results.md, results.json      ./glue_output
#   TASKS        tasks, separated by spaces     "SST-2 MNLI CoLA QNLI QQP RTE STS-B MRPC"
#   MAX_STEPS    most training steps for a task; a longer schedule is cut to that many, its
#                warm-up in proportion
#   EXTRA_FLAGS  further flags of run_classifier, separated by spaces; they win over those set here
#   PYTHON       interpreter that has the project installed; by default the active virtual
#                environment, else .venv, which is made
#
# A task that fails does not stop the others: its row says "failed" and where its log is. Ctrl-C
# stops the sweep and shows the table so far. The same command again goes on where it stopped.
# Exit status: 0, 1 if a task failed, 130 after Ctrl-C.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$root/.ci/functions.sh"

# The reference's values: warm-up steps, learning rate, steps, steps between checkpoints, batch.
values_of() {
  case $1 in
    SST-2) echo 1256 1e-5 20935 100 32 ;;
    MNLI) echo 1000 3e-5 10000 100 128 ;;
    CoLA) echo 320 1e-5 5336 100 16 ;;
    QNLI) echo 1986 1e-5 33112 200 32 ;;
    QQP) echo 1000 5e-5 14000 100 128 ;;
    RTE) echo 200 3e-5 800 100 32 ;;
    STS-B) echo 214 2e-5 3598 100 16 ;;
    MRPC) echo 200 2e-5 800 100 32 ;;
    *) return 1 ;;
  esac
}

usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$root/run_glue.sh"
}

fail() {
  echo "error: $1" >&2
  exit 1
}

# Runs one task; its state goes to logs/<task>.status, where the table finds it.
run_task() {
  local task=$1 values warmup rate steps save batch
  local log=$OUTPUT_DIR/logs/$task.log status=$OUTPUT_DIR/logs/$task.status started=$SECONDS
  read -r warmup rate steps save batch < <(values_of "$task")
  if [[ -n ${MAX_STEPS:-} ]] && ((MAX_STEPS < steps)); then
    warmup=$((warmup * MAX_STEPS / steps)) steps=$MAX_STEPS
  fi
  echo "running (interrupted from outside)" >"$status"
  echo "$task: $steps steps; log: $log"
  # shellcheck disable=SC2086  # EXTRA_FLAGS holds several
  if run_logged "$log" "$PYTHON" -m albert.run_classifier \
    --data_dir="$GLUE_DIR" --task_name="$task" --output_dir="$OUTPUT_DIR/$task" "${model[@]}" \
    --do_train --do_eval --max_seq_length=512 --optimizer=adamw --train_step="$steps" \
    --warmup_step="$warmup" --learning_rate="$rate" --save_checkpoints_steps="$save" \
    --train_batch_size="$batch" ${EXTRA_FLAGS:-}; then
    echo "done" >"$status"
    echo "$task: done after $((SECONDS - started)) s"
  elif [[ -n $INTERRUPTED ]]; then
    echo "interrupted; log: $log" >"$status"
  else
    echo "failed; log: $log" >"$status"
    failed=1
    echo "$task: failed after $((SECONDS - started)) s; the end of $log:"
    tail -n 5 "$log" | sed 's/^/    /'
  fi
}

if [[ $# -gt 0 ]]; then
  usage
  [[ $1 == --help || $1 == -h ]] && exit 0
  fail "arguments are not taken; set the environment as shown above"
fi
[[ -n ${GLUE_DIR:-} ]] || fail "GLUE_DIR must name the folder of the GLUE tasks (see --help)"
[[ -d $GLUE_DIR ]] || fail "GLUE_DIR: there is no folder $GLUE_DIR"
if [[ -n ${ALBERT_DIR:-} && -n ${ALBERT_HUB:-} ]]; then
  fail "ALBERT_DIR and ALBERT_HUB both name a model; set one"
elif [[ -n ${ALBERT_DIR:-} ]]; then
  [[ -d $ALBERT_DIR ]] || fail "ALBERT_DIR: there is no folder $ALBERT_DIR"
  model=(--init_checkpoint="$ALBERT_DIR")
elif [[ -n ${ALBERT_HUB:-} ]]; then
  model=(--albert_hub_module_handle="$ALBERT_HUB")
else
  fail "ALBERT_DIR or ALBERT_HUB must name the model (see --help)"
fi
[[ ${MAX_STEPS:-1} =~ ^[1-9][0-9]*$ ]] || fail "MAX_STEPS=$MAX_STEPS is not a number above 0"
# shellcheck disable=SC2086,SC2116  # to single spaces
TASKS=$(echo ${TASKS:-SST-2 MNLI CoLA QNLI QQP RTE STS-B MRPC})
for task in $TASKS; do
  values_of "$task" >/dev/null || fail "TASKS: $task is none of SST-2 MNLI CoLA QNLI QQP RTE STS-B MRPC"
done
OUTPUT_DIR=${OUTPUT_DIR:-glue_output}
mkdir -p "$OUTPUT_DIR/logs" || fail "OUTPUT_DIR: cannot make $OUTPUT_DIR"
set_up_python "$root" || exit
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

rm -f "$OUTPUT_DIR"/logs/*.status
stop_on_signals
failed=0
for task in $TASKS; do
  [[ -z $INTERRUPTED ]] && run_task "$task"
done
[[ -n $INTERRUPTED ]] && echo "interrupted; the same command goes on from the last checkpoints"
trap '' INT
"$PYTHON" -m albert.glue_report --output_dir="$OUTPUT_DIR" --tasks="${TASKS// /,}" || exit
echo "Written to $OUTPUT_DIR/results.md and $OUTPUT_DIR/results.json"
[[ -n $INTERRUPTED ]] && exit 130
exit "$failed"
