# Sourced by run_tests.sh, run_demo.sh and run_glue.sh.

# set_up_python ROOT [EXTRAS]: makes PYTHON an interpreter that has this project installed.
#
# PYTHON set by the user is taken as it is. Otherwise the active virtual environment is used, or
# else ROOT/.venv, made when needed; the project is installed into it unless that was done before.
set_up_python() {
  local root=$1 extras=${2:-} environment base stamp
  export PYTHONUNBUFFERED=1
  if [[ -n ${PYTHON:-} ]]; then
    return
  fi
  environment=${VIRTUAL_ENV:-$root/.venv}
  PYTHON=$environment/bin/python
  if [[ ! -x $PYTHON ]]; then
    base=$(find_python)
    echo "Making a virtual environment of $base in $environment"
    "$base" -m venv "$environment"
  fi
  stamp=$environment/.albert-installed$extras
  if [[ -z $extras && ! -e $stamp ]] &&
    "$PYTHON" -c 'from importlib import metadata; metadata.version("albert")' 2>/dev/null; then
    return # installed by the user
  fi
  if ! cksum "$root/setup.py" 2>/dev/null | cmp -s - "$stamp"; then
    echo "Installing the project and its requirements into $environment (once)"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --editable "$root$extras"
    cksum "$root/setup.py" >"$stamp"
  fi
}

# find_python: prints the name of an interpreter of a supported version.
find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11; do
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "error: needs Python 3.11, 3.12 or 3.13; none of them is on the PATH" >&2
  return 1
}

# stop_on_signals: Ctrl-C and the like end the running step at once and set INTERRUPTED to the
# status to exit with, that of the scripts in Python.
# Steps run in process groups of their own, so that their worker processes end with them.
stop_on_signals() {
  set -m
  CHILD='' INTERRUPTED=''
  trap 'stop_step 130' INT
  trap 'stop_step 75' TERM HUP
}

# stop_step STATUS: ends the running step; the program is to exit with this status.
stop_step() {
  INTERRUPTED=$1
  [[ -n $CHILD ]] && kill -TERM -- "-$CHILD" 2>/dev/null
}

# run_logged LOG COMMAND…: runs the command with its output in LOG; returns its status.
run_logged() {
  local log=$1
  shift
  [[ -z $INTERRUPTED ]] || return "$INTERRUPTED"
  run_watched "$@" >"$log" 2>&1 </dev/null
}

# run_watched COMMAND…: runs the command so that Ctrl-C ends it; returns its status.
run_watched() {
  local status
  "$@" &
  CHILD=$!
  # A signal ends `wait` before the child has ended, and so does a stop of the child (Ctrl-Z).
  while :; do
    status=0
    wait "$CHILD" 2>/dev/null || status=$?
    kill -0 "$CHILD" 2>/dev/null || break
    sleep 0.1
  done
  CHILD=''
  return "$status"
}
