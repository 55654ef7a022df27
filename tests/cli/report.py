"""Takes a report of `weir view` apart: report.py REPORT STAT [TEXT]... Its markup must be well formed and refer to nothing
outside, its data must count up to what `weir stat --json` says, and each TEXT must be among the frames."""
import base64
import html.parser
import json
import sys
import zlib

VOID = {"meta", "input", "br"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.scripts, self.tags, self.title, self.policy = [], {}, [], "", ""

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        for name in attributes:
            assert name not in ("src", "href") and not name.startswith("on"), (tag, attributes)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        if tag not in VOID:
            self.open.append((tag, attributes.get("id")))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, (tag, self.open[-3:], self.getpos())
        self.open.pop()

    def handle_data(self, data):
        tag, name = self.open[-1] if self.open else ("", None)
        if tag == "script" and name:
            self.scripts[name] = self.scripts.get(name, "") + data
        if tag == "title":
            self.title += data


def numbers(data):
    value, shift = 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value, shift = 0, 0


def peak(changes):
    """The largest running sum, with the changes of each moment taken together."""
    total = most = 0
    for moment in sorted(changes):
        total += changes[moment]
        most = max(most, total)
    return most


def span(changes, start, end, size):
    changes[start] = changes.get(start, 0) + size
    if end is not None:
        changes[end] = changes.get(end, 0) - size


def columns(track, text):
    stream = numbers(zlib.decompress(base64.b64decode(text)))
    found = {about["name"]: [next(stream) for _ in range(about["count"])] for about in track["columns"]}
    assert next(stream, None) is None
    return found


def lives(column, prefix):
    """(start, end) of each row; None: never."""
    start = 0
    for step, life in zip(column[prefix + ".from"], column[prefix + (".freed" if prefix == "block" else ".until")]):
        start += step
        yield start, start + life - 1 if life else None


def texts(track, name):
    """Frames by stack."""
    return [[track["frames"][frame] for frame in stack] for stack in track[name]]


def check(track, text, stat):
    column = columns(track, text)
    requested, active, reserved = {}, {}, {}
    for (start, freed), wait, size in zip(lives(column, "block"), column["block.until"], column["block.bytes"]):
        span(requested, start, freed, size)
        span(active, start, freed + wait - 1 if wait else None, size)
    for (start, end), size in zip(lives(column, "segment"), column["segment.bytes"]):
        span(reserved, start, end, size)
    for name, changes in ("requested", requested), ("active", active), ("reserved", reserved):
        told = stat["peak_" + name]  # None: the trace has no segments
        assert peak(changes) == (told or 0) == track["peaks"][name], (name, peak(changes), stat["peak_" + name])
    assert len(column["time"]) == stat["operations"] + 2
    replayed = track["title"].endswith((", torch", ", weir"))  # it ends with its last operation
    assert abs(sum(column["time"]) - stat["duration_ns"] / 1000) < (1000 if replayed else 1)
    assert len(column["block.from"]) == sum(life["count"] for life in stat["lifetimes"])
    assert sum(column["block.bytes"]) == sum(life["bytes"] for life in stat["lifetimes"])
    assert len(column["oom.moment"]) == len(stat["ooms"])
    assert max(column["block.stack"], default=0) < max(1, len(track["stacks"]))
    assert len(track["callers"]) == len(track["stacks"])
    callers = {tuple(stack): [*caller, None][0] for stack, caller in zip(texts(track, "stacks"), texts(track, "callers"))}
    for row in stat["largest"] + stat["ooms"]:
        assert callers.get(tuple(row["frames"])) == row["caller"], (row, callers)
    return column["time"][:-1]


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open, page.open
    assert page.policy.startswith("default-src 'none'")
    assert "http://" not in text and "https://" not in text and "@import" not in text
    assert page.tags.count("title") == page.tags.count("h1") == 1
    about, stats = json.loads(page.scripts["about"]), json.load(open(sys.argv[2]))
    assert len(about["tracks"]) == len(stats)
    times = []
    for i, (track, stat) in enumerate(zip(about["tracks"], stats)):
        assert track["title"].split(", ")[0] == stat["trace"]
        times.append(check(track, page.scripts[f"data-{i}"], stat))
        replayed = i > 0 and stat["trace"] == stats[i - 1]["trace"]
        assert not replayed or times[i] == times[i - 1], "operations at other times"
    frames = [frame for track in about["tracks"] for frame in track["frames"]]
    for wanted in sys.argv[3:]:
        assert any(wanted in frame for frame in frames), (wanted, frames)


main()
