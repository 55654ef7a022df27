"""Measures how much longer a step takes. The processes are forked from one, so that code and data lie at the same addresses.
They live at once and do the same steps in turns: in one round on the same processors, in the next round on others. After a
while fresh processes take their places. So other load on the machine, and the chance layout of a process, affect all settings
alike. The time of a turn is compared with that of the turn of `native` in the same round."""
import json
import math
import os
import signal
import socket
import statistics
import time

TURN_MS = 150  # the least time of a turn's steps
LEAST = 6  # the fewest turns that give an interval
PROCESSORS = 2  # for a job whose class does not say how many


class Player:
    """A forked process that does a job's steps under one setting, as many at a time as it is told."""

    def __init__(self, setting: str, environment: dict, request: dict, child, others: list) -> None:
        self.setting, self.turns, self.error = setting, [], None
        self.socket, end = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(2, 1)  # stdout carries only answers
            for mine in [self, *others]:
                mine.socket.close()
            os.environ.update(environment)
            lines = end.makefile("rw", buffering=1)

            def turn(times: list) -> int:
                lines.write(json.dumps({"ms": times}) + "\n")
                return int(lines.readline() or 0)

            lines.write(json.dumps(child({**request, "setting": setting}, turn)) + "\n")
            lines.flush()
            os._exit(0)  # skips destructors, which are not measured
        end.close()
        self.socket.settimeout(min(request["timeout"], request["seconds"] + 90))
        self.lines = self.socket.makefile("rw", buffering=1)

    def hear(self) -> dict:
        """Reads the next line. After a failure the process gets no more requests."""
        try:
            answer = json.loads(self.lines.readline())
        except (OSError, ValueError) as error:
            answer = {"error": f"the process ended or hangs: {error}; see the log"}
        self.error = answer.get("error") or answer.get("out_of_memory")
        return answer

    def step(self, steps: int) -> None:
        if self.error is None:
            self.lines.write(f"{steps}\n")
            times = self.hear().get("ms")
            if times:
                self.turns.append(times)

    def end(self) -> list:
        """Ends the process and returns its losses."""
        answer = {}
        if self.error is None:
            self.lines.write("0\n")
            answer = self.hear()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.socket.close()
        return answer.get("losses", [])

    def run_on(self, processors: set) -> None:
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            try:
                os.sched_setaffinity(int(thread), processors)
            except ProcessLookupError:
                pass  # it has ended


def rotation(count: int):
    """Yields sets of so many processors, for ever."""
    all_ = sorted(os.sched_getaffinity(0))
    count = min(count, len(all_))
    while True:
        for first in range(0, len(all_) - count + 1, count):
            yield set(all_[first:first + count])


def play(players: list, count: int, seconds: float) -> None:
    """Plays rounds of turns, in alternating order."""
    native = next(player for player in players if player.setting == "native")
    for player in players:
        player.hear()
    for player in players:  # one by one, because all warmed up at once
        player.step(2)
    steps = max(1, math.ceil(TURN_MS / min(native.turns[-1]))) if native.error is None else 1
    for player in players:
        player.turns.clear()
    end = time.monotonic() + seconds
    for processors in rotation(count):
        if native.error is not None or time.monotonic() > end:
            break
        for player in players:
            player.run_on(processors)
            player.step(steps)
        players = players[::-1]


def take_turns(request: dict, jobs: dict, child) -> dict:
    """For each setting: its turns in ms, one list per generation of processes; the losses of the last; its failure."""
    rows = {setting: {"turns": [], "losses": []} for setting in request["turns"]}
    for _ in range(request["generations"]):
        players = []
        for setting, environment in request["turns"].items():
            players.append(Player(setting, environment, request, child, players))
        play(players, getattr(jobs[request["job"]], "processors", PROCESSORS), request["seconds"])
        for player in players:
            row = rows[player.setting]
            row["turns"].append(player.turns)
            row["losses"] = player.end()
            if player.error is not None:
                row["error"] = str(player.error)
    return rows


def interval(values: list) -> tuple:
    """The median, and two of the values that enclose it with 95 % confidence, whatever the distribution."""
    values, n = sorted(values), len(values)
    below, outside = 0, 0.0
    while below < n // 2:
        outside += math.comb(n, below) / 2 ** n
        if outside > 0.025:
            break
        below += 1
    first = max(below - 1, 0)
    return statistics.median(values), values[first], values[n - 1 - first]


def compare(row: dict, native: dict) -> list:
    """For each generation, the times of turns divided by those of native."""
    return [[sum(mine) / sum(theirs) for mine, theirs in zip(turns, natives)]
            for turns, natives in zip(row["turns"], native["turns"])]


HEAD = ["job", "setting", "step", "turns", "to native", "95 %", "generations", "losses"]


def cells(row: dict, native: dict, equal) -> list:
    if "error" in row:
        return ["failed: " + " ".join(row["error"].split())[:160].replace("|", "/"), "", "", "", "", ""]
    steps = [ms for turns in row["turns"] for turn in turns for ms in turn]
    if not steps:
        return ["no turns", "", "", "", "", ""]
    counts = f"{sum(map(len, row['turns']))} of {max(len(turn) for turns in row['turns'] for turn in turns)}"
    first = [f"{statistics.median(steps):.2f}", counts]
    generations = [ratios for ratios in compare(row, native) if ratios]
    if row is native or not generations:
        return [*first, "", "", "", ""]
    ratios = [ratio for generation in generations for ratio in generation]
    median, low, high = interval(ratios)
    return [*first, f"{median:.4f}", f"{low:.4f} to {high:.4f}" if len(ratios) >= LEAST else "-",
            ", ".join(f"{statistics.median(ratios):.3f}" for ratios in generations), equal(row, native)]
