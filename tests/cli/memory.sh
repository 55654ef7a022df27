#!/usr/bin/env bash
# Commands that run short of memory: each allocation of the first fails in turn, and some of the later ones. Either the
# command does as well without it, or it ends with 1 and a reason, and leaves no file. And commands with as little stack
# as threads of some systems have.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

short=${2:-}
[ -e "$short" ] || { echo "there is no library to preload"; exit 77; }
trace=$DATA/pickles/snapshot-torch.pickle

# runs AT ARGUMENT...
runs()
{
    code=0
    (cd "$scratch/there" && LD_PRELOAD=$short SHORT_AT=$1 SHORT_COUNT=$scratch/count "$WEIR" "${@:2}" \
        >"$scratch/out" 2>"$scratch/err" </dev/null) || code=$?
}

# survives STEADY ARGUMENT...: STEADY is yes if the output is the same in each run.
survives()
{
    local steady=$1 at count
    shift
    rm -rf "$scratch/there" && mkdir "$scratch/there"
    runs 0 "$@"
    [ "$code" = 0 ] || die "weir $*: exit code $code: $(<"$scratch/err")"
    count=$(<"$scratch/count")
    [ "$count" -gt 10 ] || die "weir $* made $count allocations"
    cp "$scratch/out" "$scratch/good"
    cp -r "$scratch/there" "$scratch/good-there"
    for ((at = 1; at <= count; at += at < 100 ? 1 : at / 20)); do
        rm -rf "$scratch/there" && mkdir "$scratch/there"
        runs "$at" "$@"
        case $code in
        0)
            [ "$steady" = no ] || cmp -s "$scratch/out" "$scratch/good" || die "weir $*, allocation $at: other output"
            [ "$steady" = no ] || diff -r "$scratch/there" "$scratch/good-there" >&2 || die "weir $*, allocation $at"
            ;;
        1)
            [ -s "$scratch/err" ] || die "weir $*, allocation $at: no reason is given"
            [ -z "$(ls -A "$scratch/there")" ] || die "weir $*, allocation $at left $(ls -A "$scratch/there")"
            ;;
        *) die "weir $*, allocation $at of $count: exit code $code: $(<"$scratch/err")" ;;
        esac
    done
    rm -rf "$scratch/good-there"
}

# with_little_stack ARGUMENT...
with_little_stack()
{
    (ulimit -s 96 && exec "$WEIR" "$@") >"$scratch/out" 2>"$scratch/err" </dev/null
}

if with_little_stack --version; then # an emulator may need more
    for command in stat check advise "convert -o $scratch/made" "view -o $scratch/made.html" 'replay --repeat 1' \
        'plan --time 0'; do
        # shellcheck disable=SC2086 # words of the command
        with_little_stack $command "$trace" || die "weir $command needs more than 96 KiB of stack: $(<"$scratch/err")"
    done
fi

survives yes stat "$trace"
survives yes stat --json - "$trace"
survives yes check "$trace"
survives yes convert "$trace" -o made
survives yes view --policy recorded "$trace" -o made.html
survives yes view "$trace" -o made.svg
survives no replay --repeat 1 --policy torch,weir --json - "$trace"
survives no plan --time 0 "$trace"
survives no advise "$trace"
