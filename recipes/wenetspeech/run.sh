#!/usr/bin/env bash
# WenetSpeech, real or mini, from the corpus to an exported model. Runs recipes/wenetspeech/run.py (--help says more) by PYTHON if that
# has what is needed, else by .venv, which is set up first (from PYTHON, if that is set).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
needs='import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))'
if ! { [ -n "${PYTHON:-}" ] && "$PYTHON" -c "$needs" torch jiwer espeakng_loader ijson moto; }; then
  "$root/scripts/setup" wenetspeech
  PYTHON=$root/.venv/bin/python
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m recipes.wenetspeech.run "$@"
