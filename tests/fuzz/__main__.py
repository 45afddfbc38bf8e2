"""Damages files at random and reads them.

    python -m tests.fuzz --seconds=600
    python -m tests.fuzz --cases=100000 --reader='*.json' --seed=2

Any content must give a result or an error that names the file, within 10 s of a processor, without
waiting for two minutes and without memory out of proportion. With --keep, a content that does not
is kept in tests/fuzz/corpus, which the tests read again.
Rounds (`rounds`) make joins, vocabularies and folders whose right result is known.
Some cases have other files next to theirs, or a file that changes while it is read; they are known
by their numbers alone.
"""

import argparse
import fnmatch
import os
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="Time for all readers together.")
    parser.add_argument("--cases", type=int, help="Cases of each reader.")
    parser.add_argument("--reader", default="*", help="Readers: a pattern of their names.")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="Of all cases.")
    parser.add_argument("--keep", action="store_true", help="Keep what fails in the corpus.")
    options = parser.parse_args()
    if (options.seconds is None) == (options.cases is None):
        parser.error("give --seconds or --cases")
    from albert.io import tensorflow_start

    tensorflow_start.install()
    from tests.fuzz import readers, rounds, runner

    with tempfile.TemporaryDirectory() as root:
        found = readers.all_readers(os.path.join(root, "own"))
        chosen = [name for name in found if fnmatch.fnmatch(name, options.reader)]
        if not chosen and not fnmatch.filter(rounds.ALL, options.reader):
            parser.error(f"--reader={options.reader} is none of {', '.join(found)}")
        print(f"seed {options.seed}, {len(chosen)} readers", flush=True)
        worker, failed = runner.Worker(options.seed, root), 0
        for name in chosen:
            places, number, started = {}, 0, time.monotonic()
            while (
                number < options.cases
                if options.cases
                else time.monotonic() - started < options.seconds / len(chosen)
            ):
                finding = worker.run(name, number)
                if finding and (place := runner.place_of(finding)) not in places:
                    places[place] = number
                    case = runner.make_case(found[name], options.seed, number, found)
                    where = f"case {number}"
                    if options.keep and case == runner.Case(case.content, found[name].siblings):
                        where = runner.save(found[name], case.content)
                    print(f"\n{name}: {where}\n{finding}", flush=True)
                number += 1
            failed += len(places)
            rate = number / (time.monotonic() - started)
            print(f"{name}: {number} cases, {rate:.0f}/s, {len(places)} findings", flush=True)
        worker.close()
    for name in fnmatch.filter(rounds.ALL, options.reader):
        # A case of a round takes up to a second.
        numbers = range(min(int(options.cases or options.seconds), 100))
        findings = [(i, found) for i in numbers if (found := rounds.find(name, options.seed, i))]
        for number, finding in findings[:1]:
            print(f"\n{name}: case {number}\n{finding}", flush=True)
        print(f"{name}: {len(numbers)} cases, {len(findings)} findings", flush=True)
        failed += len(findings)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
