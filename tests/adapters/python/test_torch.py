"""weir.torch with a stand-in for PyTorch: each test in a process of its own, because installing cannot be undone."""
import sys
import unittest

from test_package import MIB, run

BEGIN = """
import sys, torch, weir.torch
assert 'standin' in torch.__version__
"""
TAKE_AND_GIVE = """
def take():
    return torch.cuda.memory.current.alloc(3 << 20, 0, None)
def give(p):
    torch.cuda.memory.current.free(p, 3 << 20, 0, None)
"""


class Torch(unittest.TestCase):
    def expect(self, code, output="", **environment):
        result = run(BEGIN + code, **environment)
        self.assertEqual((result.returncode, result.stdout), (0, output), result.stderr)

    def refuse(self, code, *parts):
        result = run(BEGIN + code)
        self.assertEqual(result.returncode, 1)
        for part in ("weir._library.Error: ", *parts):
            self.assertIn(part, result.stderr)

    def test_every_hook_is_set(self):
        self.expect("""
weir.torch.install()
print(weir.torch.installed(), len(torch.cuda.memory.current.hooks))
""", "True 8\n")

    def test_memory_comes_from_weir(self):
        self.expect("""
weir.torch.install()
a = torch.cuda.memory.current
p = a.alloc(3 << 20, 0, None)
print(weir.stats(0)['allocated_bytes']['all']['current'], torch.cuda.memory_allocated())
a.free(p, 3 << 20, 0, None)
torch.cuda.empty_cache()
print(weir.stats(0)['reserved_bytes']['all']['current'])
""", "3145728 3145728\n0\n")

    def test_an_allocator_that_cannot_answer_is_warned_of(self):
        self.expect("""
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    weir.torch.install()
print(weir.torch.answers(), len(caught), caught[0].category.__name__, 'cudnn.benchmark' in str(caught[0].message))
""", "False 1 RuntimeWarning True\n")

    def test_a_stream_is_released_before_it_ends(self):
        self.expect("""
import ctypes, types
from weir import _library
weir.torch.install()
ours, native = _library.Stream(), ctypes.c_void_p()
_library.call('weir_stream_create', 0, 0, ctypes.byref(ours))
_library.call('weir_stream_native', ours, ctypes.byref(native))
a = torch.cuda.memory.current
p = a.alloc(3 << 20, 0, native)
a.free(p, 3 << 20, 0, native)
weir.torch.release_stream(types.SimpleNamespace(device=types.SimpleNamespace(index=0), cuda_stream=native.value))
print(a.alloc(3 << 20, 0, None) == p)
try:
    _library.call('weir_stream_query', ours)
except weir.Error as error:
    print(error.name)
""", "True\nWEIR_ERR_INVALID_STREAM\n")

    def test_a_limit_of_the_allocator_that_is_replaced_is_warned_of(self):
        for name, settings, warned in (("PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.5", "True\n"),
                                       ("PYTORCH_ALLOC_CONF", "expandable_segments:True,per_process_memory_fraction:1", "True\n"),
                                       ("PYTORCH_ALLOC_CONF", "expandable_segments:True", "False\n")):
            self.expect(f"""
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    weir.torch.install()
print(any('{name} has per_process_memory_fraction' in str(warning.message) for warning in caught))
""", warned, **{name: settings})

    def test_statistics_have_torchs_names(self):
        self.expect("""
weir.torch.install(statistics=False)
a = torch.cuda.memory.current
p = a.alloc(512, 0, None)
s = weir.torch.memory_stats()
assert s['segment.all.current'] >= 1 and s['num_device_alloc'] >= 1 and s['inactive_split_bytes.all.freed'] >= 0
for name in ('allocated_bytes.all.peak', 'allocation.small_pool.current', 'allocation.large_pool.current', 'num_ooms',
             'requested_bytes.all.allocated'):
    print(s[name], end=' ')
try:
    torch.cuda.memory_allocated()
except RuntimeError as error:
    print(error)
print(len(torch.cuda.memory.memory_snapshot()))
""", "512 1 0 0 512 pluggable does not yet support getDeviceStats\n1\n")

    def test_a_snapshot_has_weirs_blocks_and_events(self):
        self.expect("""
weir.torch.install()
a = torch.cuda.memory.current
torch.cuda.memory._record_memory_history()
p = a.alloc(3 << 20, 0, None)
s = torch.cuda.memory._snapshot()
blocks = [b for segment in s['segments'] for b in segment['blocks'] if b['state'] == 'active_allocated']
print([(b['address'] == p, b['size']) for b in blocks], [e['action'] for e in s['device_traces'][0]].count('alloc'))
torch.cuda.memory._record_memory_history(None)
""", "[(True, 3145728)] 1\n", WEIR_HISTORY="1000")

    def test_a_mempool_is_a_pool_of_weirs_as_long_as_it_lives(self):
        self.expect("""
weir.torch.install()
one, two = torch.cuda.MemPool(), torch.cuda.memory.MemPool()
print(one.id[0], two.id[1] - one.id[1], one.use_count(), weir.torch._pool(0, one.id)[1] != (0, 0), one.snapshot())
name = one.id
del one
print(weir.torch._pool(0, name), two.use_count())
""", "0 1 1 True []\n(0, (0, 0)) 1\n")

    def test_a_mempool_is_a_reference_and_cannot_be_copied(self):
        self.expect("""
import copy, pickle
weir.torch.install()
pool = torch.cuda.MemPool()
for way in copy.copy, copy.deepcopy, pickle.dumps:
    try:
        way(pool)
    except TypeError as error:
        print(error)
print(pool.use_count())
""", 3 * "weir.torch: a torch.cuda.MemPool cannot be copied or pickled\n" + "1\n")

    def test_threads_may_install_at_once(self):
        self.expect("""
import concurrent.futures, time
changes, change = [], torch.cuda.memory.change_current_allocator
def slowly(allocator):
    changes.append(allocator)
    time.sleep(0.1)
    change(allocator)
torch.cuda.memory.change_current_allocator = slowly
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    print({call.result() for call in [threads.submit(weir.torch.install) for _ in range(8)]}, len(changes))
""", "{None} 1\n")

    def test_a_snapshot_names_torchs_pools_as_torch_does(self):
        self.expect("""
import ctypes
weir.torch.install()
torch.cuda.graph_pool_handle()  # so that the number is another than weir's
pool, p = torch.cuda.MemPool(), ctypes.c_void_p()
class Id(ctypes.Structure):
    _fields_ = [('capture', ctypes.c_uint64), ('user', ctypes.c_uint64)]
ours = weir.torch._pool(0, pool.id)[1]
call, stream = weir._library.call, weir._library.stream_of(0, 0)
call('weir_alloc_from', Id(*ours), ctypes.c_size_t(3 << 20), stream, ctypes.byref(p))
print([s['segment_pool_id'] == pool.id for s in pool.snapshot()], pool.id != ours)
print({e['pool_id'] for e in torch.cuda.memory._snapshot()['device_traces'][0] if e['action'] == 'alloc'} == {pool.id})
has_live = torch._C._cuda_checkPoolLiveAllocations
print(has_live(0, pool.id, {p.value}), has_live(0, pool.id, set()), has_live(0, pool.id, {p.value, 1}))
call('weir_free', p)
print(has_live(0, pool.id, set()))
""", "[True] True\nTrue\nTrue False False\nTrue\n", WEIR_HISTORY="1000")

    def test_a_pool_that_pytorch_has_no_id_of_has_one_that_is_no_other_pools(self):
        self.expect("""
import ctypes
weir.torch.install()
pool, p, q = torch.cuda.MemPool(), ctypes.c_void_p(), ctypes.c_void_p()
ours = weir.torch._pool(0, pool.id)[1]
weir._library.adapters().weir_torch_mempool_name = type("No", (), {"__call__": lambda *_: False})()
call, stream, Id = weir._library.call, weir._library.stream_of(0, 0), weir._library.Mempool
call('weir_alloc_from', Id(*ours), ctypes.c_size_t(3 << 20), stream, ctypes.byref(p))
call('weir_alloc_from', Id(0, 0), ctypes.c_size_t(3 << 20), stream, ctypes.byref(q))
s = torch.cuda.memory._snapshot()
print(sorted({b['segment_pool_id'] for b in s['segments']}) == [(0, 0), (0, ours[1] + 2**63)])
print({e['pool_id'] for e in s['device_traces'][0] if e['action'] == 'alloc'} == {(0, 0), (0, ours[1] + 2**63)})
""", "True\nTrue\n", WEIR_HISTORY="1000")

    def test_what_each_private_pool_reserves_is_told_since_pytorch_does(self):
        self.expect("""
import ctypes
torch.__version__ = '2.13.0+standin'
weir.torch.install()
key = 'reserved_bytes_by_private_pools'
print(torch._C._cuda_memoryStats(0)[key])
pool, other, p = torch.cuda.MemPool(), torch.cuda.MemPool(), ctypes.c_void_p()
ours, stream = weir._library.Mempool(*weir.torch._pool(0, pool.id)[1]), weir._library.stream_of(0, 0)
weir._library.call('weir_alloc_from', ours, ctypes.c_size_t(3 << 20), stream, ctypes.byref(p))
by_pool = torch._C._cuda_memoryStats(0)[key]
print(sorted(by_pool) == [pool.id, other.id], by_pool[other.id]['all'])
print(by_pool[pool.id]['large_pool'], by_pool[pool.id]['small_pool']['peak'])
print(weir.torch.memory_stats(0)[f'{key}.{pool.id[0]}_{pool.id[1]}.all.current'])
""", "{}\nTrue {'current': 0, 'peak': 0, 'allocated': 0, 'freed': 0}\n"
     "{'current': 4194304, 'peak': 4194304, 'allocated': 4194304, 'freed': 0} 0\n4194304\n")

    def test_a_pytorch_that_does_not_know_the_key_of_a_pool_is_given_none(self):
        self.expect("""
weir.torch.install()
pool, key = torch.cuda.MemPool(), 'reserved_bytes_by_private_pools'
weir.torch._pool(0, pool.id)
print({type(k) for k in torch._C._cuda_memoryStats(0)}, key in torch._C._cuda_memoryStats(0))
print(f'{key}.{pool.id[0]}_{pool.id[1]}.all.current' in weir.torch.memory_stats(0))
torch.__version__ = '2.13.0+standin'
print(key in torch._C._accelerator_getDeviceStats(0))
""", "{<class 'str'>} False\nTrue\nFalse\n")

    def test_who_wants_no_caching_is_told_that_weir_does(self):
        self.expect("""
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    weir.torch.install()
print(sum('WEIR_DEBUG=nosub' in str(warning.message) for warning in caught))
""", "1\n", PYTORCH_NO_CUDA_MEMORY_CACHING="1")

    def test_no_mempool_has_the_number_of_a_pool_of_graphs(self):
        self.expect("""
weir.torch.install()
graphs, mine = torch.cuda.graph_pool_handle(), torch.cuda.MemPool()
print(mine.id != graphs, mine.use_count(), weir.torch._pool(0, graphs)[0])
""", "True 1 0\n")

    def test_a_capture_that_uses_a_pool_need_not_keep_it(self):
        self.expect("""
weir.torch.install()
pool = torch.cuda.MemPool()
torch.cuda.CUDAGraph()._retain_pool(pool)
print(pool.use_count())
""", "1\n")

    def test_functions_for_any_accelerator_have_weirs_statistics(self):
        self.expect("""
weir.torch.install()
p = torch.cuda.memory.current.alloc(3 << 20, 0, None)
stats = torch._C._accelerator_getDeviceStats
print(stats(0)['allocated_bytes']['all']['current'])
torch.cuda.memory.current.free(p, 3 << 20, 0, None)
torch._C._accelerator_resetPeakStats(0)
print(stats(0)['allocated_bytes']['all']['peak'], stats(0)['allocation']['all']['allocated'])
torch._C._accelerator_resetAccumulatedStats(0)
print(stats(0)['allocation']['all']['allocated'])
""", "3145728\n0 1\n0\n")

    def test_callbacks_of_gpu_traces_are_told_of_memory(self):
        for early in (False, True):  # before weir is installed, as with TORCH_CUDA_SANITIZER
            self.expect(f"""
import types
class Registry:
    def __init__(self):
        self.callback_list = []
    def fire_callbacks(self, *arguments):
        for callback in self.callback_list:
            callback(*arguments)
trace = sys.modules["torch.cuda._gpu_trace"] = types.ModuleType("torch.cuda._gpu_trace")
trace.MemoryAllocationCallbacks, trace.MemoryDeallocationCallbacks = Registry(), Registry()
told, active = [], []
torch._C._activate_gpu_trace = lambda: active.append(True)
def register():
    torch._C._activate_gpu_trace()
    for name in ("Allocation", "Deallocation"):
        callbacks = getattr(trace, f"Memory{{name}}Callbacks").callback_list
        callbacks.append(lambda pointer, name=name: told.append((name, pointer)))
if {early}:
    register()
weir.torch.install()
if not {early}:
    register()
a = torch.cuda.memory.current
p = a.alloc(3 << 20, 0, None)
a.free(p, 3 << 20, 0, None)
print(told == [("Allocation", p), ("Deallocation", p)], all(active))
""", "True True\n")

    def test_pools_can_be_used_where_torch_makes_a_context_of_them(self):
        self.expect("""
torch.cuda.MemPoolContext = torch.cuda.memory.MemPoolContext = object()  # PyTorch 2.6 and 2.7 have it
weir.torch.install()
pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
outer = torch.cuda.MemPoolContext(pool)
inner = torch.cuda.memory.MemPoolContext(other)
print(inner.active_pool() is other)
del inner
print(torch.cuda.MemPoolContext.active_pool() is pool)
del outer
print(torch.cuda.MemPoolContext.active_pool())
""", "True\nTrue\nNone\n")

    def test_the_profiler_is_looked_for_once_it_is_used(self):
        self.expect("""
weir._library.adapters().weir_torch_profile = lambda: print("told")
weir.torch.install()
print("installed")
print(torch.autograd.profiler._enable_profiler(1, activities=2))
""", "installed\ntold\n(1, 2)\n")
        self.expect("""
weir._library.adapters().weir_torch_profile = lambda: print("told")
torch.autograd._profiler_enabled = lambda: True
weir.torch.install()
""", "told\n")

    def test_whether_it_records_is_told(self):
        for variables, told in (({}, "False\n"), ({"WEIR_HISTORY": "1000"}, "True\n")):
            self.expect("weir.torch.install(); print(torch._C._cuda_isHistoryEnabled())", told, **variables)

    def test_a_mempool_with_what_is_no_allocator_or_weirs_own_is_refused(self):
        for allocator in "object()", "torch.cuda.memory.current", "torch._C._cuda_CUDAAllocator(1, 1)":
            self.refuse(f"weir.torch.install(); torch.cuda.MemPool({allocator})", "cannot have its memory from")

    def test_a_mempools_allocator_outlives_all_that_the_interpreter_clears(self):
        self.expect("""
import weakref
weir.torch.install()
weir._library.adapters().weir_torch_is_source = type("Yes", (), {"__call__": lambda *_: True})()
made = torch._C._cuda_CUDAAllocator(1, 1)
weir.torch._source(made)
last = {}
exec('''
import os
class Last:
    def __del__(self, write=os.write):
        write(1, b"alive" if self.made() else b"gone")
''', last)
sys.last = last["Last"]()  # cleared after all modules
sys.last.made = weakref.ref(made)
del made
""", "alive")

    def test_a_mempool_that_does_not_split_has_a_segment_for_each_block(self):
        for options, segments in (("", 1), ("no_split=True", 2)):
            self.expect(f"""
import ctypes
weir.torch.install()
pool, p = torch.cuda.MemPool({options}), ctypes.c_void_p()
class Id(ctypes.Structure):
    _fields_ = [('capture', ctypes.c_uint64), ('user', ctypes.c_uint64)]
ours, stream = weir.torch._pool(0, pool.id)[1], weir._library.stream_of(0, 0)
for _ in range(2):
    weir._library.call('weir_alloc_from', Id(*ours), ctypes.c_size_t(1000), stream, ctypes.byref(p))
print(len(pool.snapshot()))
""", f"{segments}\n")

    def test_a_snapshot_may_be_of_one_pool_and_without_events(self):
        self.expect("""
weir.torch.install()
a = torch.cuda.memory.current
p = a.alloc(3 << 20, 0, None)
memory = torch.cuda.memory
print(len(memory.memory_snapshot()), len(memory.memory_snapshot((0, 0), False)), len(memory.memory_snapshot((0, 9))))
print(len(torch._C._cuda_memorySnapshot((0, 0))['device_traces'][0]) > 0,
      len(torch._C._cuda_memorySnapshot((0, 0, False))['device_traces'][0]))
""", "1 1 0\nTrue 0\n", WEIR_HISTORY="1000")

    def test_recording_begins_when_it_is_asked_for(self):
        for record in ("memory._record_memory_history(max_entries=sys.maxsize)",
                       "_C._cuda_record_memory_history_legacy(True, True, 5000, False)"):
            self.expect(f"""
weir.torch.install()
torch.cuda.memory._record_memory_history(None)
before = torch.cuda.memory.current.alloc(3 << 20, 0, None)
print(torch._C._cuda_isHistoryEnabled())
torch.{'cuda.' if record[0] == 'm' else ''}{record}
after = torch.cuda.memory.current.alloc(5 << 20, 0, None)
print(torch._C._cuda_isHistoryEnabled())
s = torch.cuda.memory._snapshot()
print([e['addr'] == after for e in s['device_traces'][0] if e['action'] == 'alloc'])
print(s['allocator_settings']['trace_alloc_max_entries'], s['allocator_settings']['trace_alloc_overflowed'])
""", f"False\nTrue\n[True]\n{1000000 if record[0] == 'm' else 5000} True\n")

    def test_recorded_stacks_are_lines_of_python_until_recording_stops(self):
        self.expect("""
weir.torch.install()
memory = torch.cuda.memory
def step():
    return memory.current.alloc(3 << 20, 0, None)
def tell():
    s = memory._snapshot()
    frames = [e['frames'] for e in s['device_traces'][0] if e['action'] == 'alloc']
    frames += [b['frames'] for segment in s['segments'] for b in segment['blocks'] if b['state'] == 'active_allocated']
    print([[(f['name'], f['line']) for f in stack if f['filename'] == '<string>'] for stack in frames])
memory._record_memory_history()
p = step()
tell()
memory._record_memory_history(None)
print(torch._C._cuda_isHistoryEnabled())
tell()
torch._C._cuda_record_memory_history("all", None, "all", 100, True)
q = step()
tell()
""", "[[('step', 8), ('<module>', 15)], [('step', 8), ('<module>', 15)]]\nFalse\n[[]]\n[[], [], []]\n")

    def test_a_snapshot_has_the_stacks_that_were_asked_for(self):
        self.expect(TAKE_AND_GIVE + """
weir.torch.install()
memory = torch.cuda.memory
def names(frames):
    return [f['name'] for f in frames if f['filename'] == '<string>'][:1]
for context in "all", "alloc", "state", None:
    memory._record_memory_history(context=context)
    give(take())
    kept = take()
    s = memory._snapshot()
    print(context, [(e['action'], *names(e['frames'])) for e in s['device_traces'][0]
                    if e['action'] in ('alloc', 'free_requested', 'free_completed')][:4],
          [names(b['frames']) for g in s['segments'] for b in g['blocks'] if b['address'] == kept])
    memory._record_memory_history(None)
    give(kept)
def empty():
    torch.cuda.empty_cache()
for context in "all", "alloc":
    memory._record_memory_history(context=context)
    empty()
    give(take())
    empty()
    print(sorted({(e['action'], *names(e['frames'])) for e in memory._snapshot()['device_traces'][0]
                  if e['action'] in ('segment_map', 'segment_unmap')}))
    memory._record_memory_history(None)
""", """all [('alloc', 'take'), ('free_requested', 'give'), ('free_completed', 'give'), ('alloc', 'take')] [['take']]
alloc [('alloc', 'take'), ('free_requested', 'take'), ('free_completed', 'take'), ('alloc', 'take')] [['take']]
state [('alloc',), ('free_requested',), ('free_completed',), ('alloc',)] [['take']]
None [('alloc',), ('free_requested',), ('free_completed',), ('alloc',)] [[]]
[('segment_map', 'take'), ('segment_unmap', 'empty')]
[('segment_map', 'take'), ('segment_unmap', 'take')]
""")

    def test_a_snapshot_has_the_stacks_that_were_asked_for_in_the_old_way(self):
        for of_events, names in ((True, "['take', 'take', 'take']"), (False, "[]")):
            self.expect(TAKE_AND_GIVE + f"""
weir.torch.install()
torch._C._cuda_record_memory_history_legacy(True, True, 100, {of_events}, False, False, False, False, [])
give(take())
print([f['name'] for e in torch.cuda.memory._snapshot()['device_traces'][0] for f in e['frames'][:1]
       if 'segment' not in e['action']])
""", names + "\n")

    def test_a_snapshot_has_no_events_that_are_to_be_skipped(self):
        for record in ("memory._record_memory_history(skip_actions=['free_requested', 'segment_alloc', 'segment_map'])",
                       "_C._cuda_record_memory_history_legacy(True, True, 100, True, False, False, False, False,"
                       " ['free_requested', 'segment_alloc', 'segment_map'])"):
            self.expect(f"""
weir.torch.install()
a = torch.cuda.memory.current
torch.{'cuda.' if record[0] == 'm' else ''}{record}
a.free(a.alloc(3 << 20, 0, None), 3 << 20, 0, None)
print([e['action'] for e in torch.cuda.memory._snapshot()['device_traces'][0]])
torch.cuda.memory._record_memory_history()
a.free(a.alloc(3 << 20, 0, None), 3 << 20, 0, None)
print('free_requested' in [e['action'] for e in torch.cuda.memory._snapshot()['device_traces'][0]])
""", "['alloc', 'free_completed', 'snapshot']\nTrue\n")

    def test_events_have_the_metadata_of_their_thread(self):
        self.expect(TAKE_AND_GIVE + """
import threading
torch._C._cuda_setMemoryMetadata = torch._C._cuda_getMemoryMetadata = None  # since PyTorch 2.10
weir.torch.install()
memory = torch.cuda.memory
say, told = torch._C._cuda_setMemoryMetadata, torch._C._cuda_getMemoryMetadata
memory._record_memory_history()
for text in "step 1", "step 2", "", 20 * "\u00fc1":
    say(text)
    take()
    assert told() == text
other = threading.Thread(target=lambda: (take(), say("other"), take()))
other.start()
other.join()
say("")
take()
print([e['user_metadata'] for e in memory._snapshot()['device_traces'][0] if e['action'] == 'alloc'])
""", "['step 1', 'step 2', '', '%s', '', 'other', '']\n" % (13 * "\u00fc1"))

    def test_an_allocations_stack_is_told(self):
        self.expect("""
weir.torch.install()
memory = torch.cuda.memory
before = memory.current.alloc(3 << 20, 0, None)
memory._record_memory_history()
p = memory.current.alloc(5 << 20, 0, None)
tell = torch._C._cuda_allocationTraceback
print(tell(before), [f['name'] for f in tell(p)], tell(p + 512))
memory.current.free(p, 5 << 20, 0, None)
print(tell(p))
""", "None ['<module>'] None\nNone\n")

    def test_pinned_memory_is_recorded_by_pytorch(self):
        self.expect("""
asked = []
torch._C._cuda_record_memory_history = lambda *arguments: asked.append(arguments)
torch._C._cuda_memorySnapshot = lambda _: {'segments': [1], 'host_segments': [7], 'host_traces': [8],
                                          'allocator_settings': {'pinned_num_register_threads': 2, 'expandable_segments': 3}}
weir.torch.install()
weir.torch._answers = True  # so PyTorch asks weir for what is weir's
torch._C._cuda_record_memory_history('all', None, 'all', 10, False, True, True, ['oom'], True, False)
print(asked, torch._C._cuda_isHistoryEnabled())
torch._C._cuda_record_memory_history('all', None, 'all', 10, False, False, False, [])  # before 2.15
print(len(asked), torch._C._cuda_isHistoryEnabled())
s = torch.cuda.memory._snapshot()
print(s['segments'], s['host_segments'], s['host_traces'], 'host_traces' in torch._C._cuda_memorySnapshot((0, 0)))
settings = s['allocator_settings']
print(settings['pinned_num_register_threads'], settings.get('expandable_segments') == 3)
""", "[('all', None, 'all', 10, False, False, False, ['oom'], True, False)] False\n1 True\n[] [7] [8] False\n2 False\n")

    def test_recording_goes_on_where_plans_are_made_of_it(self):
        self.expect("""
weir.torch.install()
memory = torch.cuda.memory
memory._record_memory_history(max_entries=5)
for _ in range(30):
    memory.current.free(memory.current.alloc(3 << 20, 0, None), 3 << 20, 0, None)
memory._record_memory_history(None)
memory.current.free(memory.current.alloc(3 << 20, 0, None), 3 << 20, 0, None)
events = memory._snapshot()['device_traces'][0]
print(torch._C._cuda_isHistoryEnabled(), len(events) > 90, [len(events[at]['frames']) > 0 for at in (3, -2)])
""", "True True [True, False]\n", WEIR_HISTORY="1000", WEIR_PLAN="auto")

    def test_peaks_and_totals_are_reset_each_alone_through_torch(self):
        self.expect("""
weir.torch.install()
a = torch.cuda.memory.current
def tell():
    s = weir.torch.memory_stats(0)
    print(s['allocated_bytes.all.peak'], s['allocated_bytes.all.freed'])
a.free(a.alloc(3 << 20, 0, None), 3 << 20, 0, None)
torch.cuda.reset_peak_memory_stats()
tell()
a.free(a.alloc(2 << 20, 0, None), 2 << 20, 0, None)
torch.cuda.reset_accumulated_memory_stats()
tell()
""", "0 3145728\n2097152 0\n")

    def test_a_fraction_limits(self):
        self.expect("""
weir.torch.install()
torch.cuda.set_per_process_memory_fraction(0.5, 0)
import ctypes
limit = ctypes.c_uint64()
weir._library.call('weir_memory_limit_get', 0, ctypes.byref(limit))
print(limit.value)
""", str(32 * MIB) + "\n", WEIR_HOST_MEMORY="64MiB")

    def test_installing_twice_is_installing_once(self):
        self.expect("weir.torch.install(); weir.torch.install()")

    def test_too_late_is_refused(self):
        self.refuse("torch.cuda.initialize(); weir.torch.install()", "comes too late", "has already initialised CUDA")

    def test_another_allocator_is_left_alone(self):
        self.refuse("""
import weir._library as l
other = torch.cuda.memory.CUDAPluggableAllocator(l.adapters_path(), 'weir_torch_alloc', 'weir_torch_free')
torch.cuda.memory.change_current_allocator(other)
weir.torch.install()
""", "is already in use")

    def test_a_torch_without_gpus_is_refused(self):
        self.refuse("torch.version.cuda = None; weir.torch.install()", "was built without CUDA")

    def test_a_torch_without_hooks_is_refused(self):
        self.refuse("del torch.cuda.memory._TYPES['set_release_pool']; weir.torch.install()", "2.3 or later")

    def test_a_pool_of_torchs_own_can_be_backed(self):
        self.expect("""
inner = weir.torch.pool_allocator().allocator()
p = inner.alloc(20 << 20, 0, None)
print(weir.stats(0)['allocated_bytes']['all']['current'], inner.alloc(1 << 50, 0, None))
inner.free(p, 20 << 20, 0, None)
""", "20971520 None\n")

    def test_a_pool_is_not_for_when_weir_is_installed(self):
        self.refuse("weir.torch.install(); weir.torch.pool_allocator()", "is a pool of weir's now")

    def test_without_the_exceptions_of_torch_it_says_so(self):
        self.expect("weir.torch.install(); print(weir.torch.raises_its_own())", "False\n")


if __name__ == "__main__":
    sys.exit(unittest.main())
