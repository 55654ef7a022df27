#!/usr/bin/env bash
# Recordings in which memory was short (tests/data/short): policy torch repeats every segment of them, with as much memory as
# there was, with more, and with a limit.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# repeats NAME EVENTS PEAK OPTION...
repeats()
{
    expect 0 replay --policy torch --repeat 1 --reproduce --json - "${@:4}" "$DATA/short/$1.pickle.gz"
    contains "$err" "$1: reproduced: $2 of $2 segment events"
    json "rows[0]['peak_reserved'] == $3 and rows[0]['oom'] == 0"
}

while read -r name mib events peak; do
    repeats "$name" "$events" "$peak"
    repeats "$name" "$events" "$peak" --device-memory "${mib}MiB"
    export WEIR_MEMORY_LIMIT=${mib}MiB
    repeats "$name" "$events" "$peak"
    unset WEIR_MEMORY_LIMIT
done <<'END'
plain 500 1200 524288000
ballast 700 449 654311424
split 700 2491 734003200
emptied 500 988 524288000
END
