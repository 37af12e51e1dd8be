// Merges the symbols of short words.
#ifndef CAIRN_CORPUS_BPE_MERGE_WORDS_H_
#define CAIRN_CORPUS_BPE_MERGE_WORDS_H_

#include <span>

#include "corpus/bpe/merge_table.h"
#include "corpus/bpe/short_word.h"

namespace cairn::corpus {

// Merges in each word the pair of the lowest rank, the leftmost of equal ones, until no pair is left. Takes the words
// by turns, so that while one waits for a line of the table, others go on. Changes the order of `words`. All give the
// same.
using MergeWords = void (*)(const MergeTable& table, std::span<ShortWord*> words);

// Returns those that this processor has, the fastest last.
std::span<const MergeWords> MergeWordsHere();

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_WORDS_H_
