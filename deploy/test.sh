#!/usr/bin/env bash
# Installs what is needed, builds everything and runs the whole test suite. The last line is
# "N passed, N failed, N skipped". Passed and failed are test programs. Skipped are the single tests
# that a program passed over since this machine lacks what they need (root, say); they are named
# above the last line. A program all of whose tests were skipped has not passed.
set -euo pipefail
cd "$(dirname "$0")/.."

deploy/install-deps.sh --tests

log=$(mktemp)
skips=$(mktemp)
trap 'rm -f "$log" "$skips"' EXIT
status=0
bazel test --keep_going --test_summary=short "$@" -- //... 2>&1 | tee "$log" || status=$?

# Bazel's summary has a line a test: "//tests/x:y  (cached) PASSED in 0.1s", "... FAILED in 3s",
# "... FAILED TO BUILD", "... NO STATUS", "... TIMEOUT in 60s".
programs() { sed -nE "s,^//([^ ]+) +(\(cached\) +)?($1)( .*)?$,\1,p" "$log"; }
passed=$(programs 'PASSED|FLAKY' | wc -l)
failed=$(programs 'FAILED|TIMEOUT|NO STATUS|INCOMPLETE|REMOTE FAILURE' | wc -l)
# A build that ended before any test ran has failed, whatever was counted.
if ((status != 0 && failed == 0)); then failed=1; fi

# Googletest's report has a line a test, <testcase name= ... result="skipped" ... classname=, and
# the reason behind a place in the sources: <skipped message="FILE:LINE&#x0A;REASON&#x0A;">.
while read -r program; do
  find "bazel-testlogs/${program/:/\/}/" -name test.xml -exec awk -v program="//$program" '
    function attribute(name, text) {
      if (!match($0, " " name "=\"[^\"]*\"")) return ""
      text = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
      gsub(/&#x0A;/, " ", text); gsub(/&quot;/, "\"", text); gsub(/&apos;/, "\047", text)
      gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&amp;/, "\\&", text)
      return text
    }
    /<testcase / { ++tests }
    /<testcase .* result="skipped"/ { ++skipped; test = attribute("classname") "." attribute("name") }
    /<skipped / && test != "" {
      reason = attribute("message"); sub(/^[^ ]*:[0-9]+ */, "", reason); sub(/ +$/, "", reason)
      print "skipped: " program " " test ": " reason; test = ""
    }
    END { if (tests > 0 && tests == skipped) print "all: " program }' {} + >>"$skips"
done < <(programs 'PASSED|FLAKY')
skipped=$(grep -c '^skipped: ' "$skips" || true)
((passed -= $(grep -c '^all: ' "$skips" || true))) || true
echo
grep '^skipped: ' "$skips" || true
echo "$passed passed, $failed failed, $skipped skipped"
((status == 0 && failed == 0 && passed > 0))
