#include "corpus/tokenizer/null_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

class NullEncoder final : public Encoder {
 public:
  explicit NullEncoder(uint32_t ids) : ids_(ids) {}

  absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids) override {
    const size_t before = ids.size();
    for (size_t from = 0; from <= text.size();) {
      const size_t blank = std::min(text.find(' ', from), text.size());
      const std::string_view word = text.substr(from, blank - from);
      uint32_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (word.empty() || error != std::errc() || end != word.data() + word.size() || id >= ids_) {
        ids.resize(before);
        return MakeError(Reason::kBadRequest,
                         absl::StrCat("'", std::string(word.substr(0, 100)), "' is no number below ", ids_,
                                      ", the size of the vocabulary"));
      }
      ids.push_back(id);
      from = blank + 1;
    }
    return absl::OkStatus();
  }

 private:
  const uint32_t ids_;
};

class Null final : public Tokenizer {
 public:
  explicit Null(uint32_t ids) : ids_(ids) {}

  std::unique_ptr<Encoder> NewEncoder() const override { return std::make_unique<NullEncoder>(ids_); }
  uint32_t vocab_size() const override { return ids_ + 1; }
  std::optional<uint32_t> IdOf(std::string_view) const override { return std::nullopt; }

 private:
  const uint32_t ids_;
};

}  // namespace

std::unique_ptr<Tokenizer> NullTokenizer(uint32_t vocab_size) { return std::make_unique<Null>(vocab_size); }

}  // namespace cairn::corpus
