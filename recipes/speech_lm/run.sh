#!/usr/bin/env bash
# A small speech language model on packed rows, from a spoken corpus to an error rate. --help lists the options.
exec bash "$(dirname "$0")/../common/run.sh" speech_lm demo 'torch jiwer espeakng_loader tensorboard' "$@"
