#include "corpus/bpe/encode_lines.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/text_blocks.h"
#include "corpus/io/open_source.h"
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

struct Worker {
  Worker(const Tokenizer& tokenizer, const LineTextOptions& lines) : encoder(tokenizer.NewEncoder()), texts(lines) {}

  const std::unique_ptr<Encoder> encoder;
  LineTexts texts;
  std::vector<uint32_t> ids;
};

// Encodes each line of a block.
absl::StatusOr<EncodedLines> EncodeBlock(TextBlock& block, const EncodeLinesOptions& options, const Digits& digits,
                                         Worker& worker) {
  EncodedLines result;
  const absl::Status status = worker.texts.ForEach(block, options.input, nullptr, [&](std::string_view text) {
    if (options.lines.unit == TextUnit::kLine && text.ends_with('\n')) text.remove_suffix(1);
    worker.ids.clear();
    CAIRN_RETURN_IF_ERROR(worker.encoder->Encode(text, worker.ids));
    digits.AppendLine(worker.ids, result.text);
    ++result.counts.lines;
    result.counts.tokens += worker.ids.size();
    result.counts.bytes += text.size();
    return absl::OkStatus();
  });
  CAIRN_RETURN_IF_ERROR(status);
  return result;
}

}  // namespace

absl::StatusOr<EncodeLinesSummary> EncodeLines(const Tokenizer& tokenizer, const EncodeLinesOptions& options) {
  const Digits digits(tokenizer.vocab_size());
  const Pretokenizer pretokenizer =
      *Pretokenizer::Named("gpt2");  // never asked, because lines are cut only at newlines
  const SpecialMatcher no_specials;
  BlockReader::Options reading = BlocksOfLines(options.lines, {options.input});
  reading.stop = options.stop;
  reading.table_readers = TableReadersFor(options.threads);
  BlockReader reader(std::move(reading), pretokenizer, no_specials);
  std::vector<std::unique_ptr<Worker>> workers(static_cast<size_t>(options.threads));
  EncodeLinesSummary summary;
  OrderedSteps<TextBlock, EncodedLines> steps;
  steps.next = [&](TextBlock& block) -> absl::StatusOr<bool> {
    CAIRN_ASSIGN_OR_RETURN(block, reader.Next(std::move(block)));
    if (options.progress && !options.progress(reader.file_bytes_read())) {
      return MakeError(Reason::kInterrupted, "interrupted while text was encoded");
    }
    return !block.at_end();
  };
  steps.work = [&](int thread, TextBlock& block) {
    std::unique_ptr<Worker>& worker = workers[static_cast<size_t>(thread)];
    if (worker == nullptr) worker = std::make_unique<Worker>(tokenizer, options.lines);
    return EncodeBlock(block, options, digits, *worker);
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
