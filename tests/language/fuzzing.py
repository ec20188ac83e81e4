"""How much the fuzz tests try: the same examples in every ordinary run, fresh ones for as long as asked in this one.

Run: python tests/language/fuzzing.py [--minutes 10] [--seed N]
Rounds of every target with fresh random seeds until the time is over, then a line of examples for each. The exit code
is 1 at the first failure, with what reproduces it.

`LINNET_FUZZ_EXAMPLES` scales the numbers of examples (400 stands for once); `LINNET_FUZZ_FRESH=1` draws other examples
in each run, which pytest's `--hypothesis-seed` then chooses.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

ROOT = Path(__file__).resolve().parents[2]
NOMINAL = 400
TARGETS = {
    "test_prover_soundness.py": (
        "test_accepted_goals_hold_in_the_whole_box",
        "test_extended_facts_are_as_sound",
        "test_dims_agree_with_direct_arithmetic",
        "test_text_reads_back_as_the_same_dim",
    ),
    "test_generated_programs.py": (
        "test_accepted_programs_run_as_their_types_promise",
        "test_a_changed_dimension_is_refused_or_runs",
    ),
    "test_lexer.py": ("test_tokens_and_comments_tile_any_text",),
    "test_parser.py": (
        "test_any_tokens_give_a_module",
        "test_any_text_gives_a_module",
        "test_one_wrong_token_gives_few_reports",
    ),
    "test_formatter.py": (
        "test_generated_programs_say_the_same",
        "test_damaged_sources_say_the_same_or_are_left_alone",
    ),
}
COUNTED = re.compile(r"^(\S+\.py)::(\w+):$|^\s+- ([\d,]+) passing", re.MULTILINE)


def fuzzed(examples: int, shrink: bool = True) -> settings:
    """Settings of a fuzz test that tries `examples` in an ordinary run.

    What a seed draws is no smaller for a smaller seed: such a test fails at once, with `shrink` False.
    """
    scale = int(os.environ.get("LINNET_FUZZ_EXAMPLES", NOMINAL)) / NOMINAL
    fresh = os.environ.get("LINNET_FUZZ_FRESH") == "1"
    return settings(
        max_examples=max(1, round(examples * scale)),
        deadline=None,
        derandomize=not fresh,
        database=None,
        phases=[phase for phase in Phase if shrink or phase is not Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def passing(output: str) -> Counter[str]:
    """The examples that passed, by test, in the statistics that pytest prints."""
    found: Counter[str] = Counter()
    test = ""
    for _, name, count in COUNTED.findall(output):
        if name:
            test = name
        else:
            found[test] += int(count.replace(",", ""))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, help="of the first round, instead of a fresh one")
    given = parser.parse_args()
    if not 0 < given.minutes < 10_000:
        parser.error("--minutes takes a number above 0")
    tests = [f"tests/language/{file}::{test}" for file, names in TARGETS.items() for test in names]
    environment = {"LINNET_FUZZ_FRESH": "1", "LINNET_FUZZ_EXAMPLES": str(NOMINAL)}
    totals: Counter[str] = Counter()
    start = time.monotonic()
    rounds = 0
    while time.monotonic() - start < given.minutes * 60:
        seed = given.seed if rounds == 0 and given.seed is not None else secrets.randbelow(1 << 32)
        pytest = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", *tests]
        # The output is read whole: a round takes less than a minute.
        run = subprocess.run(
            [sys.executable, *pytest, "--hypothesis-show-statistics"],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        if run.returncode:
            print(run.stdout + run.stderr)
            settled = " ".join(f"{name}={value}" for name, value in environment.items())
            print(f"Round {rounds + 1} failed. Reproduce it with:\n{settled} python {' '.join(pytest)}")
            return 1
        totals += passing(run.stdout)
        rounds += 1
        print(
            f"round {rounds}, seed {seed}: {totals.total():,} examples in {time.monotonic() - start:.0f} s", flush=True
        )
    print(f"\n{rounds} rounds in {time.monotonic() - start:.0f} s, no failure; examples that passed:")
    for names in TARGETS.values():
        for name in names:
            print(f"{totals[name]:10,}  {name}")
    # A target that was never counted was never fuzzed.
    return 0 if all(totals[name] for names in TARGETS.values() for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
