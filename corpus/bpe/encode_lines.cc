#include "corpus/bpe/encode_lines.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/text_blocks.h"
#include "corpus/io/ordered_work.h"

namespace cairn::corpus {
namespace {

// Holds ids as text, each with a blank behind it, ready to be copied.
class Digits {
 public:
  explicit Digits(uint32_t ids) : cells_(std::min(ids, kMost)) {
    for (uint32_t id = 0; id < cells_.size(); ++id) {
      char* const end = std::to_chars(cells_[id].text, cells_[id].text + 7, id).ptr;
      *end = ' ';
      cells_[id].length = static_cast<uint8_t>(end - cells_[id].text + 1);
    }
  }

  // Appends the line of these ids to `out`, which grows.
  void AppendLine(const std::vector<uint32_t>& ids, std::string& out) const {
    const size_t size = out.size();
    out.resize(size + ids.size() * 11 + 8);
    char* p = out.data() + size;
    for (const uint32_t id : ids) {
      if (id < cells_.size()) {
        std::memcpy(p, cells_[id].text, 8);
        p += cells_[id].length;
      } else {
        p = std::to_chars(p, p + 10, id).ptr;
        *p++ = ' ';
      }
    }
    if (!ids.empty()) --p;
    *p++ = '\n';
    out.resize(static_cast<size_t>(p - out.data()));
  }

 private:
  static constexpr uint32_t kMost = 1'000'000;  // ids of seven digits or more do not fit a cell

  struct Cell {
    char text[8] = {};
    uint8_t length = 0;
  };
  std::vector<Cell> cells_;
};

struct EncodedLines {
  std::string text;
  EncodeLinesSummary counts;
};

absl::Status TooLong(const EncodeLinesOptions& options, uint64_t line) {
  return MakeError(Reason::kMemoryLimit,
                   absl::StrCat(options.input, ": line ", line, " is longer than ",
                                FormatSize(static_cast<int64_t>(options.max_line))),
                   {{"file", options.input},
                    {"line", absl::StrCat(line)},
                    {"next", "Cut the line into several, or raise --max-line."}});
}

// Encodes each line of a block.
absl::StatusOr<EncodedLines> EncodeBlock(const TextBlock& block, const EncodeLinesOptions& options,
                                         const Digits& digits, Encoder& encoder, std::vector<uint32_t>& ids) {
  const std::string_view text = block.bytes;
  EncodedLines result;
  for (size_t from = 0; from < text.size();) {
    const size_t newline = std::min(text.find('\n', from), text.size());
    if (newline - from > options.max_line) return TooLong(options, block.first_line + result.counts.lines);
    ids.clear();
    CAIRN_RETURN_IF_ERROR(encoder.Encode(text.substr(from, newline - from), ids));
    digits.AppendLine(ids, result.text);
    ++result.counts.lines;
    result.counts.tokens += ids.size();
    result.counts.bytes += newline - from;
    from = newline + 1;
  }
  return result;
}

}  // namespace

absl::StatusOr<EncodeLinesSummary> EncodeLines(const Tokenizer& tokenizer, const EncodeLinesOptions& options) {
  const Digits digits(tokenizer.vocab_size());
  const Pretokenizer pretokenizer =
      *Pretokenizer::Named("gpt2");  // never asked, because lines are cut only at newlines
  const SpecialMatcher no_specials;
  BlockReader::Options reading = {.inputs = {options.input}, .unit = TextUnit::kLine, .stop = options.stop};
  // A block of a usual size is checked line by line, with the newline behind the last.
  reading.most_bytes = std::max(reading.block_bytes, options.max_line + 1);
  BlockReader reader(std::move(reading), pretokenizer, no_specials);
  struct Worker {
    std::unique_ptr<Encoder> encoder;
    std::vector<uint32_t> ids;
  };
  std::vector<Worker> workers(static_cast<size_t>(options.threads));
  EncodeLinesSummary summary;
  OrderedSteps<TextBlock, EncodedLines> steps;
  steps.next = [&](TextBlock& block) -> absl::StatusOr<bool> {
    absl::StatusOr<TextBlock> next = reader.Next(std::move(block));
    if (MetadataOf(next.status()).contains("line")) return TooLong(options, reader.Tell().line);
    CAIRN_ASSIGN_OR_RETURN(block, std::move(next));
    if (options.progress && !options.progress(reader.file_bytes_read())) {
      return MakeError(Reason::kInterrupted, "interrupted while text was encoded");
    }
    return !block.bytes.empty();
  };
  steps.work = [&](int thread, TextBlock& block) {
    Worker& worker = workers[static_cast<size_t>(thread)];
    if (worker.encoder == nullptr) worker.encoder = tokenizer.NewEncoder();
    return EncodeBlock(block, options, digits, *worker.encoder, worker.ids);
  };
  steps.deliver = [&](EncodedLines part) {
    summary.lines += part.counts.lines;
    summary.tokens += part.counts.tokens;
    summary.bytes += part.counts.bytes;
    return options.write(part.text);
  };
  // Each thread has a block in work, and one more may wait for a slow writer.
  const auto window = static_cast<uint64_t>(2 * options.threads);
  CAIRN_RETURN_IF_ERROR((OrderedWork<TextBlock, EncodedLines>(options.threads, window, std::move(steps)).Run()));
  return summary;
}

}  // namespace cairn::corpus
