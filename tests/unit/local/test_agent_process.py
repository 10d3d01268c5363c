"""Real processes and sockets of this machine: nothing of a container survives it, and connections find their way."""

import asyncio
import json
import os
import subprocess
import time

import pytest

from frontier_local.agent.forward import Forwarder
from frontier_local.agent.health import Health
from frontier_local.agent.plan import ProcessPlan
from frontier_local.agent.process import MARK, ManagedProcess, end_below, end_leftovers

PATH = os.environ.get("PATH", os.defpath)


def make_plan(directory, script):
    return ProcessPlan(("sh", "-c", script), {"PATH": PATH}, directory)


def start(directory, script):
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "0.log").open("ab") as log:
        return ManagedProcess(make_plan(directory, script), directory, log)


async def eventually(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        await asyncio.sleep(0.02)


def lives(pid):
    """Return whether the process exists and is not only waiting to be reaped by whoever started it."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - one line of /proc
            return stat.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_the_exit_code_comes_through(tmp_path):
    assert await start(tmp_path / "c", "echo out; exit 7").exited == 7
    assert (tmp_path / "c" / "0.log").read_text() == "out\n"


async def test_a_program_that_does_not_exist_is_an_os_error(tmp_path):
    plan = ProcessPlan(("no-such-program",), {"PATH": PATH}, tmp_path)
    with pytest.raises(OSError, match=r"executable file not found in \$PATH"):
        ManagedProcess(plan, tmp_path, subprocess.DEVNULL)


async def test_what_a_container_leaves_behind_ends_with_it_even_out_of_its_group(tmp_path):
    process = start(tmp_path / "c", "setsid sleep 600 & echo $!; sleep 600 & echo $!; exit 0")
    assert await process.exited == 0
    pids = [int(line) for line in (tmp_path / "c" / "0.log").read_text().split()]
    assert len(pids) == 2
    await eventually(lambda: not any(lives(pid) for pid in pids))


async def test_the_end_of_a_probe_does_not_end_its_container(tmp_path):
    process = start(tmp_path / "c", "exec sleep 600")
    plan = make_plan(tmp_path / "c", "exit 0")
    probe = ManagedProcess(plan, tmp_path / "c", subprocess.DEVNULL, f"{tmp_path / 'c'}#0")
    assert await probe.exited == 0
    assert lives(process.pid)
    process.kill()
    assert await process.exited == -9


async def test_sigterm_goes_to_the_first_process_and_sigkill_to_all(tmp_path):
    polite = start(tmp_path / "polite", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done")
    deaf = start(tmp_path / "deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    for name in ("polite", "deaf"):
        await eventually((tmp_path / name / "0.log").read_text)
    polite.terminate()
    deaf.terminate()
    assert await polite.exited == 5
    assert not deaf.exited.done()
    deaf.kill()
    assert await deaf.exited == -9


def sleeper(mark):
    return subprocess.Popen(["sleep", "600"], env={MARK: mark}, start_new_session=True)


async def test_leftovers_of_an_earlier_agent_are_ended_and_others_are_not(tmp_path):
    directory = tmp_path / "uid" / "containers" / "c"
    directory.mkdir(parents=True)
    marked, other = sleeper(str(directory)), sleeper(f"{tmp_path}-other/uid")
    record = {"pid": other.pid, "startTicks": 1, "bootID": "another boot"}
    (directory / "process.json").write_text(json.dumps(record))
    try:
        assert end_leftovers(tmp_path) == 1
        assert marked.wait(10) == -9
        assert other.poll() is None
        assert end_below(tmp_path) == 0
    finally:
        other.kill()
        other.wait()


async def test_a_recorded_process_is_ended_by_its_pid_and_start_time(tmp_path):
    process = start(tmp_path / "uid" / "containers" / "c", "exec sleep 600")
    assert end_leftovers(tmp_path) >= 1
    assert await process.exited == -9


async def echo_server(word):
    async def serve(reader, writer):
        writer.write(word + await reader.readline())
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def ask(address):
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(b"x\n")
        return await reader.read()
    finally:
        writer.close()


async def test_connections_go_to_an_address_that_accepts_and_are_refused_without_one(unused_tcp_port):
    server = await echo_server(b"a:")
    forwarder = Forwarder(("127.0.0.1", unused_tcp_port))
    with pytest.raises(OSError, match="Connect call failed"):
        await ask(forwarder.address)
    dead = ("127.255.255.253", 9)
    await forwarder.set_backends((dead, server.sockets[0].getsockname()))
    assert [await ask(forwarder.address) for _ in range(5)] == [b"a:x\n"] * 5
    await forwarder.set_backends(())
    with pytest.raises(OSError, match="Connect call failed"):
        await ask(forwarder.address)
    await forwarder.close()
    server.close()


class Subject:
    """A container whose probes answer from a script."""

    default_grace = 3.0
    runs = True

    def __init__(self, spec, answers):
        self.spec = {"name": "c"} | spec
        self.answers = answers
        self.seen = []
        self.ended = []

    async def ask(self, handler, seconds):
        left = self.answers[handler["is"]]
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer, "" if answer else "no"

    def set_health(self, *, started=None, ready=None):
        self.seen.append((started, ready))

    async def end_process(self, grace):
        self.ended.append(grace)

    def emit(self, reason, message):
        self.seen.append(reason)


def make_probe(kind, **more):
    return {"is": kind, "periodSeconds": 0.001} | more


async def test_readiness_waits_for_startup_and_follows_the_probe():
    spec = {"startupProbe": make_probe("s"), "readinessProbe": make_probe("r", failureThreshold=1)}
    subject = Subject(spec, {"s": [False, True], "r": [True, False]})
    watch = asyncio.create_task(Health(subject).watch())
    await eventually(lambda: (None, False) in subject.seen)
    watch.cancel()
    assert subject.seen[:5] == ["Unhealthy", (True, False), (None, True), "Unhealthy", (None, False)]
    assert subject.ended == []


@pytest.mark.parametrize(
    ("probe", "more", "want"),
    [
        ("livenessProbe", {}, 3.0),
        ("livenessProbe", {"terminationGracePeriodSeconds": 1}, 1.0),
        ("startupProbe", {}, 3.0),
    ],
)
async def test_a_failed_liveness_or_startup_probe_ends_the_container(probe, more, want):
    subject = Subject({probe: make_probe("p", **more)}, {"p": [False]})
    await Health(subject).watch()
    await eventually(lambda: subject.ended)
    assert subject.ended == [want]
    assert subject.seen.count("Unhealthy") == 3
