#!/usr/bin/env bash
# AISHELL-1, real or mini, from download to exported model. Sets up .venv, then runs recipes/aishell/run.py; --help says more.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
"$root/scripts/setup" recipes
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$root/.venv/bin/python" -m recipes.aishell.run "$@"
