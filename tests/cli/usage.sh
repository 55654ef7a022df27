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
