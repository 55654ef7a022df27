"""PyTorch's or CuPy's own tests on weir: scripts/client-tests runs this.

A test that fails may leave a capture to the next ones of its process, so what failed counts only if it fails alone, too.
"""
import argparse
import concurrent.futures
import datetime
import importlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PER_TEST = 90  # seconds
NOT_INSTALLED = 98
NAMES = {"torch": "PyTorch", "cupy": "CuPy"}
INSTALL = """import os
import sys
try:
    import {client}
    import weir.{client}
    weir.{client}.install()
except Exception as error:
    print("weir could not be installed:", error, file=sys.stderr)
    os._exit({status})
"""


def environment(site: pathlib.Path, on_weir: bool) -> dict:
    """With weir installed in every Python process that inherits it, or not."""
    before = os.environ.get("PYTHONPATH")
    path = [str(site), str(ROOT / "adapters/python")] if on_weir else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path + ([before] if before else [])),
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": os.environ.get("PYTORCH_TESTING_DEVICE_ONLY_FOR", "cuda")}


def pytest(*arguments: str) -> list:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "--timeout", str(PER_TEST),
            *arguments]


class GaveUp(Exception):
    """Nothing can be said of the tests; with the reason."""


def run_all(options: argparse.Namespace, site: pathlib.Path) -> tuple:
    """How many tests there are, how many were skipped, and the ids of those that failed, all in a few processes."""
    report = site / "report.xml"
    arguments = ["-n", str(options.workers), f"--junitxml={report}", "-o", "junit_family=xunit1", *options.files]
    if options.select:
        arguments += ["-k", options.select]
    try:
        done = subprocess.run(pytest(*arguments), cwd=options.folder, env=environment(site, True), timeout=options.limit,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except subprocess.TimeoutExpired:
        raise GaveUp(f"scripts/client-tests: the tests did not end in {options.limit} s; name fewer, or raise --limit")
    if done.returncode not in (0, 1) or not report.exists():  # 1: some failed
        raise GaveUp(done.stdout)
    tests, skipped, failed = set(), set(), set()
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        names = [case.get("file", ""), *case.get("classname", "").split(".")[-1:], case.get("name", "")]
        if names[1] == pathlib.Path(names[0]).stem:  # of no class
            del names[1]
        name = "::".join(names)
        tests.add(name)
        skipped |= {name for outcome in case if outcome.tag == "skipped"}
        failed |= {name for outcome in case if outcome.tag in ("failure", "error")}
    return len(tests), len(skipped - failed), sorted(failed)


def run_alone(options: argparse.Namespace, site: pathlib.Path, test: str, on_weir: bool) -> str:
    """Why it fails; empty: it does not."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            done = subprocess.run(pytest("-p", "no:xdist", "--tb=short", test), cwd=options.folder, timeout=PER_TEST + 60,
                                  env={**environment(site, on_weir), "TORCH_EXTENSIONS_DIR": scratch},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except subprocess.TimeoutExpired:
            return "did not end"
    if done.returncode == 0:
        return ""
    if done.returncode in (2, 4, 5, NOT_INSTALLED):  # pytest's: interrupted, wrong use, no such test
        raise GaveUp(f"{test} could not be run alone:\n{done.stdout}")
    reasons = re.findall(r"^E   +(\S.*)", done.stdout, re.MULTILINE)
    return reasons[0][:200] if reasons else f"exit status {done.returncode}"


def run(options: argparse.Namespace) -> tuple:
    """What run_all() counts, and why each test that failed there fails alone, without weir and with it."""
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder)
        install = INSTALL.format(client=options.client, status=NOT_INSTALLED)
        (site / "sitecustomize.py").write_text(install, encoding="utf-8")
        counts = run_all(options, site)
        print(f"{counts[0]} tests, {len(counts[2])} failed; those run again, each alone", file=sys.stderr)
        pool = concurrent.futures.ThreadPoolExecutor(options.workers)
        try:
            asked = {(test, on_weir): pool.submit(run_alone, options, site, test, on_weir)
                     for test in counts[2] for on_weir in (False, True)}
            return counts, {test: {on_weir: asked[test, on_weir].result() for on_weir in (False, True)} for test in counts[2]}
        finally:
            pool.shutdown(cancel_futures=True)


def write_table(options: argparse.Namespace, counts: tuple, reasons: dict) -> int:
    """Returns how many fail on weir alone."""
    name, version = NAMES[options.client], importlib.import_module(options.client).__version__
    tests, skipped, failed = counts
    alone = {on_weir: {test: why[on_weir] for test, why in reasons.items() if why[on_weir]} for on_weir in (False, True)}
    only = {test: why for test, why in alone[True].items() if test not in alone[False]}
    with open(options.result, "w", encoding="utf-8") as out:
        print(f"# {name}'s own tests on weir\n\n{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {name} "
              f"{version}: {' '.join(options.files)}{f' -k {options.select!r}' if options.select else ''}\n\n"
              "| tests | skipped | failed together, on weir | of those alone, without weir | on weir | on weir only |\n"
              "|---|---|---|---|---|---|\n"
              f"| {tests} | {skipped} | {len(failed)} | {len(alone[False])} | {len(alone[True])} | {len(only)} |\n", file=out)
        if only:
            print("| fails on weir only | why |\n|---|---|", file=out)
        for test, why in only.items():
            print(f"| `{test}` | {why.replace('|', chr(92) + '|')} |", file=out)
    return len(only)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/client-tests", description="Runs PyTorch's or CuPy's own tests on weir.")
    parser.add_argument("client", choices=sorted(NAMES), help="whose tests")
    parser.add_argument("folder", metavar="FOLDER", help="PyTorch's folder `test`, or CuPy's with its `tests` in it")
    parser.add_argument("result", metavar="RESULT", type=pathlib.Path, help="the file that gets the table")
    parser.add_argument("files", metavar="FILE", nargs="+", help="of the folder, such as test_cuda.py or tests/cupy_tests/cuda_tests")
    parser.add_argument("--workers", type=int, default=8, help="processes that run tests at once (8)")
    parser.add_argument("--limit", type=int, default=1800, help="seconds for all of them together, on weir (1800)")
    parser.add_argument("--select", metavar="EXPRESSION", help="only tests whose name matches, as pytest's -k")
    options = parser.parse_args()
    options.result = options.result.absolute()
    try:
        only = write_table(options, *run(options))
    except GaveUp as why:
        print(why, file=sys.stderr)
        return 2
    print(options.result.read_text(encoding="utf-8"))
    return 1 if only else 0


if __name__ == "__main__":
    sys.exit(main())
