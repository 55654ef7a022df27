#!/usr/bin/env bash
# Help, versions, and every kind of wrong usage.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

expect 0 --help
mapfile -t commands < <(sed -nE 's/^  ([a-z]+)  .*/\1/p' <<<"$out")
[ "${#commands[@]}" -ge 8 ] || die "commands in: $out"
manual=$here/../../docs/man
for command in "${commands[@]}"; do
    expect 0 "$command" --help
    contains "$out" "usage: weir $command"
    [ -z "$err" ] || die "help of $command on stderr: $err"
    [ -f "$manual/weir-$command.1.scd" ] || die "$command has no manual page docs/man/weir-$command.1.scd"
    contains "$(<"$manual/weir.1.scd")" "*weir-$command*(1)"
    listed=$out
    expect 0 help "$command"
    [ "$out" = "$listed" ] || die "weir help $command is not weir $command --help: $out"
done
for again in "" help --help -h; do
    # shellcheck disable=SC2086
    expect 0 help $again
    contains "$out" "usage: weir COMMAND"
done
expect 2 hlep
contains "$err" "did you mean 'help'?"
expect 2 help repaly
contains "$err" "did you mean 'replay'?"
expect 2 help replay view
contains "$err" "help takes one command; 2 were given"
expect 0 --version
[[ $out =~ ^weir\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || die "version: $out"

expect 2
contains "$err" "no command given"
expect 2 repaly
contains "$err" "did you mean 'replay'?"
contains "$err" "Try 'weir --help'."
expect 2 zzzzzzzz
contains "$err" "there is no command 'zzzzzzzz'"
[[ $err != *"did you mean"* ]] || die "a nearest word that is not near: $err"
expect 2 --hepl
contains "$err" "there is no option '--hepl'"

expect 2 replay
contains "$err" "no trace given"
expect 2 replay --polcy torch x
contains "$err" "did you mean '--policy'?"
contains "$err" "Try 'weir replay --help'."
expect 2 replay x --polcy torch # the option that is meant is not the first argument
contains "$err" "there is no option '--polcy'"
expect 2 replay --policy
contains "$err" "needs a value"
expect 2 replay --reproduce=yes x
contains "$err" "takes no value"
expect 2 replay -Z x
contains "$err" "there is no option '-Z'"
# An output is never a trace: neither one that is read, nor one whose name was taken for the output's.
cp "$DATA/pickles/snapshot-4.pickle" "$scratch/job.pickle"
cp "$scratch/job.pickle" "$scratch/job"
before=$(cksum <"$scratch/job")
for command in stat check advise plan replay; do
    expect 2 "$command" --json "$scratch/job.pickle" "$scratch/job"
    contains "$err" "named like a trace"
    expect 2 "$command" --json "$scratch/job" "$scratch/job"
    contains "$err" "is an input and would be replaced"
done
expect 2 view --format svg -o "$scratch/job" "$scratch/job.pickle" "$scratch/job"
contains "$err" "is an input and would be replaced"
expect 2 convert "$scratch/job" -o "$scratch/job"
contains "$err" "is an input and would be replaced"
for command in "view --format svg" convert; do
    # shellcheck disable=SC2086
    expect 2 $command -o - --json - "$scratch/job"
    contains "$err" "would go to stdout; name a file for one of them"
    # shellcheck disable=SC2086
    expect 2 $command -o "$scratch/same" --json "$scratch/job" "$scratch/job"
    contains "$err" "is an input and would be replaced"
done
expect 2 info --json "$scratch/job.pickle"
contains "$err" "named like a trace"
expect 2 plan -o "$scratch/same" --json "$scratch/same" "$scratch/job"
contains "$err" "two outputs would go to $scratch/same"

# Also where the file does not exist yet and is named in two ways.
ln -s later "$scratch/link"
for pair in "$scratch/later:$scratch/./later" "$scratch/link:$scratch/later" "$scratch/later:$scratch/link"; do
    expect 2 view "$scratch/job" --format svg -o "${pair%:*}" --json "${pair#*:}"
    contains "$err" "two outputs would go to ${pair%:*}"
    [ ! -e "$scratch/later" ] || die "something was written"
done
(cd "$scratch" && expect 2 view "$scratch/job" --format svg -o later --json "$scratch/later")
expect 0 view "$scratch/job" --format svg -o "$scratch/later" --json "$scratch/later.json"
rm "$scratch/later"

# Options that would do nothing are refused.
expect 2 view "$scratch/job" -o "$scratch/m.svg" --device-memory 1GiB
contains "$err" "--device-memory is of replays"
expect 2 plan --show "$scratch/m.weirplan" --seed 4
contains "$err" "options of how to make one do not apply"
[ "$(cksum <"$scratch/job")" = "$before" ] && [ "$(cksum <"$scratch/job.pickle")" = "$before" ] || die "a trace was replaced"
[ ! -e "$scratch/same" ] || die "an output of a refused command"
expect 0 stat --json /dev/null "$scratch/job"

expect 2 replay --policy torhc x
contains "$err" "did you mean 'torch'?"
expect 2 replay --policy torch,nothing-like-it x
contains "$err" "'--policy help' lists them"
expect 2 replay --policy torch-expandable:pages=2MiB x
contains "$err" "policy 'torch-expandable' has no option 'pages'"
contains "$err" "with one of: small-page, page"
expect 2 replay --policy async:page=1KiB x
contains "$err" "page '1KiB' is not a size from"
expect 2 replay --policy torch:page=1MiB x
contains "$err" "policy 'torch' has no options"
expect 0 replay --policy help
contains "$out" "torch-expandable"
contains "$out" "threshold"
expect 2 replay --backend hsot x
contains "$err" "did you mean 'host'?"
for size in 0 -1 12x 1.5.2G GiB 99999999999T ""; do
    expect 2 replay --device-memory "$size" x
    contains "$err" "is not a size"
done
for count in 0 1001 -1 1.5 x ""; do
    expect 2 replay --repeat "$count" x
    contains "$err" "is not a number from 1 to 1000"
done
expect 2 stat
expect 2 stat --largest 10001 x
contains "$err" "is not a number from 0 to 10000"
expect 2 advise
contains "$err" "no trace given"
expect 2 advise --context 1x x
contains "$err" "--context '1x' is not a size"
for size in 0 1MiB 100TiB 24x; do
    expect 2 advise --device-memory "$size" x
    contains "$err" "--device-memory '$size' is not a size from 2 MiB to 16 TiB"
done
expect 2 advise --device-memory 512MiB x
contains "$err" "the 614 MiB of the context"
expect 2 check
expect 2 replay --re 1 x
contains "$err" "option '--re' is ambiguous: --repeat, --reproduce"
# /dev/stdout is stdout, as - is.
expect 2 convert -o - --json /dev/stdout x
contains "$err" "two outputs would go to stdout"
expect 2 view -o /dev/stdout --json - x
contains "$err" "two outputs would go to stdout"
expect 2 check --jsn - x
contains "$err" "did you mean '--json'?"
expect 2 convert x
contains "$err" "-o"
expect 2 convert -o y
expect 2 convert x y -o z
expect 2 info something
contains "$err" "unexpected argument 'something'"
[ -z "$out" ] || die "usage errors on stdout: $out"

# A progress line never fills the terminal's width, after which it would leave a copy of itself at each redraw.
long="$scratch/a_name_of_more_letters_than_some_terminals_have_columns"
cp "$scratch/job" "$long"
python3 - "$WEIR" check "$long" <<'END'
import fcntl, os, pty, re, struct, sys, termios
for columns in (100, 60, 30, 12):
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.execv(sys.argv[1], sys.argv[1:])
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    lines = [re.sub(r"\x1b\[K", "", line) for line in shown.decode().split("\r")]
    assert max(map(len, lines)) < columns, (columns, lines)
    assert columns < 30 or any("a_name" in line for line in lines), (columns, lines)
END

# The context has at most 7 GiB, and leaves 2 MiB of the device.
for sizes in "--context 7GiB" "--context 1GiB --device-memory 1026MiB"; do
    # shellcheck disable=SC2086 # several words
    expect 1 advise $sizes "$scratch/missing"
done
expect 2 advise --context 7516192769 x
contains "$err" "--context '7516192769' is not a size up to 7 GiB"
expect 2 advise --context 1GiB --device-memory 1025MiB x
contains "$err" "--device-memory leaves less than 2 MiB beside the 1.00 GiB of the context"

# Options of how to make a plan have nothing to do with a file that there is.
for option in --streams-apart "--time 1" "--threads 2"; do
    # shellcheck disable=SC2086 # several words
    expect 2 plan --show x $option
    contains "$err" "options of how to make one do not apply"
done
expect 0 replay --policy help
contains "$out" "maximum        most that it may grow to; it then grows by half of what is left, else by doubling; default unlimited"
