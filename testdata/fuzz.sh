#!/bin/sh
# Runs every fuzz target of the module EXECUTIONS times, and ends one that takes
# longer than SECONDS_EACH: that is said, and is no failure.
set -u
failed=0
for pkg in $($GO list ./...); do
  dir=$($GO list -f '{{.Dir}}' "$pkg")
  for target in $(grep -ho '^func Fuzz[A-Za-z0-9]*' "$dir"/*_test.go 2>/dev/null | cut -d' ' -f2); do
    began=$(date +%s)
    timeout -k 10 "$SECONDS_EACH" $GO test -run '^$' -fuzz "^$target\$" -fuzztime "${EXECUTIONS}x" -fuzzminimizetime 100x "$pkg" >fuzz.log 2>&1
    code=$?
    seconds=$(($(date +%s) - began))
    executions=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' fuzz.log | tail -1)
    case $code in
      0) echo "$target: $executions executions in $seconds s" ;;
      124 | 137) echo "$target: ended after $seconds s and $executions executions" ;;
      *) echo "$target: FAILED"; cat fuzz.log; failed=1 ;;
    esac
  done
done
rm -f fuzz.log
exit $failed
