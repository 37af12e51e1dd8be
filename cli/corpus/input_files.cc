#include "cli/corpus/input_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/files_below.h"
#include "corpus/io/object_inputs.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/output_place.h"

namespace cairn::cli {

absl::StatusOr<std::vector<std::string>> ExpandInputs(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (input.empty()) {
      return MakeError(Reason::kInputUnreadable, "the name of an input is empty",
                       {{"next", "Name a file; a variable of the shell may not be set."}});
    }
    if (corpus::ObjectStores* const stores = corpus::StoresOf(input)) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> objects, corpus::FindObjects(*stores, input));
      files.insert(files.end(), objects.begin(), objects.end());
      continue;
    }
    std::error_code error;
    if (std::filesystem::is_directory(input, error)) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> below, corpus::FilesBelow(input));
      files.insert(files.end(), below.begin(), below.end());
      continue;
    }
    if (input == "-" || std::filesystem::exists(input, error)) {
      files.push_back(input);
      continue;
    }
    glob_t found = {};
    if (glob(input.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
      std::vector<std::string> matches(found.gl_pathv, found.gl_pathv + found.gl_pathc);
      std::sort(matches.begin(), matches.end());
      files.insert(files.end(), matches.begin(), matches.end());
    }
    const bool none = found.gl_pathc == 0;
    globfree(&found);
    if (none) {
      return MakeError(Reason::kInputUnreadable, absl::StrCat(input, ": no such file, and no file matches it"),
                       {{"file", input}});
    }
  }
  for (const std::string& file : files) {
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) {
      return MakeError(Reason::kInputUnreadable, absl::StrCat(file, ": is a directory; a file was expected"),
                       {{"file", file}});
    }
  }
  return files;
}

absl::Status CheckAreNoInputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
  for (const std::string& output : outputs) {
    for (const std::string& input : inputs) CAIRN_RETURN_IF_ERROR(corpus::CheckIsNoInput(output, input));
  }
  return absl::OkStatus();
}

std::vector<std::string> FilesOfTokenizer(const std::string& tokenizer) {
  std::vector<std::string> files = {tokenizer};
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "tokenizer.tiktoken"}) {
    files.push_back(absl::StrCat(tokenizer, "/", name));
  }
  return files;
}

std::string PrefixOfPair(std::string name) {
  if (name.ends_with(".bin") || name.ends_with(".idx")) name.resize(name.size() - 4);
  return name;
}

absl::StatusOr<std::pair<std::string, std::string>> NameAndValue(const std::string& flag, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0 && equals + 1 < text.size()) {
    return std::pair(text.substr(0, equals), text.substr(equals + 1));
  }
  return MakeError(Reason::kBadRequest, absl::StrCat(flag, " ", text, " has not the form NAME=VALUE"),
                   {{"next", absl::StrCat("Write it as ", flag, " NAME=VALUE.")}});
}

}  // namespace cairn::cli
