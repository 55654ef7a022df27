#!/usr/bin/env bash
# weir convert: the native trace replays as the original did, converts to itself, and takes a name from the file.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces

members='("operations", "peak_requested", "peak_reserved", "driver_calls", "oom")'
summary()
{
    expect 0 replay --policy torch,weir --repeat 1 --json - "$1"
    python3 -c 'import json, sys
print([[row[m] for m in eval(sys.argv[2])] for row in json.load(open(sys.argv[1]))])' "$scratch/out" "$members"
}

for trace in "$DATA"/traces/resnet50_amp.pickle.gz "$DATA"/traces/convnext_prefetch.pickle.gz; do
    expect 0 convert "$trace" -o "$scratch/made.weirtrace"
    [ -z "$out$err" ] || die "convert is not silent: $out$err"
    [ "$(head -c 7 "$scratch/made.weirtrace")" = weirtrc ] || die "no magic"
    expect 0 check "$scratch/made.weirtrace"
    contains "$out" "made: well formed; weir, "

    [ "$(summary "$trace")" = "$(summary "$scratch/made.weirtrace")" ] || die "replays differ for $trace"

    expect 0 convert "$scratch/made.weirtrace" --output "$scratch/again.weirtrace"
    cmp "$scratch/made.weirtrace" "$scratch/again.weirtrace"
    "$WEIR" convert - -o - <"$trace" | cmp - "$scratch/made.weirtrace"
done

# An output that cannot be written whole leaves the old file and nothing else.
mkdir "$scratch/folder"
echo old >"$scratch/folder/made"
code=0
(ulimit -f 8 && exec "$WEIR" convert "$trace" -o "$scratch/folder/made") 2>"$scratch/err" || code=$?
[ "$code" = 1 ] || die "too large a file: exit code $code"
contains "$(<"$scratch/err")" "cannot write $scratch/folder/made: File too large"
[ "$(ls -A "$scratch/folder")" = made ] || die "left behind: $(ls -A "$scratch/folder")"
[ "$(<"$scratch/folder/made")" = old ] || die "the old file is gone"

# The same holds behind links, which stay; a file named by its descriptor is written in place.
mkdir "$scratch/links"
ln -s ../folder/made "$scratch/links/first"
ln -s "$scratch/links/first" "$scratch/links/second"
code=0
(ulimit -f 8 && exec "$WEIR" convert "$trace" -o "$scratch/links/second") 2>"$scratch/err" || code=$?
[ "$code" = 1 ] || die "too large a file behind a link: exit code $code"
contains "$(<"$scratch/err")" "cannot write $scratch/links/second: File too large"
[ "$(<"$scratch/folder/made")" = old ] || die "the old file behind a link is gone"
for old in yes no; do
    [ "$old" = yes ] || rm "$scratch/folder/made"
    expect 0 convert "$trace" -o "$scratch/links/second"
    cmp "$scratch/folder/made" "$scratch/made.weirtrace"
done
for link in first second; do [ -L "$scratch/links/$link" ] || die "a link was replaced"; done
[ "$(find "$scratch/folder" "$scratch/links" ! -type d | wc -l)" = 3 ] || die "left behind: $(ls -AR "$scratch")"
exec 3>"$scratch/open"
inode=$(stat -c %i "$scratch/open")
expect 0 convert "$trace" -o /dev/fd/3
exec 3>&-
cmp "$scratch/open" "$scratch/made.weirtrace"
[ "$(stat -c %i "$scratch/open")" = "$inode" ] || die "an open file was replaced"
{ echo before && "$WEIR" convert "$trace" -o /dev/fd/4 && echo after >&4; } 4>>"$scratch/open" >>"$scratch/open"
cmp "$scratch/open" <(cat "$scratch/made.weirtrace" <(echo before) "$scratch/made.weirtrace" <(echo after)) ||
    die "what an open file had was not kept"
code=0
(ulimit -f 8 && exec "$WEIR" convert "$trace" -o - >"$scratch/stdout") 2>"$scratch/err" || code=$?
[ "$code" = 1 ] || die "too large a file as stdout: exit code $code"
contains "$(<"$scratch/err")" "File too large"

# The longest name that there is.
mkdir "$scratch/long"
name=$(printf '%0255d' 0)
expect 0 convert "$trace" -o "$scratch/long/$name"
cmp "$scratch/long/$name" "$scratch/made.weirtrace"
(cd "$scratch/long" && "$WEIR" convert "$trace" -o "$name")
[ "$(ls -A "$scratch/long")" = "$name" ] || die "left behind: $(ls -A "$scratch/long")"
expect 1 convert "$trace" -o "$scratch/long/${name}0"
contains "$err" "cannot write $scratch/long/${name}0: File name too long"

# The live blocks that show that a recording began late, and its settings, are kept.
python3 - "$DATA/traces/graphsage.pickle.gz" "$scratch/late.pickle" <<'END'
import gzip, pickle, sys
snapshot = pickle.load(gzip.open(sys.argv[1]))
snapshot["device_traces"] = [events[len(events) // 2:] for events in snapshot["device_traces"]]
snapshot["allocator_settings"]["max_split_size"] = 32 << 20
pickle.dump(snapshot, open(sys.argv[2], "wb"))
END
expect 0 convert "$scratch/late.pickle" -o "$scratch/made.weirtrace"
mv "$scratch/made.weirtrace" "$scratch/late.weirtrace"
[ "$(summary "$scratch/late.pickle")" = "$(summary "$scratch/late.weirtrace")" ] || die "replays of what began late differ"
told()
{
    expect 0 "$1" --json - "$2"
    grep -v '"format"' "$scratch/out"
}
for command in check stat; do
    [ "$(told $command "$scratch/late.pickle")" = "$(told $command "$scratch/late.weirtrace")" ] || die "$command differs"
done
expect 0 check --json - "$scratch/late.weirtrace"
json 'rows[0]["begins_late"] and rows[0]["residents"] > 10 and rows[0]["live_blocks"] == 3'

# The result as JSON, for other programs.
expect 0 convert --json - "$scratch/late.pickle" -o "$scratch/made.weirtrace"
python3 - "$scratch/out" "$scratch/late.pickle" "$scratch/made.weirtrace" <<'END'
import json, pickle, struct, sys
said, snapshot = json.load(open(sys.argv[1])), pickle.load(open(sys.argv[2], "rb"))
assert said["trace"] == "late" and said["format"] == "pytorch-snapshot" and said["output"] == sys.argv[3], said
assert said["events"] == struct.unpack_from("<Q", open(sys.argv[3], "rb").read(), 24)[0] > 0, said
assert said["segments"] == len(snapshot["segments"]) > 0, said
live = sum(block["state"] == "active_allocated" for segment in snapshot["segments"] for block in segment["blocks"])
assert said["live_blocks"] == live == 3 and said["dropped"] == 0, said
END

# Stacks of allocations are kept.
expect 0 convert "$DATA/pickles/snapshot-4.pickle" -o "$scratch/made.weirtrace"
expect 0 stat --json - "$scratch/made.weirtrace"
json 'rows[0]["largest"][0]["frames"] == ["train.py:12:step\\with é and a\nline"] * 2'
json 'rows[0]["largest"][1]["frames"] == ["model.py:3:forward"]'
json 'rows[0]["ooms"][0]["frames"] == ["model.py:3:forward"]'

# So is how many events were lost before the first.
python3 - "$scratch/made.weirtrace" "$scratch/lost.weirtrace" <<'END'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
struct.pack_into("<Q", data, 32, 5)
open(sys.argv[2], "wb").write(data)
END
expect 0 convert --json - "$scratch/lost.weirtrace" -o "$scratch/again.weirtrace"
json 'rows["dropped"] == 5'
cmp "$scratch/lost.weirtrace" "$scratch/again.weirtrace"
expect 0 stat "$scratch/again.weirtrace"
contains "$out" "again: the recording begins late: 5 earlier events were lost"
expect 0 stat --json - "$scratch/again.weirtrace"
json 'rows[0]["dropped"] == 5'

# A new file has the rights that the caller's umask leaves it, and one that is replaced keeps its own.
(umask 027 && exec "$WEIR" convert "$scratch/lost.weirtrace" -o "$scratch/rights.weirtrace")
[ "$(stat -c %a "$scratch/rights.weirtrace")" = 640 ] || die "rights: $(stat -c %a "$scratch/rights.weirtrace")"
chmod 604 "$scratch/rights.weirtrace"
expect 0 convert "$scratch/lost.weirtrace" -o "$scratch/rights.weirtrace"
[ "$(stat -c %a "$scratch/rights.weirtrace")" = 604 ] || die "rights: $(stat -c %a "$scratch/rights.weirtrace")"
