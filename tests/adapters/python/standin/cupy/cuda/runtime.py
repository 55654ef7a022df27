"""Stand-in for cupy.cuda.runtime, on weir's streams: an event is the stream that it was recorded on, which whoever waits
for it waits for; streamPerThread is what the test has made the thread's."""
import threading

from weir import _library

STREAM_PER_THREAD = 2


class Runtime:
    def __init__(self):
        self.per_thread = {}  # a native stream for each thread, which a thread that ends still has
        self.device, self.captured, self.calls, self._events = 0, False, [], {}

    def getDevice(self):
        return self.device

    def setDevice(self, device):
        self.device = device

    def _name(self, native):
        return _library.stream_of(self.device, self.per_thread[threading.get_ident()] if native == STREAM_PER_THREAD else native)

    def streamIsCapturing(self, native):
        return self.captured

    def eventRecord(self, event, native):
        self._events[event] = self._name(native)
        self.calls.append("record")

    def streamWaitEvent(self, native, event):
        _library.library().weir_stream_wait.argtypes = [_library.Stream, _library.Stream]
        _library.call("weir_stream_wait", self._name(native), self._events[event])
        self.calls.append("wait")


runtime = Runtime()
