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
  struct Token {
    std::string text;
    double score = 0;
    bool matched = true;  // stands for its text; others have ids, but no text leads to them
  };
  std::vector<Token> vocab;         // by id
  std::optional<uint32_t> unknown;  // below vocab.size()
  // Unknown text becomes the tokens <0x00> .. <0xFF> of its bytes if they are all there.
  bool byte_fallback = false;
  // Scores are added in single precision, as SentencePiece does, and not as Hugging Face tokenizers does.
  bool sentencepiece = false;
};

// If two tokens are equal, the last one counts. A run of unknown characters becomes one id.
std::unique_ptr<WordModel> UnigramModel(const UnigramRules& rules);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_UNIGRAM_H_
