# Runs the steps of tests/gpu.sh, which sources this file, each with a limit of its own, and keeps what
# became of them. Uses the variables that gpu.sh sets, and sets running, failed, skipped and failures.

# --- One step, with a limit of its own. ---

# limited SECONDS LOG COMMAND...: its exit code; 124 or 137 if the limit ended it.
limited() {
  local limit=$1 log=$2
  shift 2
  (cd "$files" && exec timeout -k 5 "$limit" "$@") </dev/null >>"$log" 2>&1 &
  running=$!
  # What hangs in the driver cannot even be killed: it is left behind.
  local give_up=$((SECONDS + limit + 20)) code=137
  {
    while kill -0 "$running"; do
      if ((SECONDS >= give_up)); then
        running=
        return 137
      fi
      sleep 0.1
    done
    wait "$running"
    code=$?
  } 2>/dev/null  # bash tells of crashes too
  running=
  return "$code"
}

# What a limited command's exit code means.
outcome_of() {
  case $1 in
    0) echo ok ;;
    124) echo hung ;;
    137) echo "killed (its limit, or no memory)" ;;
    *) if (($1 > 128)); then echo "crashed (SIG$(kill -l "$1"))"; else echo failed; fi ;;
  esac
}

# keep PHASE STEP OUTCOME SECONDS DETAIL: in the directory's files.
keep() {
  printf '%s\t%s\t%s\t%s\t%s\n' "$@" >> "$out/steps.tsv"
  timeout -k 5 20 "$gpu_bench" --out "$out" record "$@" </dev/null >>"$logs/record.log" 2>&1
}
# record, likewise: told, kept, and a failure unless it is ok, accepted, or skipped by gpu.sh itself.
record() {
  printf '%-9s %-30s %-10s %4d s  %s\n' "$@"
  keep "$@"
  case $1/$3 in
    verdict/* | */ok | */accepted) ;;
    */skipped) ((++skipped)) ;;
    *) failed=1 ;;
  esac
}

# Seconds until the phase must end, but for those set apart.
left() { echo $((deadline - SECONDS - ${1:-0})); }
min() { echo $(($1 < $2 ? $1 : $2)); }

# --- The tests of a filter. ---

# The names with one of these outcomes in a file of results, which gpu_tests' main tells of.
named() {  # OUTCOMES FILE
  awk -v outcomes=" $1 " 'index(outcomes, " " $1 " ") { print $2 }' "$2" | sort -u
}

# Runs the tests once. One that ends the process is noted, and those after it have another process.
run_all() {  # FILTER SECONDS RESULTS LOG COMMAND...
  local filter=$1 until=$((SECONDS + $2)) results=$3 log=$4 code=0 done_tests last behind=-
  shift 4
  [[ $filter != *-* ]] || behind=:  # names follow that are left out already
  while true; do
    if ((until - SECONDS < 3)); then
      echo "late -" >> "$results"
      return 1
    fi
    done_tests=$(named "run" "$results" | paste -sd :)
    echo "begin -" >> "$results"
    limited $((until - SECONDS)) "$log" env MEGATRAIN_TEST_RESULTS="$results" \
      MEGATRAIN_TEST_SECONDS="$test_seconds" "$@" "$gpu_tests" \
      --gtest_filter="$filter${done_tests:+$behind$done_tests}"
    code=$?
    case $code in
      0 | 1 | 5) return 0 ;;  # 5: none is left
      6) continue ;;  # the GPU is lost to that process alone
      9)
        last=$(tail -n 1 "$results")
        echo "tool -" >> "$results"
        # memcheck ends the context at an error: the tests behind it have another process.
        [[ $last == "lost -" ]] && continue
        return 0
        ;;
    esac
    last=$(tail -n 1 "$results")
    case $last in
      "run "*) echo "ended ${last#run } $(outcome_of "$code")" >> "$results" ;;
      "hung "*) if $stop_at_hang; then return 1; fi ;;
      *)
        echo "start - $(outcome_of "$code")" >> "$results"
        return 1
        ;;
    esac
  done
}

# The tests that failed behind another one of their process, which may be why.
followers() {  # RESULTS
  awk '$1 == "begin" { first = 1 } $1 == "failed" { if (!first) print $2; first = 0 }' "$1"
}

# run_tests PHASE STEP FILTER SECONDS [COMMAND...]: records what became of the tests, which the
# command runs; `failures` gets the names of those that are not well.
failures=()
run_tests() {
  local phase=$1 step=$2 filter=$3 limit=$4 start=$SECONDS
  shift 4
  local name=$phase-${step//[^a-zA-Z0-9]/-}
  local results=$scratch/results log=$logs/$name.log test alone outcome=ok detail tested
  : > "$results"
  run_all "$filter" "$limit" "$results" "$log" "$@"
  for test in $(followers "$results"); do
    ((start + limit - SECONDS > 5)) || break
    alone=$scratch/alone.results
    : > "$alone"
    run_all "$test" "$(min "$test_seconds" $((start + limit - SECONDS)))" "$alone" "$log" "$@"
    if [[ -n $(named ok "$alone") ]]; then sed -i "s|^failed $test\$|ok $test|" "$results"; fi
  done
  mapfile -t failures < <(named "failed skipped hung ended" "$results")
  tested=$(named run "$results" | wc -l)
  detail="$tested tests"
  if ((${#failures[@]} > 0)); then
    outcome=failed
    detail="${#failures[@]} of $tested tests; $log"
  elif grep -q '^tool' "$results"; then
    outcome=failed
    detail="$(grep 'ERROR SUMMARY' "$log" | tail -n 1); $log"
  elif grep -q '^start' "$results"; then
    outcome=$(sed -n 's/^start - //p' "$results" | tail -n 1)
    detail="outside of its $tested tests; $log"
  elif ((tested == 0)); then
    outcome=failed
    detail="no test ran; $log"
  fi
  if grep -q '^late' "$results"; then
    [[ $outcome == ok ]] && outcome=late
    detail="not all tests had time, $detail"
  fi
  record "$phase" "$step" "$outcome" $((SECONDS - start)) "$detail"
  [[ $phase == verdict ]] || explain "$results" "$log"
  [[ $outcome == ok ]]
}

# Why each failed: in a few lines what the log has in many.
explain() {  # RESULTS LOG
  local test outcome shown=0
  while read -r outcome test why; do
    case $outcome in failed | skipped | hung | ended) ;; *) continue ;; esac
    printf '  %s: %s %s\n' "$test" "$outcome" "$why"
    ((++shown <= 6)) || continue
    awk -v begin="[ RUN      ] $test" -v end1="[  FAILED  ] $test" -v end2="[  SKIPPED ] $test" '
      index($0, begin) == 1 { inside = 1; next }
      index($0, end1) == 1 || index($0, end2) == 1 { exit }
      inside && (index($0, "[ RUN      ] ") == 1 || index($0, "Note: Google Test") == 1) { exit }
      inside && NF > 0 { print "      " $0; if (++lines == 26) exit }' "$2"
  done < "$1"
}

# --- What the machine has. ---

# The driver's library, for what looks for it by its name alone and for its own parts. Our programs
# look in /usr/local/nvidia themselves. Behind all places that are named already.
find_driver() {
  local place known
  known=$(ldconfig -p 2>/dev/null)
  [[ $known != *libcuda.so.1* ]] || return
  for place in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib64-nvidia; do
    if [[ -e $place/libcuda.so.1 && :${LD_LIBRARY_PATH:-}: != *:$place:* ]]; then
      export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$place
    fi
  done
}

# missing LIBRARY ACCEPTED: records that a library is not used.
missing() {
  if $2; then
    record info "$1" accepted 0 "is not used, and is not asked for"
  else
    record info "$1" failed 0 "is not used: see above; --without-${1,,} accepts it"
  fi
}

# several PHASE STEP: whether what needs several GPUs can be run; if not, records why.
several() {
  if [[ -z $gpus ]]; then
    record "$@" failed 0 "how many GPUs there are is not known: see above"
  elif ((gpus < 2)); then
    record "$@" skipped 0 "needs two GPUs, has one"
  elif $nccl; then
    return 0
  elif $without_nccl; then
    record "$@" skipped 0 "needs NCCL, which is not asked for"
  else
    record "$@" failed 0 "needs NCCL, which is not used: see above"
  fi
  return 1
}
