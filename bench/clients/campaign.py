"""Real jobs on PyTorch's allocators and on weir, side by side: scripts/clients runs this.

Every job runs under every setting, each in a fresh process, one after the other: first with all of the device, then with
a limit close to what the job needs. With --turns the processes of a job live at once instead and take turns: that measures
step times on machines that vary by more than allocators do. The table is rewritten after each run, so that an early end
leaves the results so far.
"""
import argparse
import datetime
import json
import os
import pathlib
import signal
import sys
import time

import turns
from workers import SETTINGS, Worker

USUAL = ["native", "expandable", "cudaMallocAsync", "weir"]
MIB = 1 << 20
ORDER = ["graph_step", "compiled", "threads8", "resnet50_amp", "gpt2_varlen", "gpt2_lora_recompute", "graphsage",
         "detection", "serving_kv"]
GPU_ONLY = ["graph_step", "compiled"]
LIMITED = {"quick": ["gpt2_varlen", "detection"], "full": ORDER, "tiny": []}
RUNS = {"threads8": 3}  # of jobs whose peaks vary because their threads do not run in step: the run with the middle peak counts
TIGHT = 1.03  # times the most that PyTorch's own allocator ever had allocated


def equal(row: dict, native: dict) -> str:
    """Losses against those of PyTorch's own allocator, step by step."""
    mine, theirs = row.get("losses") or [], native.get("losses") or []
    common = min(len(mine), len(theirs))
    if row is native or common == 0:
        return "-"
    for i in range(common):
        if repr(mine[i]) != repr(theirs[i]):  # NaN is equal to NaN here
            return f"differ at step {i}: {mine[i]!r}, {theirs[i]!r}"
    return "equal" if len(mine) == len(theirs) else f"equal in {common} steps"


def mebibytes(bytes_: int) -> str:
    return f"{bytes_ / MIB:,.0f}" if bytes_ else "-"


def failure(row: dict) -> str:
    return "failed: " + " ".join(row["error"].split())[:160].replace("|", "/")


def cells(row: dict, native: dict) -> list:
    if "error" in row:
        return [failure(row), "", "", "", "", "", ""]
    if row.get("out_of_memory"):
        return [f"out of memory at step {row['steps_done']}", "", "", "", "", "", ""]
    median, base = row.get("median_ms"), native.get("median_ms")
    ratio = f"{median / base:.3f}" if median and base else "-"
    reserved, allocated = row.get("reserved_peak", 0), row.get("allocated_peak", 0)
    return [f"{median:.2f}" if median else "-", ratio, mebibytes(row.get("peak_bytes", 0) - row.get("base_bytes", 0)),
            mebibytes(reserved), mebibytes(allocated), f"{reserved / allocated:.3f}" if allocated else "-",
            equal(row, native)]


def tight_cells(row: dict, native: dict) -> list:
    if "error" in row:
        return [failure(row), "", "", ""]
    if row.get("out_of_memory"):
        return [f"out of memory at step {row['steps_done']}, {'recovers' if row.get('recovers') else 'does not recover'}",
                "", "", equal(row, native)]
    median = row.get("median_ms")
    return ["fits", f"{median:.2f}" if median else "-", str(row.get("retries", "-")), equal(row, native)]


def table(head: list, rows: list) -> list:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows], ""]


def turn_rows(results: dict) -> list:
    return [[job, setting, *turns.cells(row, settings["native"], equal)]
            for job, settings in results["turns"].items() for setting, row in settings.items()]


def markdown(results: dict) -> str:
    about = results["about"]
    head = [f"# PyTorch's jobs on its allocators and on weir, {about['date']}", "",
             f"{about['machine']}; PyTorch {about['torch']}; size {about['size']}; commit {about['commit']}; weir with "
             f"{' '.join(f'{name}={value}' for name, value in about['weir'].items()) or 'its defaults'}. "
             "`scripts/clients`, in one run.", ""]
    if results["turns"]:
        head += ["Forks of one process run the same steps in turns. Each turn is some steps, and all turns of a round run on the same "
                 "processors; after a while fresh processes take over, which is a generation. To native: the time of a turn divided by that "
                 "of `native` in the same round, median of all rounds. 95 %: the interval that contains that median, by the binomial "
                 "distribution, if turns vary independently. Generations: the median of each set of processes, which shows whether they do. "
                 "Step: median in ms. Losses: compared with `native` bit by bit, in the last generation.", "", *table(turns.HEAD, turn_rows(results))]
    if not results["free"]:
        return "\n".join(head + results["notes"])
    lines = [*head, "Each row is a process of its own. Step: median in ms, without the first three steps. Device: the most in use on the "
             "device at the end of a step, beyond the context. Reserved, allocated: the allocator's own peaks; `x`: reserved divided by "
             f"allocated. Memory is in MiB. For jobs whose peaks vary ({', '.join(RUNS)}), the middle one of three runs. Losses: compared "
             "with `native` bit by bit in every step, with deterministic algorithms.", ""]
    rows = []
    for job, settings in results["free"].items():
        native = settings.get("native", {})
        rows += [[job, setting, *cells(row, native)] for setting, row in settings.items()]
    lines += table(["job", "setting", "step", "to native", "device", "reserved", "allocated", "x", "losses"], rows)
    rows = []
    for job, settings in results["tight"].items():
        native = results["free"][job]["native"]
        rows += [[job, setting, mebibytes(row["limit"]), *tight_cells(row, native)] for setting, row in settings.items()]
    if rows:
        lines += ["With a limit on what the allocator may reserve (`set_per_process_memory_fraction`), "
                  f"{TIGHT} times what `native` ever had allocated:", ""]
        lines += table(["job", "setting", "limit", "outcome", "step", "retries", "losses"], rows)
    return "\n".join(lines + results["notes"])


class Campaign:
    def __init__(self, options) -> None:
        self.options, self.deadline = options, time.monotonic() + options.budget
        self.out = pathlib.Path(options.out)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.log = open(self.out.with_suffix(".log"), "w")
        settings = ["native"] if options.turns else options.settings
        self.workers = {setting: Worker(setting, self.log) for setting in settings}
        self.results = {"about": {"date": datetime.date.today().isoformat(), "machine": options.machine,
                                  "size": options.size, "commit": options.commit, "torch": "?",
                                  "weir": {name: value for name, value in os.environ.items()
                                           if name.startswith("WEIR_") and name != "WEIR_LIBRARY"}},
                        "turns": {}, "free": {}, "tight": {}, "notes": []}

    def save(self) -> None:
        self.out.write_text(markdown(self.results))
        self.out.with_suffix(".json").write_text(json.dumps(self.results, indent=1))

    def request(self, job: str) -> dict:
        left = self.deadline - time.monotonic()
        return {"job": job, "size": self.options.size, "device": self.options.device,
                "timeout": left if self.options.turns else min(left, self.options.timeout)}

    def ask(self, setting: str, job: str, **more) -> dict:
        request = {**self.request(job), "setting": setting, **more}
        if request["timeout"] < 5:
            return {"error": "no time was left", **more}
        start = time.monotonic()
        row = {**self.workers[setting].ask(request), **more}
        self.note_torch()
        outcome = row.get("error") or (row.get("out_of_memory") and "out of memory") or \
            f"{row['steps_done']} steps, median {row.get('median_ms') or 0:.2f} ms"
        print(f"{job:20} {setting:16} {time.monotonic() - start:6.1f} s  {outcome[:120]}", file=sys.stderr, flush=True)
        return row

    def note_torch(self) -> None:
        for worker in self.workers.values():
            self.results["about"]["torch"] = worker.torch or self.results["about"]["torch"]

    def turns(self, job: str) -> None:
        """All settings, which differ by variables of weir's only, are forks of one worker."""
        request = {**self.request(job), "turns": {name: SETTINGS[name] for name in self.options.settings},
                   "seconds": self.options.turns, "generations": self.options.generations}
        if request["timeout"] < (self.options.turns + 10) * self.options.generations:
            self.results["turns"][job] = {setting: {"turns": [], "error": "no time was left"} for setting in request["turns"]}
            return
        answer = self.workers["native"].ask(request)
        self.note_torch()
        self.results["turns"][job] = answer if "native" in answer else \
            {setting: {"turns": [], **answer} for setting in self.options.settings}
        self.save()
        print("\n".join(" ".join(row) for row in turn_rows({"turns": {job: self.results["turns"][job]}})), file=sys.stderr,
              flush=True)

    def free(self, job: str) -> dict:
        """With all of the device."""
        rows = self.results["free"][job] = {}
        for setting in self.workers:
            runs = [self.ask(setting, job) for _ in range(RUNS.get(job, 1))]
            failed = [row for row in runs if "error" in row]
            rows[setting] = failed[0] if failed else sorted(runs, key=lambda row: row.get("peak_bytes", 0))[len(runs) // 2]
            self.save()
        native = rows.get("native", {})
        if any(equal(row, native).startswith("differ") for row in rows.values()):
            again = equal(self.ask("native", job), native)
            self.results["notes"].append(f"{job}: losses of a second run of `native` against the first: {again}.\n")
            self.save()
        return native

    def tight(self, job: str, needed: int) -> None:
        rows = self.results["tight"][job] = {}
        for setting in self.workers:
            rows[setting] = self.ask(setting, job, limit=-(-int(needed * TIGHT) // (2 * MIB)) * 2 * MIB)
            self.save()

    def run(self) -> int:
        for job in self.options.jobs:
            if job in GPU_ONLY and self.options.device == "cpu":
                continue
            if self.options.turns:
                self.turns(job)
                continue
            needed = self.free(job).get("allocated_peak")
            if job in self.options.limited and needed:
                self.tight(job, needed)
        for worker in self.workers.values():
            worker.stop()
        self.save()
        rows = [row for part in ("turns", "free", "tight") for settings in self.results[part].values()
                for row in settings.values()]
        return 1 if any("error" in row for row in rows) else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/clients/result.md", help="the table; .json and .log are beside it")
    parser.add_argument("--size", choices=("tiny", "quick", "full"), default="full", help="of jobs and of the campaign")
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=ORDER, help="some of " + ",".join(ORDER))
    parser.add_argument("--settings", type=lambda text: text.split(","), default=USUAL,
                        help=f"some of {','.join(SETTINGS)} (default {','.join(USUAL)})")
    parser.add_argument("--limited", type=lambda text: text.split(",") if text else [],
                        help="jobs to run with a limit too (default: by --size)")
    parser.add_argument("--turns", type=float, default=0, metavar="SECONDS",
                        help="only compare step times: the processes of a job take turns, this long per generation")
    parser.add_argument("--generations", type=int, default=3, help="of processes that take turns (default 3)")
    parser.add_argument("--device", default="cuda:0", help="cpu: only shows that the jobs run; nothing is measured")
    parser.add_argument("--budget", type=float, default=1800, help="seconds for all; runs that do not fit are listed")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    parser.add_argument("--machine", default="this machine", help="for the head of the table")
    parser.add_argument("--commit", default="unknown", help="likewise")
    options = parser.parse_args()
    if options.limited is None:
        options.limited = LIMITED[options.size]
    for chosen, known, what in ((options.jobs, ORDER, "job"), (options.limited, ORDER, "job"),
                                (options.settings, SETTINGS, "setting")):
        for name in chosen:
            if name not in known:
                parser.error(f"there is no {what} {name!r}; there are {', '.join(known)}")
    if options.turns and "native" not in options.settings:
        parser.error("--turns compares with the setting native; name it in --settings")
    if options.turns and any(name.startswith("PYTORCH") for setting in options.settings for name in SETTINGS[setting]):
        parser.error("--turns is for native, native-again and weir's settings: PyTorch reads its variables before the fork")
    return options


def main() -> int:
    campaign = Campaign(arguments())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return campaign.run()
    finally:  # also after an interrupt
        for worker in campaign.workers.values():
            worker.kill()


if __name__ == "__main__":
    sys.exit(main())
