#!/usr/bin/env bash
# weir view: the page is well formed, has the counts of weir stat, refers to nothing outside, and runs nothing from a
# trace.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces

# report STAT-ARGUMENTS...: makes a page of the traces and takes it apart.
report()
{
    expect 0 stat --json "$scratch/stat" "$@"
    expect 0 view "$@" -o "$scratch/report.html"
    [ -z "$out$err" ] || die "view is not silent: $out$err"
    python3 "$here/report.py" "$scratch/report.html" "$scratch/stat"
}

report "$DATA"/traces/resnet50_amp.pickle.gz
report "$DATA"/traces/convnext_prefetch.pickle.gz "$DATA"/traces/graphsage.pickle.gz
for pickle in "$DATA"/pickles/*.pickle; do report "$pickle"; done
printf 'Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00.0,allocate,0x10,100,0\n' >"$scratch/log.csv"
report "$scratch/log.csv"

# Names that would be markup, and more, if they were not escaped.
hostile='</script><script>alert(1)</script><img src=x onerror=alert(2)>@js@ & "'"'"
python3 - "$scratch/<i>&\"evil.pickle" "$hostile" <<'EOF'
import pickle, sys
frames = [{"filename": sys.argv[2], "line": 1, "name": sys.argv[2]}]
events = [{"action": a, "addr": 0xffffffffffff0000, "size": 512, "stream": 1 << 63, "time_us": 1, "frames": frames} for a in ("alloc", "oom")]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat --json "$scratch/stat" "$scratch/<i>&\"evil.pickle"
expect 0 view "$scratch/<i>&\"evil.pickle" -o "$scratch/report.html"
python3 "$here/report.py" "$scratch/report.html" "$scratch/stat" "$hostile:1:$hostile"

# The picture is XML, with a path per thick band, the trace's name as text, and the peaks.
expect 0 view "$DATA"/traces/convnext_prefetch.pickle.gz "$scratch/<i>&\"evil.pickle" -o "$scratch/picture.svg"
python3 - "$scratch/picture.svg" <<'EOF'
import sys, xml.etree.ElementTree
space = "{http://www.w3.org/2000/svg}"
svg = xml.etree.ElementTree.parse(sys.argv[1]).getroot()
assert svg.tag == space + "svg"
words = [text.text for text in svg.iter(space + "text")]
assert "convnext_prefetch" in words and '<i>&"evil' in words
assert "peak requested 3.25 GiB, reserved 4.09 GiB" in words
assert 300 < sum(1 for path in svg.iter(space + "path") if path.get("fill")) <= 1600
assert [path.get("class") for path in svg.iter(space + "path")].count("line reserved") == 2  # one is the legend's
assert [path.get("class") for path in svg.iter(space + "path")].count("oom") == 1
EOF

# XML has no U+FFFE and no U+FFFF, and of control characters only white space.
strange=$'a\xef\xbf\xbe\xef\xbf\xbf\x01b.pickle'
cp "$DATA/pickles/snapshot-4.pickle" "$scratch/$strange"
expect 0 view "$scratch/$strange" -o "$scratch/picture.svg"
python3 - "$scratch/picture.svg" <<'EOF'
import sys, xml.etree.ElementTree
texts = xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("{http://www.w3.org/2000/svg}text")
assert "a\ufffd\ufffd b" in [text.text for text in texts]
EOF

# The title names each trace once, however many policies it is drawn under. The page has all of its scripts, and its style.
expect 0 view --policy recorded,torch "$DATA/pickles/snapshot-4.pickle" "$scratch/log.csv" -o "$scratch/report.html"
python3 - "$scratch/report.html" "$here"/../../tools/view/*.{js,css} <<'EOF'
import re, sys
page, *parts = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
assert re.findall("<title>(.*?)</title>", page) == ["snapshot-4, log"]
assert len(parts) == 8 and all(part in page for part in parts)
EOF

# Sizes that no device has do not keep the command from ending.
for size in 9223372036854775808 17870283321406128128 18446744073709551615; do
    printf 'Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00.0,allocate,0x10,%s,0\n' "$size" >"$scratch/huge.csv"
    timeout 60 "$WEIR" view "$scratch/huge.csv" -o "$scratch/picture.svg" || die "view of $size bytes"
    [ "$(grep -c 'iB</text>' "$scratch/picture.svg")" -lt 12 ] || die "a long scale for $size bytes"
    ! grep -E '[ VH"]-[0-9]' "$scratch/picture.svg" || die "$size bytes are outside the picture"
done

# Blocks made of many mappings, what no device has, and allocations of nothing are operations under every policy.
python3 - "$scratch/odd.pickle" <<'EOF'
import pickle, sys
blocks = [(1 << 30, 0), (2 << 30, 1 << 62)] + [((i + 3) << 32, 3 << 30) for i in range(26)]
events = [dict(action=action, addr=addr, size=size, stream=0, time_us=1) for action, some in
          (("alloc", blocks), ("free_requested", blocks[:2]), ("free_completed", blocks[:2])) for addr, size in some]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 view --policy recorded,torch,weir --json "$scratch/odd" "$scratch/odd.pickle" -o "$scratch/report.html"
python3 - "$scratch/odd" <<'EOF'
import json, sys
views = json.load(open(sys.argv[1]))
assert [view["policy"] for view in views] == ["recorded", "torch", "weir"]
assert [view["operations"] for view in views] == [30, 30, 30], views
assert [view["oom"] for view in views] == [0, 1, 1], views
EOF

# Under policy torch the recorded job comes out as it was recorded; every policy has the same operations.
expect 0 stat --json "$scratch/one" "$DATA"/traces/graphsage.pickle.gz
python3 -c 'import json, sys; json.dump(2 * json.load(open(sys.argv[1])), open(sys.argv[2], "w"))' "$scratch/one" "$scratch/stat"
expect 0 view --policy recorded,torch "$DATA"/traces/graphsage.pickle.gz -o "$scratch/report.html"
python3 "$here/report.py" "$scratch/report.html" "$scratch/stat"

# tracks EXPRESSION: evaluates Python on the tracks of the last page.
tracks()
{
    python3 -c 'import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
tracks = json.loads(re.search("id=\"about\">(.*?)</script>", page, re.S).group(1))["tracks"]
counts = [{column["name"]: column["count"] for column in track["columns"]} for track in tracks]
assert eval(sys.argv[2]), (sys.argv[2], counts)' "$scratch/report.html" "$1" || die "$1"
}

# Of a stack with compiled code the page first shows the program's lines; the whole stack is there, too.
python3 - "$scratch/compiled.pickle" <<'EOF'
import pickle, sys
names = ["torch::unwind::unwind()", "at::native::empty_cuda(...)"]
frames = [{"filename": "??", "line": 0, "name": name} for name in names]
frames += [{"filename": "model.py", "line": line, "name": "loss"} for line in range(1, 9)]
events = [{"action": a, "addr": 1 << 20, "size": 512, "stream": 0, "time_us": 1, "frames": frames} for a in ("alloc", "oom")]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
report "$scratch/compiled.pickle"
tracks "[tracks[0]['frames'][frame] for frame in tracks[0]['callers'][1]] == [f'model.py:{line}:loss' for line in range(1, 7)]"
tracks "[len(stack) for stack in tracks[0]['stacks']] == [0, 10]"

# With less memory, failures are shown, and operations keep their places.
expect 0 view -p recorded -p torch,weir -m 3400M "$DATA"/traces/graphsage.pickle.gz -o "$scratch/report.html"
"$WEIR" replay --policy torch -m 3400M --repeat 1 --json "$scratch/replay" "$DATA"/traces/graphsage.pickle.gz >"$scratch/table" 2>&1
failed=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["oom"])' "$scratch/replay")
tracks "[track['title'] for track in tracks] == ['graphsage, recorded', 'graphsage, torch', 'graphsage, weir']"
tracks "len({count['time'] for count in counts}) == 1 and len({count['block.from'] for count in counts}) == 1"
tracks "counts[1]['oom.moment'] == $failed > 10 and counts[2]['oom.moment'] > 0 and counts[0]['oom.moment'] == 0"

# rows EXPRESSION: the same of the columns of each track, by name.
rows()
{
    python3 -c 'import base64, itertools, json, re, sys, zlib
page = open(sys.argv[1], encoding="utf-8").read()
def columns(track, text):
    values, value, shift = [], 0, 0
    for byte in zlib.decompress(base64.b64decode(text, validate=True)):
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            values, value, shift = [*values, value], 0, 0
    starts = itertools.accumulate((about["count"] for about in track["columns"]), initial=0)
    return {about["name"]: values[at : at + about["count"]] for at, about in zip(starts, track["columns"])}
def addresses(track, row, name):
    steps = (-(step + 1) // 2 if step % 2 else step // 2 for step in row[name])
    return list(itertools.accumulate(steps, initial=int(track["base"], 16)))[1:]
tracks = json.loads(re.search("id=\"about\">(.*?)</script>", page, re.S).group(1))["tracks"]
texts = re.findall("id=\"data-[0-9]+\">(.*?)</script>", page, re.S)
rows = [columns(track, text) for track, text in zip(tracks, texts)]
assert eval(sys.argv[2]), (sys.argv[2], rows)' "$scratch/report.html" "$1" || die "$1"
}

# In a replay, what was asked for nothing and what failed come from where they did when recorded, like all else.
python3 - "$scratch/none.pickle" <<'EOF'
import pickle, sys
rows = [(0, 512), (1 << 20, 1 << 21), (1 << 30, 1 << 40)]
events = [{"action": "alloc", "addr": at, "size": size, "stream": 0, "time_us": 1,
           "frames": [{"filename": "f.py", "line": size, "name": "g"}]} for size, at in rows]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 view --policy recorded,torch -m 512M "$scratch/none.pickle" -o "$scratch/report.html"
tracks "counts[1]['oom.moment'] == 1"
rows '[row["block.stack"] for row in rows] == [[1, 2, 3], [1, 2, 3]]'

# Everything that a trace has of a block, a segment and a failure is in the page. Times are whole microseconds.
python3 - "$scratch/all.weirtrace" <<'EOF'
import struct, sys
events = [  # nanoseconds, address, bytes, stream, pool, kind, device, thread, stack
    (1000, 0x7000, 4096, 7, 3, 4, 0, 1, 1), (1900, 0x7200, 512, 7, 3, 1, 0, 1, 1), (2100, 0x6000, 4096, 0, 0, 6, 1, 2, 2),
    (3800, 0x6800, 256, 0, 0, 1, 1, 2, 2), (3900, 0x7800, 128, 7, 3, 1, 0, 3, 0), (4000, 77, 9999, 0, 0, 8, 1, 4, 2),
    (4100, 0x7200, 512, 7, 3, 2, 0, 1, 1), (5000, 88, 8888, 7, 3, 8, 0, 4, 1)]
frames = [b"one.py:1:f", b"two.py:2:g"]
data = struct.pack("<8s2H3I2Q2I2Q", b"weirtrc\n", 1, 3, 64, 60, 0, len(events), 0, 2, 2, 0, 0)
data += b"".join(struct.pack("<6Q2HII", *event[:4], 0, *event[4:]) for event in events)
data += b"".join(struct.pack("<I", len(frame)) + frame for frame in frames) + struct.pack("<4I", 1, 0, 1, 1)
open(sys.argv[1], "wb").write(data)
EOF
expect 0 view "$scratch/all.weirtrace" -o "$scratch/report.html"
tracks 'tracks[0]["lanes"] == [{"device": 0, "pool": "0,3", "stream": "0x7"}, {"device": 1, "pool": "0,0", "stream": "0x0"}]'
tracks '(tracks[0]["format"], tracks[0]["has_segments"], tracks[0]["base"]) == ("weir", True, "0x6000")'
tracks 'tracks[0]["frames"] == ["one.py:1:f", "two.py:2:g"] and tracks[0]["stacks"] == [[], [0], [1]]'
rows '[rows[0]["block." + name] for name in ("lane", "stack", "thread", "bytes")] == [[0, 1, 0], [1, 2, 0], [1, 2, 3], [512, 256, 128]]'
rows '[rows[0]["block." + name] for name in ("from", "freed", "until")] == [[1, 1, 1], [4, 0, 0], [0, 0, 0]]'
rows 'addresses(tracks[0], rows[0], "block.address") == [0x7200, 0x6800, 0x7800]'
rows '[rows[0]["segment." + name] for name in ("from", "until", "bytes", "lane", "mapped")] == [[1, 1], [0, 0], [4096, 4096], [0, 1], [0, 1]]'
rows 'addresses(tracks[0], rows[0], "segment.address") == [0x7000, 0x6000]'
rows '[rows[0]["oom." + name] for name in ("moment", "bytes", "free", "lane", "stack")] == [[4, 1], [9999, 8888], [77, 88], [1, 0], [2, 1]]'
rows 'rows[0]["time"] == [0, 0, 2, 0, 1, 1]'
expect 0 view "$scratch/log.csv" -o "$scratch/report.html"
tracks '(tracks[0]["has_segments"], tracks[0]["base"], tracks[0]["lanes"][0]["pool"]) == (False, "0x10", "0,0")'

# A trace that begins late, with stacks: a replay has the same blocks from before, and says where they came from.
python3 - "$DATA"/traces/resnet50_amp.pickle.gz "$scratch/late.pickle" <<'EOF'
import gzip, pickle, sys
snapshot = pickle.load(gzip.open(sys.argv[1]))
events = snapshot["device_traces"][0]
snapshot["device_traces"][0] = events = events[len(events) // 2 :]
for e in events:
    e["frames"] = [{"filename": "f.py", "line": e["size"] % 7, "name": "g"}]
pickle.dump(snapshot, open(sys.argv[2], "wb"))
EOF
expect 0 view --policy recorded,torch "$scratch/late.pickle" -o "$scratch/report.html"
tracks "tracks[0]['peaks']['requested'] == tracks[1]['peaks']['requested'] > 0"
tracks "counts[0]['block.from'] == counts[1]['block.from'] and tracks[0]['frames'] == tracks[1]['frames'] != []"
tracks "tracks[1]['peaks']['reserved'] > 0 and tracks[0]['peaks']['active'] == tracks[1]['peaks']['active']"

# Blocks from before for which the memory is too small are failures as in the replay.
expect 0 view --policy torch,weir -m 256M "$scratch/late.pickle" -o "$scratch/report.html"
"$WEIR" replay --policy torch,weir -m 256M --repeat 1 --json "$scratch/replay" "$scratch/late.pickle" >"$scratch/table" 2>&1
failed=$(python3 -c 'import json, sys; print([row["oom"] for row in json.load(open(sys.argv[1]))])' "$scratch/replay")
tracks "[count['oom.moment'] for count in counts] == $failed and min($failed) > 0"

# The same holds for weir's own format.
expect 0 convert "$scratch/late.pickle" -o "$scratch/late.weirtrace"
expect 0 view "$scratch/late.pickle" "$scratch/late.weirtrace" -o "$scratch/report.html"
tracks "tracks[0]['frames'] == tracks[1]['frames'] != [] and tracks[0]['stacks'] == tracks[1]['stacks']"

# A block that was freed before the first event, and still waits for a stream at the end, is not in use in a replay either.
python3 - "$scratch/waits.pickle" <<'EOF'
import pickle, sys
at, mib = 0x7f0000000000, 1 << 20
rows = [("alloc", at + 8 * mib), ("free_requested", at + 8 * mib), ("free_completed", at + 8 * mib)]
events = [{"action": action, "addr": addr, "size": mib, "stream": 0, "time_us": 1} for action, addr in rows]
block = {"address": at, "size": 8 * mib, "requested_size": 8 * mib, "state": "active_pending_free"}
segment = {"address": at, "device": 0, "stream": 0, "total_size": 20 * mib, "blocks": [block]}
pickle.dump({"segments": [segment], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 view --json - --policy recorded,torch,weir "$scratch/waits.pickle" -o "$scratch/report.html"
json '[(row["peak_requested"] >> 20, row["peak_active"] >> 20) for row in rows] == [(1, 9)] * 3'

# Reserved bytes agree with the replay, even when part of the memory mapped for blocks from before is unmapped later.
python3 - "$DATA"/traces/graphsage.pickle.gz "$scratch/half.pickle" <<'EOF'
import gzip, pickle, sys
snapshot = pickle.load(gzip.open(sys.argv[1]))
events = snapshot["device_traces"][0]
snapshot["device_traces"][0] = events[len(events) // 2 :]
pickle.dump(snapshot, open(sys.argv[2], "wb"))
EOF
expect 0 view --policy weir,torch "$scratch/half.pickle" -o "$scratch/report.html"
"$WEIR" replay --policy weir,torch --repeat 1 --json "$scratch/replay" "$scratch/half.pickle" >"$scratch/table" 2>&1
replayed=$(python3 -c 'import json, sys; print([row["peak_reserved"] for row in json.load(open(sys.argv[1]))])' "$scratch/replay")
tracks "[track['peaks']['reserved'] for track in tracks] == $replayed"

# The drawn figures as JSON: those of weir stat for the recording, and of weir replay for the replay.
expect 0 view --json "$scratch/drawn" --policy recorded,torch "$DATA"/traces/graphsage.pickle.gz -o "$scratch/report.html"
[ -z "$out$err" ] || die "view is not silent: $out$err"
"$WEIR" replay --policy torch --repeat 1 --json "$scratch/replay" "$DATA"/traces/graphsage.pickle.gz >"$scratch/table" 2>&1
python3 - "$scratch/drawn" "$scratch/one" "$scratch/replay" <<'EOF'
import json, sys
(recorded, torch), (stat,), (replay,) = (json.load(open(path)) for path in sys.argv[1:])
assert [(t["trace"], t["policy"]) for t in (recorded, torch)] == [("graphsage", "recorded"), ("graphsage", "torch")]
assert recorded["peak_requested"] == stat["peak_requested"] and recorded["peak_reserved"] == stat["peak_reserved"]
assert recorded["operations"] == torch["operations"] == stat["operations"] == replay["operations"] == 9177
assert recorded["oom"] == torch["oom"] == 0
assert torch["peak_reserved"] == replay["peak_reserved"] and torch["blocks"] > 0
EOF
expect 0 view --json - "$scratch/log.csv" -o "$scratch/report.html"
json 'rows[0]["peak_reserved"] is None and rows[0]["peak_requested"] == 100 == rows[0]["peak_active"]'
expect 0 view "$scratch/log.csv" -o "$scratch/picture.svg"
[[ $(<"$scratch/picture.svg") != *">reserved<"* ]] || die "the legend has a line that is not there"

"$WEIR" view --format html -o - - <"$DATA/pickles/snapshot-4.pickle" >"$scratch/page"
grep -q '<title>stdin</title>' "$scratch/page" || die "no page on stdout"
expect 1 view "$scratch/nothing" -o "$scratch/none.html"
[ ! -e "$scratch/none.html" ] || die "a page of nothing"
expect 1 view "$DATA/pickles/snapshot-4.pickle" -o "$scratch/no/folder.html"
contains "$err" "cannot write"
expect 2 view x
contains "$err" "no output given"
expect 2 view x -o y.png
contains "$err" "does not say which format"
expect 2 view x -o y --format picture
contains "$err" "choose from html, svg"
expect 2 view x -o y.html --policy torhc
contains "$err" "did you mean 'torch'?"
expect 2 view x -o y.html -m 1
contains "$err" "is not a size from 2 MiB to 16 TiB"
expect 2 view -p weir -m 128TiB -o x.svg x
contains "$err" "is not a size from 2 MiB to 16 TiB"
expect 2 view -o y.html
contains "$err" "no trace given"

# Where allocations failed after max_split_size had chosen what went for them, policy torch comes out as recorded, too, but for
# what failed.
python3 "$here/../torch_short.py" "$scratch" 4 460
for ((job = 0; job < 4; job++)); do
    expect 0 view --json - --policy recorded,torch "$scratch/job-$job.pickle" -o "$scratch/report.html"
    json 'rows[0]["oom"] > 0 and rows[1]["oom"] == 0'
    json 'all(rows[0][of] == rows[1][of] for of in ("operations", "blocks", "peak_requested", "peak_active", "peak_reserved"))'
done

# Also where what failed finds room in the replay.
python3 - "$scratch/fits.pickle" <<'END'
import pickle, sys
MIB, SMALL, LARGE = 1 << 20, 1 << 40, 2 << 40
events = [("segment_alloc", SMALL, 2 * MIB), ("alloc", SMALL, 512), ("segment_alloc", LARGE, 40 * MIB), ("alloc", LARGE, 40 * MIB),
          ("free_requested", LARGE, 40 * MIB), ("free_completed", LARGE, 40 * MIB), ("segment_free", LARGE, 40 * MIB),
          ("oom", 0, 512), ("segment_alloc", LARGE, 60 * MIB), ("alloc", LARGE, 60 * MIB)]
events = [{"action": action, "addr": addr, "size": size, "stream": 0} for action, addr, size in events]
settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": 20 * MIB, "garbage_collection_threshold": 0.0}
pickle.dump({"segments": [], "device_traces": [events], "allocator_settings": settings}, open(sys.argv[1], "wb"))
END
expect 0 view --json - --policy recorded,torch "$scratch/fits.pickle" -o "$scratch/report.html"
json '[row["peak_requested"] for row in rows] == 2 * [(60 << 20) + 512]'

# Streams and pools are the recording's, also where one stream is in several pools and one pool has several streams.
python3 - "$scratch/pools.pickle" <<'END'
import pickle, sys
MIB, events = 1 << 20, []
for n, (stream, pool) in enumerate([(7, (0, 0)), (7, (0, 5)), (7, (3, 9)), (8, (0, 5)), (7, (0, 0))]):
    for action, size in (("segment_alloc", 20 * MIB), ("alloc", (3 + n) * MIB)):
        events.append({"action": action, "addr": n + 1 << 40, "size": size, "stream": stream, "time_us": len(events), "frames": [],
                       "pool_id": pool})
pickle.dump({"segments": [], "device_traces": [events], "allocator_settings": {}}, open(sys.argv[1], "wb"))
END
expect 0 view --json - --policy recorded,torch,weir "$scratch/pools.pickle" -o "$scratch/report.html"
[ "$(grep -o '"lanes":\[[^]]*\]' "$scratch/report.html" | sort | uniq -c | awk '{print $1}')" = 3 ] || die "lanes differ"
contains "$(<"$scratch/report.html")" '"pool":"3,9","stream":"0x7"'

# One operation of a replay may take thousands of events: nothing of them is lost, and nothing comes twice.
python3 - "$scratch/wide.pickle" <<'END'
import pickle, sys
events = [{"action": "alloc", "addr": at << 40, "size": gib << 30, "stream": 0, "time_us": at} for at, gib in ((1, 64), (2, 1))]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 0 view --json - --policy recorded,weir "$scratch/wide.pickle" -o "$scratch/report.html"
json '[(row["operations"], row["blocks"], row["peak_requested"] >> 30) for row in rows] == 2 * [(2, 2, 65)]'
json 'rows[1]["peak_reserved"] == rows[1]["peak_requested"]'
tracks "counts[1]['segment.from'] > 2000"
