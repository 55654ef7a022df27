# shellcheck shell=bash
# lib: for sourcing by the tests of the command. They run in an empty folder of their own, `NAME.sh [PATH-OF-WEIR]`.
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
WEIR=${1:-${WEIR:-$here/../../build/release/bin/weir}}
DATA=${DATA:-$here/../data}
# Results must not depend on the operator's own settings.
for variable in "${!WEIR_@}"; do unset "$variable"; done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

die()
{
    echo "FAILED: $*" >&2
    exit 1
}

# Runs the command; leaves its exit code in $code, its output in $out and $err.
weir()
{
    code=0
    "$WEIR" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    out=$(<"$scratch/out")
    err=$(<"$scratch/err")
}

# expect CODE ARGUMENT...: runs the command, which must end with that exit code.
expect()
{
    local wanted=$1
    shift
    weir "$@"
    [ "$code" = "$wanted" ] || die "weir $*: exit code $code, not $wanted; stdout: $out; stderr: $err"
}

# contains TEXT PART
contains()
{
    case $1 in
    *"$2"*) ;;
    *) die "'$2' is not in: $1" ;;
    esac
}

# json EXPRESSION: evaluates Python on the last output as `rows`; it must be true.
json()
{
    python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert eval(sys.argv[2]), (sys.argv[2], rows)' "$scratch/out" "$1" || die "$1"
}

need_traces()
{
    compgen -G "$DATA/traces/*.pickle.gz" >/dev/null || { echo "no traces in $DATA/traces"; exit 77; }
}
