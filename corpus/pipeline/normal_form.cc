#include "corpus/pipeline/normal_form.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace cairn::corpus {
namespace {

const icu::Normalizer2& Plain(NormalForm form, UErrorCode& error) {
  switch (form) {
    case NormalForm::kNfc:
      return *icu::Normalizer2::getNFCInstance(error);
    case NormalForm::kNfd:
      return *icu::Normalizer2::getNFDInstance(error);
    case NormalForm::kNfkc:
      return *icu::Normalizer2::getNFKCInstance(error);
    case NormalForm::kNfkd:
      return *icu::Normalizer2::getNFKDInstance(error);
  }
  return *icu::Normalizer2::getNFCInstance(error);
}

// The normal forms in tokenizers are those of Unicode 9.0: a later mark does not change its place among others, and is
// not passed over when characters compose. A normal form never changes for a character that Unicode has, so the filter
// gives the forms of the older version whatever ICU's is.
const icu::Normalizer2& Filtered(NormalForm form) {
  static const auto* const forms = [] {
    UErrorCode error = U_ZERO_ERROR;
    auto& known = *new icu::UnicodeSet(u"[:age=9.0:]", error);
    known.freeze();
    auto* all = new std::vector<icu::FilteredNormalizer2>();
    for (const NormalForm each : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
      all->emplace_back(Plain(each, error), known);
    }
    return all;
  }();
  return (*forms)[static_cast<size_t>(form)];
}

}  // namespace

void Normalize(NormalForm form, std::string& text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return;
  const icu::Normalizer2& normalizer = Filtered(form);
  UErrorCode error = U_ZERO_ERROR;
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  if (normalizer.isNormalizedUTF8(piece, error)) return;
  std::string result;
  icu::StringByteSink<std::string> sink(&result, static_cast<int32_t>(text.size()));
  normalizer.normalizeUTF8(0, piece, sink, nullptr, error);
  text = std::move(result);
}

}  // namespace cairn::corpus
