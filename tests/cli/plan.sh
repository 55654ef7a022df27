#!/usr/bin/env bash
# weir plan: the gap on recorded jobs, plan files that list and check, streams, and wrong usage.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces

log()
{
    { echo 'Thread,Time,Action,Pointer,Size,Stream'
      local second=10
      for row in "$@"; do
          echo "1,$second.0,$row"
          second=$((second + 1))
      done; } >"$scratch/log.csv"
}

# No more than 1 % above the bound, on every job; the peaks are PyTorch's own statistics of the recorded runs.
while read -r trace allocations requested bound; do
    expect 0 plan --time 0 --json - "$DATA/traces/$trace.pickle.gz"
    [ -z "$err" ] || die "$trace: $err"
    json 'list(rows[0]) == ["trace", "trace_hash", "device", "allocations", "arenas", "streams", "residents",
        "peak_requested", "peak_live", "bound", "peak", "peak_reserved", "gap", "waits", "loop_times",
        "loop_allocations", "how", "seconds"]'
    json "len(rows) == 1 and (rows[0]['trace'], rows[0]['device']) == ('$trace', 0)"
    json "(rows[0]['allocations'], rows[0]['peak_requested'], rows[0]['bound']) == ($allocations, $requested, $bound)"
    json 'rows[0]["bound"] <= rows[0]["peak"] <= 1.01 * rows[0]["bound"]'
    json 'abs(rows[0]["gap"] - (rows[0]["peak"] / rows[0]["bound"] - 1)) < 1e-7'
    json '0 <= rows[0]["peak_reserved"] - rows[0]["peak"] < 2 << 20 and rows[0]["peak_reserved"] % (2 << 20) == 0'
done <<'END'
resnet50_amp 9688 3192592912 3192635904
gpt2_varlen 38959 24261888472 24261970944
gpt2_lora_recompute 71936 6680997208 6681000960
convnext_prefetch 21621 3487423400 3487465984
graphsage 4590 4013864116 4013865984
END

# A job that repeats is planned once. Blocks that cross streams wait, unless streams are kept apart.
expect 0 plan --time 0 --json - "$DATA/traces/resnet50_amp.pickle.gz"
json 'rows[0]["loop_times"] * rows[0]["loop_allocations"] > rows[0]["allocations"] / 2'
expect 0 plan --time 0 --json - "$DATA/traces/convnext_prefetch.pickle.gz"
json 'rows[0]["streams"] == 2 and rows[0]["arenas"] == 1 and rows[0]["waits"] > 0'
expect 0 plan --time 0 --json - --streams-apart "$DATA/traces/convnext_prefetch.pickle.gz"
json 'rows[0]["streams"] == 2 and rows[0]["arenas"] == 2 and rows[0]["waits"] == 0'

# Every file that is written can be listed, and is the same for the same seed and number of threads.
small=$DATA/traces/graphsage.pickle.gz
expect 0 plan "$small" --seed 3 --threads 2 --time 0 -o "$scratch/first.weirplan"
contains "$out" "graphsage"
"$WEIR" plan "$small" --seed 3 --threads 2 --time 0 -o - | cmp - "$scratch/first.weirplan"
expect 0 plan --show "$scratch/first.weirplan"
contains "$out" "1 arenas, 4590 entries"
contains "$out" "arena of device 0, pool 0: "
[ "$(grep -c '^ *[0-9]' "$scratch/out")" = 4590 ] || die "not every entry is listed"

log allocate,0x1000,1000,0x0 allocate,0x2000,512,0x0 free,0x1000,1000,0x0 allocate,0x3000,600,0x7
expect 0 plan "$scratch/log.csv" -o "$scratch/log.weirplan"
expect 0 plan --show "$scratch/log.weirplan"
contains "$out" "arena of device 0, pool 0: 1536 bytes, bound 1536, 3 entries, 2 streams, 1 waits"
"$WEIR" plan --show - <"$scratch/log.weirplan" | cmp - "$scratch/out"

# Blocks from before the first event come first, in unknown order.
log free,0x9000,4096,0x0 allocate,0x1000,1000,0x0 free,0x8000,600,0x0
expect 0 plan "$scratch/log.csv" -o "$scratch/begun.weirplan"
expect 0 plan --show "$scratch/begun.weirplan"
contains "$out" "residents: the first 2 entries"
log allocate,0x1000,1000,0x0 allocate,0x2000,512,0x0 free,0x1000,1000,0x0 allocate,0x3000,600,0x7

# A trace without allocations has no row, and the output says why.
log
expect 0 plan "$scratch/log.csv"
[ -z "$out" ] || die "rows of nothing: $out"
contains "$err" "weir plan: log: allocates nothing, so there is nothing to plan"
expect 0 plan --json - "$scratch/log.csv"
json 'rows == []'
log allocate,0x1000,1000,0x0 allocate,0x2000,512,0x0 free,0x1000,1000,0x0 allocate,0x3000,600,0x7

# Requests that failed when recorded are no part of the plan, and it says so.
printf '%s\n' Thread,Time,Action,Pointer,Size,Stream 1,10:00:01,allocate,0x1000,512,0x0 \
    1,10:00:02,allocate\ failure,0x0,1073741824,0x0 >"$scratch/failed.csv"
expect 0 plan --json - "$scratch/failed.csv"
contains "$err" "failed: 1 allocations failed when recorded, the first of 1.00 GiB; they are not planned"

# A file that is no plan is refused, and so is a plan whose blocks overlap.
head -c 200 "$scratch/log.weirplan" >"$scratch/cut"
expect 1 plan --show "$scratch/cut"
contains "$err" "weir plan: $scratch/cut: byte 200: the plan ends before the last of its 3 entries"
expect 1 plan --show "$scratch/log.csv"
contains "$err" "this is not a plan"
expect 1 plan --show "$scratch/missing"
contains "$err" "cannot read $scratch/missing"
python3 - "$scratch/log.weirplan" "$scratch/wrong" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
first, second = 64 + 88, 64 + 88 + 24
data[second:second + 8] = data[first:first + 8]
open(sys.argv[2], "wb").write(data)
END
expect 1 plan --show "$scratch/wrong"
contains "$err" "the plan is wrong: arena 0: allocation 1 overlaps allocation 0"

# Nothing is read behind the plan's own length, or after a header that is no plan's: the input may never end.
expect 0 plan --show "$scratch/first.weirplan"
cp "$scratch/out" "$scratch/listed"
left=$({ cat "$scratch/first.weirplan" && head -c 10000000 /dev/zero; } |
    { "$WEIR" plan --show - >"$scratch/out" 2>"$scratch/err" && wc -c; })
[ "$left" -gt 9800000 ] || die "only $left bytes are left behind a plan"
cmp "$scratch/out" "$scratch/listed"
for command in "plan --show -" "replay -p plan:- $scratch/log.csv"; do
    # shellcheck disable=SC2086 # words
    left=$(head -c 10000000 /dev/zero | { ! "$WEIR" $command >"$scratch/out" 2>"$scratch/err" && wc -c; })
    [ "$left" -gt 9800000 ] || die "only $left bytes are left of what is no plan"
    contains "$(<"$scratch/err")" "this is not a plan"
done
# Impossible counts are refused like a file that ends too early.
python3 - "$scratch/log.weirplan" "$scratch/vast" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[24:32] = b"\xff" * 8
open(sys.argv[2], "wb").write(data)
END
expect 1 plan --show "$scratch/vast"
contains "$err" "the plan ends before the last of its 18446744073709551615 arenas"

# A terminal shows the progress of the first placement, even when there is no time for more.
python3 - "$WEIR" "$DATA/traces/gpt2_varlen.pickle.gz" >"$scratch/out" <<'END'
import os, pty, subprocess, sys
terminal, side = pty.openpty()
with subprocess.Popen([sys.argv[1], "plan", "--time", "0", sys.argv[2]], stdout=subprocess.DEVNULL, stderr=side) as run:
    os.close(side)
    try:
        while part := os.read(terminal, 4096):
            sys.stdout.buffer.write(part)
    except OSError:
        pass
assert run.returncode == 0
END
contains "$(<"$scratch/out")" "placing gpt2_varlen ["

# Several traces in one table; one that cannot be read does not stop the others.
expect 1 plan "$scratch/missing" "$scratch/log.csv"
contains "$err" "weir plan: $scratch/missing: "
contains "$out" "TRACE"
contains "$out" "log "
expect 1 plan "$scratch/log.csv" -o "$scratch/no/such/folder"
contains "$err" "cannot write $scratch/no/such/folder"

expect 2 plan
contains "$err" "no trace given"
expect 2 plan x y -o z
contains "$err" "-o writes the plan of one trace; 2 were given"
expect 2 plan --show x y
contains "$err" "--show FILE lists an existing plan"
expect 2 plan x -o - --json -
contains "$err" "two outputs would go to stdout"
for seconds in 0x10 -1 x 1x "" 86401 nan inf; do
    expect 2 plan --time "$seconds" x
    contains "$err" "--time '$seconds' is not a number of seconds"
done
for threads in 0 257 x; do
    expect 2 plan --threads "$threads" x
    contains "$err" "is not a number from 1 to 256"
done
expect 2 plan --seed -1 x
contains "$err" "--seed '-1' is not a number"
expect 2 plan --streams-apart=1 x
contains "$err" "takes no value"

# A listing names the loop, what is never freed, and arenas of one stream; the table has the loop, too.
loop=()
for _ in {1..20}; do
    loop+=("allocate,0x1000,1000,0x0" "allocate,0x2000,3000,0x0" "free,0x1000,1000,0x0" "free,0x2000,3000,0x0")
done
log "${loop[@]}" allocate,0x3000,600,0x7
expect 0 plan --time 0 --streams-apart "$scratch/log.csv" -o "$scratch/loop.weirplan"
[[ $out =~ \ ([0-9]+)\ x\ 2\  ]] || die "no loop in the table: $out"
times=${BASH_REMATCH[1]}
expect 0 plan --show "$scratch/loop.weirplan"
[[ $out =~ loop:\ entries\ ([0-9]+)\ to\ ([0-9]+),\ "$times"\ times ]] || die "no loop of $times iterations: $out"
[ $((BASH_REMATCH[2] - BASH_REMATCH[1])) = 1 ] || die "not two entries: $out"
contains "$out" "1 streams, which share no memory, 0 waits"
[[ $out =~ \ 0\ +0\ +1024\ +0\ +forever ]] || die "the last block is freed: $out"

# A hash of sizes, streams and order, without addresses and times. A request of 0 bytes is one of 1.
hash_of()
{
    expect 0 plan --time 0 --json - "$1"
    hash=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["trace_hash"])' "$scratch/out")
}
log allocate,0x1000,1000,0x5 allocate,0x2000,512,0x6 free,0x1000,1000,0x5
hash_of "$scratch/log.csv"
first=$hash
log allocate,0x3000,1000,0x5 allocate,0x9000,512,0x6 free,0x3000,1000,0x5
sed -i 's/,1\([0-9]\).0,/,2\1.5,/' "$scratch/log.csv"
hash_of "$scratch/log.csv"
[ "$hash" = "$first" ] || die "the hash depends on addresses or times"
for rows in "allocate,0x1000,1000,0x5 allocate,0x2000,512,0x5 free,0x1000,1000,0x5" "allocate,0x1000,1000,0x5 allocate,0x2000,512,0x6" \
    "allocate,0x1000,1000,0x5 allocate,0x2000,1512,0x6 free,0x1000,1000,0x5" \
    "allocate,0x1000,1000,0x5 allocate,0x2000,512,0x6 free,0x2000,512,0x6"; do
    # shellcheck disable=SC2086 # several events
    log $rows
    hash_of "$scratch/log.csv"
    [ "$hash" != "$first" ] || die "the hash is that of another trace: $rows"
done
python3 - "$scratch/none.pickle" <<'END'
import pickle, sys
event = {"action": "alloc", "addr": 1 << 40, "size": 0, "stream": 0, "time_us": 1}
pickle.dump({"segments": [], "device_traces": [[event]]}, open(sys.argv[1], "wb"))
END
expect 0 plan --json - "$scratch/none.pickle"
json '(rows[0]["peak_requested"], rows[0]["bound"], rows[0]["peak"]) == (0, 512, 512)'

# Devices have plans of their own.
python3 - "$scratch/devices.pickle" <<'END'
import pickle, sys
traces = [[{"action": "alloc", "addr": 1 << 40, "size": size, "stream": 0, "time_us": 1}] for size in (512, 1024)]
pickle.dump({"segments": [], "device_traces": traces}, open(sys.argv[1], "wb"))
END
expect 0 plan --json - "$scratch/devices.pickle"
json '[(row["device"], row["arenas"], row["peak"]) for row in rows] == [(0, 1, 512), (1, 1, 1024)]'
