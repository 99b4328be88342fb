"""Two trainers and two nodes for their workers, as hosts of their own, of which one node is cut off and healed.

``python tests/sweeps/ray_hosts.py`` (as root, with ``ip``) makes four network namespaces on a bridge: the trainers are
started by torchrun on two of them, their workers run on the other two, on Ray. In the middle of the epoch the link of a
node goes down, so that nobody hears of it, not even that connections are closed, and later up again. Each batch must be
the one of an undisturbed run, and the actors that were cut off must have ended. It prints the pauses.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "helpers")]

STEPS = 200
WORK = 0.1  # seconds that a trainer works on a batch
HOSTS = {"trainer0": 1, "trainer1": 2, "node0": 3, "node1": 4}
NET = "10.77.0"
STORE = 100 << 20


# The trainers


def pipeline(path: Path) -> Any:
    from journeys import training

    return training(path)


def train(folder: Path) -> None:
    """A rank: note each batch, and how long it was waited for."""
    import torch
    import torch.distributed as dist
    from contract import digest

    import uio_pipes as uio

    dist.init_process_group("gloo")
    loader = uio.Loader(pipeline(folder / "shards.list"), num_workers=uio.RayWorkers(2), **OPTIONS)
    batches, asked = iter(loader), time.time()
    with (folder / f"rank{dist.get_rank()}.jsonl").open("w", buffering=1) as log:
        for batch in batches:
            got = time.time()
            log.write(json.dumps([digest(batch), asked, got]) + "\n")
            dist.all_reduce(torch.zeros(1))  # as in a step
            time.sleep(WORK)
            asked = time.time()
    nodes = {name: vars(node) for name, node in loader.stats().nodes.items()}
    (folder / f"nodes{dist.get_rank()}.json").write_text(json.dumps(nodes))
    dist.destroy_process_group()


OPTIONS: dict[str, Any] = {"seed": 5, "lanes": 8, "steps_per_epoch": STEPS}


def expected(folder: Path, rank: int) -> list[str]:
    """The batches of a rank that nothing disturbs."""
    from contract import digest

    import uio_pipes as uio

    return [digest(b) for b in uio.Loader(pipeline(folder / "shards.list"), rank=rank, world_size=2, **OPTIONS)]


# The hosts


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


@contextlib.contextmanager
def network() -> Iterator[None]:
    """A namespace for each host, all on one bridge."""
    with contextlib.ExitStack() as stack:
        ip("link add uio-hosts type bridge")
        stack.callback(ip, "link del uio-hosts")
        ip("link set uio-hosts up")
        for host, number in HOSTS.items():
            ip(f"netns add {host}")
            stack.callback(ip, f"netns del {host}")
            ip(f"link add uio-{host} type veth peer name eth0 netns {host}")
            ip(f"link set uio-{host} master uio-hosts up")
            ip(f"-n {host} addr add {NET}.{number}/24 dev eth0")
            for device in ("lo", "eth0"):
                ip(f"-n {host} link set {device} up")
        yield


@contextlib.contextmanager
def running(host: str, command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command on a host; all that it started ends with it."""
    path = os.pathsep.join(sys.path[:3])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": f"{NET}.1:6379"}
    environment |= {"RAY_AUTH_MODE": "disabled", "GLOO_SOCKET_IFNAME": "eth0", "RAY_worker_niceness": "0"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, "-m", *command],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for pid in pids(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def pids(host: str) -> list[int]:
    """All processes in the namespace of a host."""
    done = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=True)
    return [int(pid) for pid in done.stdout.split()]


def actors(host: str) -> set[int]:
    """The actors with lanes on a host."""
    found = set()
    for pid in pids(host):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Lanes"):
                found.add(pid)
    return found


def wait_for(what: str, holds: Any, seconds: float) -> float:
    """Wait until something holds; return the seconds. Raises: TimeoutError if it does not hold in time."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"after {seconds} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the node is cut off")
    parser.add_argument("--trainer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trainer:
        train(arguments.trainer)
        return
    import corpus

    folder = Path(tempfile.mkdtemp(prefix="ray_hosts"))
    corpus.shards(folder, [6] * 24, seconds=(0.3, 0.9))
    with network(), contextlib.ExitStack() as stack:
        ray = ["ray.scripts.scripts", "start", "--block", f"--object-store-memory={STORE}", "--disable-usage-stats"]
        for host, number in HOSTS.items():
            join = (
                ["--head", "--port=6379", "--include-dashboard=false"] if number == 1 else [f"--address={NET}.1:6379"]
            )
            cpus = 4 if host.startswith("node") else 0
            place = [f"--node-ip-address={NET}.{number}", f"--num-cpus={cpus}", f"--node-name={host}"]
            stack.enter_context(running(host, [*ray, *join, *place], folder / f"{host}.log"))
            wait_for(host, lambda host=host: "runtime started" in (folder / f"{host}.log").read_text(), 60)
        trainers = []
        for rank in range(2):
            torchrun = ["torch.distributed.run", "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1"]
            command = [*torchrun, f"--master-addr={NET}.1", "--master-port=29500", __file__, f"--trainer={folder}"]
            trainers.append(stack.enter_context(running(f"trainer{rank}", command, folder / f"torchrun{rank}.log")))
        logs = [folder / f"rank{rank}.jsonl" for rank in range(2)]
        wait_for(f"batches; see {folder}", lambda: all(len(lines(log)) >= STEPS // 4 for log in logs), 120)
        lost = actors("node0")
        ip("link set uio-node0 down")
        cut = time.time()
        time.sleep(arguments.seconds)
        print(f"cut off at batch {len(lines(logs[0]))}, with {len(lost)} actors, for {arguments.seconds} s", flush=True)
        ip("link set uio-node0 up")
        ended = wait_for("actors that were cut off", lambda: not lost & actors("node0"), 120)
        print(f"they ended within {ended:.1f} s after it was healed")
        wait_for(f"the trainers; see {folder}", lambda: all(t.poll() is not None for t in trainers), 300)
    for rank, log in enumerate(logs):
        got = lines(log)
        same = [digest for digest, _, _ in got] == expected(folder, rank)
        pauses = [received - asked for _, asked, received in got if received > cut]
        usual = sorted(received - asked for _, asked, received in got if received < cut)[len(got) // 8]
        print(f"rank {rank}: {len(got)} batches, {'as' if same else 'NOT as'} in the undisturbed run; ", end="")
        print(f"longest wait {max(pauses):.2f} s (usually {usual:.3f} s); {(folder / f'nodes{rank}.json').read_text()}")
        if not same:
            sys.exit(f"see {folder}")


if __name__ == "__main__":
    main()
