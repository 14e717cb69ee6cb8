"""The libraries of the contest: how each is built, started with N ranks, and stopped."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 600


class Gone(Exception):
    """A library that is not here, or a run that failed: a sentence."""


def compile_player(compiler, sources, out, *more):
    """With the settings that Debian builds with."""
    command = [compiler, "-O2", "-g", "-D_GNU_SOURCE", "-I", HERE, "-o", out, *sources, *more]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise Gone(f"{compiler} cannot build its player: {result.stderr.strip().splitlines()[-1:]}")


def wait_all(processes, name):
    """All end well, or all are ended."""
    until = time.monotonic() + LIMIT_S
    try:
        for p in processes:
            code = p.wait(timeout=max(0.1, until - time.monotonic()))
            if code != 0:
                raise Gone(f"{name}: a player ended with {code}")
    except subprocess.TimeoutExpired:
        raise Gone(f"{name}: not done after {LIMIT_S} s") from None
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
                p.wait()


class Library:
    name = ""
    in_place_only = False
    # What a player is told on top, and whether CPU time of a daemon counts.
    arguments = ()

    def start(self, ranks, arguments):
        raise NotImplementedError

    def run(self, ranks, arguments):
        wait_all(self.start(ranks, [*arguments, *self.arguments]), self.name)

    def close(self):
        pass


class Daemon:
    """A private tuttid, which ends with its pipe."""

    def __init__(self, build):
        self.directory = tempfile.mkdtemp(prefix="tutti-bench-")
        self.socket = os.path.join(self.directory, "tuttid.sock")
        self.leash_out, leash_in = os.pipe()
        self.process = subprocess.Popen(
            [os.path.join(build, "daemon/tuttid"), "--private", "--socket", self.socket, "--log-level", "warning"],
            stdin=self.leash_out)
        os.close(self.leash_out)
        self.leash = leash_in
        until = time.monotonic() + 10
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > until:
                raise Gone("tuttid does not serve")
            time.sleep(0.01)

    def close(self):
        os.close(self.leash)
        self.process.wait(timeout=30)
        shutil.rmtree(self.directory, ignore_errors=True)


class Tutti(Library):
    def __init__(self, build, daemon, shared=False):
        self.name = "tutti, shared result" if shared else "tutti"
        self.shared = shared
        self.player = os.path.join(build, "tests/bench/contest/contest-tutti")
        self.daemon = daemon
        self.arguments = ("--daemon", str(daemon.process.pid))

    def start(self, ranks, arguments):
        processes = []
        for rank in range(ranks):
            environment = dict(os.environ, TUTTI_SOCKET=self.daemon.socket, TUTTI_RANK=str(rank),
                               TUTTI_WORLD_SIZE=str(ranks), CONTEST_SHARED="1" if self.shared else "0")
            processes.append(subprocess.Popen([self.player, *arguments], env=environment))
        return processes


class Mpi(Library):
    """`pinned`, to one core each, and yielding where ranks share a core: its best honest setting."""
    arguments = ("--pin",)

    def __init__(self, name, implementation, launch, build):
        self.name = name
        self.launch = launch
        compiler = shutil.which(f"mpicc.{implementation}")
        if not compiler or not shutil.which(launch[0]):
            raise Gone(f"{name} is not here")
        self.player = os.path.join(build, f"contest-{implementation}")
        compile_player(compiler, [os.path.join(HERE, f) for f in ("mpi.c", "player.c", "stage.c")], self.player, "-lm")

    def start(self, ranks, arguments):
        environment = dict(os.environ, CONTEST_LIBRARY=self.name)
        return [subprocess.Popen([*self.launch, "-n", str(ranks), self.player, *arguments], env=environment)]


def open_mpi(build):
    launch = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca",
              "btl", "self,vader", "--mca", "btl_base_warn_component_unused", "0"]
    if os.geteuid() == 0:
        launch.append("--allow-run-as-root")
    return Mpi("Open MPI", "openmpi", launch, build)


def mpich(build):
    return Mpi("MPICH", "mpich", ["mpirun.mpich"], build)


class Gloo(Library):
    name = "Gloo"

    def __init__(self, build):
        if not os.path.exists("/usr/include/gloo/allreduce.h") or not shutil.which("g++"):
            raise Gone("Gloo is not here")
        self.player = os.path.join(build, "contest-gloo")
        objects = []
        for source in ("player.c", "stage.c"):
            objects.append(os.path.join(build, f"contest-gloo-{source}.o"))
            compile_player("gcc", [os.path.join(HERE, source)], objects[-1], "-c")
        compile_player("g++", [os.path.join(HERE, "gloo.cc"), *objects], self.player, "-lgloo", "-lpthread")

    def start(self, ranks, arguments):
        self.store = tempfile.mkdtemp(prefix="tutti-bench-gloo-")
        return [subprocess.Popen([self.player, *arguments], env=dict(
            os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), CONTEST_STORE=self.store)) for rank in range(ranks)]

    def run(self, ranks, arguments):
        try:
            super().run(ranks, arguments)
        finally:
            shutil.rmtree(self.store, ignore_errors=True)


class Hogs:
    """Processes that do nothing but use up the first `n` cores."""

    def __init__(self, n):
        self.processes = []
        for core in range(n):
            self.processes.append(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            os.sched_setaffinity(self.processes[-1].pid, {core})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            p.send_signal(signal.SIGKILL)
            p.wait()
