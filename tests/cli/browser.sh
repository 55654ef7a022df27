#!/usr/bin/env bash
# The page of weir view in a browser: it starts without an error and shows what weir stat says. Skipped without Chromium.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "no chromium"; exit 77; }

# dump PAGE-AND-ADDRESS [SIZE]: prints the page after its scripts ran.
dump()
{
    timeout 60 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$scratch/profile" --window-size="${2:-1280,900}" \
        --virtual-time-budget=10000 --dump-dom "file://$1" >"$scratch/dom" 2>"$scratch/browser-log" ||
        { echo "chromium does not run here"; exit 77; }
}

# shows STAT: the page is good and its table says what the JSON says.
shows()
{
    python3 - "$scratch/dom" "$1" <<'EOF'
import json, re, sys
dom, stats = open(sys.argv[1], encoding="utf-8").read(), json.load(open(sys.argv[2]))
assert 'data-state="ready"' in dom, re.findall(r'<body[^>]*>|id="failure"[^>]*>[^<]*', dom)
rows = [dict(re.findall(r'data-(\w+)="(\d+)"', row)) for row in re.findall(r"<tr ([^>]*)>", dom)]
assert len(rows) == len(stats), (rows, dom[-400:])
for row, stat in zip(rows, stats):
    for name in "requested", "active", "reserved":
        assert int(row[name]) == (stat["peak_" + name] or 0), (name, row, stat["peak_" + name]) # none without segments
    assert int(row["operations"]) == stat["operations"]
    assert int(row["allocations"]) == sum(life["count"] for life in stat["lifetimes"])
EOF
}

traces=("$DATA"/traces/convnext_prefetch.pickle.gz "$DATA"/traces/graphsage.pickle.gz "$DATA"/pickles/snapshot-4.pickle)
expect 0 stat --json "$scratch/stat" "${traces[@]}"
expect 0 view "${traces[@]}" -o "$scratch/report.html"
dump "$scratch/report.html#theme=dark&axis=time&colour=pool&device=0&search=%3E50MiB"
shows "$scratch/stat"
dom=$(<"$scratch/dom")
contains "$dom" 'data-theme="dark"'
contains "$dom" 'device 0 · pool 0,7'
matches=$(grep -o '[0-9]* allocations, [^<]*' "$scratch/dom" | head -1)
[ "${matches%% *}" -gt 100 ] || die "search found $matches"

# Wheel, drag, keys, pointing, clicking and searching; in a narrow window too.
expect 0 view "$DATA"/traces/convnext_prefetch.pickle.gz -o "$scratch/report.html"
{ cat "$scratch/report.html"; echo "<script>"; cat "$here/interact.js"; echo "</script>"; } >"$scratch/hands.html"
for size in 1280,900 500,800; do
    dump "$scratch/hands.html" "$size"
    grep -q 'data-interact="passed"' "$scratch/dom" || die "window of $size: $(grep -o 'id="failure"[^<]*' "$scratch/dom")"
done

# A link steps through what was found. Marks of a scale of time read differently however close they are.
for step in 1 5 -1; do
    dump "$scratch/report.html#search=%3E20MiB&step=$step"
    found=$(grep -o '[0-9,]* allocations, [^<]*' "$scratch/dom" | head -1)
    wanted=$step
    if [ "$step" = -1 ]; then wanted=${found%% *}; fi
    contains "$found" " in all (number $wanted)"
done
cat >"$scratch/times.js" <<'EOF'
for (const [from, apart] of [[13.949e6, 100], [13.949e6, 0.5e6], [999000, 200], [5000, 1], [0, 20]]) {
  const marks = [0, 1, 2, 3, 4].map((i) => Text.time(from + i * apart, apart));
  if (new Set(marks).size !== marks.length) document.body.dataset.times = marks.join(", ");
}
document.body.dataset.times ??= "apart";
EOF
{ cat "$scratch/report.html"; echo "<script>"; cat "$scratch/times.js"; echo "</script>"; } >"$scratch/times.html"
dump "$scratch/times.html"
grep -q 'data-times="apart"' "$scratch/dom" || die "marks read the same: $(grep -o 'data-times="[^"]*"' "$scratch/dom")"

# What is not recorded is not said to be nothing.
printf 'Thread,Time,Action,Pointer,Size,Stream\n1,10:00:10.000,allocate,0x1000,1048576,0x0\n' >"$scratch/log.csv"
expect 0 view "$scratch/log.csv" -o "$scratch/report.html"
dump "$scratch/report.html"
[[ $(<"$scratch/dom") != *"reserved 0 B"* ]] || die "reserved bytes of a trace without segments"

# Segments of more streams than a canvas has room for: those that fit are drawn.
python3 - "$scratch/streams.pickle" <<'EOF'
import pickle, sys
events = [{"action": action, "addr": stream << 21, "size": 1 << 21, "stream": stream, "time_us": stream}
          for stream in range(3000) for action in ("segment_alloc", "alloc")]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 view "$scratch/streams.pickle" -o "$scratch/report.html"
dump "$scratch/report.html"
python3 - "$scratch/dom" <<'EOF'
import re, sys
tall = max(map(int, re.findall(r'<canvas[^>]* height="([0-9]+)"', open(sys.argv[1], encoding="utf-8").read())))
assert 16384 < tall <= 32767, tall
EOF

# A trace whose names try to run something.
python3 - "$scratch/evil.pickle" <<'EOF'
import pickle, sys
name = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
frames = [{"filename": name, "line": 1, "name": name}]
events = [{"action": "alloc", "addr": 1 << 20, "size": 512, "stream": 0, "time_us": 1, "frames": frames}]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat --json "$scratch/stat" "$scratch/evil.pickle"
expect 0 view "$scratch/evil.pickle" -o "$scratch/report.html"
dump "$scratch/report.html#search=onerror&step=1"
shows "$scratch/stat"
dom=$(<"$scratch/dom")
contains "$dom" "<title>evil</title>"
contains "$dom" '&lt;img src=x onerror='
contains "$dom" "1 allocation, 512 B in all"
