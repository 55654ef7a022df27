#!/usr/bin/env python3
"""Reads OpenMetrics text (1.0) strictly and says what is wrong with it: openmetrics.py FILE [SERIES=VALUE]...

Each SERIES=VALUE must be there: 'weir_memory_hits_total{device="0"}=3'.
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
METADATA = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (\S.*)\Z")
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL}(?:,{LABEL})*)?)\}})? (-?[0-9]+(?:\.[0-9]+)?)\Z")
SUFFIXES = {"gauge": [""], "counter": ["_total"], "info": ["_info"]}
RESERVED = ("_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum", "_info")


class Wrong(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Wrong(text)


class Family:
    def __init__(self, name):
        self.name, self.type, self.unit, self.help, self.samples = name, None, None, None, 0

    def describe(self, what, text):
        need(self.samples == 0, f"{what} of {self.name} after its samples")
        if what == "TYPE":
            need(self.type is None, f"second TYPE of {self.name}")
            need(text in SUFFIXES, f"type {text}")
            self.type = text
        elif what == "UNIT":
            need(self.unit is None, f"second UNIT of {self.name}")
            need(self.name.endswith("_" + text), f"{self.name} does not end in its unit {text}")
            self.unit = text
        else:
            need(self.help is None, f"second HELP of {self.name}")
            need(not re.search(r"\\(?![\\n\"])", text), f"HELP of {self.name} is not escaped")
            self.help = text

    def take(self, sample, labels, value):
        need(self.type, f"{self.name} has no TYPE")
        need(sample in [self.name + suffix for suffix in SUFFIXES[self.type]], f"{sample} is no sample of {self.name}")
        need(self.type == "gauge" or float(value) >= 0, f"{sample} is negative")
        names = re.findall(r'([a-zA-Z_]\w*)="', re.sub(r'"(?:[^"\\]|\\.)*"', '"', labels or ""))
        need(len(names) == len(set(names)), f"{sample} has a label twice")
        self.samples += 1


def read(text):
    need(text.endswith("# EOF\n"), "the last line is not # EOF")
    families, series, current = {}, {}, None
    for number, line in enumerate(text.split("\n")[:-2], 1):
        try:
            match = METADATA.match(line)
            if match:
                what, name, rest = match.groups()
                if current is None or current.name != name:
                    need(current is None or current.samples, f"{current and current.name} has no sample")
                    need(name not in families, f"{name} is told in two places")
                    need(not name.endswith(RESERVED) or name.endswith("_created"), f"{name} ends in a reserved suffix")
                    current = families[name] = Family(name)
                current.describe(what, rest)
                continue
            match = SAMPLE.match(line)
            need(match, f"neither metadata nor a sample: {line!r}")
            need(current, "a sample before any family")
            current.take(*match.groups())
            key = line.rsplit(" ", 1)[0]
            need(key not in series, f"{key} twice")
            series[key] = match.group(3)
        except Wrong as wrong:
            raise Wrong(f"line {number}: {wrong}") from None
    need(families and all(f.samples and f.help for f in families.values()), "a family without sample or help")
    return families, series


def main():
    try:
        with open(sys.argv[1], encoding="utf-8", newline="") as file:
            families, series = read(file.read())
        for wanted in sys.argv[2:]:
            key, value = wanted.rsplit("=", 1)
            need(key in series, f"{key} is not there")
            need(series[key] == value, f"{key} is {series[key]}, not {value}")
    except Wrong as wrong:
        print(f"{sys.argv[1]}: {wrong}", file=sys.stderr)
        return 1
    print(f"{len(families)} families, {len(series)} series")
    return 0


if __name__ == "__main__":
    sys.exit(main())
