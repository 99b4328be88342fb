#!/usr/bin/env bash
# run.sh RECIPE EXTRA MODULES OPTIONS…: run recipes/RECIPE/run.py with PYTHON if that has all MODULES, else with .venv, which is
# set up first with the package's EXTRA (from PYTHON, if that is set).
set -euo pipefail
recipe=$1 extra=$2 modules=$3
shift 3
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
# Help and mistakes need no more than Python, and nothing is installed for them.
"${PYTHON:-python3}" -m "recipes.$recipe.options" "$@" || exit
for word; do case $word in -h | --help) exit ;; esac; done
needs='import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))'
# shellcheck disable=SC2086  # one word for each module
if ! { [ -n "${PYTHON:-}" ] && "$PYTHON" -c "$needs" $modules; }; then
  "$root/scripts/setup" "$extra"
  PYTHON=$root/.venv/bin/python
fi
exec "$PYTHON" -m "recipes.$recipe.run" "$@"
