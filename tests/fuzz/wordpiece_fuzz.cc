#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "corpus/wordpiece/word_splitter.h"
#include "corpus/wordpiece/wordpiece.h"

// The input is a vocabulary and, behind it, the text to encode with it. The scan and the cache must give what the
// complete path gives for the whole text. The dialect is legacy, so that no special token cuts the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn::corpus;  // NOLINT: the whole file is this target
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  (void)WordPieceTokenizer::FromVocabText(input, "fuzz", {.extra_ids = 2});
  const auto tokenizer =
      WordPieceTokenizer::FromVocabText(input, "fuzz", {.dialect = BertDialect::kLegacy, .lower_case = true});
  if (!tokenizer.ok()) return 0;
  std::vector<uint32_t> ids, expected;
  if (!(*tokenizer)->NewEncoder()->Encode(input, ids).ok()) return 0;
  WordSplitter splitter(BertDialect::kLegacy, true);
  for (const WordSplitter::Word& word : splitter.Split(input)) {
    (*tokenizer)->CutWord(splitter.TextOf(word), word.scalars, expected);
  }
  if (ids != expected) std::abort();
  return 0;
}
