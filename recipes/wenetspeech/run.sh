#!/usr/bin/env bash
# WenetSpeech, real or mini, from the corpus to an exported model. Sets up .venv (or takes PYTHON), then runs
# recipes/wenetspeech/run.py; --help says more.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ -z "${PYTHON:-}" ]; then
  "$root/scripts/setup" wenetspeech
  PYTHON=$root/.venv/bin/python
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m recipes.wenetspeech.run "$@"
