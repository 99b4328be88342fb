#!/usr/bin/env bash
# WenetSpeech, real or mini, from the corpus to an exported model. --help lists the options.
exec bash "$(dirname "$0")/../common/run.sh" wenetspeech wenetspeech 'torch jiwer espeakng_loader ijson moto' "$@"
