// Takes the texts out of blocks of lines: a line is a text, or a JSON object that holds one.
#ifndef CAIRN_CORPUS_BPE_LINE_TEXTS_H_
#define CAIRN_CORPUS_BPE_LINE_TEXTS_H_

#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/text_blocks.h"
#include "corpus/io/bad_lines.h"
#include "corpus/io/input_part.h"

namespace cairn::corpus {

struct LineTextOptions {
  TextUnit unit = TextUnit::kLine;  // or kJson
  std::string json_key = "text";
  size_t max_line = size_t{32} << 20;  // bytes, without the newline
};

// Returns the options of a reader that gives LineTexts its blocks.
BlockReader::Options BlocksOfLines(const LineTextOptions& options, std::vector<InputPiece> inputs);

// One thread at a time may use it.
class LineTexts {
 public:
  explicit LineTexts(LineTextOptions options) : options_(std::move(options)) {}

  // Calls visit(text) for each line of `block`, which is of `input`, in their order. The text of a plain line has its
  // newline; that of a blank line among JSON lines is empty. A text is valid until visit returns. Bad JSON lines are
  // added to `bad`, if that is not null. INVALID_ARGUMENT (BAD_JSON_LINE): a line is no JSON object with a text under
  // the key, or is too long; RESOURCE_EXHAUSTED (MEMORY_LIMIT): a plain line is too long. Both messages have file and
  // line. Else the errors of `visit`, which end it.
  template <typename Visit>
  absl::Status ForEach(TextBlock& block, const InputPiece& input, BadLines* bad, Visit&& visit) {
    block.bytes.reserve(block.bytes.size() + simdjson::SIMDJSON_PADDING);
    const std::string_view bytes = block.bytes;
    uint64_t number = block.first_line;
    for (size_t from = 0; from < bytes.size() || block.too_long; ++number) {
      const size_t until = block.too_long ? 0 : std::min(bytes.find('\n', from), bytes.size() - 1) + 1;
      const absl::StatusOr<std::string_view> text =
          block.too_long ? TooLong() : TextOf(bytes.substr(from, until - from));
      from = until;
      block.too_long = false;
      if (text.ok()) {
        CAIRN_RETURN_IF_ERROR(visit(*text));
      } else if (bad != nullptr && HasReason(text.status(), Reason::kBadJsonLine)) {
        bad->Add(number, text.status());
      } else {
        return AtLine(text.status(), input, number);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status TooLong() const;
  static absl::Status AtLine(const absl::Status& status, const InputPiece& input, uint64_t line);
  absl::StatusOr<std::string_view> TextOf(std::string_view line);

  const LineTextOptions options_;
  simdjson::dom::parser parser_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_LINE_TEXTS_H_
