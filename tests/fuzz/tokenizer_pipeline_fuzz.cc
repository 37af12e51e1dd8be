// Tokenizers are downloaded from anywhere, so no content may crash the loader, or the encoder that it made. The first
// byte chooses the kind of file.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "corpus/pipeline/load_tokenizer.h"
#include "corpus/pipeline/sentencepiece.h"

namespace {

using namespace cairn::corpus;  // NOLINT: the whole file is this target

void EncodeWith(const absl::StatusOr<std::unique_ptr<Tokenizer>>& tokenizer) {
  if (!tokenizer.ok()) return;
  std::vector<uint32_t> ids;
  const std::string text = std::string(" It's 2024:  a b\xFF\xC3\xA9\t\xE2\x96\x81<s> ab\xE4\xB8\xAD\xF0\x9F\x98") +
                           std::string(100, 'a') + "\xC2\xBD";
  (void)(*tokenizer)->NewEncoder()->Encode(text, ids);
  for (const uint32_t id : ids) {
    if (id >= (*tokenizer)->vocab_size()) __builtin_trap();
  }
  (void)(*tokenizer)->IdOf("</s>");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  EncodeWith(data[0] % 2 == 0 ? ParsePipeline(content, "fuzz") : ParseSentencePiece(content, "fuzz"));
  return 0;
}
