// Prints docs/errors.md, made from the table of reasons.
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr char kIntroduction[] = R"(# Errors

Every refusal of Cairn is a `google.rpc.Status` with exactly one `google.rpc.ErrorInfo`: a `reason` of the table below, the
domain `cairn.v1`, and metadata that repeats what the message says in names and numbers (`job`, `step`, `attempt`, `rank`,
`ranks`, `phase`, `file`, `tensor`, `errno`, ...). Switch on the reason, never on the text. `ranks` are those that
the error is about: the one that does not answer, not the one that says so. Lists of ranks are cut at eight, with a count
of the rest; several faults of one input are reported together, with their number as `faults`.

* `cairn` prints `error: REASON: text` and the next action on standard error; with `--format=json` the object
  `{"code", "reason", "message", "metadata"}`. Exit status: 0 done, 1 the operation failed, 2 usage, 3 the answer is
  unknown (`COORDINATOR_UNREACHABLE`, `AGENT_UNREACHABLE`, `TIMED_OUT`, `STORAGE_STALLED`, and every error whose metadata has
  `outcome` = `unknown`), 130 interrupted.
* Where the next action is a command, `cairn` prints it with the job, step and root of the error in place of `JOB`, `STEP`
  and `ROOT`. An error that knows a better next action than this table's carries it as `next` in its metadata.
* Python raises `cairn.Error` with `reason`, `message`, `metadata`; its text is `REASON: message` and, on a line of its own,
  `next: ` and the next action, filled in as by `cairn`.
* A checkpoint that was aborted keeps its error in its abort_record.

| reason | code | when | next |
|---|---|---|---|
)";

std::string RenderErrorsPage() {
  std::string page = kIntroduction;
  for (const ReasonInfo& info : ReasonTable()) {
    absl::StrAppend(&page, "| `", std::string(info.name), "` | ", absl::StatusCodeToString(info.code), " | ",
                    std::string(info.meaning), " | ", std::string(info.next_action), " |\n");
  }
  return page;
}

}  // namespace
}  // namespace cairn

int main() { std::cout << cairn::RenderErrorsPage(); }
