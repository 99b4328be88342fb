#!/usr/bin/env bash
# AISHELL-1, real or mini, from download to exported model. Runs recipes/aishell/run.py (--help says more) by PYTHON if that
# has what is needed, else by .venv, which is set up first (from PYTHON, if that is set).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
# Help and mistakes need no more than Python, and nothing is installed for them.
"${PYTHON:-python3}" -m recipes.aishell.options "$@" || exit
for word; do case $word in -h | --help) exit ;; esac; done
needs='import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))'
if ! { [ -n "${PYTHON:-}" ] && "$PYTHON" -c "$needs" torch jiwer espeakng_loader; }; then
  "$root/scripts/setup" demo
  PYTHON=$root/.venv/bin/python
fi
exec "$PYTHON" -m recipes.aishell.run "$@"
