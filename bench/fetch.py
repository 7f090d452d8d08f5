"""What `fetch.sh` would say badly in bash: run, watch and kill a contender, compare, print, judge.

Each verb of the command line is one function in VERBS, at the foot. All work in the directory WORK:
`source/CASE` is what the server serves, `out` what a contender writes, `results` has one line of
JSON for each run, `musts` one line for each thing that had to hold.
"""

import asyncio
import contextlib
import itertools
import json
import math
import os
import random
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

WORK = Path(os.environ.get("WORK", "."))
OUT = WORK / "out"
KEPT = 256 << 20  # bytes of an output that is removed only at the end
# What paceline keeps for itself beside the files; anything else that is not asked for is wrong.
BOOKS = ".paceline"
POLL = 0.005


# == One run, timed


def measure(case, contender, settle, *command):
    """Runs a contender to its end, then `settle` until its files are durable, then compares."""
    empty_output()
    load_before = os.getloadavg()[0]
    exit_status, wall, cpu, memory = timed(command)
    begun = time.perf_counter()
    settled = subprocess.run(shlex.split(settle), stderr=subprocess.DEVNULL).returncode
    settle_time = time.perf_counter() - begun
    wrong = wrong_files(WORK / "source" / case, OUT)
    record(
        case=case, contender=contender, exit=exit_status, wall=wall, settle=settle_time,
        durable=wall + settle_time if settled == 0 else math.inf, cpu=cpu, memory=memory,
        wrong=len(wrong), load_before=load_before, load_after=os.getloadavg()[0],
    )  # fmt: skip
    if exit_status or wrong:
        complain(case, contender, exit_status, wrong)


def timed(command):
    """Exit status, wall seconds, processor seconds and peak bytes of memory of one command."""
    peak = WORK / "peak"
    # The peak that wait4 reports begins with that of whoever forked: Python's would drown curl's.
    # GNU time is small, so it stands between; the times are taken here, finer than its 10 ms.
    begun = time.perf_counter()
    with started(["/usr/bin/time", "-q", "-f", "%M", "-o", str(peak), *command]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
    memory = int(peak.read_text().split()[-1]) * 1024
    return process.returncode, wall, usage.ru_utime + usage.ru_stime, memory


@contextlib.contextmanager
def started(command, stdin=subprocess.DEVNULL):
    """A contender in a process group of its own, which is killed at the end of the block."""
    with open(WORK / "log", "wb") as log:
        process = subprocess.Popen(
            command, stdin=stdin, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def empty_output():
    """Makes an empty directory OUT, where creating a file costs the same for everyone."""
    # Small files stay until the end: a file system without a journal looks twice at every place
    # where a file was removed a minute ago, and the next contender would pay for that.
    if OUT.exists() and sum(entry.stat().st_size for entry in os.scandir(OUT)) < KEPT:
        OUT.rename(tempfile.mkdtemp(dir=WORK / "runs") + "/kept")
    shutil.rmtree(OUT, ignore_errors=True)
    Path(tempfile.mkdtemp(dir=WORK / "runs")).rename(OUT)
    os.sync()  # so that nobody pays for what another left to be written


def wrong_files(source, out):
    """Names that are missing, differ in a byte, or were never asked for."""
    names = sorted(os.listdir(source))
    wrong = [name for name in names if not same_bytes(source / name, out / name)]
    return wrong + sorted(set(os.listdir(out)) - set(names) - {BOOKS})


def same_bytes(one, other):
    try:
        with open(one, "rb", buffering=0) as left, open(other, "rb", buffering=0) as right:
            if os.fstat(left.fileno()).st_size != os.fstat(right.fileno()).st_size:
                return False
            while chunk := left.read(1 << 20):
                if chunk != right.read(1 << 20):
                    return False
            return True
    except FileNotFoundError:
        return False


def complain(case, contender, exit_status, wrong):
    print(f"{case}: {contender} ended with {exit_status}, {len(wrong)} wrong: {wrong[:3]}")
    with open(WORK / "log", errors="replace") as log:
        print("".join(f"  | {line}" for line in log.readlines()[-5:]), end="")


# == A list with a host that never answers


def silent(host, port):
    """A server that takes every connection and never says a word."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing to tidy, and asyncio dies loudly

    async def hold(reader, _):
        while await reader.read(4096):
            pass

    async def serve():
        server = await asyncio.start_server(hold, host, int(port), backlog=1024)
        await server.serve_forever()

    asyncio.run(serve())


def watch(case, contender, limit, *command):
    """Runs a contender until all healthy files are there or `limit` seconds are over, and kills it."""
    empty_output()
    source = WORK / "source" / case
    sizes = {name: os.path.getsize(source / name) for name in os.listdir(source)}
    missing = sorted(sizes)
    load_before = os.getloadavg()[0]
    begun = time.perf_counter()
    all_there = math.inf
    with started(command):
        while (now := time.perf_counter() - begun) < float(limit):
            # Only the last of the missing is looked at, again and again: few calls, and the list is
            # empty at the first look after all of them are there, in whatever order they came.
            while missing and size_of(OUT / missing[-1]) == sizes[missing[-1]]:
                missing.pop()
            if not missing:
                all_there = now
                break
            time.sleep(POLL)
    there = sum(same_bytes(source / name, OUT / name) for name in sizes)
    record(
        case=case, contender=contender, there=there, wanted=len(sizes), all_there=all_there,
        load_before=load_before, load_after=os.getloadavg()[0],
    )  # fmt: skip


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


# == A million addresses


def million(count, port, *command):
    """Feeds `count` addresses through a pipe and samples the memory of the contender on the way."""
    count, samples = int(count), []
    empty_output()
    load_before = os.getloadavg()[0]
    template = f"http://127.0.0.1:{port}/say/%.0f"
    feed = subprocess.Popen(["seq", "-f", template, str(count)], stdout=subprocess.PIPE)
    begun = time.perf_counter()
    with feed, started(command, stdin=feed.stdout) as process:
        feed.stdout.close()  # the contender's end alone counts: seq must hear when it is gone
        answered = answered_requests(int(port))
        while process.poll() is None:
            done, memory = next(answered), memory_of(process.pid)
            if memory and done >= count * (len(samples) + 1) // 10:
                samples.append((done, time.perf_counter() - begun, *memory))
            time.sleep(0.02)
    wall = time.perf_counter() - begun
    wrong = count - sum(says_its_name(entry) for entry in os.scandir(OUT) if entry.name != BOOKS)
    print(f"million: {count} addresses in {wall:.1f} s, exit {process.returncode}, {wrong} wrong; "
          f"load average {load_before:.2f} at begin, {os.getloadavg()[0]:.2f} at end")  # fmt: skip
    rows = [(str(done), f"{at:.1f}", f"{now / 1e6:.1f}", f"{peak / 1e6:.1f}")
            for done, at, now, peak in samples]  # fmt: skip
    print_columns([("answered", "after s", "memory MB", "peak MB"), *rows])
    judge_memory(samples)
    must(process.returncode == 0 and wrong == 0, f"million: every byte right, {wrong} wrong")


def judge_memory(samples):
    if len(samples) < 9:
        return must(False, f"million: only {len(samples)} samples of memory: raise N")
    peak = max(sample[3] for sample in samples) / 1e6
    must(peak < 400, f"million: peak {peak:.1f} MB, below 400 MB")
    # From three tenths on: until then caches and the filter of names still grow to their limits.
    early, late = samples[2][2] / 1e6, max(sample[2] for sample in samples[3:]) / 1e6
    allowed = early + max(0.1 * early, 16)
    must(late <= allowed, f"million: memory {early:.1f} MB at three tenths, {late:.1f} MB at most later, "
         f"not over {allowed:.1f} MB")  # fmt: skip


def answered_requests(port):
    """What the server has answered since the first look, by its own count, less these looks."""
    # The third line: connections accepted, connections handled, requests.
    first = int(server_status(port)[2].split()[2])
    for looks in itertools.count(1):
        yield int(server_status(port)[2].split()[2]) - first - looks


def server_status(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status") as answer:
        return answer.read().decode().splitlines()


def memory_of(process_id):
    """Resident bytes now and at their peak, or nothing if the process is gone."""
    with open(f"/proc/{process_id}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    if "VmRSS" in fields:
        return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return None


def says_its_name(entry):
    with open(entry.path, "rb") as file:
        return file.read() == f"/say/{entry.name}".encode()


# == Kills


class Request(NamedTuple):
    """One request as the server wrote it down."""

    begun_at: float
    ended_at: float
    host: str
    uri: str


def kills(wanted, seed, port, in_flight, per_host, *command):
    """Kills a contender again and again, lets it finish, then asks the server's log."""
    source = WORK / "source" / "kills"
    empty_output()
    killed_at, complete_at, halves, exits = [], {}, set(), []
    for life in lives(int(wanted), int(seed)):
        with started(command) as process, contextlib.suppress(subprocess.TimeoutExpired):
            exits.append(process.wait(life))
        await_quiet(int(port))
        if process.returncode == -signal.SIGKILL:
            killed_at.append(time.time())
            halves |= note_complete(source, complete_at, killed_at[-1])
        if process.returncode == 0:
            break
    wrong, requests = wrong_files(source, OUT), read_wire_log(killed_at)
    print(f"kills: {len(killed_at)} kills, seed {seed}, exits {exits}, {len(requests)} requests "
          f"for {len(os.listdir(source))} files, {len(complete_at)} complete at a kill")  # fmt: skip
    if wrong:
        complain("kills", "paceline", exits, wrong)
    must(len(killed_at) >= int(wanted), f"kills: {len(killed_at)} of {wanted} before it was done")
    must(0 in exits and not wrong, f"kills: every byte right at the end, {len(wrong)} wrong")
    must(not halves, f"kills: no half file under its final name, {len(halves)} seen")
    again = [it.uri for it in requests if it.begun_at > complete_at.get(it.uri, math.inf)]
    must(not again, f"kills: no complete file asked for again, {len(again)} were")
    judge_in_flight(requests, int(in_flight), int(per_host))


def lives(wanted, seed):
    """Seconds to live: short ones, each to be killed, then a few long enough to finish."""
    chance = random.Random(seed)
    # More than one at the end, since "deferred" (75) asks to come again.
    return [chance.uniform(0.05, 0.6) for _ in range(wanted)] + [600] * 5


def await_quiet(port):
    """Waits until the server has let go of a dead client, so that no two lives mix in its log."""
    until = time.monotonic() + 30
    # The first line: the connections that are open, this one among them.
    while int(server_status(port)[0].split()[2]) > 1:
        if time.monotonic() > until:
            sys.exit("bench: the server still has connections of a dead client after 30 s")
        time.sleep(POLL)


def note_complete(source, complete_at, killed_at):
    """Notes since which kill each file stands complete; returns those that are there but wrong."""
    halves = set()
    for name in os.listdir(OUT):
        uri = f"/kills/{name}"
        if uri in complete_at or not (source / name).exists():
            continue
        if same_bytes(source / name, OUT / name):
            complete_at[uri] = killed_at
        else:
            halves.add(name)
    return halves


def read_wire_log(killed_at):
    """The requests in the order of their begin."""
    requests = []
    with open(WORK / "wire.log") as log:
        for line in log:
            ended_at, lasted, host, _connection, _status, _bytes, uri = line.split()
            begun_at = round(float(ended_at) - float(lasted), 3)
            # A dead client has no request in flight, even if the server notices a moment later.
            death_at = next((at for at in killed_at if at >= begun_at), math.inf)
            requests.append(Request(begun_at, min(float(ended_at), death_at), host, uri))
    return sorted(requests)


def judge_in_flight(requests, in_flight, per_host):
    widest = most_at_once(requests)
    must(len(widest) <= in_flight, f"kills: {len(widest)} requests in flight at most, of {in_flight}")
    hosts = sorted({request.host for request in requests})
    by_host = [[request for request in requests if request.host == host] for host in hosts]
    crowd = max(map(most_at_once, by_host), key=len)
    must(len(crowd) <= per_host, f"kills: {len(crowd)} in flight at one host at most, of {per_host}")
    for request in widest * (len(widest) > in_flight) + crowd * (len(crowd) > per_host):
        print(f"  too many at once: {request}")


def most_at_once(requests):
    """The requests in flight at the widest moment.

    The log counts in milliseconds. What ends in the one in which another begins is taken to have
    ended before, also if it began in it: this may see too few at once, never too many.
    """
    running, widest = [], []
    for request in requests:
        running = [it for it in running if it.ended_at > request.begun_at]
        if request.ended_at > request.begun_at:
            running.append(request)
        widest = max(widest, running, key=len)
    return widest


# == Tables and verdicts


def record(**run):
    with open(WORK / "results", "a") as results:
        print(json.dumps(run), file=results)


def runs_of(case):
    """The runs of a case by contender, in the order in which they first ran."""
    by_contender = defaultdict(list)
    with open(WORK / "results") as results:
        for run in map(json.loads, results):
            if run["case"] == case:
                by_contender[run["contender"]].append(run)
    return by_contender


def median(runs, measure_name):
    return statistics.median(run[measure_name] for run in runs)


def table(case, judged_by, reference):
    """Prints medians of a measured case; ratios are of the time that the case judges by."""
    by_contender = runs_of(case)
    print_heading(case, by_contender)
    rows = [("", "wall s", "min-max", "then sync s", "cpu s", "memory MB", f"{judged_by} / {reference}",
             "wrong files", "bad exits")]  # fmt: skip
    for contender, runs in by_contender.items():
        walls = [run["wall"] for run in runs]
        ratio = median(runs, judged_by) / median(by_contender[reference], judged_by)
        rows.append((
            contender, f"{median(runs, 'wall'):.3f}", f"{min(walls):.2f}-{max(walls):.2f}",
            f"{median(runs, 'settle'):.3f}", f"{median(runs, 'cpu'):.2f}",
            f"{median(runs, 'memory') / 1e6:.1f}", f"{ratio:.2f}",
            str(sum(run["wrong"] for run in runs)), str(sum(run["exit"] != 0 for run in runs)),
        ))  # fmt: skip
    print_columns(rows)


def watched(case, limit):
    """Prints how many healthy files came in time, and when all of them were there."""
    by_contender = runs_of(case)
    print_heading(case, by_contender)
    rows = [("", f"there after {limit} s", "min-max", "of", "all there after s")]
    for contender, runs in by_contender.items():
        there, after = [run["there"] for run in runs], median(runs, "all_there")
        rows.append((
            contender, f"{statistics.median(there):.0f}", f"{min(there)}-{max(there)}",
            str(runs[0]["wanted"]), f"{after:.3f}" if after < math.inf else "never",
        ))  # fmt: skip
    print_columns(rows)


def print_heading(case, by_contender):
    runs = list(by_contender.values())
    print(f"{case}: medians of {len(runs[0])} rounds; load average {runs[0][0]['load_before']:.2f} "
          f"at begin, {max(run[-1]['load_after'] for run in runs):.2f} at end")  # fmt: skip


def print_columns(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def at_most(case, measure_name, contender, factor, reference):
    """A must: the contender's median is at most `factor` times that of the reference."""
    by_contender = runs_of(case)
    ours, theirs = (median(by_contender[name], measure_name) for name in (contender, reference))
    # Two that never came to an end are no match for each other.
    held = ours < math.inf and ours <= float(factor) * theirs
    must(held, f"{case}: {contender} {ours:.3f} s, at most {factor} x "
         f"{reference} {theirs:.3f} s: {ours / theirs:.2f} x")  # fmt: skip


def all_right(case, contender):
    """A must: in every round the contender ended well and every byte was right."""
    runs = runs_of(case)[contender]
    wrong = sum(run["wrong"] for run in runs)
    bad_exits = sum(run["exit"] != 0 for run in runs)
    must(wrong + bad_exits == 0, f"{case}: {contender} every byte right in {len(runs)} rounds, "
         f"{wrong} wrong files, {bad_exits} bad exits")  # fmt: skip


def must(held, what):
    with open(WORK / "musts", "a") as musts:
        print("ok    " if held else "MISSED", what, file=musts)


def port():
    """A port that is free on every address of this machine."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        print(probe.getsockname()[1])


VERBS = {
    "measure": measure,
    "watch": watch,
    "million": million,
    "kills": kills,
    "table": table,
    "watched": watched,
    "at-most": at_most,
    "all-right": all_right,
    "silent": silent,
    "port": port,
}

if __name__ == "__main__":
    # As an exception, so that the blocks that started something end it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    VERBS[sys.argv[1]](*sys.argv[2:])
