#!/usr/bin/env bash
# weir check: leaks are told and are no fault, every kind of fault is found and named.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

log()
{
    { echo 'Thread,Time,Action,Pointer,Size,Stream'
      local second=10
      for row in "$@"; do
          echo "1,10:00:$second.000,$row,0x0"
          second=$((second + 1))
      done; } >"$scratch/log.csv"
}
fault='rows[0]["unmatched_frees"], rows[0]["double_frees"], rows[0]["overlaps"], rows[0]["well_formed"]'

log allocate,0x1000,1024 allocate,0x2000,512 free,0x1000,1024
expect 0 check "$scratch/log.csv"
contains "$out" "log: well formed; rmm-csv, 4 events, 2 allocations, 1 frees"
contains "$out" "log: live at the end: 1 blocks, 512 B"
expect 0 check --json - "$scratch/log.csv"
json 'list(rows[0]) == ["trace", "format", "well_formed", "events", "allocations", "frees", "unmatched_frees",
    "double_frees", "overlaps", "incomplete_frees", "begins_late", "dropped", "residents", "stacks_lost",
    "live_blocks", "live_bytes"]'
json 'rows[0]["live_blocks"] == 1 and rows[0]["live_bytes"] == 512 and rows[0]["incomplete_frees"] == 0'
json "($fault) == (0, 0, 0, True)"

log allocate,0x1000,1024 free,0x1000,1024 free,0x1000,1024
expect 1 check "$scratch/log.csv"
contains "$out" "event 3: second free of 0x1000"
contains "$out" "malformed"
expect 1 check --json - "$scratch/log.csv"
json "($fault) == (0, 1, 0, False)"

log allocate,0x1000,1024 free,0x9000,512
expect 1 check "$scratch/log.csv"
contains "$out" "event 1: free of what was not allocated, 0x9000"
expect 1 check --json - "$scratch/log.csv"
json "($fault) == (1, 0, 0, False)"

log allocate,0x1000,1024 free,0x1200,512
expect 1 check --json - "$scratch/log.csv"
json "($fault) == (1, 0, 0, False)"

log allocate,0x1000,1024 allocate,0x1200,512 allocate,0x1400,512
expect 1 check "$scratch/log.csv"
contains "$out" "event 1: allocation overlaps a block that was not freed, 0x1200"
expect 1 check --json - "$scratch/log.csv"
json "($fault) == (0, 0, 1, False)"
json 'rows[0]["live_blocks"] == 2'

log allocate,0x1000,1024 free,0x1000,1024 allocate,0x1200,512 allocate,0x1000,512
expect 0 check "$scratch/log.csv"

log free,0x1,1 free,0x2,1 free,0x3,1 free,0x4,1 free,0x5,1 free,0x6,1 free,0x7,1
expect 1 check "$scratch/log.csv"
[ "$(grep -c 'event' <<<"$(grep 'event [0-9]*:' <<<"$out")")" = 5 ] || die "more or less than five faults shown: $out"
contains "$out" "log: and 2 more faults"
