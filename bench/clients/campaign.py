"""Real jobs on PyTorch's allocators and on weir, side by side: scripts/clients runs this.

Every job runs under every setting, each in a fresh process, one after the other: first with all of the device, then with
a limit close to what the job needs. The table is written anew after each run, so that an end before its time leaves what
there is.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

SETTINGS = {
    "native": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "weir": {},
    "weir-segments": {"WEIR_POLICY": "segments"},
    "weir-torch": {"WEIR_POLICY": "torch"},
}
USUAL = ["native", "expandable", "cudaMallocAsync", "weir"]
NO_FORK = ("initialization error", "forked subprocess")
HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
ORDER = ["graph_step", "threads8", "resnet50_amp", "gpt2_varlen", "gpt2_lora_recompute", "graphsage", "detection",
         "serving_kv"]
GPU_ONLY = ["graph_step"]
LIMITED = {"quick": ["gpt2_varlen", "detection"], "full": ORDER, "tiny": []}
TIGHT = 1.03  # times the most that PyTorch's own allocator ever had allocated


class Worker:
    """A process of worker.py under one setting, which lives as long as the campaign; where a fork of it cannot use the GPU,
    because some package has started the driver while it was imported, a process per job."""

    def __init__(self, setting: str, log) -> None:
        self.setting, self.log, self.forks, self.torch = setting, log, True, None
        self.start()

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")}
        environment.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTHONUNBUFFERED="1")
        environment.update(SETTINGS[self.setting])
        command = [sys.executable, str(HERE / "worker.py"), *([] if self.forks else ["--once"])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=self.log, env=environment)
        self.greeting = None

    def ask(self, request: dict) -> dict:
        answer = self.tell(request)
        if self.forks and any(text in answer.get("error", "") for text in NO_FORK):
            self.forks = False
            self.restart()
            answer = self.tell(request)
        if not self.forks:
            self.restart()
        return answer

    def restart(self) -> None:
        self.process.kill()
        self.process.wait()
        self.start()

    def tell(self, request: dict) -> dict:
        """Whatever happens is an answer; a worker that died is started again."""
        watch = threading.Timer(request["timeout"] + 60, self.process.kill)
        watch.start()
        try:
            if self.greeting is None:
                self.greeting = json.loads(self.process.stdout.readline())
                self.torch = self.greeting["torch"]
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError) as error:
            self.restart()
            return {"error": f"the worker ended: {error}; see the log"}
        finally:
            watch.cancel()

    def stop(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


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


def markdown(results: dict) -> str:
    about = results["about"]
    lines = [f"# PyTorch's jobs on its allocators and on weir, {about['date']}", "",
             f"{about['machine']}; PyTorch {about['torch']}; size {about['size']}; commit {about['commit']}; weir with "
             f"{' '.join(f'{name}={value}' for name, value in about['weir'].items()) or 'its defaults'}. "
             "`scripts/clients`, in one run; every row is a process of its own.", "",
             "Step: median in ms, without the first three. Device: the most that was in use on the device at the end of a "
             "step, beyond what the context took. Reserved, allocated: the allocator's own peaks; `x`: the one by the "
             "other. MiB. Losses: against `native`, bit by bit, in every step, deterministic algorithms on.", ""]
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
        self.workers = {setting: Worker(setting, self.log) for setting in options.settings}
        self.results = {"about": {"date": datetime.date.today().isoformat(), "machine": options.machine,
                                  "size": options.size, "commit": options.commit, "torch": "?",
                                  "weir": {name: value for name, value in os.environ.items()
                                           if name.startswith("WEIR_") and name != "WEIR_LIBRARY"}},
                        "free": {}, "tight": {}, "notes": []}

    def save(self) -> None:
        self.out.write_text(markdown(self.results))
        self.out.with_suffix(".json").write_text(json.dumps(self.results, indent=1))

    def ask(self, setting: str, job: str, **more) -> dict:
        left = self.deadline - time.monotonic()
        if left < 5:
            return {"error": "no time was left", **more}
        worker = self.workers[setting]
        request = {"setting": setting, "job": job, "size": self.options.size, "device": self.options.device,
                   "timeout": min(left, self.options.timeout), **more}
        start = time.monotonic()
        row = {**worker.ask(request), **more}
        if worker.torch:
            self.results["about"]["torch"] = worker.torch
        outcome = row.get("error") or (row.get("out_of_memory") and "out of memory") or \
            f"{row['steps_done']} steps, median {row.get('median_ms') or 0:.2f} ms"
        print(f"{job:20} {setting:16} {time.monotonic() - start:6.1f} s  {outcome[:120]}", file=sys.stderr, flush=True)
        return row

    def free(self, job: str) -> dict:
        """With all of the device."""
        rows = self.results["free"][job] = {}
        for setting in self.workers:
            rows[setting] = self.ask(setting, job)
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
            needed = self.free(job).get("allocated_peak")
            if job in LIMITED[self.options.size] and needed:
                self.tight(job, needed)
        for worker in self.workers.values():
            worker.stop()
        self.save()
        rows = [row for settings in self.results["free"].values() for row in settings.values()]
        return 1 if any("error" in row for row in rows) else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/clients/result.md", help="the table; .json and .log are beside it")
    parser.add_argument("--size", choices=("tiny", "quick", "full"), default="full", help="of jobs and of the campaign")
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=ORDER, help="some of " + ",".join(ORDER))
    parser.add_argument("--settings", type=lambda text: text.split(","), default=USUAL,
                        help=f"some of {','.join(SETTINGS)} (default {','.join(USUAL)})")
    parser.add_argument("--device", default="cuda:0", help="cpu: only to see whether the jobs run; nothing is measured")
    parser.add_argument("--budget", type=float, default=1800, help="seconds for all; what does not fit is said to be left")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    parser.add_argument("--machine", default="this machine", help="for the head of the table")
    parser.add_argument("--commit", default="unknown", help="likewise")
    options = parser.parse_args()
    for chosen, known, what in ((options.jobs, ORDER, "job"), (options.settings, SETTINGS, "setting")):
        for name in chosen:
            if name not in known:
                parser.error(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return options


if __name__ == "__main__":
    sys.exit(Campaign(arguments()).run())
