#!/usr/bin/env bash
# weir info: devices and options, with where each came from.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

export WEIR_BACKEND=host WEIR_HOST_DEVICES=2 WEIR_HOST_MEMORY=3GiB
expect 0 info
contains "$out" "back end host"
contains "$out" "3.00 GiB"
[[ $out =~ host_memory\ +3GiB\ +environment\ +"host back end: memory" ]] || die "the options have no meaning: $out"
expect 0 info --json -
json 'list(rows) == ["version", "backend", "devices", "libraries", "options"] and rows["backend"] == "host"'
json '[(d["device"], d["total_memory"]) for d in rows["devices"]] == [(0, 3 << 30), (1, 3 << 30)]'
json '{o["name"]: o["source"] for o in rows["options"]}["host_memory"] == "environment"'
json '{o["name"]: o["source"] for o in rows["options"]}["policy"] == "default"'

# The vendors' libraries with their own versions: stand-ins for them, or none at all.
standins=$(dirname "$WEIR")/../standin
json 'len({l["name"] for l in rows["libraries"]}) == len(rows["libraries"]) == 17'
json 'all((l["library"] is None) == (l["error"] is not None) for l in rows["libraries"])'
: >"$scratch/broken.so"
WEIR_LIB_CUDSS=$scratch/broken.so expect 0 info
contains "$out" "cudss does not load: library cudss not loaded; set WEIR_LIB_CUDSS to the path of a library that loads"
if ldconfig -p 2>"$scratch/ldconfig" | grep -q libcutensor; then
    echo "libcutensor is here: what is not here is not tested"
else
    [[ $out =~ (^|$'\n')"Not found: ".*cutensor && $out != *"cutensor does not load"* ]] || die "cutensor: $out"
fi
if [ -d "$standins" ]; then
    WEIR_LIB_CUSPARSE=$standins/libcusparse.so WEIR_LIB_MIOPEN=$standins/libMIOpen.so \
        WEIR_LIB_CUSOLVER=$standins/libcusparse_broken.so expect 0 info --json -
    json '[l["version"] for l in rows["libraries"] if l["name"] in ("cusparse", "miopen")] == ["12.6.3", "3.4.0"]'
    json 'rows["libraries"][2]["library"].endswith("/libcusparse.so") and rows["libraries"][2]["error"] is None'
    json 'rows["libraries"][3]["name"] == "cusolver_dn" and "has no symbol" in rows["libraries"][3]["error"]'
    WEIR_LIB_CUSPARSE=$standins/libcusparse.so WEIR_LIB_CUSOLVER=$standins/libcusparse_broken.so expect 0 info
    [[ $out =~ cusparse\ +12.6.3\ +[^$'\n']*/libcusparse.so ]] || die "cusparse: $out"
    contains "$out" "cusolver_dn does not load: library cusolver"
fi

WEIR_HOST_DEVICES=many expect 1 info
contains "$err" "weir info: "
contains "$err" "WEIR_HOST_DEVICES"
