#!/usr/bin/env bash
# Fine-tunes one model on the GLUE tasks, one after another, and makes a table of the scores.
#
#   GLUE_DIR=glue_data ALBERT_DIR=albert_base ./run_glue.sh
#
# Set in the environment:
#   GLUE_DIR     folder that holds the folders of the tasks (SST-2, MNLI, ...)          required
#   ALBERT_DIR   folder of the model: albert_config.json, model.ckpt-best.*, 30k-clean.model
#                (or vocab.txt); or a published model, such as albert_base_v2; either this
#                or ALBERT_HUB                                                          required
#   ALBERT_HUB   hub module of the model: a local folder or a URL
#   OUTPUT_DIR   results: one folder per task with its submit_results.tsv, logs/, results.md,
#                results.json                                                      ./glue_output
#   PREDICT      0: do not predict the test data, write no submit_results.tsv                  1
#   TASKS        tasks, separated by spaces     "SST-2 MNLI CoLA QNLI QQP RTE STS-B MRPC"
#   MAX_STEPS    maximum number of training steps per task; a longer schedule is shortened to it,
#                its warm-up in proportion
#   SEEDS        numbers, separated by spaces: each task is run with each as its --seed, and the
#                table has mean and deviation; the results are then in <task>/seed_<number>
#   BASELINE     OUTPUT_DIR of another sweep with several seeds: the table has the probability that
#                a run of this sweep is better than one of that
#   EXTRA_FLAGS  further flags of run_classifier, separated by spaces; they override those set here
#   PYTHON       interpreter that has the project installed; by default the active virtual
#                environment, else .venv, which is made
#
# The names of google-research/albert are taken too; two names for one thing must agree:
#   ALBERT_ROOT               like ALBERT_DIR; its folder glue/ is the default of GLUE_DIR, and all
#                             that is used of it with a hub module
#   INIT_CHECKPOINT           checkpoint, for which ALBERT_ROOT, or its own folder, has the rest
#   ALBERT_HUB_MODULE_HANDLE  like ALBERT_HUB
#
# A task without test data is trained and evaluated, and named at the end. A task that fails does
# not stop the others: its row says "failed" and where its log is. Ctrl-C stops the sweep and shows
# the table so far. The same command again resumes where it stopped; what is done is not run again
# unless its flags have changed. The tasks are run by albert.run_sweep.
# Exit status: 0, 1 if a task failed, 130 after Ctrl-C.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$root/.ci/functions.sh"

# recipe TASK: the file that has the reference's values for a task.
recipe() {
  echo "$root/recipes/glue_$1.flags"
}

# value_of TASK FLAG: a value in the recipe of a task.
value_of() {
  sed -n "s/^--$2=//p" "$(recipe "$1")"
}

usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$root/run_glue.sh"
}

fail() {
  echo "error: $1" >&2
  exit 1
}

# agree OURS THEIRS: refuses two variables that say different things.
agree() {
  local ours=${!1:-} theirs=${!2:-}
  [[ -z $ours || -z $theirs || ${ours%/} == "${theirs%/}" ]] ||
    fail "$1=$ours and $2=$theirs are two names for one thing and differ; set one"
}

# Sets `model`, the flags that name the model.
find_model() {
  local file folder hub=${ALBERT_HUB:-${ALBERT_HUB_MODULE_HANDLE:-}}
  agree ALBERT_DIR ALBERT_ROOT
  agree ALBERT_HUB ALBERT_HUB_MODULE_HANDLE
  if [[ -n $hub ]]; then
    [[ -z ${ALBERT_DIR:-} ]] || fail "ALBERT_DIR and ALBERT_HUB both name a model; set one"
    [[ -z ${INIT_CHECKPOINT:-} ]] ||
      fail "INIT_CHECKPOINT and the hub module $hub both name a model; set one"
    model=(--albert_hub_module_handle="$hub")
    return
  fi
  folder=${ALBERT_DIR:-${ALBERT_ROOT:-}}
  [[ -n $folder || -n ${INIT_CHECKPOINT:-} ]] ||
    fail "ALBERT_DIR or ALBERT_HUB must name the model (see --help)"
  [[ -z $folder || -d $folder || $folder != */* && $folder == albert_@(mini|*_@(v1|v2|zh)) ]] ||
    fail "ALBERT_DIR: the folder $folder does not exist"
  model=(--init_checkpoint="${INIT_CHECKPOINT:-$folder}")
  [[ -n $folder && -n ${INIT_CHECKPOINT:-} ]] || return 0
  [[ -f $folder/albert_config.json ]] && model+=(--albert_config_file="$folder/albert_config.json")
  for file in "$folder"/30k-clean.model "$folder"/*.model "$folder"/vocab.txt; do
    [[ -f $file ]] || continue
    if [[ $file == *.model ]]; then
      model+=(--spm_model_file="$file")
    else
      model+=(--vocab_file="$file")
    fi
    return
  done
}

# test_file TASK: the test data, whose predictions go to submit_results.tsv.
test_file() {
  [[ $1 == MNLI ]] && echo "$GLUE_DIR/MNLI/test_matched.tsv" || echo "$GLUE_DIR/$1/test.tsv"
}

# quoted WORD…: the words as a shell would have to be given them.
quoted() {
  local word quote="'" escaped="'\\''"
  for word in "$@"; do
    printf "'%s' " "${word//$quote/$escaped}"
  done
}

# add_trial TASK: adds a line with the flags of a task to `trials`.
add_trial() {
  local task=$1 warmup steps own
  own=(--flagfile="$(recipe "$task")" --data_dir="$GLUE_DIR" "${model[@]}")
  steps=$(value_of "$task" train_step) warmup=$(value_of "$task" warmup_step)
  if [[ -n ${MAX_STEPS:-} ]] && ((MAX_STEPS < steps)); then
    own+=(--train_step="$MAX_STEPS" --warmup_step="$((warmup * MAX_STEPS / steps))")
  fi
  if [[ $PREDICT == 1 && -f $(test_file "$task") ]]; then
    own+=(--do_predict)
  elif [[ $PREDICT == 1 ]]; then
    echo "$task: there is no $(test_file "$task"): no submit_results.tsv"
    without_test_data+=("$task")
  fi
  # shellcheck disable=SC2206  # EXTRA_FLAGS holds several
  own+=(${EXTRA_FLAGS:-})
  trials+="$task: $(quoted "${own[@]}")"$'\n'
}

if [[ $# -gt 0 ]]; then
  usage
  [[ $1 == --help || $1 == -h ]] && exit 0
  fail "arguments are not taken; set the environment as shown above"
fi
GLUE_DIR=${GLUE_DIR:-${ALBERT_ROOT:+$ALBERT_ROOT/glue}}
[[ -n $GLUE_DIR ]] || fail "GLUE_DIR must name the folder of the GLUE tasks (see --help)"
[[ -d $GLUE_DIR ]] || fail "GLUE_DIR: the folder $GLUE_DIR does not exist"
find_model
PREDICT=${PREDICT:-1}
[[ $PREDICT == [01] ]] || fail "PREDICT=$PREDICT is neither 0 nor 1"
[[ ${MAX_STEPS:-1} =~ ^[1-9][0-9]*$ ]] || fail "MAX_STEPS=$MAX_STEPS is not a number above 0"
# shellcheck disable=SC2086,SC2116  # to single spaces
TASKS=$(echo ${TASKS:-SST-2 MNLI CoLA QNLI QQP RTE STS-B MRPC})
for task in $TASKS; do
  [[ -f $(recipe "$task") ]] || fail "TASKS: $task is none of SST-2 MNLI CoLA QNLI QQP RTE STS-B MRPC"
done
seeds=
for seed in ${SEEDS:-}; do
  [[ $seed =~ ^[0-9]+$ ]] || fail "SEEDS: $seed is not a number"
  seeds+=${seeds:+,}$seed
done
[[ -z ${BASELINE:-} || -n $seeds ]] || fail "BASELINE compares runs over SEEDS, which are not set"
[[ -d ${BASELINE:-.} ]] || fail "BASELINE: the folder $BASELINE does not exist"
OUTPUT_DIR=${OUTPUT_DIR:-glue_output}
mkdir -p "$OUTPUT_DIR/logs" || fail "OUTPUT_DIR: cannot make $OUTPUT_DIR"
set_up_python "$root" || exit
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

trials="" without_test_data=() state=0
for task in $TASKS; do
  add_trial "$task"
done
stop_on_signals
run_watched "$PYTHON" -m albert.run_sweep --script=run_classifier --output_dir="$OUTPUT_DIR" \
  --python="$PYTHON" --retry_failed --trials="$trials" ${seeds:+--seeds="$seeds"} </dev/null || state=$?
trap '' INT TERM HUP
if [[ -f $OUTPUT_DIR/sweep.json ]]; then
  "$PYTHON" -m albert.glue_report --output_dir="$OUTPUT_DIR" --tasks="${TASKS// /,}" \
    ${BASELINE:+--baseline="$BASELINE"} || exit
  echo "Written to $OUTPUT_DIR/results.md and $OUTPUT_DIR/results.json"
fi
if [[ ${#without_test_data[@]} -gt 0 ]]; then
  echo "Without test data, so without submit_results.tsv: ${without_test_data[*]}"
fi
[[ -n $INTERRUPTED ]] && exit "$INTERRUPTED"
exit "$state"
