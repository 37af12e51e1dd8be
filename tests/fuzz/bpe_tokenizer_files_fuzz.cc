// Tokenizer files are downloaded from anywhere, so no content may crash the loader, or the encoder that it made.
// The first byte chooses the kind of file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "corpus/bpe/build_tokenizer.h"
#include "corpus/bpe/tokenizer_files.h"

namespace {

using namespace cairn::corpus;  // NOLINT: the whole file is this target

void EncodeWith(absl::StatusOr<BpeTokenizer::Parts> parts) {
  if (!parts.ok()) return;
  const BpeTokenizer tokenizer(*std::move(parts));
  std::vector<uint32_t> ids;
  const std::string text = std::string("It's 2024:  a b\xFF\xC3\xA9\n\n<|endoftext|> ab") + std::string(100, 'a');
  (void)tokenizer.NewEncoder()->Encode(text, ids);
  for (const uint32_t id : ids) {
    if (id >= tokenizer.vocab_size()) __builtin_trap();
  }
  (void)tokenizer.IdOf(
      "\xC4\xA0"
      "a");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: {
      const auto file = ParseTokenizerJson(content, "fuzz");
      if (!file.ok()) break;
      EncodeWith(BuildTokenizer(*file, "fuzz"));
      (void)ToVocabulary(*file, "fuzz");
      break;
    }
    case 1:
      (void)ParseVocabJson(content, "fuzz");
      break;
    case 2:
      (void)ParseMergesTxt(content, "fuzz");
      break;
    case 3: {
      const auto ranks = ParseTiktoken(content, "fuzz");
      if (ranks.ok()) EncodeWith(BuildTiktoken(*ranks, {}, "gpt2", "fuzz"));
      break;
    }
  }
  return 0;
}
