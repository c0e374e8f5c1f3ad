#!/usr/bin/env bash
# Installs what is needed, builds everything and runs the whole test suite. The last line is
# "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/.."

deploy/install-deps.sh --tests

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
bazel test --keep_going --test_summary=short "$@" -- //... 2>&1 | tee "$log" || status=$?

# Bazel's summary has a line a test: "//tests/x:y  (cached) PASSED in 0.1s", "... FAILED in 3s",
# "... FAILED TO BUILD", "... NO STATUS", "... TIMEOUT in 60s".
count() { grep -Ec "^//[^ ]+ +(\(cached\) +)?($1)( |$)" "$log" || true; }
passed=$(count 'PASSED|FLAKY')
failed=$(count 'FAILED|TIMEOUT|NO STATUS|INCOMPLETE|REMOTE FAILURE')
# A build that ended before any test ran has failed, whatever was counted.
if ((status != 0 && failed == 0)); then failed=1; fi
echo
echo "$passed passed, $failed failed"
((status == 0 && failed == 0 && passed > 0))
