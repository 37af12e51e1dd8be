// The model "Unigram": it cuts a word into the tokens whose scores have the greatest sum (Kudo 2018).
#ifndef CAIRN_CORPUS_PIPELINE_UNIGRAM_H_
#define CAIRN_CORPUS_PIPELINE_UNIGRAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "corpus/pipeline/word_model.h"

namespace cairn::corpus {

struct UnigramRules {
  std::vector<std::pair<std::string, double>> vocab;  // token, score; a token's place is its id
  std::optional<uint32_t> unknown;                    // below vocab.size()
  bool byte_fallback = false;  // unknown text becomes the tokens <0x00> .. <0xFF> of its bytes if they are all there
};

// Of equal tokens the last one counts, as in Hugging Face tokenizers; a run of unknown characters becomes one id.
std::unique_ptr<WordModel> UnigramModel(const UnigramRules& rules);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_UNIGRAM_H_
