#!/usr/bin/env bash
# AISHELL-1, real or mini, from download to exported model. Runs recipes/aishell/run.py (--help says more) by PYTHON if that
# has what is needed, else by .venv, which is set up first (from PYTHON, if that is set).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
needs='import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))'
if ! { [ -n "${PYTHON:-}" ] && "$PYTHON" -c "$needs" torch jiwer espeakng_loader; }; then
  "$root/scripts/setup" recipes
  PYTHON=$root/.venv/bin/python
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m recipes.aishell.run "$@"
