#!/usr/bin/env bash
# Runs the study ablations.json: ./experiments/ablations.sh [--data=FOLDER] [--work=FOLDER] [--dry_run]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
exec "${PYTHON:-python}" experiments/study.py experiments/ablations.json "$@"
