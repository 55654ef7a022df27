#!/usr/bin/env bash
# Input that cannot be read or is no trace: exit code 1, a reason that names the file, and the rest is still done.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

printf 'neither fish nor fowl\n' >"$scratch/text"
: >"$scratch/empty"
printf 'Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.1,allocate,0x1000,512,0x0\n1,10:00:00.2,free,0x1000,512,0x0\n' \
    >"$scratch/good.csv"

for command in replay plan check; do
    for file in "$scratch/missing" "$scratch/text" "$scratch/empty" "$scratch"; do
        expect 1 $command "$file"
        contains "$err" "weir $command: $file: "
        [ -z "$out" ] || die "$command of $file printed: $out"
        expect 1 $command --json - "$file" "$scratch/good.csv"
        contains "$err" "weir $command: $file: "
        json 'all(row["trace"] == "good" for row in rows) and len(rows) > 0'
    done
done

expect 1 convert "$scratch/text" -o "$scratch/made"
[ ! -e "$scratch/made" ] || die "convert left a file although it failed"
expect 1 convert "$scratch/good.csv" -o "$scratch/no/such/folder"
contains "$err" "cannot write $scratch/no/such/folder"
expect 1 replay --json "$scratch/no/such/folder" "$scratch/good.csv"
contains "$err" "cannot write $scratch/no/such/folder"

# Nor is output that cannot be written taken for good.
if [ -e /dev/full ]; then
    code=0
    "$WEIR" replay --repeat 1 "$scratch/good.csv" >/dev/full 2>"$scratch/err" || code=$?
    [ "$code" = 1 ] || die "replay to a full device: exit code $code"
    contains "$(<"$scratch/err")" "cannot write to standard output"
    code=0
    "$WEIR" convert "$scratch/good.csv" -o - >/dev/full 2>"$scratch/err" || code=$?
    [ "$code" = 1 ] || die "convert to a full device: exit code $code"
fi
