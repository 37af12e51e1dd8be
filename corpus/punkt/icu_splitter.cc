#include "corpus/punkt/icu_splitter.h"

#include <unicode/uversion.h>

#include <string>
#include <utility>

#include "common/status/reason.h"
#include "corpus/punkt/punkt_chars.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {

absl::StatusOr<std::unique_ptr<IcuSplitter>> IcuSplitter::Create() {
  UErrorCode error = U_ZERO_ERROR;
  std::unique_ptr<icu::BreakIterator> iterator(
      icu::BreakIterator::createSentenceInstance(icu::Locale::getRoot(), error));
  if (U_FAILURE(error) || iterator == nullptr) {
    return MakeError(Reason::kUnsupported, std::string("ICU has no rules for sentences: ") + u_errorName(error));
  }
  return std::unique_ptr<IcuSplitter>(new IcuSplitter(std::move(iterator)));
}

std::string IcuSplitter::Version() { return std::string("ICU ") + U_ICU_VERSION; }

void IcuSplitter::Split(std::string_view text, std::vector<std::string_view>& sentences) {
  UErrorCode error = U_ZERO_ERROR;
  UText* utext = utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &error);
  iterator_->setText(utext, error);
  int32_t begin = iterator_->first();
  for (int32_t end = iterator_->next(); end != icu::BreakIterator::DONE; begin = end, end = iterator_->next()) {
    std::string_view sentence = PythonRstrip(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    while (!sentence.empty()) {
      size_t next = 0;
      if (!IsPythonSpace(NextScalar(sentence, next))) break;
      sentence.remove_prefix(next);
    }
    if (!sentence.empty()) sentences.push_back(sentence);
  }
  utext_close(utext);
}

}  // namespace cairn::corpus
