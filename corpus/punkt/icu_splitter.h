// Finds sentence boundaries by the rules of Unicode Standard Annex 29, as ICU has them. It serves where there is no
// model.
#ifndef CAIRN_CORPUS_PUNKT_ICU_SPLITTER_H_
#define CAIRN_CORPUS_PUNKT_ICU_SPLITTER_H_

#include <unicode/brkiter.h>

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/preprocess/sentence_splitter.h"

namespace cairn::corpus {

// Gives sentences without the blanks around them; none is empty.
class IcuSplitter final : public SentenceSplitter {
 public:
  // UNSUPPORTED: this ICU has no rules for sentences.
  static absl::StatusOr<std::unique_ptr<IcuSplitter>> Create();

  void Split(std::string_view text, std::vector<std::string_view>& sentences) override;

  // Returns "ICU 72.1" or the like. The output must say what cut the sentences.
  static std::string Version();

 private:
  explicit IcuSplitter(std::unique_ptr<icu::BreakIterator> iterator) : iterator_(std::move(iterator)) {}

  std::unique_ptr<icu::BreakIterator> iterator_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PUNKT_ICU_SPLITTER_H_
