#!/usr/bin/env bash
# LibriSpeech, real or mini, from download to exported model. --help lists the options.
exec bash "$(dirname "$0")/../common/run.sh" librispeech demo 'torch jiwer espeakng_loader' "$@"
