#!/usr/bin/env bash
# Runs the study two_hours.json: ./experiments/two_hours.sh [--data=FOLDER] [--work=FOLDER] [--dry_run]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
exec "${PYTHON:-python}" experiments/study.py experiments/two_hours.json "$@"
