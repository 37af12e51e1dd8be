#include "corpus/tokenizer/tokenizer_path.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/input_path.h"

namespace cairn::corpus {
namespace {

bool IsPartOfName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

bool MayBeHubName(std::string_view path) {
  for (const std::string_view ending : {".json", ".model", ".tiktoken", ".txt", ".gz", ".zst", ".xz"}) {
    if (path.ends_with(ending)) return false;
  }
  const size_t slash = path.find('/');
  const std::string_view owner = path.substr(0, slash);
  const std::string_view name = slash == path.npos ? owner : path.substr(slash + 1);
  return !owner.empty() && !name.empty() && owner[0] != '.' && name[0] != '.' &&
         std::all_of(owner.begin(), owner.end(), IsPartOfName) && std::all_of(name.begin(), name.end(), IsPartOfName);
}

}  // namespace

absl::Status CheckIsNoHubName(const std::string& path) {
  if (!MayBeHubName(path) || InputStands(path)) return absl::OkStatus();
  const std::string name = path.substr(path.find('/') + 1);  // npos + 1 is 0
  return MakeError(
      Reason::kInputUnreadable, absl::StrCat(path, ": no such file or directory"),
      {{"file", path},
       {"next",
        absl::StrCat("Check the path. If this is a name on the Hugging Face hub, get its files by `hf "
                     "download ",
                     path, " --include 'tokenizer*' --local-dir ", name, "`, and give ", name, " as the tokenizer.")}});
}

}  // namespace cairn::corpus
