#!/usr/bin/env bash
# AISHELL-1, real or mini, from download to exported model. --help lists the options.
exec bash "$(dirname "$0")/../common/run.sh" aishell demo 'torch jiwer espeakng_loader' "$@"
