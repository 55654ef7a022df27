"""How much longer a step takes: processes of all settings live at once and do the same steps in turns, so that what the
machine does meanwhile meets all of them alike. Each turn of one is compared with the turn of `native` beside it."""
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

TURN_MS = 150  # of steps, at least


def interval(values: list) -> tuple:
    """The median, and what holds it with 95 % whatever the distribution: two of the values, by the binomial one."""
    values, n = sorted(values), len(values)
    below, outside = 0, 0.0
    while below < n // 2:
        outside += math.comb(n, below) / 2 ** n
        if outside > 0.025:
            break
        below += 1
    first = max(below - 1, 0)
    return statistics.median(values), values[first], values[n - 1 - first]


class Taker:
    """A worker that takes turns at a job."""

    def __init__(self, worker, request: dict) -> None:
        self.worker, self.turns, self.error = worker, [], None
        self.warm = self.hear(worker.begin({**request, "setting": worker.setting, "turns": True}))

    def hear(self, answer: dict) -> list:
        if "ms" not in answer:
            self.error = str(answer.get("error") or answer.get("out_of_memory") or answer)
        return answer.get("ms", [])

    def step(self, steps: int) -> None:
        if self.error is None:
            self.worker.send({"steps": steps})
            self.turns.append(self.hear(self.worker.receive()))

    def end(self) -> None:
        if self.error is None:
            self.worker.send({"steps": 0})
            self.worker.receive()
        self.worker.end()

    def row(self, native: "Taker") -> dict:
        if self.error is not None:
            return {"error": self.error}
        ratios = [sum(mine) / sum(theirs) for mine, theirs in zip(self.turns, native.turns)]
        return {"median_ms": statistics.median(ms for turn in self.turns for ms in turn), "turns": len(self.turns),
                "steps": len(self.turns[0]), "ratio": None if self is native else interval(ratios)}


def take_turns(workers: list, request: dict, seconds: float) -> dict:
    """Medians of a step in ms by setting, and by how much longer than native's it is: median and interval of the turns."""
    with ThreadPoolExecutor() as pool:
        takers = list(pool.map(lambda worker: Taker(worker, request), workers))
    native = next(taker for taker in takers if taker.worker.setting == "native")
    steps = max(1, round(TURN_MS / native.warm[-1])) if native.warm else 1
    end = time.monotonic() + seconds
    while native.error is None and time.monotonic() < end:
        for taker in takers:
            taker.step(steps)
        takers.reverse()
    rows = {taker.worker.setting: taker.row(native) for taker in takers}
    for taker in takers:
        taker.end()
    return {worker.setting: rows[worker.setting] for worker in workers}


def turns_table(jobs: dict) -> tuple:
    rows = []
    for job, settings in jobs.items():
        for setting, row in settings.items():
            if "error" in row:
                rows.append([job, setting, "failed: " + " ".join(row["error"].split())[:160].replace("|", "/"), "", "", ""])
                continue
            cells = [f"{row['ratio'][0]:.4f}", f"{row['ratio'][1]:.4f} to {row['ratio'][2]:.4f}"] if row["ratio"] else ["", ""]
            rows.append([job, setting, f"{row['median_ms']:.2f}", f"{row['turns']} of {row['steps']}", *cells])
    return ["job", "setting", "step", "turns", "to native", "95 %"], rows
