// Holds the ids of some words, one after the other.
#ifndef CAIRN_CORPUS_BPE_ENCODED_WORDS_H_
#define CAIRN_CORPUS_BPE_ENCODED_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn::corpus {

struct EncodedWords {
  std::vector<uint32_t> ids;
  std::vector<size_t> ends;  // of each word's ids

  void clear() {
    ids.clear();
    ends.clear();
  }
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ENCODED_WORDS_H_
