// Lists what the tokens of a vocabulary stand for.
#ifndef CAIRN_CORPUS_PIPELINE_TOKEN_TEXTS_H_
#define CAIRN_CORPUS_PIPELINE_TOKEN_TEXTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// Returns the id and the text of each token of the tokenizer that LoadTokenizer reads from `path`. If all texts are in
// the byte-level alphabet, their bytes are returned, which need not be UTF-8; else they are as in the file ("##ing",
// "\u2581the"). Added tokens, such as special ones, are left out. Fails as LoadTokenizer. UNIMPLEMENTED (UNSUPPORTED):
// it is a SentencePiece model.
absl::StatusOr<std::vector<std::pair<uint32_t, std::string>>> ReadTokenTexts(const std::string& path);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_TOKEN_TEXTS_H_
