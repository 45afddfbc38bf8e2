#!/usr/bin/env bash
# Lints and tests, after setting everything up where that is needed.
#
#   ./run_tests.sh            everything
#   ./run_tests.sh --quick    without the slow tests
#   ./run_tests.sh -k name    further arguments go to pytest
#
# Uses PYTHON if set, else the active virtual environment, else .venv (made here).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source .ci/functions.sh

arguments=()
for argument in "$@"; do
  case $argument in
    --quick) arguments+=(-m "not slow") ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit ;;
    *) arguments+=("$argument") ;;
  esac
done

set_up_python "$PWD" '[dev,text,plots,sweep]'
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
# Two processes: much of a test's time is start-up and graph building, which take one core. Files
# are dealt in the order of tests/conftest.py.
exec "$PYTHON" -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder \
  ${arguments[@]+"${arguments[@]}"}
