#!/usr/bin/env bash
# Makes albert_mini: ./experiments/albert_mini.sh --teacher=FOLDER [--data=FOLDER] [--work=FOLDER]
# [--minutes=90] [--init_checkpoint=FOLDER] [--seed=1] [--install] [--dry_run]; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
exec "${PYTHON:-python}" experiments/albert_mini.py "$@"
