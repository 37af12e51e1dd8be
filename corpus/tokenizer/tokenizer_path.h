// Tells names on the Hugging Face hub, which people give as a tokenizer, from paths.
#ifndef CAIRN_CORPUS_TOKENIZER_TOKENIZER_PATH_H_
#define CAIRN_CORPUS_TOKENIZER_TOKENIZER_PATH_H_

#include <string>

#include "absl/status/status.h"

namespace cairn::corpus {

// INPUT_UNREADABLE: nothing stands at `path`, and it could be a name on the hub ("Qwen/Qwen2.5-7B", "gpt2"). The advice
// says how to get the files. A path that is missing and cannot be such a name is OK: whoever opens it tells.
absl::Status CheckIsNoHubName(const std::string& path);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_TOKENIZER_TOKENIZER_PATH_H_
