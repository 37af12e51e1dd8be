#include "foreign/write/model_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr const char* kConfig = "config.json";
// transformers' save_pretrained writes these beside the weights, for models, tokenizers and processors.
constexpr const char* kPatterns[] = {kConfig,
                                     "generation_config.json",
                                     "tokenizer*",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "vocab*",
                                     "merges.txt",
                                     "*.model",
                                     "*.tiktoken",
                                     "chat_template*",
                                     "preprocessor_config.json",
                                     "processor_config.json",
                                     "video_preprocessor_config.json",
                                     "*.py"};

}  // namespace

absl::StatusOr<std::vector<ModelFile>> FindModelFiles(const std::string& directory) {
  namespace fs = std::filesystem;
  std::vector<ModelFile> files;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool wanted = std::any_of(std::begin(kPatterns), std::end(kPatterns), [&](const char* pattern) {
      return fnmatch(pattern, name.c_str(), FNM_PERIOD) == 0;
    });
    std::error_code unreadable;
    if (wanted && entry->is_regular_file(unreadable)) files.push_back({name, entry->path().string()});
  }
  if (error) {
    return MakeError(Reason::kFileMissing, absl::StrCat("cannot list ", directory, ": ", error.message()),
                     {{"file", directory}, {"next", "Correct --like."}});
  }
  std::sort(files.begin(), files.end(), [](const ModelFile& a, const ModelFile& b) { return a.name < b.name; });
  if (std::none_of(files.begin(), files.end(), [](const ModelFile& file) { return file.name == kConfig; })) {
    return MakeError(Reason::kFileMissing, absl::StrCat(directory, " has no ", kConfig, ", so it is no model"),
                     {{"file", directory}, {"next", "Correct --like."}});
  }
  return files;
}

}  // namespace cairn
