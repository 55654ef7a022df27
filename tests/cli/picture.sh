#!/usr/bin/env bash
# weir view -o picture.svg: what is where in the picture, found again from its paths and counted independently.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# Two traces of different lengths: allocations, frees that wait and frees that do not, segments, and a failure.
cat >"$scratch/trace.py" <<'EOF'
import pickle, random, sys
MIB, AT = 1 << 20, 1 << 32


class Trace:
    """Levels by moment, and blocks as [from, freed, until, bytes, address]; None: never. One is from before."""

    def __init__(self, seed, operations):
        self.events, self.blocks, self.levels, self.ooms = [], [[0, None, None, 9 * MIB, AT - 16 * MIB]], [(9 * MIB, 9 * MIB, 0)], []
        self.now, self.reserved, self.top = 0, 0, AT
        choose = random.Random(seed)
        while self.now < operations:
            if choose.random() < 0.6 or not [b for b in self.blocks if b[1] is None]:
                self.alloc(choose.randint(1, 6) * MIB)
            else:
                self.free(choose.choice([b for b in self.blocks if b[1] is None]), choose.random() < 0.5)
        if self.blocks[0][1] is None:
            self.free(self.blocks[0], False)
        self.level()  # the last moment is after everything

    def event(self, action, address, size):
        self.events.append({"action": action, "addr": address, "device_free": 0, "size": size, "stream": 0, "time_us": len(self.events)})

    def level(self):
        live = [b for b in self.blocks if b[1] is None or b[1] > self.now]
        active = [b for b in self.blocks if b[2] is None or b[2] > self.now]
        self.levels.append((sum(b[3] for b in live), sum(b[3] for b in active), self.reserved))

    def alloc(self, size):
        for b in [b for b in self.blocks if b[1] is not None and b[2] is None and b[1] < self.now]:
            self.event("free_completed", b[4], b[3])
            b[2] = self.now + 1
        if self.now == 5:
            self.event("oom", 0, 48 * MIB)
            self.ooms.append(self.now + 1)
        self.event("segment_alloc", self.top, 7 * MIB)
        self.event("alloc", self.top, size)
        self.now += 1
        self.reserved += 7 * MIB
        self.blocks.append([self.now, None, None, size, self.top])
        self.top += 8 * MIB
        self.level()

    def free(self, block, waits):
        self.event("free_requested", block[4], block[3])
        self.now += 1
        block[1] = self.now
        if not waits:
            self.event("free_completed", block[4], block[3])
            block[2] = self.now
        self.level()


traces = [Trace(8, 43), Trace(12, 12)]
if __name__ == "__main__":
    for name, trace in zip(sys.argv[1:], traces):
        pickle.dump({"segments": [], "device_traces": [trace.events]}, open(name, "wb"))
EOF
python3 "$scratch/trace.py" "$scratch/long.pickle" "$scratch/short.pickle"

cat >"$scratch/picture.py" <<'EOF'
import re, sys, xml.etree.ElementTree
from trace import MIB, traces

assert max(level[1] for level in traces[0].levels) > max(level[0] for level in traces[0].levels)
LEFT, COLUMNS, TOP, BOTTOM, SPACE = 84, 1100, 40, 30, "{http://www.w3.org/2000/svg}"
svg = xml.etree.ElementTree.parse(sys.argv[1]).getroot()
traces = traces[: int(sys.argv[2])]
height = 250 if len(traces) > 1 else 420
longest = max(len(trace.levels) for trace in traces)
most = max(max(level) for trace in traces for level in trace.levels)
most += most // 32


def place(text):
    """The points of a path."""
    x = y = 0
    for letter, numbers in re.findall("([A-Za-z])([-0-9. ]*)", text):
        values = [float(value) for value in numbers.split()]
        if letter == "M":
            first = x, y = values
        elif letter == "H":
            x = values[0]
        elif letter == "V":
            y = values[0]
        else:
            x, y = first
        yield x, y


def cut(path, x):
    """Where its horizontal edges pass over x."""
    points = list(place(path.get("d")))
    return sorted(a[1] for a, b in zip(points, points[1:]) if a[1] == b[1] and min(a[0], b[0]) < x < max(a[0], b[0]))


def column(moment):
    return LEFT + moment * COLUMNS // longest


def ends(path):
    return min(x for x, y in place(path.get("d"))), max(x for x, y in place(path.get("d")))


def written(size):
    """As in tables, for sizes from 1 MiB to 1 GiB."""
    return f"{size / MIB:.{2 if size < 10 * MIB else 1 if size < 100 * MIB else 0}f} MiB"


def near(found, wanted):
    return len(found) == len(wanted) and all(abs(a - b) < 0.11 for a, b in zip(found, wanted))


rules = [i for i, path in enumerate(svg) if path.get("class") == "rule"]
assert len(rules) == len(traces) and svg.get("viewBox") == f"0 0 1200 {len(traces) * (TOP + height + BOTTOM) + 26}"
begin = 0
for i, (trace, rule) in enumerate(zip(traces, rules)):
    top = i * (TOP + height + BOTTOM) + TOP
    y = lambda size: top + height * (1 - size / most)
    plot, begin = svg[begin : rule + 1], rule + 1
    paths = {path.get("class"): path for path in plot if path.tag == SPACE + "path"}
    bands = [path for group in plot if group.tag == SPACE + "g" for path in group]
    moments = len(trace.levels)
    titles = [text.text for text in plot if text.get("y") == str(top - 18)]
    peaks = [written(max(level[k] for level in trace.levels)) for k in (0, 2)]
    assert titles == [("long", "short")[i], "peak requested {}, reserved {}".format(*peaks)], (titles, peaks)
    width = (column(0), LEFT + moments * COLUMNS // longest)
    # The lines and the area behind the bands are as long as the trace, and at each moment as high as they should be.
    assert all(ends(paths[name]) == width for name in ("small", "line active", "line requested", "line reserved"))
    for moment, (requested, active, reserved) in enumerate(trace.levels):
        x = (column(moment) + LEFT + (moment + 1) * COLUMNS // longest) // 2 + 0.5
        for name, level in ("line requested", requested), ("line active", active), ("line reserved", reserved):
            assert near(cut(paths[name], x), [y(level)]), (name, moment, cut(paths[name], x), y(level))
        assert active == 0 or near(cut(paths["small"], x), [y(active), y(0)])
        # Each band that is there then lies on the older ones, from its first column on.
        wanted, lower = [], 0
        for since, _, until, size, _ in trace.blocks:
            if since <= moment and (until is None or moment < until):
                wanted.append([y(lower + size), y(lower)])
                lower += size
        for at in column(moment) + 0.5, x:
            edges = sorted((edge for edge in (cut(band, at) for band in bands) if edge), reverse=True)
            assert len(edges) == len(wanted) and all(map(near, edges, sorted(wanted, reverse=True))), (moment, edges, wanted)
    assert len(bands) == len(trace.blocks) and len({band.get("fill") for band in bands}) > 4
    wanted = [(column(b[0]), column(b[2] or moments)) for b in trace.blocks]
    assert sorted(map(ends, bands)) == sorted(wanted), (sorted(map(ends, bands)), sorted(wanted))
    thick = [len(group) for group in plot if group.tag == SPACE + "g" and group.get("class") == "band"]
    assert thick == [sum(b[3] > 3 * (most // height + 1) for b in trace.blocks)]
    marks = [path.get("d").split("h")[0] for path in plot if path.get("class") == "oom"]
    assert marks == [f"M{column(moment) - 6} {top - 12}" for moment in trace.ooms] != [], marks
    assert [path[0].text for path in plot if path.get("class") == "oom"] == ["Out of memory: 48.0 MiB"] * len(marks)

# Each scale has round numbers, each beside what it stands for.
plots = [[text for text in svg[a + 1 : b]] for a, b in zip(rules, rules[1:] + [len(svg)])]
for i, texts in enumerate(plots):
    texts = [text for text in texts if text.get("text-anchor") == "middle" or text.get("x") == str(LEFT - 8)]
    top = i * (TOP + height + BOTTOM) + TOP
    bytes = [text for text in texts if text.get("x") == str(LEFT - 8)]
    step = min(1 << k for k in range(40) if most // (1 << k) <= height // 45)
    wanted = [k * step for k in range(most // step + 1)]
    assert [text.text for text in bytes] == ["0 B", *map(written, wanted[1:])], [text.text for text in bytes]
    assert near([float(text.get("y")) for text in bytes], [top + height * (1 - size / most) + 4 for size in wanted])
    moments = [text for text in texts if text.get("text-anchor") == "middle"]
    assert [(text.text, int(text.get("x"))) for text in moments] == [(str(m), column(m)) for m in range(0, longest, 5)]
EOF

expect 0 view "$scratch/long.pickle" -o "$scratch/picture.svg"
python3 "$scratch/picture.py" "$scratch/picture.svg" 1
expect 0 view "$scratch/long.pickle" "$scratch/short.pickle" -o "$scratch/picture.svg"
python3 "$scratch/picture.py" "$scratch/picture.svg" 2

# Names, peaks and lines are of what the trace has: an RMM log has no segments, and a trace may have no allocation at all.
printf 'Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00.0,allocate,0x10,100,0\n' >"$scratch/log.csv"
printf 'Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00.0,allocate failure,0x0,100,0\n' >"$scratch/none.csv"
expect 0 view "$scratch/log.csv" "$scratch/none.csv" -o "$scratch/picture.svg"
contains "$(<"$scratch/picture.svg")" '<title>log, none</title>'
contains "$(<"$scratch/picture.svg")" '>peak requested 100 B</text>'
expect 0 view "$scratch/none.csv" -o "$scratch/picture.svg"
contains "$(<"$scratch/picture.svg")" '>peak requested 0 B</text>'
! grep -E '[^a-z](-?nan|-?inf)' "$scratch/picture.svg" || die "no numbers"

# Where a column has many moments, the highest of them is drawn: a peak of one operation among thousands.
python3 - "$scratch/dense.pickle" <<'EOF'
import pickle, sys
sizes = [1 << 20] * 4000
sizes[1234] = 33 << 20
events = [{"action": action, "addr": 1 << 32, "size": size, "stream": 0, "time_us": 1} for size in sizes
          for action in ("alloc", "free_requested", "free_completed")]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 view "$scratch/dense.pickle" -o "$scratch/picture.svg"
python3 - "$scratch/picture.svg" <<'EOF'
import re, sys
text = open(sys.argv[1]).read()
most = (33 << 20) + (33 << 20) // 32
low, high = (f"{40 + 420 * (1 - (size << 20) / most):.1f}" for size in (1, 33))
for name in "active", "requested":
    path = re.search(f'class="line {name}" d="(.*?)"', text).group(1)
    assert path == f"M84 {low}H{84 + 2469 * 1100 // 8002} V{high}H{84 + 2469 * 1100 // 8002 + 1} V{low}H1184", path
EOF

# A trace much shorter than another one still has a column, with its band.
expect 0 view "$scratch/dense.pickle" "$scratch/log.csv" -o "$scratch/picture.svg"
[ "$(grep -c 'class="line [a-z]*" d="M84 [0-9.]*\(V[0-9.]*\)\?H85"' "$scratch/picture.svg")" = 2 ] || die "no column"

# bands: the blocks given as "FIRST-LAST:KIB", by operations, are drawn; then $scratch/bands has their paths.
bands()
{
    python3 - "$scratch/bands.pickle" "$@" <<'EOF'
import pickle, sys
at, free = {}, {}
for number, text in enumerate(sys.argv[2:]):
    span, size = text.split(":")
    first, last = map(int, span.split("-"))
    at[first], free[last] = (number << 32, int(size) << 10), (number << 32, int(size) << 10)
events = []
for moment in range(1, max(free) + 1):
    names = ["alloc"] if moment in at else ["free_requested", "free_completed"]
    addr, size = at.get(moment) or free.get(moment) or (1 << 60, 0)  # the free of an empty block from before
    events += [{"action": name, "addr": addr, "size": size, "stream": 0, "time_us": 1} for name in names]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
    expect 0 view "$scratch/bands.pickle" -o "$scratch/picture.svg"
    grep '<path fill' "$scratch/picture.svg" >"$scratch/bands" || :
}

# What would be too narrow, too low or too small to see is left out.
bands 1-999:32768 100-101:8192 102-103:60 104-105:16384 110-990:8
[ "$(wc -l <"$scratch/bands")" = 3 ] || die "other bands: $(<"$scratch/bands")"
expect 0 view "$scratch/dense.pickle" -o "$scratch/picture.svg"
[ "$(grep -c '<path fill' "$scratch/picture.svg")" = 0 ] || die "narrow bands"

# A band has a column at least, also where the next moment is in the same one.
# shellcheck disable=SC2046 # several words
bands $(for ((i = 1; i < 1466; i += 2)); do echo "$i-$((i + 1)):1024"; done)
[ "$(wc -l <"$scratch/bands")" = 733 ] || die "$(wc -l <"$scratch/bands") bands"
! grep -E 'd="M([0-9]+) [0-9.]+H\1V' "$scratch/bands" || die "bands without a column"

# Of more than 800 the largest are drawn.
# shellcheck disable=SC2046 # several words
bands $(for ((i = 1; i < 1002; i++)); do echo "$i-$((i + 1001)):$((i == 500 ? 32768 : 64))"; done)
[ "$(wc -l <"$scratch/bands")" = 800 ] || die "$(wc -l <"$scratch/bands") bands"
thick=$(sed -n '/<g class="band">/,/<\/g>/p' "$scratch/picture.svg" | grep -c '<path fill' || :)
[ "$thick" = 1 ] || die "$thick thick bands"
