#include "corpus/tokenizer/null_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

constexpr size_t kShownBytes = 100;  // of a word that is refused

class NullEncoder final : public Encoder {
 public:
  explicit NullEncoder(uint32_t numbers) : numbers_(numbers) {}

  absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids) override {
    const size_t before = ids.size();
    for (size_t from = 0; from <= text.size();) {
      const size_t blank = std::min(text.find(' ', from), text.size());
      const std::string_view word = text.substr(from, blank - from);
      uint32_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (word.empty() || error != std::errc() || end != word.data() + word.size() || id >= numbers_) {
        ids.resize(before);
        return MakeError(Reason::kBadRequest,
                         absl::StrCat("'", Printable(CutText(word, kShownBytes)), "' is no number below ", numbers_,
                                      ", the size of the vocabulary"));
      }
      ids.push_back(id);
      from = blank + 1;
    }
    return absl::OkStatus();
  }

 private:
  const uint32_t numbers_;
};

}  // namespace

std::unique_ptr<Encoder> NullTokenizer::NewEncoder() const { return std::make_unique<NullEncoder>(numbers_); }

}  // namespace cairn::corpus
