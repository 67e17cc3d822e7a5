"""Put known faults into copies of the code, one at a time, and run the tests that should find them.

Users would suffer from each of the faults in ``faults.toml``. If one of them survives, the tests have lost
something.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from difflib import get_close_matches
from pathlib import Path
from queue import SimpleQueue

from tests.faults.copies import SURVIVED, WHOLE, Copy, StoppedError, stop
from tests.faults.fault import Fault, problems, read_faults


def parsed(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser("python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults to test (default: all)")
    parser.add_argument("--list", action="store_true", help="print all faults and exit")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="test N faults at once (default: 2)")
    parser.add_argument(
        "--full",
        action="store_true",
        help="if a fault survives its own tests, run all tests that are not slow",
    )
    parser.add_argument("--all", action="store_true", help="like --full, but run the slow tests as well")
    parser.add_argument(
        "--tests",
        metavar="OPTIONS",
        help="options of pytest, to run other tests than those that faults name, "
        "such as --tests 'tests/analysis -k paired'",
    )
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in names:
            near = get_close_matches(name, names, n=3, cutoff=0.3) or names
            parser.error(f"there is no fault {name!r}; expected one such as {', '.join(near)} (see --list)")
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; expected a number from 1")
    return options


def suite_of(options: argparse.Namespace) -> list[str]:
    """Return the options of pytest for faults that survive their own tests, or nothing."""
    if not (options.full or options.all):
        return []
    # The list of faults does not fit a tree that has one of them already.
    suite = ["-n", "2", "--dist", "loadfile", "--ignore=tests/test_faults.py"]
    return suite if options.all else [*suite, "-m", "not slow"]


def check_without_faults(copies: Sequence[Copy], own: Sequence[Sequence[str]], suite: Sequence[str]) -> None:
    """Raise an error unless all tests are there and pass without a fault."""
    every = list(dict.fromkeys(option for options in own for option in options)) if own[1:] else own[0]
    parallel = ["-n", str(len(copies)), "--dist", "loadfile"] if len(copies) > 1 else []
    failed = copies[0].first_failure([*every, *parallel], WHOLE)
    if failed is None and suite:
        failed = copies[0].first_failure(suite, WHOLE)
    if failed:
        raise StoppedError(f"{failed} fails without a fault; expected all tests to pass.")


def run(faults: Sequence[Fault], options: argparse.Namespace) -> int:
    """Test all faults, print a line for each, and return the exit status."""
    width, start, survived = max(len(fault.name) for fault in faults), time.monotonic(), []
    own = {fault: fault.tests for fault in faults}
    if options.tests:
        own = dict.fromkeys(faults, tuple(shlex.split(options.tests)))
    suite, free = suite_of(options), SimpleQueue[Copy]()

    def test(fault: Fault) -> tuple[str, float]:
        copy = free.get()
        try:
            return copy.tested(fault, own[fault], suite)
        finally:
            free.put(copy)

    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(min(options.jobs, len(faults)))]
        pool = ThreadPoolExecutor(len(copies))
        try:
            check_without_faults(copies, list(dict.fromkeys(own.values())), suite)
            print(f"all tests pass without a fault ({time.monotonic() - start:.0f} s)", flush=True)
            for copy in copies:
                free.put(copy)
            results = {pool.submit(test, fault): fault for fault in faults}
            for result in as_completed(results):
                fault, (found, seconds) = results[result], result.result()
                survived += [fault.name] if found == SURVIVED else []
                said = f"SURVIVED: {fault.why}" if found == SURVIVED else f"caught by {found}"
                print(f"{fault.name:{width}} {said} ({seconds:.0f} s)", flush=True)
        finally:  # also after Ctrl-C
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(Copy.running):
                stop(process)
            pool.shutdown()
    told = f"{len(faults) - len(survived)} of {len(faults)} faults caught in {time.monotonic() - start:.0f} s"
    print(told + (f"; survived: {', '.join(survived)}" if survived else ""))
    return 1 if survived else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    faults = read_faults()
    options = parsed(arguments, [fault.name for fault in faults])
    if options.list:
        print("\n".join(f"{fault.name}: {fault.why} ({fault.where})" for fault in faults))
        return 0
    chosen = [fault for fault in faults if not options.names or fault.name in options.names]
    wrong = list(problems(chosen))
    try:
        if not wrong:
            return run(chosen, options)
    except StoppedError as error:
        wrong = [str(error)]
    except KeyboardInterrupt:
        return 130
    print("\n".join(wrong), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
