#include "corpus/io/bad_lines.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace cairn::corpus {

void BadLines::Add(uint64_t line, const absl::Status& status) {
  const auto [cause, is_new] =
      numbers_.try_emplace(std::string(status.message()), static_cast<uint32_t>(numbers_.size()));
  lines_.push_back({line, cause->second});
}

absl::Status BadLines::Write(const std::string& file, OutputFile& output) const {
  // A name that is no UTF-8 gets U+FFFD.
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::vector<std::string> causes(numbers_.size());
  for (const auto& [cause, number] : numbers_) causes[number] = quoted(cause);
  const std::string name = quoted(file);
  for (const Entry& entry : lines_) {
    CAIRN_RETURN_IF_ERROR(output.Append(
        absl::StrCat("{\"file\": ", name, ", \"line\": ", entry.line, ", \"cause\": ", causes[entry.cause], "}\n")));
  }
  return absl::OkStatus();
}

}  // namespace cairn::corpus
