#include "corpus/bpe/encode_lines.h"

#include <charconv>
#include <cstring>
#include <vector>

#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/text_blocks.h"

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

class LineEncoder {
 public:
  LineEncoder(const Tokenizer& tokenizer, const EncodeLinesOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        digits_(tokenizer.vocab_size()),
        pretokenizer_(*Pretokenizer::Named("gpt2")),
        reader_({.inputs = {options.input}, .unit = TextUnit::kLine, .stop = options.stop}, pretokenizer_,
                no_specials_) {}

  absl::StatusOr<EncodeLinesSummary> Run() {
    RunOnThreads(options_.threads, [this] {
      const absl::Status status = WithMemory("to encode lines", [this] {
        Work();
        return absl::OkStatus();
      });
      if (status.ok()) return;
      MutexLock lock(mutex_);
      Fail(status);
    });
    MutexLock lock(mutex_);
    if (!error_.ok()) return error_;
    return summary_;
  }

 private:
  void Work() {
    const std::unique_ptr<Encoder> encoder = tokenizer_.NewEncoder();
    std::vector<uint32_t> ids;
    std::string out;
    TextBlock block;
    while (true) {
      uint64_t turn;
      {
        MutexLock lock(mutex_);
        if (!error_.ok() || finished_) return;
        auto next = reader_.Next(std::move(block));
        if (!next.ok()) return Fail(next.status());
        block = *std::move(next);
        if (options_.progress && !options_.progress(reader_.file_bytes_read())) {
          return Fail(MakeError(Reason::kInterrupted, "interrupted while text was encoded"));
        }
        if (block.bytes.empty()) {
          finished_ = true;
          return;
        }
        turn = next_turn_++;
      }
      EncodeLinesSummary part;
      out.clear();
      const absl::Status status = EncodeBlock(*encoder, block.bytes, ids, out, part);
      MutexLock lock(mutex_);
      while (error_.ok() && turn != turn_) turns_.Wait(mutex_);
      if (!error_.ok()) return;
      if (!status.ok()) return Fail(status);
      if (const absl::Status written = options_.write(out); !written.ok()) return Fail(written);
      summary_.lines += part.lines;
      summary_.tokens += part.tokens;
      summary_.bytes += part.bytes;
      ++turn_;
      turns_.NotifyAll();
    }
  }

  absl::Status EncodeBlock(Encoder& encoder, std::string_view text, std::vector<uint32_t>& ids, std::string& out,
                           EncodeLinesSummary& part) const {
    for (size_t from = 0; from < text.size();) {
      const size_t newline = std::min(text.find('\n', from), text.size());
      ids.clear();
      CAIRN_RETURN_IF_ERROR(encoder.Encode(text.substr(from, newline - from), ids));
      digits_.AppendLine(ids, out);
      ++part.lines;
      part.tokens += ids.size();
      part.bytes += newline - from;
      from = newline + 1;
    }
    return absl::OkStatus();
  }

  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (error_.ok()) error_ = status;
    turns_.NotifyAll();
  }

  const Tokenizer& tokenizer_;
  const EncodeLinesOptions& options_;
  const Digits digits_;
  const Pretokenizer pretokenizer_;  // never asked, because lines are cut only at newlines
  const SpecialMatcher no_specials_;

  Mutex mutex_;
  CondVar turns_;
  BlockReader reader_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t turn_ ABSL_GUARDED_BY(mutex_) = 0;  // the thread whose output comes next
  EncodeLinesSummary summary_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<EncodeLinesSummary> EncodeLines(const Tokenizer& tokenizer, const EncodeLinesOptions& options) {
  return LineEncoder(tokenizer, options).Run();
}

}  // namespace cairn::corpus
