"""The processes of the campaign, one for each setting."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

SETTINGS = {
    "native": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "native-again": {},  # shows how much two equal processes differ
    "weir": {},
    "weir-segments": {"WEIR_POLICY": "segments"},
    "weir-torch": {"WEIR_POLICY": "torch"},
}
NO_FORK = ("initialization error", "forked subprocess")
HERE = pathlib.Path(__file__).resolve().parent


class Worker:
    """A process of worker.py under one setting, which lives as long as the campaign. When its forks cannot use the GPU,
    because some package started the driver during its import, each job gets a process of its own."""

    def __init__(self, setting: str, log) -> None:
        self.setting, self.log, self.forks, self.torch = setting, log, True, None
        self.start()

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")}
        environment.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTHONUNBUFFERED="1")
        environment.update(SETTINGS[self.setting])
        command = [sys.executable, str(HERE / "worker.py"), *([] if self.forks else ["--once"])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=self.log, env=environment, start_new_session=True)
        self.greeting = None

    def ask(self, request: dict) -> dict:
        answer = self.tell(request)
        if self.forks and any(text in answer.get("error", "") for text in NO_FORK):
            self.forks = False
            self.restart()
            answer = self.tell(request)
        if not self.forks:
            self.restart()
        return answer

    def kill(self) -> None:
        """Ends the process and its children, which would otherwise stay on the GPU."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def tell(self, request: dict) -> dict:
        """Every outcome gives an answer; a worker that died is started again."""
        watch = threading.Timer(request["timeout"] + 60, os.killpg, (self.process.pid, signal.SIGKILL))
        watch.start()
        try:
            if self.greeting is None:
                self.greeting = json.loads(self.process.stdout.readline())
                self.torch = self.greeting["torch"]
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError) as error:
            watch.cancel()
            self.restart()
            return {"error": f"the worker ended: {error}; see the log"}
        finally:
            watch.cancel()

    def stop(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
