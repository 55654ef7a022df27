#!/usr/bin/env bash
# Input that cannot be read or is no trace: exit code 1, a reason that names the file, and the rest is still done.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

printf 'neither fish nor fowl\n' >"$scratch/text"
: >"$scratch/empty"
printf 'Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.1,allocate,0x1000,512,0x0\n1,10:00:00.2,free,0x1000,512,0x0\n' \
    >"$scratch/good.csv"

for command in replay plan check stat advise; do
    for file in "$scratch/missing" "$scratch/text" "$scratch/empty" "$scratch"; do
        expect 1 $command "$file"
        contains "$err" "weir $command: $file: "
        [ -z "$out" ] || die "$command of $file printed: $out"
        expect 1 $command --json - "$file" "$scratch/good.csv"
        contains "$err" "weir $command: $file: "
        json 'all(row["trace"] == "good" for row in rows) and len(rows) > 0'
    done
done

# A blank line is between two reports, not where one is missing.
for command in stat advise; do
    expect 1 $command "$scratch/missing" "$scratch/good.csv" "$scratch/text"
    [[ $out == good:* ]] || die "$command begins with: $out"
    alone=$out
    expect 1 $command "$scratch/good.csv" "$scratch/missing" "$scratch/good.csv"
    [ "$out" = "$alone"$'\n\n'"$alone" ] || die "$command of two traces: $out"
done

expect 1 convert "$scratch/text" -o "$scratch/made"
[ ! -e "$scratch/made" ] || die "convert left a file although it failed"
expect 1 convert "$scratch/good.csv" -o "$scratch/no/such/folder"
contains "$err" "cannot write $scratch/no/such/folder: cannot create a file beside it: No such file or directory"
expect 1 replay --json "$scratch/no/such/folder" "$scratch/good.csv"
contains "$err" "cannot write $scratch/no/such/folder"

# Output that cannot be written is an error, too.
if [ -e /dev/full ]; then
    code=0
    "$WEIR" replay --repeat 1 "$scratch/good.csv" >/dev/full 2>"$scratch/err" || code=$?
    [ "$code" = 1 ] || die "replay to a full device: exit code $code"
    contains "$(<"$scratch/err")" "cannot write to standard output"
    code=0
    "$WEIR" convert "$scratch/good.csv" -o - >/dev/full 2>"$scratch/err" || code=$?
    [ "$code" = 1 ] || die "convert to a full device: exit code $code"
fi

# Control characters in a file's name never reach the terminal, whatever the message.
escape=$'\033[2J' strange=$'\033[2Jn\u00e9\u009b'
cp "$scratch/good.csv" "$scratch/$strange.csv"
cp "$scratch/text" "$scratch/$strange.text"
for command in stat check replay advise plan; do
    expect 0 $command "$scratch/$strange.csv"
    contains "$out" $'?[2Jn\u00e9?'
    [[ $out$err != *"$escape"* ]] || die "$command obeys the name of a file"
    expect 1 $command "$scratch/$strange.text"
    contains "$err" $'?[2Jn\u00e9?.text: '
    [[ $out$err != *"$escape"* ]] || die "$command obeys the name of a file that is no trace"
done
expect 2 "$strange"
[[ $err != *"$escape"* ]] || die "a word is obeyed: $err"
python3 - "$WEIR" "$scratch/$strange.csv" <<'END'
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "plan", "--time", "0", sys.argv[2]])
shown = b""
try:
    while more := os.read(terminal, 4096):
        shown += more
except OSError:
    pass
os.waitpid(pid, 0)
assert b"reading ?[2Jn" in shown and b"\033[2J" not in shown, shown
END

# Where it cannot be read further is said.
head -c 100 "$DATA/pickles/snapshot-4.pickle" >"$scratch/cut"
expect 1 stat "$scratch/cut"
contains "$err" "weir stat: $scratch/cut: at byte 97: the file ends inside opcode"

# A name that is empty is not passed over.
expect 1 stat ""
contains "$err" "weir stat: a trace's name is empty; name a file, or - for stdin"
expect 1 convert "$DATA/pickles/snapshot-4.pickle" -o ""
contains "$err" "weir convert: the output's name is empty; name a file, or - for stdout"
