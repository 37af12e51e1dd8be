#include "mapping/diagnostics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::aoa {
namespace {

// The advice for memory limits of a mapping, which are not those of the machine.
constexpr std::string_view kNextOfMemoryLimit =
    "Write the mapping with fewer operations on one tensor; no option and no memory raises this limit.";

}  // namespace

void Diagnostics::Add(Reason reason, LineId line, Stage stage, std::string message) {
  ++total_;
  if (has_room()) found_.push_back({reason, line, stage, std::move(message)});
}

std::vector<MappingError> Diagnostics::Render(const Program& program, bool with_chains) const {
  std::vector<MappingError> errors;
  errors.reserve(found_.size());
  for (const Found& found : found_) {
    MappingError& error = errors.emplace_back();
    error.reason = found.reason;
    error.message = found.message;
    if (found.line == kNoLine) continue;
    error.statement = std::string(program.UserText(found.line));
    if (!with_chains) continue;
    const auto step = [&](Stage stage, LineId line) {
      std::string text(NameOf(stage));
      text += ": ";
      if (program.line(line).count == 0) {
        text += program.UserText(line);
      } else {
        program.AppendText(line, text);
      }
      error.chain.push_back(std::move(text));
    };
    for (LineId line = found.line; program.line(line).parent != kNoLine; line = program.line(line).parent) {
      step(program.line(line).made_by, line);
    }
    std::reverse(error.chain.begin(), error.chain.end());
    step(found.stage, found.line);
  }
  return errors;
}

absl::Status ToStatus(const std::vector<MappingError>& errors, size_t total) {
  const MappingError& first = errors.front();
  std::string message = first.message;
  if (first.statement.has_value()) absl::StrAppend(&message, " (statement: ", *first.statement, ")");
  if (total > 1) absl::StrAppend(&message, "; and ", total - 1, " more");
  ErrorMetadata metadata = {{"faults", absl::StrCat(total)}};
  if (first.reason == Reason::kMemoryLimit) metadata.emplace_back("next", std::string(kNextOfMemoryLimit));
  if (first.statement.has_value()) metadata.emplace_back("statement", *first.statement);
  return MakeError(first.reason, message, metadata);
}

}  // namespace cairn::aoa
