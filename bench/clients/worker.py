"""One setting of the campaign: a process that imports PyTorch once and runs each job in a child of its own, forked before
anything uses the GPU. Reads requests from stdin, a JSON object per line, and answers each with one on stdout. With --once it
runs the first request itself, without forking, and ends."""
import json
import os
import select
import signal
import statistics
import sys
import time
import traceback

import torch

from jobs import JOBS
from turns import take_turns

WARM = 3  # steps that do not count in the median


def used(gpu: bool) -> int:
    """Bytes of the device in use by anyone: the same measure for every allocator."""
    if not gpu:
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def settled(gpu: bool) -> int:
    """Bytes in use once the previous process has left the device."""
    last = used(gpu)
    for _ in range(20):
        time.sleep(0.05 if gpu else 0)
        now = used(gpu)
        if now == last:
            break
        last = now
    return last


def begin(setting: str, device: torch.device) -> int:
    """Prepares the process. Returns the bytes that the device holds before the job: the context, and anything else there."""
    torch.manual_seed(1)
    if setting.startswith("weir"):
        import weir.torch
        weir.torch.install()
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.synchronize()
    return settled(device.type == "cuda")


def steps_of(request: dict, job, report: dict, turn):
    """Yields the numbers of the steps to do: all of the job's or, when processes take turns, as many as `turn` says. `turn`
    gets the times of the steps before."""
    if turn is None:
        yield from range(request.get("steps") or job.steps[request["size"]])
        return
    done, more = 0, WARM
    while more:
        yield from range(done, done + more)
        done += more
        more = turn(report["step_ms"][-more:])


def measure(request: dict, report: dict, turn) -> None:
    """Fills `report` as it goes, so that a failure leaves the results so far."""
    device, size = torch.device(request["device"]), request["size"]
    gpu = device.type == "cuda"
    report["base_bytes"] = begin(request["setting"], device)
    if request.get("limit"):
        torch.cuda.set_per_process_memory_fraction(request["limit"] / torch.cuda.mem_get_info()[1])
    report.update(losses=[], step_ms=[], peak_bytes=report["base_bytes"], out_of_memory=None)
    seconds = time.perf_counter()
    job = JOBS[request["job"]](device, size)
    for i in steps_of(request, job, report, turn):
        start = time.perf_counter()
        report["losses"].append(job.step(i))
        if gpu:
            torch.cuda.synchronize()
        report["step_ms"].append((time.perf_counter() - start) * 1e3)
        report["peak_bytes"] = max(report["peak_bytes"], used(gpu))
    report["seconds"] = time.perf_counter() - seconds
    if gpu:
        numbers = torch.cuda.memory_stats()
        report["allocated_peak"] = numbers.get("allocated_bytes.all.peak", 0)
        report["requested_peak"] = numbers.get("requested_bytes.all.peak", 0)
        report["reserved_peak"] = numbers.get("reserved_bytes.all.peak", 0)
        report["retries"] = numbers.get("num_alloc_retries", 0)


def recovers(device: torch.device) -> bool:
    """Whether memory comes back after running out, once the job is gone."""
    torch.cuda.empty_cache()
    try:
        return float(torch.ones(1 << 20, device=device).sum()) == 1 << 20
    except RuntimeError:
        return False


def child(request: dict, turn=None) -> dict:
    report: dict = {}
    error = None
    try:
        measure(request, report, turn)
    except torch.OutOfMemoryError as caught:
        report["out_of_memory"] = str(caught)[:1000]
    except Exception as caught:  # still a row of the table
        error = f"{type(caught).__name__}: {caught}"
        traceback.print_exc()
    if report.get("out_of_memory"):
        report["recovers"] = recovers(torch.device(request["device"]))
    if error:
        report["error"] = error[:1000]
    times = report.pop("step_ms", [])
    report["median_ms"] = statistics.median(times[WARM:]) if len(times) > WARM else None
    report["steps_done"] = len(times)
    return report


def run(request: dict) -> dict:
    """Runs the job in a child, which has `timeout` seconds."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.dup2(2, 1)  # stdout carries only answers
        with os.fdopen(writer, "w") as answer:
            json.dump(child(request), answer)
        os._exit(0)  # skips destructors, which are not measured
    os.close(writer)
    deadline, text = time.monotonic() + request["timeout"], b""
    with os.fdopen(reader, "rb", buffering=0) as answer:
        while True:
            ready, _, _ = select.select([answer], [], [], max(0.0, deadline - time.monotonic()))
            part = answer.read(1 << 20) if ready else None
            if not part:
                break
            text += part
    if part is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if part is None:
        return {"error": f"did not end within {request['timeout']:.0f} s"}
    if not text:
        return {"error": f"ended with status {status}: see the log"}
    return json.loads(text)


def main() -> None:
    # Before the children start, because this import takes seconds.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # more kernels than the job has
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    print(json.dumps({"torch": torch.__version__}), flush=True)
    if "--once" in sys.argv:
        request, answers = json.loads(sys.stdin.readline()), os.dup(1)
        os.dup2(2, 1)
        with os.fdopen(answers, "w") as answer:
            answer.write(json.dumps(child(request)) + "\n")
        os._exit(0)
    for line in sys.stdin:
        request = json.loads(line)
        answer = take_turns(request, JOBS, child) if "turns" in request else run(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
