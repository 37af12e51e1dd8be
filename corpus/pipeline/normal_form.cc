#include "corpus/pipeline/normal_form.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

const icu::Normalizer2& Newest(NormalForm form, UErrorCode& error) {
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
      all->emplace_back(Newest(each, error), known);
    }
    return all;
  }();
  return (*forms)[static_cast<size_t>(form)];
}

// One bit for each code point: text of such characters alone has the form. They are those that the form keeps, that
// no mark moves past, and that join with nothing before them; and those that Unicode 9.0 does not have.
class PlainCharacters {
 public:
  explicit PlainCharacters(const char* property) : bits_((kCodePoints + 63) / 64) {
    UErrorCode error = U_ZERO_ERROR;
    const std::string pattern = std::string("[[:^age=9.0:][[:") + property + "=Yes:]&[:ccc=0:]]]";
    const icu::UnicodeSet set(icu::UnicodeString::fromUTF8(pattern), error);
    for (int32_t i = 0; U_SUCCESS(error) && i < set.getRangeCount(); ++i) {
      for (UChar32 c = set.getRangeStart(i); c <= set.getRangeEnd(i); ++c) {
        bits_[static_cast<size_t>(c) / 64] |= uint64_t{1} << c % 64;
      }
    }
  }
  bool Contains(char32_t c) const { return bits_[c / 64] >> c % 64 & 1; }

 private:
  static constexpr size_t kCodePoints = 0x110000;
  std::vector<uint64_t> bits_;
};

const PlainCharacters& Plain(NormalForm form) {
  static const auto* const all = new std::vector<PlainCharacters>{
      PlainCharacters("NFC_QC"), PlainCharacters("NFD_QC"), PlainCharacters("NFKC_QC"), PlainCharacters("NFKD_QC")};
  return (*all)[static_cast<size_t>(form)];
}

// Returns the end of the ASCII characters that `text` begins with from `at` on, or a place before it.
size_t SkipAscii(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  for (uint64_t word; at + sizeof(word) <= text.size(); at += sizeof(word)) {
    std::memcpy(&word, text.data() + at, sizeof(word));
    if ((word & kHighBits) != 0) break;
  }
  return at;
}

}  // namespace

bool IsSurelyNormal(NormalForm form, std::string_view text) {
  size_t at = SkipAscii(text, 0);
  if (at == text.size()) return true;
  for (const PlainCharacters& plain = Plain(form); at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      const size_t behind = SkipAscii(text, at);
      at = behind == at ? at + 1 : behind;
    } else if (!plain.Contains(NextScalar(text, at))) {
      return false;
    }
  }
  return true;
}

void Normalize(NormalForm form, std::string& text) {
  if (IsSurelyNormal(form, text)) return;
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
