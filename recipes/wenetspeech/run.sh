#!/usr/bin/env bash
# WenetSpeech, real or mini, from the corpus to an exported model. Runs recipes/wenetspeech/run.py (--help says more) by PYTHON if that
# has what is needed, else by .venv, which is set up first (from PYTHON, if that is set).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
# Help and mistakes need no more than Python, and nothing is installed for them.
"${PYTHON:-python3}" -m recipes.wenetspeech.options "$@" || exit
for word; do case $word in -h | --help) exit ;; esac; done
needs='import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))'
if ! { [ -n "${PYTHON:-}" ] && "$PYTHON" -c "$needs" torch jiwer espeakng_loader ijson moto; }; then
  "$root/scripts/setup" wenetspeech
  PYTHON=$root/.venv/bin/python
fi
exec "$PYTHON" -m recipes.wenetspeech.run "$@"
