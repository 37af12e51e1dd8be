#include "corpus/bpe/line_texts.h"

#include "absl/strings/str_cat.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {

BlockReader::Options BlocksOfLines(const LineTextOptions& options, std::vector<InputPiece> inputs) {
  BlockReader::Options blocks;
  blocks.inputs = std::move(inputs);
  blocks.unit = options.unit;
  if (options.unit == TextUnit::kJson) blocks.columns = {options.json_key};
  // LineTexts looks at each line of a block of a usual size, with the newline behind the last.
  blocks.most_bytes = std::max(blocks.block_bytes, options.max_line + 1);
  return blocks;
}

absl::Status LineTexts::TooLong() const {
  const bool json = options_.unit == TextUnit::kJson;
  return MakeError(
      json ? Reason::kBadJsonLine : Reason::kMemoryLimit,
      absl::StrCat("the line is longer than ", FormatSize(static_cast<int64_t>(options_.max_line))),
      {{"next", absl::StrCat("Cut the ", json ? "document into several lines" : "line", ", or raise --max-line.")}});
}

absl::Status LineTexts::AtLine(const absl::Status& status, const InputPiece& input, uint64_t line) {
  return Annotate(status, absl::StrCat(input.name(), ": line ", line),
                  {{"file", input.path}, {"line", absl::StrCat(line)}});
}

absl::StatusOr<std::string_view> LineTexts::TextOf(std::string_view line) {
  if (line.size() - (line.ends_with('\n') ? 1 : 0) > options_.max_line) return TooLong();
  if (options_.unit != TextUnit::kJson) return line;
  if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::string_view();
  const auto bad = [](const std::string& what) { return MakeError(Reason::kBadJsonLine, what); };
  if (line.starts_with("\xEF\xBB\xBF")) {
    return bad("the line begins with a byte order mark (U+FEFF), which JSON does not allow");
  }
  simdjson::dom::element document;
  if (const auto error = parser_.parse(line.data(), line.size(), false).get(document)) {
    return bad(absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }
  simdjson::dom::object object;
  if (document.get(object)) return bad("not a JSON object");
  simdjson::dom::element value;
  if (object.at_key(options_.json_key).get(value)) {
    return WithMetadata(bad(absl::StrCat("has no key '", options_.json_key, "'")),
                        {{"next", "Name the key that the lines have by --json-key, or correct the line."}});
  }
  std::string_view text;
  if (value.get(text)) return bad(absl::StrCat("the value of '", options_.json_key, "' is no string"));
  return text;
}

}  // namespace cairn::corpus
