#include "mapping/diagnostics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::aoa {
namespace {

// The advice for memory limits of a mapping, which are not those of the machine.
constexpr std::string_view kNextOfMemoryLimit =
    "Write the mapping with fewer operations on one tensor; no option and no memory raises this limit.";

// A status crosses the wire as UTF-8. A text that is not UTF-8 (JSON cannot bring one, but a program can) gets its
// bytes beyond ASCII replaced.
std::string Utf8(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t size = byte < 0x80                   ? 1
                        : byte >= 0xc2 && byte < 0xe0 ? 2
                        : byte >= 0xe0 && byte < 0xf0 ? 3
                        : byte >= 0xf0 && byte < 0xf5 ? 4
                                                      : 0;
    const auto second = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0;
    bool valid = size > 0 && at + size <= text.size();
    for (size_t i = 1; valid && i < size; ++i) valid = (static_cast<unsigned char>(text[at + i]) & 0xc0) == 0x80;
    // These bytes would be overlong forms, surrogates, or characters beyond U+10FFFF.
    valid = valid && !(byte == 0xe0 && second < 0xa0) && !(byte == 0xed && second > 0x9f) &&
            !(byte == 0xf0 && second < 0x90) && !(byte == 0xf4 && second > 0x8f);
    if (!valid) text[at] = '?';
    at += valid ? size : 1;
  }
  return text;
}

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
  if (first.statement.has_value()) metadata.emplace_back("statement", Utf8(*first.statement));
  return MakeError(first.reason, Utf8(message), metadata);
}

}  // namespace cairn::aoa
