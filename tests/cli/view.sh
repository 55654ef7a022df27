#!/usr/bin/env bash
# weir view: the page is well formed, holds what weir stat counts, refers to nothing outside, and runs nothing of what
# a trace says.
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

# The picture is XML, holds a path per thick band, the trace's name as text, and says the peaks.
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

"$WEIR" view --format html -o - - <"$DATA/pickles/snapshot-4.pickle" | grep -q '<title>stdin</title>' || die "no page on stdout"
expect 1 view "$scratch/nothing" -o "$scratch/none.html"
[ ! -e "$scratch/none.html" ] || die "a page of nothing"
expect 1 view "$DATA/pickles/snapshot-4.pickle" -o "$scratch/no/folder.html"
contains "$err" "cannot write"
expect 2 view x
contains "$err" "where to?"
expect 2 view x -o y.png
contains "$err" "does not tell the format"
expect 2 view x -o y --format png
contains "$err" "known are html, svg"
expect 2 view -o y.html
contains "$err" "which trace?"
