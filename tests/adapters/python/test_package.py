"""The package weir on the host back end."""
import ctypes
import ctypes.util
import gc
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import weir
from weir import _library

MIB = 1 << 20
OUT_OF_HOST_MEMORY = -3


def run(code, **environment):
    """Runs another Python; a variable set to None is removed."""
    variables = {**os.environ, **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60)


def allocate(size):
    pointer = ctypes.c_void_p()
    _library.library().weir_alloc.argtypes = [ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
    _library.library().weir_free.argtypes = [ctypes.c_void_p]
    _library.call("weir_alloc", size, ctypes.byref(pointer))
    return pointer.value


class Finding(unittest.TestCase):
    def test_a_folder_will_do(self):
        folder = str(pathlib.Path(os.environ["WEIR_LIBRARY"]).parent)
        result = run("import weir; print(weir.version(), weir.backend())", WEIR_LIBRARY=folder)
        self.assertEqual(result.stdout, f"{weir.version()} host\n", result.stderr)

    def test_a_path_may_be_relative_to_where_the_library_is_first_used(self):
        library = pathlib.Path(os.environ["WEIR_LIBRARY"])
        for at, relative in ((library.parent, "."), (library.parent, library.name),
                             (library.parent.parent, library.parent.name)):
            result = run(f"import os; os.chdir({str(at)!r}); import weir._library as l; l.library(); os.chdir('/')\n"
                         "l.adapters(); print(l.adapters_path())", WEIR_LIBRARY=relative)
            self.assertEqual(result.stdout.strip(), str(library.parent / "libweir_adapters.so"), result.stderr)

    def test_another_library_is_refused_by_its_name(self):
        other = ctypes.util.find_library("m")
        result = run("import weir; weir.version()", WEIR_LIBRARY=other)
        self.assertRegex(result.stderr, f"weir.*Error: libweir was not found; .*{other}.*not libweir")

    def test_what_is_beside_the_package_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder) / "weir"
            shutil.copytree(pathlib.Path(weir.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
            (package / "lib").mkdir()
            source = pathlib.Path(os.environ["WEIR_LIBRARY"]).parent
            for name in ("libweir.so.0", "libweir_adapters.so"):
                shutil.copy(source / name, package / "lib" / name)
            result = run("import weir._library as l; l.adapters(); print(l.adapters_path())", WEIR_LIBRARY=None,
                         PYTHONPATH=folder)
            self.assertEqual(result.stdout.strip(), str(package / "lib" / "libweir_adapters.so"), result.stderr)

    def test_one_that_is_not_there_is_said_to_be_missing(self):
        result = run("import weir; weir.version()", WEIR_LIBRARY="/nowhere/libweir.so")
        self.assertEqual(result.returncode, 1)
        self.assertIn("set WEIR_LIBRARY to the file", result.stderr)
        self.assertIn("/nowhere/libweir.so", result.stderr)

    def test_importing_loads_nothing(self):
        result = run("import weir, weir.torch, weir.cupy", WEIR_LIBRARY="/nowhere/libweir.so")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_the_adapters_use_the_same_libweir(self):
        result = run("import weir._library as l; l.library(); l.adapters()\n"
                     "print(len({line.split()[-1] for line in open('/proc/self/maps') if 'libweir.so' in line}))")
        self.assertEqual(result.stdout, "1\n", result.stderr)


class Version(unittest.TestCase):
    def test_the_package_and_the_library_are_of_one_version(self):
        project = pathlib.Path(weir.__file__).parent.parent / "pyproject.toml"
        self.assertIn(f'\nversion = "{weir.version()}"\n', project.read_text())


class Layout(unittest.TestCase):
    STRUCTS = {"weir_memory_stats": _library.MemoryStats, "weir_stat": _library.Stat,
               "weir_snapshot_options": _library.SnapshotOptions, "weir_settings": _library.Settings, "weir_error": _library.LastError,
               "weir_stream": _library.Stream, "weir_graph": _library.Graph}

    def test_structs_are_those_of_the_header(self):
        output = subprocess.run([os.environ["TEST_LAYOUT"]], capture_output=True, text=True, check=True).stdout
        expected = set(output.splitlines())
        found = {f"WEIR_HISTORY_EVENTS_MAX {_library.MOST_EVENTS}", f"WEIR_HISTORY_FRAMES_MAX {_library.MOST_FRAMES}"}
        for name, struct in self.STRUCTS.items():
            found.add(f"{name} sizeof {ctypes.sizeof(struct)}")
            found.update(f"{name} {field} {getattr(struct, field).offset}" for field, _ in struct._fields_)
        self.assertEqual(found, expected)


class Library(unittest.TestCase):
    settings = {"host_memory": 64 * MIB}

    def setUp(self):
        weir.open(**self.settings)

    def tearDown(self):
        weir.close()

    def test_closing_ends_what_other_processes_are_answered_first(self):
        class Adapters:
            @staticmethod
            def weir_handover_end():
                _library.call("weir_empty_cache", -1)  # raises once weir is closed
                ended.append(True)

        ended = []
        with unittest.mock.patch.object(_library, "_adapters", Adapters):
            weir.close()
        self.assertEqual(ended, [True])

    def test_stats_tell_what_is_in_use(self):
        pointer = allocate(3 * MIB)
        numbers = weir.stats(0)
        self.assertEqual(numbers["allocated_bytes"]["all"]["current"], 3 * MIB)
        self.assertEqual(numbers["allocated_bytes"]["small"]["current"], 0)
        self.assertEqual(numbers["driver_allocs"], 1)
        _library.call("weir_free", pointer)
        weir.empty_cache(0)
        reserved = weir.stats()["reserved_bytes"]["all"]
        self.assertEqual((reserved["current"], reserved["added"]), (0, reserved["removed"]))
        self.assertGreaterEqual(reserved["peak"], 3 * MIB)
        weir.reset_stats(0)
        self.assertEqual(weir.stats(0)["reserved_bytes"]["all"]["peak"], 0)

    def test_running_out_raises_a_memory_error_with_weirs_text(self):
        with self.assertRaises(MemoryError) as caught:
            allocate(65 * MIB)
        self.assertIsInstance(caught.exception, weir.OutOfMemoryError)
        self.assertIsInstance(caught.exception, weir.Error)
        self.assertIn("asked for 65.00 MiB", str(caught.exception))
        self.assertEqual(caught.exception.name, "WEIR_ERR_OUT_OF_MEMORY")

    def test_a_limit_is_kept(self):
        weir.set_memory_limit(2 * MIB, 0)
        self.assertRaises(weir.OutOfMemoryError, allocate, 3 * MIB)
        weir.set_memory_limit(0, 0)
        _library.call("weir_free", allocate(3 * MIB))

    def test_numbers_that_do_not_fit_are_refused(self):
        for limit in (-1, 2 ** 64 + 5):
            with self.assertRaisesRegex(ValueError, "bytes must be from 0"):
                weir.set_memory_limit(limit, 0)
        with self.assertRaisesRegex(ValueError, "device must be from -1"):
            weir.stats(2 ** 32)
        with self.assertRaisesRegex(TypeError, "device must be a whole number, not 'cuda:0'"):
            weir.empty_cache("cuda:0")

    def test_other_failures_raise_an_error_that_is_no_memory_error(self):
        with self.assertRaises(weir.Error) as caught:
            weir.stats(7)
        self.assertNotIsInstance(caught.exception, MemoryError)
        self.assertEqual(caught.exception.name, "WEIR_ERR_NO_DEVICE")

    def test_a_failure_without_a_text_of_its_own_does_not_have_that_of_an_earlier_one(self):
        with self.assertRaises(weir.Error) as caught:
            weir.empty_cache(77)
        self.assertEqual(str(_library.last_error(caught.exception.status)), str(caught.exception))
        without = _library.last_error(OUT_OF_HOST_MEMORY)
        self.assertIsInstance(without, MemoryError)
        self.assertEqual(str(without), "out of host memory")

    def test_a_snapshot_of_nothing_recorded_says_how_to_record(self):
        with self.assertRaisesRegex(weir.Error, "WEIR_HISTORY|history"):
            weir.snapshot("never.weirtrace")

    def test_recording_can_be_started(self):
        self.assertRaisesRegex(ValueError, "events must be from 1", weir.history_start, 0)
        weir.history_start(1000)
        _library.call("weir_free", allocate(MIB))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.weirtrace"
            weir.snapshot(path)
            self.assertEqual(path.read_bytes()[:8], b"weirtrc\n")

    def test_recording_can_be_stopped(self):
        weir.history_start(1000)
        weir.history_stop()
        weir.history_stop()
        with self.assertRaisesRegex(weir.Error, "recording is off"):
            weir.snapshot("never.weirtrace")

    def recorded(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.weirtrace"
            weir.snapshot(path)
            return path.read_bytes()

    def test_recorded_stacks_are_lines_of_python(self):
        self.assertRaisesRegex(ValueError, "frames must be from 0 .* 64", weir.history_start, 1000, 65)
        weir.history_start(1000, 16)
        code = compile("def made_up():\n\n    return allocate(MIB)\n", "/made/up.py", "exec")
        names = {"allocate": allocate, "MIB": MIB}
        exec(code, names)
        line = sys._getframe().f_lineno + 1
        _library.call("weir_free", names["made_up"]())
        del code, names  # the lines of code that is gone stay
        gc.collect()
        saved = self.recorded()
        self.assertIn(f"{__file__}:{line}:test_recorded_stacks_are_lines_of_python".encode(), saved)
        self.assertIn(b"/made/up.py:3:made_up", saved)
        self.assertIn(b":allocate", saved)

    def test_lines_of_other_code_at_the_same_address_are_told_apart(self):
        weir.history_start(1000, 16)
        for number in range(20):
            names = {"allocate": allocate}
            exec(f"def made_{number}(): return allocate(512)", names)
            _library.call("weir_free", names[f"made_{number}"]())
            del names
            gc.collect()
        saved = self.recorded()
        for number in range(20):
            self.assertIn(f":made_{number}".encode(), saved)

    def test_when_the_interpreter_ends_stacks_are_of_machine_code(self):
        def after_the_end():
            return allocate(512)

        weir.history_start(1000, 16)
        _library.adapters().weir_python_stacks_end()
        self.addCleanup(_library.adapters().weir_python_stacks)
        _library.call("weir_free", after_the_end())
        self.assertNotIn(b"after_the_end", self.recorded())

    def test_stacks_of_threads_that_allocate_at_once_are_recorded(self):
        weir.history_start(100000, 16)

        def work(depth):
            if depth:
                return work(depth - 1)
            for size in range(1, 200):
                _library.call("weir_free", allocate(size))

        threads = [threading.Thread(target=work, args=(depth,)) for depth in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIn(f"{__file__}:".encode(), self.recorded())

    def test_stacks_are_recorded_while_the_interpreter_ends(self):
        result = run("""
import ctypes, weir
weir.history_start(1000, 16)
class Block:
    def __init__(self):
        self.pointer, self.call = ctypes.c_void_p(), weir._library.call
        self.call("weir_alloc", ctypes.c_size_t(1 << 20), ctypes.byref(self.pointer))
    def __del__(self):
        self.call("weir_free", self.pointer)
        print("freed")
kept = Block()
kept.itself = kept
""")
        self.assertEqual((result.stdout, result.returncode), ("freed\n", 0), result.stderr)

    def test_streams_can_be_recorded(self):
        pointer = allocate(MIB)
        weir.record_stream(pointer, 0, 0)
        _library.call("weir_free", pointer)
        self.assertRaises(weir.Error, weir.record_stream, 4096, 0, 0)


class Recording(Library):
    """All of the above, with its recorded history."""
    settings = {"host_memory": 64 * MIB, "history": 100}

    test_a_snapshot_of_nothing_recorded_says_how_to_record = None

    def test_a_snapshot_is_a_trace_of_what_happened(self):
        _library.call("weir_free", allocate(MIB))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.weirtrace"
            weir.snapshot(path)
            self.assertEqual(path.read_bytes()[:8], b"weirtrc\n")


class Opening(unittest.TestCase):
    def test_no_text_is_cut_at_a_zero_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, "zero byte"):
                weir.snapshot(folder + "/kept\0.weirtrace")
            self.assertEqual(os.listdir(folder), [])
        result = run("import weir; weir.open(policy='torch\\0x')")
        self.assertIn("ValueError: weir: policy cannot have a zero byte", result.stderr)

    def test_a_plan_may_have_a_name_that_is_not_unicode(self):
        result = run("import weir; weir.open(plan='/none/\\udcff')")
        self.assertRegex(result.stderr, "weir.*Error: .*/none/")

    def test_settings_that_record_stacks_name_lines_of_python(self):
        for settings, times in (({"history": 1000, "history_stacks": 8}, 1), ({"debug": "streams"}, 1), ({"history": 1000}, 0)):
            with unittest.mock.patch.object(_library, "name_lines") as named:
                weir.open(**settings)
            weir.close()
            self.assertEqual(named.call_count, times, settings)

    def test_a_setting_that_is_none_is_refused(self):
        with self.assertRaisesRegex(TypeError, "no setting 'polcy'; the settings are backend, .*policy"):
            weir.open(polcy="torch")
        with self.assertRaisesRegex(weir.Error, "policy"):
            weir.open(policy="best")
        with self.assertRaisesRegex(ValueError, "memory_limit must be from 0 .* not -1"):
            weir.open(memory_limit=-1)
        with self.assertRaisesRegex(TypeError, "history must be a whole number, not 'abc'"):
            weir.open(history="abc")
        with self.assertRaisesRegex(TypeError, "gc_threshold must be a number, not 'half'"):
            weir.open(gc_threshold="half")
        with self.assertRaisesRegex(TypeError, "policy must be a string, not 7"):
            weir.open(policy=7)


if __name__ == "__main__":
    unittest.main()
