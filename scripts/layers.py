#!/usr/bin/env python3
"""Checks which files may include which, and which may name a driver.

src/: a file includes its own folder or a lower one of LAYERS, and public headers. Back ends do not include each other.
tools/: public headers and its own, in the order of TOOLS; files in tools/ itself may be included by all and include any.
bench/, examples/: public headers and their own. bench/ may also use the reader of traces, the tables and the clock of
tools/: TOOLS_OF_BENCH.
Driver symbols (cuXxx, hipXxx) appear only under src/backend/<name>/.
Each file of src/pool is in one row of "What is where in src/pool" in docs/architecture.md, that of its folder.
"""
import pathlib
import re
import sys

LAYERS = ["base", "observe", "backend", "stream", "pool", "handle", "device", "thread", "api"]
TOOLS = ["input", "output", "timeline", "script", "plan", "replay", "stat", "view"]
DRIVERS = {"cuda": re.compile(r"\bcu[A-Z]\w+\s*\("), "hip": re.compile(r"\bhip[A-Z]\w+\s*\(")}
TOOLS_OF_BENCH = ["input/input.h", "script/demand.h", "script/script.h", "output/table.h", "clock.h", "grow.h"]
ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def blank(match):
    """Comments and strings may mention anything; newlines stay so that line numbers hold."""
    return re.sub(r"[^\n]", " ", match.group(0))


def includes(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def refuse_in_library(path, quote, name):
    """Why this include is wrong in a file of src/, or None."""
    if name.startswith("weir/"):
        return None if (ROOT / "include" / name).exists() else "is not a public header"
    if quote == "<":
        return None
    layer = path.parts[1]
    target = pathlib.PurePath(name).parts
    if len(target) < 2 or target[0] not in LAYERS:
        return 'must be written "folder/file.h", from src/'
    if LAYERS.index(target[0]) > LAYERS.index(layer):
        return f"is above {layer}/ ({' < '.join(LAYERS)})"
    if layer == target[0] == "backend" and len(target) == 3 and path.parts[2] != target[1]:
        return f"is another back end's, only {target[1]}/ may include it"
    return None


def refuse_outside(path, quote, name):
    """The same for tools/, bench/ and examples/."""
    if name.startswith("weir/"):
        return None if (ROOT / "include" / name).exists() else "is not a public header"
    if quote == "<":
        return None
    roots = [path.parent, path.parts[0]]
    rooms = [pathlib.PurePath(path.parts[1]), pathlib.PurePath(name).parent]
    ranks = [TOOLS.index(room.parts[0]) for room in rooms if room.parts and room.parts[0] in TOOLS]
    if path.parts[0] == "tools" and len(ranks) == 2 and ranks[1] > ranks[0]:
        return f"is above {rooms[0]}/ ({' < '.join(TOOLS)})"
    if path.parts[0] == "bench" and (ROOT / "tools" / name).exists():
        return None if name in TOOLS_OF_BENCH else "is not one of TOOLS_OF_BENCH"
    if any((ROOT / root / name).exists() for root in roots):
        return None
    return f"is neither public nor under {path.parts[0]}/"


def check(path):
    text = (ROOT / path).read_text()
    refuse = refuse_in_library if path.parts[0] == "src" else refuse_outside
    for number, quote, name in includes(text):
        reason = refuse(path, quote, name)
        if reason:
            yield f"{path}:{number}: {name} {reason}"
    if path.parts[0] in ("src", "tools"):
        code = COMMENT.sub(blank, text)
        for number, line in enumerate(code.splitlines(), 1):
            for driver, pattern in DRIVERS.items():
                match = pattern.search(line)
                if match and path.parts[:3] != ("src", "backend", driver):
                    yield f"{path}:{number}: {match.group(0)[:-1].strip()} may be named under src/backend/{driver}/ only"


def check_rooms():
    table = (ROOT / "docs/architecture.md").read_text().split("## What is where in src/pool")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")]
    named = sorted((folder.strip("`"), name) for folder, _, files in rows for name in re.findall(r"`(\w+)`", files))
    there = {(path.parent.relative_to(ROOT / "src").as_posix(), path.stem) for path in (ROOT / "src/pool").rglob("*.[ch]")}
    for folder, name in sorted(there.union(named)):
        times = named.count((folder, name))
        if (folder, name) not in there or times != 1:
            yield f"docs/architecture.md: what is where: src/{folder}/{name} is named {times} times, and " + (
                "should be once" if (folder, name) in there else "is no file")


def main():
    files = [
        path.relative_to(ROOT)
        for folder in ("src", "tools", "bench", "examples")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".c", ".h", ".def")
    ]
    stray = [f"{p}: not in one of src/'s folders: {', '.join(LAYERS)}" for p in files
             if p.parts[0] == "src" and (len(p.parts) < 3 or p.parts[1] not in LAYERS)]
    problems = stray or [problem for path in files for problem in check(path)] + list(check_rooms())
    print("\n".join(problems) if problems else f"layers: {len(files)} files, order kept")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
