#!/usr/bin/env bash
# The CUDA kernels' tests under compute-sanitizer: tests/cuda/sanitize.sh [racecheck|memcheck|initcheck|synccheck]
#
# CUDA_TESTS names the test binary. Each of as many processes as there are processors has its share of every test's cases
# (GPUSHIM_TEST_SHARE). SAMPLE=n runs every n-th case only: a case that takes milliseconds takes seconds under racecheck.
# GTEST_FILTER chooses tests: by default all but those whose threads share nothing. SECONDS_OF_RUN bounds the run; LOGS is
# where each process's log goes. Fails when a process finds something, fails, or does not end in time.
set -u
tool=${1:-racecheck}
tests=${CUDA_TESTS:?names the test binary}
processes=${PROCESSES:-$(nproc)}
sample=${SAMPLE:-1}
logs=${LOGS:-$(mktemp -d)}
export GTEST_FILTER=${GTEST_FILTER:--*Ops.*:*JitCasts*:*JitLayouts*:*JitRandom*:*MoreThanTwoToThe31*}

one() {
  local log=$logs/$tool-$1.txt
  GPUSHIM_TEST_SHARE=$(($1 * sample))/$((processes * sample)) timeout "${SECONDS_OF_RUN:-3600}" \
    compute-sanitizer --tool "$tool" --error-exitcode 1 --print-limit 5 "$tests" >"$log" 2>&1
  local status=$?
  echo "$tool share $1: exit $status, $(grep -c '  OK ' "$log") tests passed, $(grep 'SUMMARY' "$log" || tail -1 "$log")"
  return $status
}

pids=()
for ((share = 0; share < processes; ++share)); do
  one "$share" &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
exit $failed
