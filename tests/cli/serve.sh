#!/usr/bin/env bash
# weir replay --policy plan: recorded jobs served from plans of their own, of a part of them, and of other jobs.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces

# Every allocation gets its place, and what is reserved is the plan's peak. convnext_prefetch has two streams, which share
# nothing.
while read -r trace allocations most; do
    expect 0 replay --policy weir,plan:time=0 --repeat 1 --json - "$DATA/traces/$trace.pickle.gz"
    [ -z "$err" ] || die "$trace: $err"
    json "rows[1]['plan'] == {'served': $allocations, 'late': 0, 'missed': 0, 'resyncs': 0}"
    json "rows[1]['fragmentation'] <= $most and rows[1]['peak_reserved'] < rows[0]['peak_reserved']"
    json 'rows[1]["peak_requested"] == rows[0]["peak_requested"] and rows[1]["oom"] == 0 and "plan" not in rows[0]'
done <<'END'
resnet50_amp 9688 1.0078
gpt2_varlen 38959 1.0002
gpt2_lora_recompute 71936 1.0002
convnext_prefetch 21621 1.0185
graphsage 4590 1.0006
END

# With time for it the plan becomes better. So few blocks need little of it.
python3 - "$scratch/few.pickle" <<'END'
import pickle, random, sys
random, events, live = random.Random(1), [], []
for place in range(150):
    while live and random.random() < 0.48:
        where, size = live.pop(random.randrange(len(live)))
        for action in "free_requested", "free_completed":
            events.append({"action": action, "addr": where, "size": size, "stream": 0, "time_us": len(events)})
    where, size = place + 1 << 30, random.randrange(1, 60) << 20
    live.append((where, size))
    events.append({"action": "alloc", "addr": where, "size": size, "stream": 0, "time_us": len(events)})
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 0 replay --policy plan:time=0,plan:time=2 --repeat 1 --json - "$scratch/few.pickle"
json "rows[1]['peak_reserved'] < 0.95 * rows[0]['peak_reserved'] and rows[1]['plan']['served'] == 150"

# A job that needs more memory than the device has under the policy runs when its plan fits.
small=$DATA/traces/graphsage.pickle.gz
expect 0 replay --policy weir,plan --repeat 1 --device-memory 3.75GiB --json - "$small"
json 'rows[0]["oom"] > 0 and rows[1]["oom"] == 0'

# With a plan of half a job, the other requests are served without it.
expect 0 replay --policy weir,plan:from=0,to=50,time=0 --repeat 1 --json - "$small"
json 'rows[1]["plan"]["served"] > 2000 and rows[1]["plan"]["missed"] > 2000 and rows[1]["plan"]["late"] < 20'
json 'rows[1]["peak_reserved"] <= 1.02 * rows[0]["peak_reserved"]'

# A plan that begins in the middle of the job does not cost more either. It has the blocks that live all the time and, where the
# job repeats itself, all later ones.
for part in from=10,to=40 from=50,to=100; do
    expect 0 replay --policy "weir,plan:$part,time=0" --repeat 1 --json - "$DATA/traces/resnet50_amp.pickle.gz"
    json 'rows[1]["plan"]["served"] > 3000 and rows[1]["peak_reserved"] <= 1.01 * rows[0]["peak_reserved"]'
    json 'rows[1]["plan"]["missed"] > 5000'
done

# A plan of another job costs at most 1 % more reserved memory.
expect 0 plan --streams-apart --time 0 -o foreign.weirplan "$DATA/traces/gpt2_varlen.pickle.gz"
for trace in resnet50_amp graphsage; do
    expect 0 replay --policy weir,plan:foreign.weirplan --repeat 1 --json - "$DATA/traces/$trace.pickle.gz"
    json 'rows[1]["peak_reserved"] <= 1.01 * rows[0]["peak_reserved"] and rows[1]["oom"] == 0'
done

# A name need not be UTF-8.
cp foreign.weirplan $'f\xff.weirplan'
expect 0 replay --policy $'plan:f\xff.weirplan' --repeat 1 --json - "$small"
json 'len(rows) == 1 and rows[0]["policy"].startswith("plan:f")'

expect 2 replay --policy $'plan:f\xff.weirplan' --json $'f\xff.weirplan' "$small"
contains "$err" "is an input and would be replaced"
expect 1 replay --policy plan:absent.weirplan --repeat 1 "$small"
contains "$err" "weir replay: cannot read absent.weirplan"

# The job's own plan costs no more when the program begins later, ends earlier, or does all in another order.
for trace in resnet50_amp graphsage; do
    expect 0 convert "$DATA/traces/$trace.pickle.gz" -o job.weirtrace
    expect 0 plan --streams-apart --time 0 -o own.weirplan job.weirtrace
    for how in shifted truncated shuffled; do
        python3 "$here/../../scripts/perturb" job.weirtrace other.weirtrace "$how"
        expect 0 replay --policy weir,plan:own.weirplan --repeat 1 --json - other.weirtrace
        json 'rows[1]["peak_reserved"] <= 1.01 * rows[0]["peak_reserved"] and rows[1]["oom"] == 0'
    done
done

# Three graphs are captured in pools of their own: each gets one segment with its planned places.
expect 0 convert "$small" -o job.weirtrace
python3 "$here/../../scripts/perturb" job.weirtrace captured.weirtrace captured
expect 0 plan --streams-apart --time 0 --json - captured.weirtrace
planned=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["peak_reserved"])' "$scratch/out")
expect 0 replay --policy weir,plan:time=0 --repeat 1 --json - captured.weirtrace
json "rows[1]['plan'] == {'served': 4590, 'late': 0, 'missed': 0, 'resyncs': 0}"
json "rows[1]['peak_reserved'] == $planned < rows[0]['peak_reserved']"
json 'rows[1]["driver_calls"] < 0.5 * rows[0]["driver_calls"]'

# A plan file of the job itself.
expect 0 plan --time 0 -o own.weirplan "$small"
expect 0 replay --policy plan:own.weirplan --repeat 1 --json - "$small"
json 'rows[0]["policy"] == "plan:own.weirplan" and rows[0]["plan"]["served"] == 4590'

# Too little memory for the plan is a result, as without a plan.
expect 0 replay --policy plan --repeat 1 --device-memory 2GiB --json - "$small"
json 'rows[0]["oom"] > 0 and rows[0]["peak_reserved"] <= 2 << 30'

# Arenas of several streams cannot be served.
expect 0 plan --time 0 -o shared.weirplan "$DATA/traces/convnext_prefetch.pickle.gz"
expect 1 replay --policy plan:shared.weirplan "$DATA/traces/convnext_prefetch.pickle.gz"
contains "$err" "weir plan --streams-apart"

expect 1 replay --policy plan:missing.weirplan "$small"
contains "$err" "cannot read missing.weirplan"
name=$(printf 'a%.0s' {1..255})
expect 1 replay --policy "plan:$name" "$small"
contains "$err" "cannot read $name"
expect 2 replay --policy "plan:a$name" "$small"
contains "$err" "policy 'plan': the file's name is longer than 255 bytes"
expect 2 replay --policy plan:from=50,to=50 "$small"
contains "$err" "nothing lies between 50 and 50 percent"
expect 2 replay --policy plan:from=x "$small"
contains "$err" "'from=x' is not a number up to 100"
expect 2 replay --policy plan:to=101 "$small"
contains "$err" "'to=101' is not a number up to 100"
expect 2 replay --policy plan:time=3601 "$small"
contains "$err" "'time=3601' is not a number up to 3600"
expect 2 replay --policy plan:until=5 "$small"
contains "$err" "has no option 'until=5'"

# A program that plans its repetition by itself: the third pass holds little more than the live bytes, the first as much as weir.
while read -r trace most; do
    expect 0 replay --policy learn,weir --repeat 2 --json - "$DATA/traces/$trace.pickle.gz"
    [ -z "$err" ] || die "$trace: $err"
    json "rows[0]['fragmentation_warm'] <= $most < rows[1]['fragmentation_warm'] and rows[0]['oom'] == 0"
    json "rows[0]['peak_reserved'] == rows[1]['peak_reserved']"
done <<'END'
resnet50_amp 1.01
convnext_prefetch 1.01
graphsage 1.01
END

# Two passes to learn from come before the one that shows what was learned, however few are asked for.
expect 0 replay --policy learn --repeat 1 --json - "$small"
json 'rows[0]["fragmentation_warm"] <= 1.01 and rows[0]["plan"]["served"] > 4000'

# Streams share memory in a learned plan, unless they may not.
WEIR_PLAN_SHARE=0 expect 0 replay --policy learn --repeat 2 --json - "$DATA/traces/convnext_prefetch.pickle.gz"
json 'rows[0]["fragmentation_warm"] > 1.01'
