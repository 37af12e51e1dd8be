// Finds the second names of tensors in a directory of safetensors files: a tensor that a model uses at two places is
// stored once.
#ifndef CAIRN_FOREIGN_READ_HUGGINGFACE_TIED_NAMES_H_
#define CAIRN_FOREIGN_READ_HUGGINGFACE_TIED_NAMES_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

// The sources that may say which tensors are tied. Everything in them is untrusted.
struct TieSources {
  // The names of all tensors that are stored.
  const std::set<std::string, std::less<>>& stored;
  // The metadata of the files' headers. safetensors' save_model puts (name that is not stored, stored name) there.
  const std::vector<std::pair<std::string, std::string>>& metadata;
  // The text of config.json, or nothing. If "tie_word_embeddings" is true in it, transformers ties the output layer to
  // the embeddings.
  std::string_view config;
};

// Returns the names that are not stored themselves, and the stored name that each stands for.
std::map<std::string, std::string> FindTiedNames(const TieSources& sources);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_HUGGINGFACE_TIED_NAMES_H_
