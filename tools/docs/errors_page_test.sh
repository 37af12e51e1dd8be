#!/usr/bin/env bash
# Fails if docs/errors.md is not what write_errors_page prints, and says what differs on one screen.
set -euo pipefail

if difference=$(diff -u docs/errors.md <(tools/docs/write_errors_page)); then
  exit 0
fi
head -n 40 <<<"$difference"
echo "docs/errors.md is not what the table of reasons says: - is the page, + the table. To mend it:"
echo "  bazel run //tools/docs:write_errors_page > docs/errors.md"
exit 1
