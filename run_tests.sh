#!/usr/bin/env bash
# Lints and tests, after setting everything up where that is needed.
#
#   ./run_tests.sh                     everything
#   ./run_tests.sh --quick             without the slow tests
#   ./run_tests.sh --room=text         the tests of one folder of tests/: a room of albert/,
#                                      commands, workers (runs of several processes), scripts
#                                      (run_demo.sh, run_glue.sh, the tutorial), real_weights
#                                      (pre-trained weights of others), or house (the rules, pages,
#                                      recipes and studies of the repository)
#   ./run_tests.sh --no-lint           only the tests, without ruff, mypy and the rule of imports
#   ./run_tests.sh -k name             further arguments go to pytest
#
# Options combine: ./run_tests.sh --quick --room=data -k masking
# Uses PYTHON if set, else the active virtual environment, else .venv (made here).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source .ci/functions.sh

arguments=() folders=() lint=yes
for argument in "$@"; do
  case $argument in
    --no-lint) lint= ;;
    --quick) arguments+=(-m "not slow") ;;
    --room=*)
      folder=tests/${argument#--room=}
      if ! compgen -G "$folder/test_*.py" >/dev/null; then
        echo "error: $argument: $folder has no tests; rooms are:" \
          "$(dirname tests/*/test_*.py | sort -u | sed 's:tests/::' | xargs)" >&2
        exit 2
      fi
      folders+=("$folder")
      ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit ;;
    *) arguments+=("$argument") ;;
  esac
done

set_up_python "$PWD" '[dev,hub,text,plots,sweep,stats]'
if [[ -n $lint ]]; then
  "$PYTHON" -m ruff check .
  "$PYTHON" -m ruff format --check .
  "$PYTHON" -m mypy
  # Imports between rooms point down only: the contract in pyproject.toml.
  "$PYTHON" -c 'from importlinter import cli; cli.lint_imports_command()' --no-logo --no-cache
fi
# Two processes: much of a test's time is start-up and graph building, which take one core. Files
# are distributed in the order of tests/conftest.py.
exec "$PYTHON" -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder \
  ${folders[@]+"${folders[@]}"} ${arguments[@]+"${arguments[@]}"}
