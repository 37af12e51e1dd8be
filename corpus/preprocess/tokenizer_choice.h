// Makes a tokenizer, and what it puts around texts, from Megatron-LM's --tokenizer-type and the files beside it.
#ifndef CAIRN_CORPUS_PREPROCESS_TOKENIZER_CHOICE_H_
#define CAIRN_CORPUS_PREPROCESS_TOKENIZER_CHOICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "corpus/preprocess/document_encoder.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

struct TokenizerChoice {
  std::string type;             // BertWordPieceCase, BertWordPieceLowerCase, GPT2BPETokenizer, HuggingFaceTokenizer
  std::string vocab_file;       // vocab.txt or vocab.json
  std::string merge_file;       // merges.txt
  std::string tokenizer_model;  // HuggingFaceTokenizer: a directory or a tokenizer.json
  bool include_special_tokens = true;  // [CLS] .. [SEP] around every sentence, say
  bool append_eod = false;
  bool legacy_wordpiece = false;  // the original BERT's rules, as Megatron-LM before 2026
};

struct ChosenTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  Framing framing;
};

// BAD_REQUEST: an unknown type, or a file that the type needs is not given. BAD_TOKENIZER: damaged, or --append-eod and
// no such token. Those of the loaders.
absl::StatusOr<ChosenTokenizer> LoadChosenTokenizer(const TokenizerChoice& choice);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_TOKENIZER_CHOICE_H_
