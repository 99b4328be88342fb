#!/usr/bin/env bash
# A small full-duplex model, from spoken dialogues to answers. --help lists the options.
exec bash "$(dirname "$0")/../common/run.sh" duplex demo 'torch espeakng_loader tensorboard' "$@"
