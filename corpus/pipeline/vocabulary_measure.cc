#include "corpus/pipeline/vocabulary_measure.h"

#include <string_view>
#include <utility>

#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/special_matcher.h"
#include "corpus/bpe/text_blocks.h"
#include "corpus/io/input_part.h"
#include "corpus/io/open_source.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

uint64_t CountWords(std::string_view line) {
  const auto* p = reinterpret_cast<const uint8_t*>(line.data());
  const uint8_t* const end = p + line.size();
  uint64_t words = 0;
  bool inside = false;
  while (p < end) {
    const Character c = DecodeCharacter(p, end);
    const bool space = (c.char_class & kSpace) != 0;
    if (!space && !inside) ++words;
    inside = !space;
    p += c.length;
  }
  return words;
}

// Measures blocks of a text for one thread.
class Measurer {
 public:
  Measurer(const Tokenizer& tokenizer, const NamedText& text)
      : text_(text), encoder_(tokenizer.NewEncoder()), texts_(text.lines) {
    measure_.used.resize(tokenizer.vocab_size());
  }

  absl::Status Add(TextBlock& block) {
    return texts_.ForEach(block, text_.files[block.input], nullptr, [&](std::string_view text) {
      if (text_.lines.unit == TextUnit::kLine && text.ends_with('\n')) text.remove_suffix(1);
      if (text.empty()) return absl::OkStatus();
      ids_.clear();
      CAIRN_RETURN_IF_ERROR(encoder_->Encode(text, ids_));
      measure_.bytes += text.size();
      measure_.words += CountWords(text);
      measure_.tokens += ids_.size();
      for (const uint32_t id : ids_) measure_.used[id] = true;
      return absl::OkStatus();
    });
  }

  const TextMeasure& measure() const { return measure_; }

 private:
  const NamedText& text_;
  const std::unique_ptr<Encoder> encoder_;
  LineTexts texts_;
  std::vector<uint32_t> ids_;
  TextMeasure measure_;
};

}  // namespace

absl::StatusOr<TextMeasure> MeasureText(const Tokenizer& tokenizer, const NamedText& text,
                                        const MeasureOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const Pretokenizer any, Pretokenizer::Named("whitespace"));  // lines are cut without it
  const SpecialMatcher none(std::vector<std::string>{});
  BlockReader::Options reading = BlocksOfLines(text.lines, WholeInputs(text.files));
  reading.stop = options.stop;
  reading.table_readers = TableReadersFor(options.threads);
  BlockReader reader(std::move(reading), any, none);
  Mutex mutex;
  absl::Status error;
  TextMeasure sum;
  sum.used.resize(tokenizer.vocab_size());
  const auto work = [&]() -> absl::Status {
    Measurer measurer(tokenizer, text);
    TextBlock block;
    while (true) {
      {
        MutexLock lock(mutex);
        if (!error.ok()) return absl::OkStatus();
        CAIRN_ASSIGN_OR_RETURN(block, reader.Next(std::move(block)));
        if (options.progress && !options.progress(reader.file_bytes_read())) {
          return MakeError(Reason::kInterrupted, "interrupted while texts were encoded");
        }
      }
      if (block.at_end()) break;
      CAIRN_RETURN_IF_ERROR(measurer.Add(block));
    }
    MutexLock lock(mutex);
    sum.bytes += measurer.measure().bytes;
    sum.words += measurer.measure().words;
    sum.tokens += measurer.measure().tokens;
    for (size_t id = 0; id < sum.used.size(); ++id) sum.used[id] = sum.used[id] || measurer.measure().used[id];
    return absl::OkStatus();
  };
  RunOnThreads(options.threads, [&] {
    const absl::Status status = WithMemory("to encode texts; fewer threads need less", work);
    MutexLock lock(mutex);
    error.Update(status);
  });
  MutexLock lock(mutex);
  CAIRN_RETURN_IF_ERROR(error);
  return sum;
}

}  // namespace cairn::corpus
