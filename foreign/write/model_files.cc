#include "foreign/write/model_files.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/source/foreign_path.h"
#include "store/open/open_storage.h"
#include "store/open/place.h"

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
  const auto named = IsDirectoryRoot(directory) ? directory : FullNameOf(directory);
  const auto entries = named.ok() ? ListForeign(*named) : named.status();
  if (!entries.ok()) {
    return Annotate(entries.status(), absl::StrCat("cannot list ", directory), {{"next", "Correct --like."}});
  }
  std::vector<ModelFile> files;  // by name, as the entries are
  for (const ForeignEntry& entry : *entries) {
    const bool wanted = std::any_of(std::begin(kPatterns), std::end(kPatterns), [&](const char* pattern) {
      return fnmatch(pattern, entry.name.c_str(), FNM_PERIOD) == 0;
    });
    if (wanted && !entry.directory) files.push_back({entry.name, absl::StrCat(*named, "/", entry.name)});
  }
  if (std::none_of(files.begin(), files.end(), [](const ModelFile& file) { return file.name == kConfig; })) {
    return MakeError(Reason::kFileMissing, absl::StrCat(directory, " has no ", kConfig, ", so it is no model"),
                     {{"file", directory}, {"next", "Correct --like."}});
  }
  return files;
}

}  // namespace cairn
