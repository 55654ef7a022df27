#!/usr/bin/env bash
# weir info: devices and options, with where each came from.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

export WEIR_BACKEND=host WEIR_HOST_DEVICES=2 WEIR_HOST_MEMORY=3GiB
expect 0 info
contains "$out" "back end host"
contains "$out" "3.00 GiB"
expect 0 info --json -
json 'list(rows) == ["version", "backend", "devices", "options"] and rows["backend"] == "host"'
json '[(d["device"], d["total_memory"]) for d in rows["devices"]] == [(0, 3 << 30), (1, 3 << 30)]'
json '{o["name"]: o["source"] for o in rows["options"]}["host_memory"] == "environment"'
json '{o["name"]: o["source"] for o in rows["options"]}["policy"] == "default"'

WEIR_HOST_DEVICES=many expect 1 info
contains "$err" "weir info: "
contains "$err" "WEIR_HOST_DEVICES"
